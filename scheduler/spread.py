"""How many replicas each device has."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.errors import InvalidArgumentError


def replica_counts(replicas_per_device: int | Sequence[int], devices: int) -> tuple[int, ...]:
    """The number of replicas of each of so many devices; one number stands for the same on all.

    Raises InvalidArgumentError for a count below 1, and for another number of counts than devices.
    """
    if isinstance(replicas_per_device, int):
        counts: tuple[int, ...] = (replicas_per_device,) * devices
    else:
        counts = tuple(replicas_per_device)
        if len(counts) != devices:
            listed = ", ".join(map(str, counts)) or "none"
            raise InvalidArgumentError(
                f"replicas per device: expected a count for each of {devices} devices, got {len(counts)} "
                f"({listed}); give {devices} counts, or one number for all"
            )
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidArgumentError(f"replicas per device: expected at least 1, got {count}")
    return counts
