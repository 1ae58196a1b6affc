"""An expression of one element as a C++ function, for kernels that compute more than the expression.

`Expression::element(i, row, channel, own, ...)` gives element i = row * channels + channel, from arrays and
from a value that the kernel itself has. Its text goes before a template's kernels in place of `$ELEMENT`;
`$TAKEN` declares the arrays as the last parameters of a kernel or function, `$GIVEN` hands them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tensorbow.kernels.gpu.runtime.program import c_type
from tensorbow.kernels.gpu.source.c_form import to_c
from tensorbow.kernels.gpu.source.index_types import IndexType
from tensorbow.kernels.scalars import Scalar, inputs_of, symbol
from tensorbow.specs import DType

T = TypeVar("T")


class ElementIndex(Enum):
    """Elements of an input of an expression: its index in an array, or what stands for it."""

    EACH = "i"
    ROW = "row"  # one for each row
    CHANNEL = "channel"  # one for each channel
    ONE = "0"
    OWN = "own"  # the kernel's own value


@dataclass(frozen=True)
class Element:
    """An expression, and by number of an input how many elements that has."""

    result: Scalar
    extents: tuple[ElementIndex, ...]

    @staticmethod
    def identity(extent: ElementIndex, dtype: DType) -> Element:
        """The element of the only input."""
        return Element(symbol(0, dtype), (extent,))

    @property
    def _numbers(self) -> tuple[int, ...]:
        """Numbers of the inputs that are arrays."""
        return tuple(n for n in inputs_of([self.result]) if self.extents[n] is not ElementIndex.OWN)

    def arrays(self, inputs: Sequence[T]) -> list[T]:
        """Inputs that are arguments of a kernel, in order."""
        return [inputs[number] for number in self._numbers]

    def keys(
        self, inputs: Sequence[DType], own: DType, index: IndexType, name: str = "Expression"
    ) -> dict[str, str]:
        """Values of a template's keys. inputs: dtypes of the expression's inputs.

        name: of the struct; any but the default is put before the keys, too, in capitals.
        """
        kinds = {number: c_type(inputs[number]) for number in self._numbers}
        used = inputs_of([self.result])
        prefix = "" if name == "Expression" else f"{name}_"
        names = [f"x{n}" if n in kinds else "own" for n in range(max(used, default=-1) + 1)]
        form = to_c([self.result], names)
        taken = "".join(f", const {kind}* {prefix}e{number}" for number, kind in kinds.items())
        loads = [
            f"const {kind} x{number} = {prefix}e{number}[{self.extents[number].value}];"
            for number, kind in kinds.items()
        ]
        head = (
            f"static __device__ inline {c_type(self.result.dtype)} element("
            f"{index.name} i, {index.name} row, {index.name} channel, {c_type(own)} own{taken}) {{"
        )
        body = [*loads, *form.statements, f"return {form.results[0]};"]
        lines = "\n    ".join([head, *body])
        key = prefix.upper()
        return {
            f"{key}ELEMENT": f"struct {name} {{\n{form.helpers}{lines}\n}}\n}};\n",
            f"{key}TAKEN": taken,
            f"{key}GIVEN": "".join(f", {prefix}e{number}" for number in kinds),
        }
