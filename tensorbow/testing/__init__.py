"""Tools for tests of programs, under the names of TensorFlow 1's `tf.test`, which `tb.test` has."""

from tensorbow.testing.numeric_gradients import compute_gradient, compute_gradient_error
from tensorbow.testing.test_case import TestCase, gpu_device_name, is_gpu_available, main

__all__ = [
    "TestCase",
    "compute_gradient",
    "compute_gradient_error",
    "gpu_device_name",
    "is_gpu_available",
    "main",
]
