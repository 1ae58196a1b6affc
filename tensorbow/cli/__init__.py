"""Command line `tensorbow`: a file for each command, such as `train`, and what several of them share."""

from tensorbow.cli.program import main

__all__ = ["main"]
