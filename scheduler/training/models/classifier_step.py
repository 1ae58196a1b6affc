"""The training step of a model, and the engine that trains it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.engine.learning_engine import LearningEngine
from scheduler.replicas.step_program import StepProgram
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.optimizer_choice import make_optimizer, minimize
from scheduler.training.folders.run_data import class_weights_of
from scheduler.training.models.mixup import mixed
from scheduler.training.models.model_inputs import build_model, inputs_for
from scheduler.workers.group import WorkerGroup
from tensorbow.compiler.recompute import NEVER
from tensorbow.data import TrainingData
from tensorbow.devices import get_device
from tensorbow.graph import Graph, GraphKeys, Operation, Tensor, get_collection, set_random_seed
from tensorbow.models import find_model
from tensorbow.ops.constant import constant
from tensorbow.ops.control import group, step_scalar
from tensorbow.optimizers import MomentumOptimizer, Schedule
from tensorbow.specs import Array, TensorSpec, float32


def build_program(
    model: Any,
    dataset: TrainingData,
    momentum: float,
    rate: float,
    decay: float,
    decay_all: bool = False,
    minimize: Callable[[Tensor], Operation] | None = None,
    *,
    model_options: Mapping[str, Any] | None = None,
    class_weights: Array | None = None,
    label_smoothing: float = 0.0,
    mixup: float = 0.0,
    recompute: str = NEVER,
    swap: str = NEVER,
) -> StepProgram:
    """Builds the training step of a model in the default graph.

    model: see `tb.models.find_model`. rate: learning rate. decay: weight decay of the weights, with decay_all
    also of the biases. minimize: makes the update from the loss; by default of a MomentumOptimizer with these
    options. class_weights: float32 [classes], and label_smoothing, for a model that has arguments of these
    names. mixup: alpha of `mixed`, for a model with an argument mixed_labels. recompute, swap: see
    `StepProgram`.
    """
    given = inputs_for(dataset)
    further: dict[str, Any] = {} if class_weights is None else {"class_weights": constant(class_weights)}
    if label_smoothing:
        further["label_smoothing"] = label_smoothing
    if mixup:
        images, further["mixed_labels"] = mixed(given.inputs, given.labels, mixup)
        given = given._replace(inputs=images)
    built = build_model(find_model(model), model_options or {}, dataset, given, training=True, **further)
    if minimize is None:
        minimize = MomentumOptimizer(rate, momentum, weight_decay=decay, decay_all=decay_all).minimize
    update = group(minimize(built.loss), *get_collection(GraphKeys.UPDATE_OPS), name="step")
    return StepProgram(given.placeholders, built.loss, update, built.metrics, recompute=recompute, swap=swap)


def build_step(
    config: TrainingConfig, dataset: TrainingData, rate: float, bound: Collection[str] = ()
) -> tuple[StepProgram, list[TensorSpec]]:
    """Builds the training step in a new, seeded graph; also returns the specs of one replica's batch.

    bound: which of momentum and weight_decay are step scalars of these names, so that each replica may have
    its own.
    """
    graph = Graph()
    with graph.as_default():
        set_random_seed(config.seed)
        program = build_program(
            config.source,
            dataset,
            config.momentum,
            rate,
            config.weight_decay,
            minimize=partial(_minimize, config, rate, bound),
            model_options=config.model_options,
            class_weights=class_weights_of(config, dataset),
            label_smoothing=config.label_smoothing,
            mixup=config.mixup,
            recompute=config.recompute,
            swap=config.swap,
        )
    return program, dataset.batch_specs(config.batch_size)


def _minimize(config: TrainingConfig, rate: float, bound: Collection[str], loss: Tensor) -> Operation:
    """The update with the optimiser of a configuration.

    It comes behind the model, whose random ops are seeded by their place in the graph.
    """
    numbers: dict[str, Any] = {"momentum": config.momentum, "weight_decay": config.weight_decay}
    numbers |= {name: step_scalar(name, float32, numbers[name]) for name in bound}
    optimizer = make_optimizer(
        config.optimizer,
        rate,
        numbers["momentum"],
        dict(config.optimizer_options),
        weight_decay=numbers["weight_decay"],
        decay_all=config.decay_all,
    )
    return minimize(optimizer, loss, config.clip_norm, config.clip_value)


def build_engine(
    config: TrainingConfig,
    dataset: TrainingData,
    schedule: Schedule,
    synchronisation: Synchronisation,
    workers: WorkerGroup | None = None,
) -> LearningEngine:
    """Creates all replicas of a configuration on its devices, with uninitialised variables.

    workers: processes whose replicas average together.

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
        workers=workers,
    )
