"""Data sets kept on the devices that train on them."""

from __future__ import annotations

from collections.abc import Sequence

from allocators import format_nbytes
from scheduler.replicas.device_dataset import BatchSteps, DeviceDataset
from scheduler.replicas.memory import free_nbytes, planned_nbytes
from scheduler.replicas.parted_learners import AnyLearners
from tensorbow.data import KeptData, why_host_only
from tensorbow.devices import Device
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError

ON_DEVICE = ("auto", "always", "never")
SHARE = 0.5  # largest share of the memory left by the replicas that `auto` uses; evaluation needs the rest


def keep_on_devices(learners: AnyLearners, dataset: KeptData, when: str) -> tuple[bool, str]:
    """Copies a data set to the learners' devices; see DatasetBatches.keep_on_devices.

    Returns whether replicas make the batches from it, and the reason if that was tried and failed, or "".
    """
    if when not in ON_DEVICE:
        raise InvalidArgumentError(
            f"data_on_device: expected one of {', '.join(ON_DEVICE)}, got {when!r:.60}"
        )
    learners.drop_data()
    if when == "never":
        return False, ""
    try:
        kept = _kept(learners.devices, dataset, SHARE if when == "auto" else 1.0)
    except (InvalidArgumentError, ResourceExhaustedError) as error:
        if when == "always":
            raise type(error)(f"data_on_device: {error}; choose auto or never") from error
        return False, f"batches are made on the host, in pinned memory: {error}"
    learners.keep_data(kept)
    return True, ""


def _kept(devices: Sequence[Device], dataset: KeptData, share: float) -> list[DeviceDataset]:
    reason = why_host_only(dataset)
    if reason:
        raise InvalidArgumentError(f"data set {dataset.name} cannot be kept on a device: {reason}")
    kept, compiled = list[DeviceDataset](), BatchSteps()
    try:
        for device in devices:
            _require_room(device, dataset, share)
            kept.append(DeviceDataset(device, dataset, compiled))
    except BaseException:
        for data in kept:
            data.close()
        raise
    return kept


def _require_room(device: Device, dataset: KeptData, share: float) -> None:
    needed, free = planned_nbytes(DeviceDataset.blocks(device, dataset)), free_nbytes(device)
    if needed > free * share:
        most = "the" if share == 1.0 else f"{share:.0%} of the"
        raise ResourceExhaustedError(
            f"data set {dataset.name} takes {format_nbytes(needed)}, more than {most} {format_nbytes(free)} "
            f"that the replicas leave free on {device.name.short}"
        )
