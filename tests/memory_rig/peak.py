"""Peak memory use of a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS, _PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@contextmanager
def growing_by_less_than(nbytes: int) -> Iterator[None]:
    """Fails if the process grows by so many bytes or more within the block, at its peak; on Linux only."""
    if not _PEAK.exists():
        yield
        return
    _PEAK.write_text("5")  # the peak begins anew
    before = _kilobytes("VmRSS")
    yield
    grown = 1024 * (_kilobytes("VmHWM") - before)
    assert grown < nbytes, f"{grown:,} bytes were taken"


def _kilobytes(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
