"""Checkpoint files: arrays by name in one file or in shards, names of files, ops that save and restore."""

from tensorbow.checkpoint_files.arrays_file import is_arrays_file, load_arrays, load_metadata, save_arrays
from tensorbow.checkpoint_files.checkpoint_paths import best_checkpoint, latest_checkpoint
from tensorbow.checkpoint_files.checkpoint_reader import list_variables

__all__ = [
    "best_checkpoint",
    "is_arrays_file",
    "latest_checkpoint",
    "list_variables",
    "load_arrays",
    "load_metadata",
    "save_arrays",
]
