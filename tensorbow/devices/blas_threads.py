"""One BLAS thread while any CPU stream is open: the streams are the parallelism (a thread per stream).

A BLAS library's thread count belongs to the process, so one reference count does for all devices.
"""

from __future__ import annotations

import threading

import numpy  # noqa: F401 - its BLAS has to be loaded before it can be found and limited
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

__all__ = ["limit_blas_threads", "numpy_blas", "restore_blas_threads", "streams_limiting_blas"]

_lock = threading.Lock()  # guards the two below
_count = 0
_limits: threadpool_limits | None = None


def limit_blas_threads() -> None:
    """Counts one more open stream; the first limits each loaded BLAS library to one thread."""
    global _count, _limits
    with _lock:
        if _count == 0:
            _limits = threadpool_limits(limits=1, user_api="blas")
        _count += 1


def restore_blas_threads() -> None:
    """Counts one open stream less; the last restores the libraries' thread counts."""
    global _count, _limits
    with _lock:
        _count -= 1
        if _count == 0 and _limits is not None:
            _limits.restore_original_limits()
            _limits = None


def streams_limiting_blas() -> int:
    """Number of open streams that hold the limit."""
    return _count


def numpy_blas() -> str:
    """Name and version of NumPy's BLAS and the processor it is built for, as `openblas 0.3.29 (Haswell)`."""
    found = [info for info in threadpool_info() if info["user_api"] == "blas"]
    own = [info for info in found if "numpy" in info["filepath"]] or found
    return ", ".join(
        f"{info['internal_api']} {info['version']} ({info.get('architecture', 'any processor')})"
        for info in own[:1]
    )
