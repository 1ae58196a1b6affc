"""Devices under one protocol: streams, events, stream groups, memory; the kinds `cpu`, `gpu` and `null`.

Code above this package does not depend on the kind. `find_races` checks the log of a null device for
conflicting accesses that neither streams nor events order.
"""

from tensorbow.devices.cpu import CpuDevice, usable_cores
from tensorbow.devices.device import Device, DeviceDescription, StreamGroup
from tensorbow.devices.device_value import DeviceValue
from tensorbow.devices.gpu import GpuDevice
from tensorbow.devices.gpu_discovery import GpuStatus, configure_gpus, gpu_status
from tensorbow.devices.launch_log import LaunchLog, LaunchRecord
from tensorbow.devices.names import DeviceName
from tensorbow.devices.null import NullDevice
from tensorbow.devices.null_stream import NullEvent
from tensorbow.devices.nvml import GpuMonitor
from tensorbow.devices.race_checker import Race, find_races
from tensorbow.devices.registry import (
    AsDevice,
    AsDevices,
    DeviceKind,
    available_devices,
    close_devices,
    device_kinds,
    get_device,
    opened,
    register_device_kind,
)
from tensorbow.devices.stream import Access, Event, Stream

__all__ = [
    "Access",
    "AsDevice",
    "AsDevices",
    "CpuDevice",
    "Device",
    "DeviceDescription",
    "DeviceKind",
    "DeviceName",
    "DeviceValue",
    "Event",
    "GpuDevice",
    "GpuMonitor",
    "GpuStatus",
    "LaunchLog",
    "LaunchRecord",
    "NullDevice",
    "NullEvent",
    "Race",
    "Stream",
    "StreamGroup",
    "available_devices",
    "close_devices",
    "configure_gpus",
    "device_kinds",
    "find_races",
    "get_device",
    "gpu_status",
    "opened",
    "register_device_kind",
    "usable_cores",
]
