"""The training step of a classifier, and the engine that trains it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.engine.learning_engine import LearningEngine
from scheduler.replicas.step_program import StepProgram
from scheduler.training.config import TrainingConfig
from scheduler.training.optimizer_choice import make_optimizer, minimize
from tensorbow.data import ImageDataset
from tensorbow.devices import get_device
from tensorbow.graph import Graph, GraphKeys, Operation, Tensor, get_collection, set_random_seed
from tensorbow.models import Model, get_model
from tensorbow.ops.control import group, placeholder
from tensorbow.optimizers import MomentumOptimizer, Schedule
from tensorbow.specs import TensorSpec, float32, int64


def build_program(
    model: Model,
    dataset: ImageDataset,
    momentum: float,
    rate: float,
    decay: float,
    decay_all: bool = False,
    minimize: Callable[[Tensor], Operation] | None = None,
) -> StepProgram:
    """Builds the training step of a model in the default graph.

    rate: learning rate. decay: weight decay of the weights, with decay_all also of the biases.
    minimize: makes the update from the loss; by default of a MomentumOptimizer with these options.
    """
    images = placeholder(float32, [None, *dataset.image_shape], name="images")
    labels = placeholder(int64, [None], name="labels")
    heads = model.heads(images, labels, dataset.classes, training=True)
    if minimize is None:
        minimize = MomentumOptimizer(rate, momentum, weight_decay=decay, decay_all=decay_all).minimize
    update = group(minimize(heads.loss), *get_collection(GraphKeys.UPDATE_OPS), name="step")
    return StepProgram((images, labels), heads.loss, update, {"correct": heads.correct})


def build_step(
    config: TrainingConfig, dataset: ImageDataset, rate: float
) -> tuple[StepProgram, list[TensorSpec]]:
    """Builds the training step in a new, seeded graph; also returns the specs of one replica's batch."""
    graph = Graph()
    with graph.as_default():
        set_random_seed(config.seed)
        program = build_program(
            get_model(config.model),
            dataset,
            config.momentum,
            rate,
            config.weight_decay,
            minimize=partial(_minimize, config, rate),
        )
    shape = (config.batch_size, *dataset.image_shape)
    return program, [TensorSpec(shape, float32), TensorSpec((config.batch_size,), int64)]


def _minimize(config: TrainingConfig, rate: float, loss: Tensor) -> Operation:
    """The update with the optimiser of a configuration."""
    optimizer = make_optimizer(
        config.optimizer,
        rate,
        config.momentum,
        dict(config.optimizer_options),
        weight_decay=config.weight_decay,
        decay_all=config.decay_all,
    )
    return minimize(optimizer, loss, config.clip_norm, config.clip_value)


def build_engine(
    config: TrainingConfig, dataset: ImageDataset, schedule: Schedule, synchronisation: Synchronisation
) -> LearningEngine:
    """Creates all replicas of a configuration on its devices, with uninitialised variables.

    Raises ResourceExhaustedError if memory does not suffice.
    """
    program, specs = build_step(config, dataset, schedule(0))
    return LearningEngine(
        program,
        specs,
        [get_device(name) for name in config.devices],
        config.replica_counts,
        synchronisation,
        schedule,
        launch_ahead=config.launch_ahead,
        steps_per_launch=config.steps_per_launch,
        on_nan=config.on_nan,
    )
