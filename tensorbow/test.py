"""`tb.test`: tools for tests of programs, under the names of TensorFlow 1's `tf.test`."""

from tensorbow.testing import (
    TestCase,
    compute_gradient,
    compute_gradient_error,
    gpu_device_name,
    is_gpu_available,
    main,
)

__all__ = [
    "TestCase",
    "compute_gradient",
    "compute_gradient_error",
    "gpu_device_name",
    "is_gpu_available",
    "main",
]
