"""What surrounds training: checkpoints, metrics, progress."""

from tensorbow.training.arrays_file import load_arrays, save_arrays, write_atomically
from tensorbow.training.checkpoints import Checkpoint, RollingCheckpoints, make_folder
from tensorbow.training.metrics import MetricsLog, finite_or_none
from tensorbow.training.progress import TrainingProgress

__all__ = [
    "Checkpoint",
    "MetricsLog",
    "RollingCheckpoints",
    "TrainingProgress",
    "finite_or_none",
    "load_arrays",
    "make_folder",
    "save_arrays",
    "write_atomically",
]
