"""Container: the storage of a session's variables, as flat vectors on one device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tensorbow.compiler import RegionMemory, VariableLayout
from tensorbow.devices import StreamGroup
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Operation
from tensorbow.ops.constant import to_array
from tensorbow.program import Region
from tensorbow.specs import Array, render_dims

REGIONS = (Region.WEIGHTS, Region.SLOTS, Region.STATISTICS)


class Container:
    """Variables by name, one flat vector per dtype; grows with the graph."""

    def __init__(self, group: StreamGroup, owner: str = "variables"):
        self._group = group
        self._owner = owner
        self.layout = VariableLayout([])
        self._memory = RegionMemory(group, owner)
        self.initialized: set[str] = set()

    @property
    def bases(self) -> Mapping[Region, int]:
        """Addresses of the variable regions."""
        return self._memory.bases

    def grow(self, variables: Iterable[Operation]) -> bool:
        """Allocates new variables and keeps all values; True if addresses changed.

        No step may be running. Raises ResourceExhaustedError if old and new memory do not fit side by side;
        the old memory then stays in use.
        """
        layout = VariableLayout(variables)
        if layout.variables == self.layout.variables and self._memory.bases:
            return False
        old, kept = self._memory, {name: self.read(name) for name in self.initialized}
        memory = RegionMemory(self._group, self._owner)
        try:
            for region in REGIONS:
                nbytes = layout.region_nbytes[region]
                base = memory.allocate(region, nbytes)
                self._group.device.clear(base, nbytes)
        except BaseException:
            memory.free()
            raise
        self.layout, self._memory = layout, memory
        for name, value in kept.items():
            self.write(name, value)
        old.free()
        return True

    def read(self, name: str) -> Array:
        """A copy of a variable's value; no step that writes it may be running. Raises NotFoundError."""
        ref = self.layout.ref(name)
        base = self._memory.bases[ref.region]
        return self._group.device.read(base + ref.offset, ref.shape, ref.dtype.as_numpy_dtype)

    def write(self, name: str, value: Any) -> None:
        """Sets a variable to an array or number that broadcasts to its shape; no step may be running.

        Raises NotFoundError.
        """
        ref = self.layout.ref(name)
        array = np.asarray(value, ref.dtype.as_numpy_dtype)
        if array.shape != ref.shape:
            array = np.broadcast_to(array, ref.shape)
        self._group.device.write(self._memory.bases[ref.region] + ref.offset, array)

    def load(self, values: Mapping[str, Any]) -> None:
        """Sets variables. Raises NotFoundError or InvalidArgumentError before changing any."""
        for name, array in self.fitting(values).items():
            self.write(name, array)
            self.initialized.add(name)

    def fitting(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Values as arrays that fit the variables. Raises NotFoundError or InvalidArgumentError."""
        arrays: dict[str, Array] = {}
        for name, value in values.items():
            ref = self.layout.ref(name)
            try:
                array = to_array(value, ref.dtype)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"load_variables: value of variable {name}: {error}") from None
            if array.shape != ref.shape:
                raise InvalidArgumentError(
                    f"variable {name}: expected shape {render_dims(ref.shape)}, "
                    f"got {render_dims(array.shape)}"
                )
            arrays[name] = array
        return arrays

    def require_initialized(self, names: Iterable[str]) -> None:
        """Raises FailedPreconditionError if any of these variables has no value yet."""
        missing = sorted(set(names) - self.initialized)
        if missing:
            raise FailedPreconditionError(
                f"variables without a value: {', '.join(missing)}; "
                "run tb.global_variables_initializer() first, or restore a checkpoint"
            )

    def close(self) -> None:
        """Frees the memory; idempotent."""
        self._memory.free()
        self.initialized.clear()
