"""The command line: `tensorbow train`, `tensorbow tune`, `tensorbow explain` and more."""

from tensorbow.cli.program import main

__all__ = ["main"]
