"""The memory guard: a dry run of what replicas will allocate, before any of it is allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allocators import (
    GRANULE_NBYTES,
    BestFitAllocator,
    OutOfMemory,
    PartitionedMemory,
    VirtualSource,
    format_nbytes,
)
from tensorbow.devices import Device
from tensorbow.errors import ResourceExhaustedError

Blocks = Sequence[int]
"""Bytes of each allocation of one stream group, in order."""


def require_room(
    device: Device,
    replicas: int,
    replica_blocks: Blocks,
    central_blocks: Callable[[int], Blocks],
    variables_nbytes: int,
    regained_nbytes: int = 0,
) -> None:
    """Raises ResourceExhaustedError, saying how many fit, when a device has no room for its replicas.

    central_blocks: what z takes beside so many replicas. variables_nbytes: what each replica takes with any
    batch size. regained_nbytes: what will be given back before they are made. The dry run goes by the real
    allocators over as much made-up memory as the device has free, so that it rounds and grows as they will.
    """
    fit = count_that_fits(device, replicas, replica_blocks, central_blocks, regained_nbytes)
    if fit == replicas:
        return
    free = free_nbytes(device) + regained_nbytes
    each = format_nbytes(sum(replica_blocks))
    beside = sum(central_blocks(replicas))
    fewer = f"at most {fit}" if fit else ""
    remedy = remedy_for(fewer, replicas * variables_nbytes + beside, free)
    raise ResourceExhaustedError(
        f"{replicas} replicas do not fit on {device.name.short}: {fit} fit in the {format_nbytes(free)} that "
        f"are free of {format_nbytes(device.memory.limit_nbytes)}; each takes {each}"
        f"{f', z and corrections {format_nbytes(beside)} beside them' if beside else ''}; "
        f"{remedy}"
    )


def remedy_for(fewer: str, variables_nbytes: int, free_nbytes: int) -> str:
    """Remedy for replicas that do not fit: smaller batches only where the variables alone do.

    fewer: the number of replicas to ask for; empty if none fits. variables_nbytes: of all replicas and z.
    """
    if variables_nbytes <= free_nbytes:
        return f"ask for {fewer}{', or for ' if fewer else ''}smaller batches"
    remedy = f"ask for {fewer}" if fewer else "use a smaller model, or more free memory"
    return f"with any batch size the variables alone take {format_nbytes(variables_nbytes)}; {remedy}"


def count_that_fits(
    device: Device,
    most: int,
    replica_blocks: Blocks,
    central_blocks: Callable[[int], Blocks],
    regained_nbytes: int = 0,
) -> int:
    """Number of replicas, up to `most`, that a device has room for, by the same dry run as `require_room`."""
    free = free_nbytes(device) + regained_nbytes
    if _fit(free, most, replica_blocks, central_blocks(most)):
        return most
    low, high = 0, most  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if _fit(free, middle, replica_blocks, central_blocks(middle)):
            low = middle
        else:
            high = middle
    return low


def planned_nbytes(blocks: Blocks) -> int:
    """Bytes that a stream group needs for these blocks, each rounded up to the allocator's granule."""
    granules = sum(-(-max(nbytes, 1) // GRANULE_NBYTES) for nbytes in blocks)
    return granules * GRANULE_NBYTES


def free_nbytes(device: Device) -> int:
    """Bytes that the device's other partitions leave."""
    taken = sum(max(p.held_nbytes, p.guaranteed_nbytes) for p in device.memory.partitions.values())
    return max(0, device.memory.limit_nbytes - taken)


def _fit(free: int, replicas: int, replica_blocks: Blocks, central_blocks: Blocks) -> bool:
    if not replicas:
        return True
    memory = PartitionedMemory(VirtualSource(free), free)
    try:
        for number, blocks in enumerate([central_blocks, *[replica_blocks] * replicas]):
            allocator = BestFitAllocator(
                memory.partition(str(number)),
                name="dry run",
                first_region_nbytes=max(planned_nbytes(blocks), GRANULE_NBYTES),
                largest_waste_nbytes=GRANULE_NBYTES,
            )
            for nbytes in blocks:
                allocator.allocate(max(nbytes, 1))
    except OutOfMemory:
        return False
    return True
