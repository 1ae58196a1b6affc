"""Devices that hold replicas, and how many each of them holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.devices import Device
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Kind, RefusedError, one_of, sequence, shown, whole

_COUNTS = sequence(whole(1), "", lone=True)


def _read_counts(value: Any) -> int | tuple[int, ...]:
    counts: tuple[int, ...] = _COUNTS.read(value)
    return counts[0] if _is_one(value) else counts


def _is_one(counts: Any) -> bool:
    return isinstance(counts, (int, np.integer)) or (isinstance(counts, np.ndarray) and not counts.ndim)


REPLICA_COUNTS = Kind("a whole number of at least 1, or one for each device", _read_counts)
ReplicaCounts: TypeAlias = Annotated[int | Sequence[int], REPLICA_COUNTS]
TunedCounts: TypeAlias = Annotated[int | Sequence[int] | str, REPLICA_COUNTS | one_of("auto")]
"""Counts, or "auto": the number per device that measurements of the training find the fastest."""

MOST_REPLICAS = 4096  # of a device: each has a stream, and averaging goes through all of them


def device_list(devices: Sequence[str | Device]) -> list[str | Device]:
    """The devices. Raises InvalidArgumentError for none."""
    if not devices:
        raise InvalidArgumentError("devices: expected at least one, got none")
    return list(devices)


def require_different(devices: Sequence[Device]) -> None:
    """Raises InvalidArgumentError for a device that is given twice."""
    names = [str(device.name) for device in devices]
    if len(set(names)) != len(names):
        raise InvalidArgumentError(
            f"devices: expected different ones, got {', '.join(names)}; for more replicas on a device raise "
            "the number of replicas per device"
        )


def replica_counts(replicas_per_device: int | Sequence[int], devices: int) -> tuple[int, ...]:
    """The number of replicas of each of so many devices; one number stands for the same on all.

    Raises InvalidArgumentError for a count below 1 or above `MOST_REPLICAS`, and for another number of counts
    than devices.
    """
    try:
        counts: tuple[int, ...] = _COUNTS.read(replicas_per_device)
    except RefusedError:
        raise InvalidArgumentError(
            "replicas per device: expected a whole number of at least 1, or one for each device, "
            f"got {shown(replicas_per_device)}"
        ) from None
    if _is_one(replicas_per_device):
        counts *= devices
    elif len(counts) != devices:
        listed = ", ".join(f"{count!r:.40}" for count in counts[:8]) or "none"
        raise InvalidArgumentError(
            f"replicas per device: expected a count for each of {devices} devices, got {len(counts)} "
            f"({listed}{', ...' if len(counts) > len(counts[:8]) else ''}); "
            f"give {devices} counts, or one number for all"
        )
    for count in counts:
        if count > MOST_REPLICAS:
            raise InvalidArgumentError(
                f"replicas per device: expected at most {MOST_REPLICAS}, got {count!r:.40}; use fewer"
            )
    return counts
