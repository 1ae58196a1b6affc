"""The training step of a classifier."""

from __future__ import annotations

from scheduler.step import StepProgram
from tensorbow.data import Dataset
from tensorbow.graph import GraphKeys, get_collection
from tensorbow.models import Model
from tensorbow.ops.control import group, placeholder
from tensorbow.optimizers import MomentumOptimizer
from tensorbow.specs import float32, int64


def build_program(
    model: Model, dataset: Dataset, momentum: float, rate: float, decay: float, decay_all: bool = False
) -> StepProgram:
    """The training step of a model, in the default graph.

    decay: weight decay of the weights; with decay_all of the biases too.
    """
    images = placeholder(float32, [None, *dataset.image_shape], name="images")
    labels = placeholder(int64, [None], name="labels")
    heads = model.heads(images, labels, dataset.classes, training=True)
    optimizer = MomentumOptimizer(rate, momentum, weight_decay=decay, decay_all=decay_all)
    update = group(optimizer.minimize(heads.loss), *get_collection(GraphKeys.UPDATE_OPS), name="step")
    return StepProgram((images, labels), heads.loss, update, {"correct": heads.correct})
