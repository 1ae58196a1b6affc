"""NCCL over CuPy: all-reduce between several GPUs of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import InternalError

__all__ = ["NcclCommunicators"]


class NcclCommunicators:
    """One NCCL communicator per GPU. One thread posts all calls, in one order."""

    def __init__(self, indices: Sequence[int]):
        """indices: CUDA's numbers of the GPUs. Raises CudaError naming NCCL's status."""
        from cupy.cuda import nccl

        self._nccl: Any = nccl
        self._dtypes = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64}
        self._communicators: list[Any] = self._checked(nccl.NcclCommunicator.initAll, list(indices))

    def all_reduce(self, addresses: Sequence[int], size: int, dtype: str, streams: Sequence[int]) -> None:
        """Enqueues the sum over all GPUs of one vector per GPU, in place, on one stream per GPU."""
        if dtype not in self._dtypes:
            raise InternalError(f"all-reduce: no sum of {dtype}")
        self._checked(self._nccl.groupStart)
        try:
            for communicator, address, stream in zip(self._communicators, addresses, streams, strict=True):
                self._checked(
                    communicator.allReduce,
                    address,
                    address,
                    size,
                    self._dtypes[dtype],
                    self._nccl.NCCL_SUM,
                    stream,
                )
        finally:
            self._checked(self._nccl.groupEnd)

    def _checked(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._nccl.NcclError as error:
            raise CudaError(f"NCCL: {error}", str(error)) from error

    def close(self) -> None:
        """Destroys the communicators, which must be idle; idempotent."""
        while self._communicators:
            self._communicators.pop().destroy()
