"""Swaps: ops that copy a value to pinned host memory and back, beside the computation.

The white paper (section 4.1) names swapping for models that do not fit. A value that is not read for long
leaves the slab: `SwapOut` begins the copy, `AwaitSwapOut` ends the value's place in the slab; `SwapIn` gives
it a new place and begins the copy back, `AwaitSwapIn` comes before its next reader. The compiler alone makes
these ops, for device kinds that have kernels of them.
"""

from __future__ import annotations

from typing import NoReturn

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, OpDef


def _no_spec(*_: object) -> NoReturn:
    raise InternalError("an op that the compiler has added is in no graph")


def _added(name: str, inputs: tuple[str, ...], doc: str, alias: tuple[tuple[int, int], ...] = ()) -> OpDef:
    return OpDef(name, _no_spec, NOT_DIFFERENTIABLE, {}, input_names=inputs, alias=alias, doc=doc)


SwapOut = _added("SwapOut", ("value",), "Begins the copy of a value to host memory.")
AwaitSwapOut = _added(
    "AwaitSwapOut", ("value", "kept"), "Waits for the copy to host memory; then the value's memory is free."
)
SwapIn = _added("SwapIn", ("kept",), "Begins the copy of a value from host memory to new memory.")
AwaitSwapIn = _added("AwaitSwapIn", ("value", "kept"), "Waits for the copy from host memory.")
SwappedView = _added(
    "SwappedView", ("value",), "A value, or a view of it, after it was copied back.", ((0, 0),)
)
