"""Command line: `tensorbow train`, `tune`, `predict`, `evaluate`, `export`, `devices` and `explain`."""

from tensorbow.cli.program import main

__all__ = ["main"]
