"""`tb.app`: runs a program's `main` after its flags are read, as TensorFlow 1's `tf.app`."""

from tensorbow.program_frame.main_function import (
    run,
)

__all__ = ["run"]
