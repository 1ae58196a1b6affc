"""`tb.train`: optimisers, learning rates, savers and saved models, under TensorFlow's names."""

from typing import TYPE_CHECKING, Any

from tensorbow.missing_names import no_attribute as _no_attribute
from tensorbow.optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    Constant,
    CosineDecay,
    ExponentialDecay,
    ExponentialMovingAverage,
    GradientDescentOptimizer,
    MomentumOptimizer,
    OneCycle,
    Optimizer,
    PiecewiseConstant,
    PolynomialDecay,
    RMSPropOptimizer,
    Schedule,
    ScipyOptimizerInterface,
    WarmUp,
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    natural_exp_decay,
    piecewise_constant,
    polynomial_decay,
    warm_up,
)
from tensorbow.queues import (
    Coordinator,
    QueueRunner,
    add_queue_runner,
    batch,
    batch_join,
    input_producer,
    limit_epochs,
    range_input_producer,
    shuffle_batch,
    shuffle_batch_join,
    slice_input_producer,
    start_queue_runners,
)
from tensorbow.runtime import (
    MonitoredSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
)
from tensorbow.shadowing import import_ours as _import_ours

if TYPE_CHECKING:
    from scheduler import load_model
    from tensorbow.cluster import ClusterSpec, Server, replica_device_setter
    from tensorbow.training import (
        CheckpointSaverHook,
        MonitoredTrainingSession,
        SavedModel,
        Saver,
        SummarySaverHook,
        Supervisor,
        best_checkpoint,
        checkpoint_exists,
        get_checkpoint_state,
        latest_checkpoint,
        list_variables,
        read_graph,
        save_model,
        update_checkpoint_state,
        write_graph,
    )

_OF_CLUSTERS = ("ClusterSpec", "Server", "replica_device_setter")
_LATER = (
    *_OF_CLUSTERS,
    "CheckpointSaverHook",
    "MonitoredTrainingSession",
    "SavedModel",
    "Saver",
    "SummarySaverHook",
    "Supervisor",
    "best_checkpoint",
    "checkpoint_exists",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load_model",
    "read_graph",
    "save_model",
    "update_checkpoint_state",
    "write_graph",
)


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        """Savers and saved models, from an upper layer that is imported on first use."""
        if name not in _LATER:
            raise _no_attribute(name, __all__, __name__)
        if name == "load_model":
            return _import_ours("scheduler").load_model
        if name in _OF_CLUSTERS:
            from tensorbow import cluster

            return getattr(cluster, name)
        from tensorbow import training

        return getattr(training, name)


def __dir__() -> list[str]:
    """The public names, including those of the upper layer."""
    return sorted(__all__)


__all__ = [
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "CheckpointSaverHook",
    "ClusterSpec",
    "Constant",
    "Coordinator",
    "CosineDecay",
    "ExponentialDecay",
    "ExponentialMovingAverage",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "OneCycle",
    "Optimizer",
    "PiecewiseConstant",
    "PolynomialDecay",
    "QueueRunner",
    "RMSPropOptimizer",
    "SavedModel",
    "Saver",
    "Schedule",
    "ScipyOptimizerInterface",
    "Server",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "WarmUp",
    "add_queue_runner",
    "batch",
    "batch_join",
    "best_checkpoint",
    "checkpoint_exists",
    "cosine_decay",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "input_producer",
    "inverse_time_decay",
    "latest_checkpoint",
    "limit_epochs",
    "list_variables",
    "load_model",
    "natural_exp_decay",
    "piecewise_constant",
    "polynomial_decay",
    "range_input_producer",
    "read_graph",
    "replica_device_setter",
    "save_model",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "start_queue_runners",
    "update_checkpoint_state",
    "warm_up",
    "write_graph",
]
