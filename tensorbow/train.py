"""`tb.train`: optimisers, learning rates, savers and saved models, under TensorFlow's names."""

from typing import TYPE_CHECKING, Any

from tensorbow.errors import NumericsError as NanLossDuringTrainingError  # of a NanTensorHook
from tensorbow.input_ops.example_messages import NAMES as _OF_EXAMPLES
from tensorbow.input_ops.example_messages import example_message as _example_message
from tensorbow.input_ops.file_ops import match_filenames_once
from tensorbow.missing_names import no_attribute as _no_attribute
from tensorbow.optimizers import (
    AdadeltaOptimizer,
    AdagradDAOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    Constant,
    CosineDecay,
    ExponentialDecay,
    ExponentialMovingAverage,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    OneCycle,
    Optimizer,
    PiecewiseConstant,
    PolynomialDecay,
    ProximalAdagradOptimizer,
    ProximalGradientDescentOptimizer,
    RMSPropOptimizer,
    Schedule,
    ScipyOptimizerInterface,
    WarmUp,
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    piecewise_constant,
    polynomial_decay,
    warm_up,
)
from tensorbow.queues import (
    Coordinator,
    LooperThread,
    QueueRunner,
    add_queue_runner,
    batch,
    batch_join,
    input_producer,
    limit_epochs,
    maybe_batch,
    maybe_batch_join,
    maybe_shuffle_batch,
    maybe_shuffle_batch_join,
    range_input_producer,
    shuffle_batch,
    shuffle_batch_join,
    slice_input_producer,
    start_queue_runners,
    string_input_producer,
)
from tensorbow.runtime import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    MonitoredSession,
    NanTensorHook,
    SecondOrStepTimer,
    SessionCreator,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from tensorbow.shadowing import import_ours as _import_ours

piecewise_constant_decay = piecewise_constant  # TensorFlow's newer name

if TYPE_CHECKING:
    BytesList: Any
    Example: Any
    Feature: Any
    FeatureList: Any
    FeatureLists: Any
    Features: Any
    FloatList: Any
    Int64List: Any
    SequenceExample: Any

    from scheduler import load_model
    from tensorbow.cluster import ClusterSpec, Server, replica_device_setter
    from tensorbow.training import (
        CheckpointSaverHook,
        CheckpointSaverListener,
        ChiefSessionCreator,
        MetaGraphDef,
        MonitoredTrainingSession,
        NewCheckpointReader,
        ProfilerHook,
        SavedModel,
        Saver,
        SaverDef,
        Scaffold,
        SessionManager,
        SingularMonitoredSession,
        StepCounterHook,
        SummarySaverHook,
        Supervisor,
        SyncReplicasOptimizer,
        VocabInfo,
        WorkerSessionCreator,
        best_checkpoint,
        checkpoint_exists,
        checkpoints_iterator,
        export_meta_graph,
        get_checkpoint_mtimes,
        get_checkpoint_state,
        import_meta_graph,
        init_from_checkpoint,
        latest_checkpoint,
        list_variables,
        load_checkpoint,
        load_variable,
        read_graph,
        remove_checkpoint,
        save_model,
        summary_iterator,
        update_checkpoint_state,
        warm_start,
        write_graph,
    )

_OF_CLUSTERS = ("ClusterSpec", "Server", "replica_device_setter")
_LATER = (
    *_OF_CLUSTERS,
    *_OF_EXAMPLES,
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "MetaGraphDef",
    "MonitoredTrainingSession",
    "NewCheckpointReader",
    "ProfilerHook",
    "SavedModel",
    "Saver",
    "SaverDef",
    "Scaffold",
    "SessionManager",
    "SingularMonitoredSession",
    "StepCounterHook",
    "SummarySaverHook",
    "Supervisor",
    "SyncReplicasOptimizer",
    "VocabInfo",
    "WorkerSessionCreator",
    "best_checkpoint",
    "checkpoint_exists",
    "checkpoints_iterator",
    "get_checkpoint_mtimes",
    "remove_checkpoint",
    "export_meta_graph",
    "get_checkpoint_state",
    "import_meta_graph",
    "init_from_checkpoint",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_model",
    "load_variable",
    "read_graph",
    "save_model",
    "summary_iterator",
    "update_checkpoint_state",
    "warm_start",
    "write_graph",
)


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        """Savers and saved models, from an upper layer that is imported on first use."""
        if name not in _LATER:
            raise _no_attribute(name, __all__, __name__)
        if name in _OF_EXAMPLES:
            return _example_message(name)
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
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "BytesList",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "ClusterSpec",
    "Constant",
    "Coordinator",
    "CosineDecay",
    "Example",
    "ExponentialDecay",
    "ExponentialMovingAverage",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FeedFnHook",
    "FinalOpsHook",
    "FloatList",
    "FtrlOptimizer",
    "GlobalStepWaiterHook",
    "GradientDescentOptimizer",
    "Int64List",
    "LoggingTensorHook",
    "LooperThread",
    "MetaGraphDef",
    "MomentumOptimizer",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NewCheckpointReader",
    "OneCycle",
    "Optimizer",
    "PiecewiseConstant",
    "PolynomialDecay",
    "ProfilerHook",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "QueueRunner",
    "RMSPropOptimizer",
    "SavedModel",
    "Saver",
    "SaverDef",
    "Scaffold",
    "Schedule",
    "ScipyOptimizerInterface",
    "SecondOrStepTimer",
    "SequenceExample",
    "Server",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "SyncReplicasOptimizer",
    "VocabInfo",
    "WarmUp",
    "WorkerSessionCreator",
    "add_queue_runner",
    "assert_global_step",
    "batch",
    "batch_join",
    "best_checkpoint",
    "checkpoint_exists",
    "checkpoints_iterator",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "exponential_decay",
    "export_meta_graph",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "import_meta_graph",
    "init_from_checkpoint",
    "input_producer",
    "inverse_time_decay",
    "latest_checkpoint",
    "limit_epochs",
    "linear_cosine_decay",
    "list_variables",
    "load_checkpoint",
    "load_model",
    "load_variable",
    "match_filenames_once",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "natural_exp_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "range_input_producer",
    "read_graph",
    "remove_checkpoint",
    "replica_device_setter",
    "save_model",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "start_queue_runners",
    "string_input_producer",
    "summary_iterator",
    "update_checkpoint_state",
    "warm_start",
    "warm_up",
    "write_graph",
]
