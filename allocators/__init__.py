"""Memory allocators: bookkeeping of addresses and byte counts over an injected source of memory.

`BestFitAllocator` serves a stream group from a `Partition` of its device's memory; `DriverAllocator`, for
comparison, reuses nothing; `plan_slab` packs the buffers of a planned step into one slab. The package imports
only the standard library.
"""

from allocators.allocator import Allocator
from allocators.best_fit import BestFitAllocator
from allocators.deferral import Completion
from allocators.driver import DriverAllocator
from allocators.errors import (
    AllocatorError,
    InvalidFree,
    InvariantViolation,
    OutOfMemory,
    SourceExhausted,
    SourceFault,
)
from allocators.granule import GRANULE_NBYTES, format_nbytes
from allocators.partition import Partition, PartitionedMemory
from allocators.planner import Lifetime, SlabPlan, plan_slab
from allocators.regions import Allocation
from allocators.reports import ChunkRecord, Holder, Statistics
from allocators.source import BoundedMemorySource, MemorySource, VirtualSource

__all__ = [
    "GRANULE_NBYTES",
    "Allocation",
    "Allocator",
    "AllocatorError",
    "BestFitAllocator",
    "BoundedMemorySource",
    "ChunkRecord",
    "Completion",
    "DriverAllocator",
    "Holder",
    "InvalidFree",
    "InvariantViolation",
    "Lifetime",
    "MemorySource",
    "OutOfMemory",
    "Partition",
    "PartitionedMemory",
    "SlabPlan",
    "SourceExhausted",
    "SourceFault",
    "Statistics",
    "VirtualSource",
    "format_nbytes",
    "plan_slab",
]
