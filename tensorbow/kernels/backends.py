"""Which backend works for which kind of device; the GPU's is loaded with the first GPU."""

from __future__ import annotations

from tensorbow.devices import Device
from tensorbow.errors import InternalError
from tensorbow.kernels.null import NullBackend
from tensorbow.kernels.plan import Backend
from tensorbow.kernels.reference import ReferenceBackend

_backends: dict[str, Backend] = {"cpu": ReferenceBackend(), "null": NullBackend()}


def register_backend(kind: str, backend: Backend) -> None:
    """Makes `backend` the one for devices of a kind."""
    _backends[kind] = backend


def backend_for(device: Device) -> Backend:
    """The backend of a device's kind. Raises InternalError when the kind has none."""
    backend = _backends.get(device.kind)
    if backend is None and device.kind == "gpu":
        from tensorbow.kernels.gpu.backend import GpuBackend

        backend = _backends.setdefault("gpu", GpuBackend())
    if backend is None:
        raise InternalError(f"no backend is registered for {device.kind} devices")
    return backend
