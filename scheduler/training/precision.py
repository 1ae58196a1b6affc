"""In what the devices of a run compute, for as long as it lasts."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.devices import Device


class Computing:
    """Has devices compute float32 products as a run says; `close` gives each its own setting back.

    It counts for what is bound from now on. compute: fp32, tf32 or bf16; None leaves them as they are.
    """

    def __init__(self, devices: Sequence[Device], compute: str | None) -> None:
        self._before = [(device, device.compute) for device in devices] if compute is not None else []
        for device, own in self._before:
            device.compute = compute or own

    def close(self) -> None:
        """Idempotent."""
        while self._before:
            device, own = self._before.pop()
            device.compute = own
