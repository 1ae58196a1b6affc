"""The training step of a classifier, and where its variables start."""

from __future__ import annotations

from scheduler.step import StepProgram
from tensorbow.data import Dataset
from tensorbow.graph import Graph
from tensorbow.models import Model
from tensorbow.ops.control import placeholder
from tensorbow.optimizers import MomentumOptimizer
from tensorbow.runtime import Session
from tensorbow.specs import Array, float32, int64
from tensorbow.variables import global_variables, global_variables_initializer


def build_program(model: Model, dataset: Dataset, momentum: float, rate: float, decay: float) -> StepProgram:
    """The training step of a model, in the default graph."""
    images = placeholder(float32, [None, *dataset.image_shape], name="images")
    labels = placeholder(int64, [None], name="labels")
    heads = model.heads(images, labels, dataset.classes)
    optimizer = MomentumOptimizer(rate, momentum, weight_decay=decay)
    return StepProgram(
        (images, labels), heads.loss, optimizer.minimize(heads.loss), {"correct": heads.correct}
    )


def initial_values(graph: Graph) -> dict[str, Array]:
    """The initial values of all variables of the default graph."""
    init = global_variables_initializer()
    session = Session(graph=graph)
    try:
        session.run(init)
        return {variable.op.name: session.run(variable) for variable in global_variables()}
    finally:
        session.close()
