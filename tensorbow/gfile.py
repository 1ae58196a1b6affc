"""`tb.gfile`: files and folders under TensorFlow 1's names, on local file systems.

Errors are those of `tb.errors`: NotFoundError for what is missing, AlreadyExistsError, PermissionDeniedError,
FailedPreconditionError for others, such as a folder in the place of a file; UnimplementedError for URLs of
remote storage, such as gs://bucket.
"""

from tensorbow.program_frame.local_files import (
    Copy,
    DeleteRecursively,
    Exists,
    FastGFile,
    GFile,
    Glob,
    IsDirectory,
    ListDirectory,
    MakeDirs,
    MkDir,
    Open,
    Remove,
    Rename,
    Stat,
    Walk,
)

__all__ = [
    "Copy",
    "DeleteRecursively",
    "Exists",
    "FastGFile",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "MkDir",
    "Open",
    "Remove",
    "Rename",
    "Stat",
    "Walk",
]
