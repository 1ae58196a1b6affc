"""Registry of device kinds and of the devices open in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from tensorbow.devices.cpu import CpuDevice, describe_cpu
from tensorbow.devices.device import Device, DeviceDescription
from tensorbow.devices.gpu_discovery import count_gpus, describe_gpu, open_gpu
from tensorbow.devices.names import DeviceName
from tensorbow.devices.null import NullDevice, describe_null
from tensorbow.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from tensorbow.kinds import ITEMS, Kind, instance

__all__ = [
    "AsDevice",
    "AsDevices",
    "DeviceKind",
    "available_devices",
    "close_devices",
    "device_kinds",
    "get_device",
    "opened",
    "register_device_kind",
]


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device.

    `factory(name)` opens one, or raises NotFoundError for an index that does not exist. `count()` gives how
    many a list shows; virtual kinds open any index, listed or not. `describe(name)` gives the row of a list
    without opening the device.
    """

    kind: str
    factory: Callable[[DeviceName], Device]
    count: Callable[[], int]
    describe: Callable[[DeviceName], DeviceDescription]


_lock = threading.RLock()  # guards the two tables; held while a device opens, so that none opens twice
_kinds: dict[str, DeviceKind] = {}
_devices: dict[DeviceName, Device] = {}


def register_device_kind(
    kind: str,
    factory: Callable[[DeviceName], Device],
    *,
    count: Callable[[], int],
    describe: Callable[[DeviceName], DeviceDescription] | None = None,
    replace: bool = False,
) -> DeviceKind:
    """Registers a kind, so that `get_device` can open `/kind:0`; arguments as in DeviceKind.

    Raises AlreadyExistsError for a registered kind, unless `replace`, and InvalidArgumentError for a kind
    that no device name can have.
    """
    key = (DeviceName(kind=kind, index=0).kind or "").lower()

    def describe_plainly(name: DeviceName) -> DeviceDescription:
        return DeviceDescription(name=str(name), kind=key, memory_limit_nbytes=None, description="")

    with _lock:
        if key in _kinds and not replace:
            raise AlreadyExistsError(
                f"device kind: expected a new kind, got {kind!r}, which is registered; "
                "take another name, or say replace=True"
            )
        entry = _kinds[key] = DeviceKind(key, factory, count, describe or describe_plainly)
    return entry


def device_kinds() -> tuple[str, ...]:
    """The registered kinds, in lower case, in the order of registration."""
    with _lock:
        return tuple(_kinds)


def check_scope_device(name: str) -> None:
    """Raises InvalidArgumentError for an invalid device name, and for a bare word that is no known kind.

    A kind in the form `/mine` or `mine:0` may be registered later.
    """
    parsed = DeviceName.parse(name)
    known = dict.fromkeys(device_kinds())
    bare = "/" not in name and ":" not in name
    if bare and parsed.kind is not None and parsed.kind.lower() not in known:
        raise InvalidArgumentError(
            f"device scope: {name!r} names an unknown kind of device, expected one of {', '.join(known)}; "
            f"correct it, or write '/{parsed.kind.lower()}:0' for a kind that is registered later"
        )


def get_device(name: DeviceName | str) -> Device:
    """The device of that name in this process, opened by the first call; a closed one is opened anew.

    Raises InvalidArgumentError for a name without kind or index, NotFoundError if there is no such device.
    """
    parsed = DeviceName.parse(name)
    if parsed.kind is None or parsed.index is None:
        raise InvalidArgumentError(
            f"get_device: expected a kind and an index, as in '/cpu:0', got {str(name)!r}; "
            f"write '/{(parsed.kind or 'cpu').lower()}:0'"
        )
    if parsed.job is not None or parsed.task is not None:
        raise NotFoundError(
            f"get_device: expected a device of this process, got {str(name)!r}; drop /job and /task for a "
            "local device, or run on that task"
        )
    with _lock:
        device = _devices.get(parsed)
        if device is not None and not device.closed:
            return device
        entry = _kinds.get(parsed.kind.lower())
        if entry is None:
            raise NotFoundError(
                f"get_device: expected one of the kinds {', '.join(_kinds)}, got {str(name)!r}; "
                "correct the name, or add the kind with register_device_kind()"
            )
        device = _devices[parsed] = entry.factory(parsed)
        return device


_DEVICE = instance(str, Device, DeviceName, expected="a device or its name, as '/cpu:0'")
AsDevice: TypeAlias = Annotated[str | Device, _DEVICE]
AsDevices: TypeAlias = Annotated[
    Sequence[str | Device],
    Kind(
        "a list of devices or their names, as ['/cpu:0']",
        lambda value: [_DEVICE.read(device) for device in ITEMS.read(value)],
    ),
]


def opened(device: str | Device) -> Device:
    """The device, or the device of that name, see `get_device`."""
    return device if isinstance(device, Device) else get_device(device)


def available_devices() -> list[DeviceDescription]:
    """A row for each countable device of each kind, and for each further open device."""
    with _lock:
        names = [
            DeviceName(kind=kind, index=index)
            for kind, entry in _kinds.items()
            for index in range(entry.count())
        ]
        open_devices = {name: device for name, device in _devices.items() if not device.closed}
        rows = []
        for name in dict.fromkeys([*names, *open_devices]):
            device = open_devices.get(name)
            rows.append(
                _kinds[(name.kind or "").lower()].describe(name) if device is None else device.describe()
            )
        return rows


def close_devices(*, drain: bool = True) -> None:
    """Closes every device that `get_device` opened, and forgets them."""
    with _lock:
        devices = list(_devices.values())
        _devices.clear()
    for device in devices:
        device.begin_close(drain=drain)
    for device in devices:
        device.close(drain=drain)


register_device_kind("cpu", CpuDevice, count=lambda: 1, describe=describe_cpu)
register_device_kind("gpu", open_gpu, count=count_gpus, describe=describe_gpu)
register_device_kind("null", NullDevice, count=lambda: 0, describe=describe_null)
