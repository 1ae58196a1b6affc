"""Over which devices replicas are spread, and how many each has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorbow.devices import Device
from tensorbow.errors import InvalidArgumentError


def device_list(devices: Sequence[str | Device]) -> list[str | Device]:
    """The devices, one after another.

    Raises InvalidArgumentError for none, and for what is no list of them, as one name alone.
    """
    if isinstance(devices, (str, Device)) or not isinstance(devices, Iterable):
        raise InvalidArgumentError(
            f"devices: expected a list of devices, got {devices!r:.60}; give a list, as ['/cpu:0']"
        )
    listed = list(devices)
    if not listed:
        raise InvalidArgumentError("devices: expected at least one, got none")
    return listed


def require_different(devices: Sequence[Device]) -> None:
    """Raises InvalidArgumentError for a device that stands there twice."""
    names = [str(device.name) for device in devices]
    if len(set(names)) != len(names):
        raise InvalidArgumentError(
            f"devices: expected different ones, got {', '.join(names)}; for more replicas on a device raise "
            "the number of replicas per device"
        )


def replica_counts(replicas_per_device: int | Sequence[int], devices: int) -> tuple[int, ...]:
    """The number of replicas of each of so many devices; one number stands for the same on all.

    Raises InvalidArgumentError for a count below 1, and for another number of counts than devices.
    """
    if isinstance(replicas_per_device, (str, bytes)) or not isinstance(replicas_per_device, (int, Iterable)):
        raise InvalidArgumentError(
            "replicas per device: expected a whole number, or one for each device, "
            f"got {replicas_per_device!r:.60}"
        )
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
