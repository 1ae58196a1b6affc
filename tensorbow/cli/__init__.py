"""The command line: `tensorbow train`, `tensorbow devices`, `tensorbow explain`."""

from tensorbow.cli.program import main

__all__ = ["main"]
