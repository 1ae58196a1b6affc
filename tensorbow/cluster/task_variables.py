"""Variables of a task on one device, shared by name by all sessions (TF-Replicator, section 2.1).

A variable never moves, so that new ones disturb no running step. Stages of steps hold the names that they
touch while their kernels run, and never while they wait for another task.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from allocators import GRANULE_NBYTES
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Operation
from tensorbow.program import Ref, Region
from tensorbow.runtime.shared_lock import SharedLock
from tensorbow.specs import Array

SAME = ("shape", "dtype")  # attributes in which the sessions' variables of one name agree


class TaskVariables:
    """Variables on one device of a task."""

    def __init__(self, device: Device, where: str, label: str):
        """where: the device's full name, for messages. label: of the memory."""
        self.device = device
        self.lock = SharedLock()  # by variable; held by stages
        self._where = where
        self._group = device.stream_group(f"{label} variables")
        self._lock = threading.Lock()  # guards the fields below
        self._variables: dict[str, Operation] = {}
        self._addresses: dict[str, int] = {}
        self._initialized: set[str] = set()

    def grow(self, variables: Iterable[Operation]) -> None:
        """Makes room for new variables. Raises InvalidArgumentError for another shape or dtype."""
        with self._lock:
            new: dict[str, Operation] = {}
            for variable in variables:
                known = self._variables.get(variable.name)
                if known is None:
                    new[variable.name] = variable
                elif any(known.attrs[key] != variable.attrs[key] for key in SAME):
                    raise InvalidArgumentError(
                        f"variable {variable.name} on {self._where}: expected {known.outputs[0].spec}, as "
                        f"another session made it, got {variable.outputs[0].spec}; give it another name or "
                        "tb.container"
                    )
            offsets: dict[str, int] = {}
            nbytes = 0
            for name, variable in new.items():
                offsets[name] = nbytes
                nbytes += -(-max(variable.outputs[0].spec.nbytes, 1) // GRANULE_NBYTES) * GRANULE_NBYTES
            allocation = self._group.allocate(nbytes, owner=f"variables on {self._where}")
            if allocation is None:
                return
            self.device.clear(allocation.address, nbytes)
            self._variables.update(new)
            self._addresses.update({name: allocation.address + at for name, at in offsets.items()})

    def layout(self) -> tuple[VariableLayout, int]:
        """The layout of all variables so far, and the address that it counts from. Both stay valid."""
        with self._lock:
            base = min(self._addresses.values(), default=0)
            offsets = {name: address - base for name, address in self._addresses.items()}
            return VariableLayout.scattered(self._variables.values(), offsets), base

    def require(self, names: Iterable[str]) -> None:
        """Raises FailedPreconditionError if any of these variables has no value yet."""
        missing = self.without_value(names)
        if missing:
            raise FailedPreconditionError(
                f"variables without a value: {', '.join(missing)}; run tb.global_variables_initializer() "
                "first, or restore a checkpoint"
            )

    def without_value(self, names: Iterable[str]) -> list[str]:
        """The variables among these that have no value yet, sorted."""
        return sorted(set(names) - self._initialized)

    def mark(self, names: Iterable[str]) -> None:
        """Marks variables as having a value."""
        with self._lock:
            self._initialized.update(names)

    def forget(self, chosen: Iterable[str]) -> None:
        """Removes variables: steps that are compiled for them are no longer valid."""
        with self._lock:
            for name in chosen:
                self._initialized.discard(name)
                self._variables.pop(name, None)
                self._addresses.pop(name, None)

    def names(self) -> list[str]:
        """The names of all variables."""
        with self._lock:
            return list(self._variables)

    def load(self, values: Mapping[str, Array]) -> None:
        """Sets variables to arrays of their shapes and dtypes. Raises InvalidArgumentError for others."""
        for name, value in values.items():
            spec = self._variables[name].outputs[0].spec
            if value.shape != spec.extents or value.dtype != spec.dtype.as_numpy_dtype:
                raise InvalidArgumentError(
                    f"variable {name}: expected {spec}, got {value.dtype.name}{list(value.shape)}"
                )
        holder = object()
        self.lock.acquire(holder, frozenset(), frozenset(values))
        try:
            for name, value in values.items():
                self.device.write(self._addresses[name], value)
        finally:
            self.lock.release(holder)
        self.mark(values)

    def close(self) -> None:
        """Frees the memory."""
        self._group.close()


def names_touched(layout: VariableLayout, refs: Iterable[Ref]) -> frozenset[str]:
    """The variables of a layout that share memory with some refs."""
    spans = sorted({(ref.offset, ref.offset + ref.nbytes) for ref in refs if ref.region is Region.STATISTICS})
    return frozenset(
        name
        for name, own in layout.refs().items()
        if any(first < own.offset + own.nbytes and own.offset < end for first, end in spans)
    )
