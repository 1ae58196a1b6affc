"""The 256-byte granule, of which all sizes and addresses here are multiples, and formatting of sizes."""

GRANULE_NBYTES = 256
"""Smallest unit of memory, in bytes: TensorFlow's `kMinAllocationSize`, and what `cudaMalloc` aligns to."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def round_up(nbytes: int, multiple: int = GRANULE_NBYTES) -> int:
    """The smallest multiple of `multiple` that is at least `nbytes` (both in bytes)."""
    return -(-nbytes // multiple) * multiple


def round_down(nbytes: int, multiple: int = GRANULE_NBYTES) -> int:
    """The largest multiple of `multiple` that is at most `nbytes` (both in bytes)."""
    return nbytes // multiple * multiple


def format_nbytes(nbytes: int | None) -> str:
    """Formats a byte count: `512 B`, `1.5 KiB`, `2.0 MiB`; None, a missing limit, is `unlimited`."""
    if nbytes is None:
        return "unlimited"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(nbytes) >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} B"
