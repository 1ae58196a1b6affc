"""Precision of float32 matmuls and convolutions on the devices of a run."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.devices import Device
from tensorbow.errors import TensorBowError
from tensorbow.kernels import backend_for


class PrecisionSetting:
    """Sets the precision of float32 matmuls and convolutions on devices; `close` restores the old settings.

    It applies to steps that are compiled and bound afterwards. compute: fp32, tf32 or bf16; None changes
    nothing. Raises FailedPreconditionError for a precision that a device does not have.
    """

    def __init__(self, devices: Sequence[Device], compute: str | None) -> None:
        self._before: list[tuple[Device, str | None]] = []  # the setting of a device itself, if it has one
        if compute is None:
            return
        for device in devices:
            self._before.append((device, vars(device).get("compute")))
            device.compute = compute
        try:
            for device, _ in self._before:
                backend_for(device)
        except TensorBowError:
            self.close()
            raise

    def close(self) -> None:
        """Restores the settings of the devices; idempotent."""
        while self._before:
            device, own = self._before.pop()
            if own is None:
                del device.compute
            else:
                device.compute = own
