"""Kernels and backends: each backend turns plans into code for one kind of device."""

from tensorbow.kernels.backends import backend_for, configure_cpus, register_backend
from tensorbow.kernels.null import NullBackend
from tensorbow.kernels.reference import ReferenceBackend

__all__ = ["NullBackend", "ReferenceBackend", "backend_for", "configure_cpus", "register_backend"]
