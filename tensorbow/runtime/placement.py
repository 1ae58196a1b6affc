"""Which ops a session may run, by the devices they ask for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorbow.compiler.prune import prune
from tensorbow.devices import DeviceName
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor


def check_devices(
    elements: Sequence[Tensor | Operation], fed: Collection[Tensor], device: DeviceName
) -> None:
    """Raises InvalidArgumentError for a needed op that asks for another device than the session's."""
    targets = [e if isinstance(e, Operation) else e.op for e in elements if e not in fed]
    for op in prune(targets, fed):
        if op.device and not _matches(DeviceName.parse(op.device), device):
            raise InvalidArgumentError(
                f"{op.type} {op.name} asks for device {op.device}, this session runs on {device.short}; "
                f"drop the device scope or open the session with device= (made at {op.source})"
            )


def _matches(wanted: DeviceName, have: DeviceName) -> bool:
    parts = (
        (wanted.kind, have.kind),
        (wanted.index, have.index),
        (wanted.job, have.job),
        (wanted.task, have.task),
    )
    return all(want in (None, got) for want, got in parts)
