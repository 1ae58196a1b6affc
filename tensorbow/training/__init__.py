"""Files and output of training: checkpoints, saved graphs and models, metrics, progress."""

from tensorbow.training.arrays_file import load_arrays, load_metadata, save_arrays
from tensorbow.training.checkpoint_paths import best_checkpoint, latest_checkpoint, list_variables
from tensorbow.training.checkpoint_state import (
    CheckpointState,
    checkpoint_exists,
    get_checkpoint_state,
    update_checkpoint_state,
)
from tensorbow.training.checkpoints import (
    Checkpoint,
    RollingCheckpoints,
    delete_parts,
    make_folder,
    part_path,
)
from tensorbow.training.event_files import FileWriter, FileWriterCache, SummarySaverHook
from tensorbow.training.graph_files import SavedModel, read_graph, save_model, write_graph
from tensorbow.training.metrics_log import (
    MetricsLog,
    finite_or_none,
    finite_values,
    read_metrics,
    record_line,
)
from tensorbow.training.monitored_checkpoints import CheckpointSaverHook, MonitoredTrainingSession
from tensorbow.training.progress import TERMINAL, TrainingProgress, console_of_worker
from tensorbow.training.saver import Saver
from tensorbow.training.supervisor import Supervisor

__all__ = [
    "TERMINAL",
    "Checkpoint",
    "CheckpointSaverHook",
    "CheckpointState",
    "FileWriter",
    "FileWriterCache",
    "MetricsLog",
    "MonitoredTrainingSession",
    "RollingCheckpoints",
    "SavedModel",
    "Saver",
    "SummarySaverHook",
    "Supervisor",
    "TrainingProgress",
    "best_checkpoint",
    "checkpoint_exists",
    "console_of_worker",
    "delete_parts",
    "finite_or_none",
    "finite_values",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load_arrays",
    "load_metadata",
    "make_folder",
    "part_path",
    "read_graph",
    "read_metrics",
    "record_line",
    "save_arrays",
    "save_model",
    "update_checkpoint_state",
    "write_graph",
]
