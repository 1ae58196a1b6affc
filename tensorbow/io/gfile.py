"""`tb.io.gfile`: the files and folders of `tb.gfile`, under TensorFlow's later names."""

from tensorbow import gfile
from tensorbow.gfile import GFile

copy = gfile.Copy
exists = gfile.Exists
glob = gfile.Glob
isdir = gfile.IsDirectory
listdir = gfile.ListDirectory
makedirs = gfile.MakeDirs
mkdir = gfile.MkDir
remove = gfile.Remove
rename = gfile.Rename
rmtree = gfile.DeleteRecursively
stat = gfile.Stat
walk = gfile.Walk

__all__ = [
    "GFile",
    "copy",
    "exists",
    "glob",
    "isdir",
    "listdir",
    "makedirs",
    "mkdir",
    "remove",
    "rename",
    "rmtree",
    "stat",
    "walk",
]
