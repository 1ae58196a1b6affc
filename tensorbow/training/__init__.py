"""Files and output of training: checkpoints, saved graphs and models, metrics, progress."""

from tensorbow.checkpoint_files import (
    best_checkpoint,
    is_arrays_file,
    latest_checkpoint,
    list_variables,
    load_arrays,
    load_metadata,
    save_arrays,
)
from tensorbow.training.awaited_checkpoints import checkpoints_iterator
from tensorbow.training.checkpoint_state import (
    CheckpointState,
    checkpoint_exists,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    remove_checkpoint,
    update_checkpoint_state,
)
from tensorbow.training.checkpoint_values import (
    NewCheckpointReader,
    init_from_checkpoint,
    load_checkpoint,
    load_variable,
)
from tensorbow.training.checkpoints import (
    Checkpoint,
    RollingCheckpoints,
    delete_parts,
    make_folder,
    part_path,
)
from tensorbow.training.event_files import FileWriter, FileWriterCache, summary_iterator
from tensorbow.training.graph_files import SavedModel, read_graph, save_model, write_graph
from tensorbow.training.meta_graph_def import MetaGraphDef
from tensorbow.training.meta_graphs import export_meta_graph, import_meta_graph
from tensorbow.training.metrics_log import (
    MetricsLog,
    finite_or_none,
    finite_values,
    read_metrics,
    record_line,
)
from tensorbow.training.monitored_checkpoints import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    MonitoredTrainingSession,
    SingularMonitoredSession,
)
from tensorbow.training.progress import TERMINAL, TrainingProgress, console_of_worker
from tensorbow.training.recording_hooks import ProfilerHook, StepCounterHook, SummarySaverHook
from tensorbow.training.save_graph import SaverDef
from tensorbow.training.saver import Saver
from tensorbow.training.scaffold import Scaffold
from tensorbow.training.session_creators import ChiefSessionCreator, WorkerSessionCreator
from tensorbow.training.session_manager import SessionManager
from tensorbow.training.supervisor import Supervisor
from tensorbow.training.sync_replicas import SyncReplicasOptimizer
from tensorbow.training.warm_starts import VocabInfo, warm_start

__all__ = [
    "TERMINAL",
    "Checkpoint",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "CheckpointState",
    "ChiefSessionCreator",
    "FileWriter",
    "FileWriterCache",
    "MetaGraphDef",
    "MetricsLog",
    "MonitoredTrainingSession",
    "NewCheckpointReader",
    "ProfilerHook",
    "RollingCheckpoints",
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
    "TrainingProgress",
    "VocabInfo",
    "WorkerSessionCreator",
    "best_checkpoint",
    "checkpoint_exists",
    "checkpoints_iterator",
    "console_of_worker",
    "delete_parts",
    "export_meta_graph",
    "finite_or_none",
    "finite_values",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "import_meta_graph",
    "init_from_checkpoint",
    "is_arrays_file",
    "latest_checkpoint",
    "list_variables",
    "load_arrays",
    "load_checkpoint",
    "load_metadata",
    "load_variable",
    "make_folder",
    "part_path",
    "read_graph",
    "read_metrics",
    "record_line",
    "remove_checkpoint",
    "save_arrays",
    "save_model",
    "summary_iterator",
    "update_checkpoint_state",
    "warm_start",
    "write_graph",
]
