"""`map_fn`, `foldl`, `foldr`, `scan`: loops over the first axis of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.control_flow.contexts import checked_result
from tensorbow.control_flow.loops import Iterations, while_loop
from tensorbow.control_flow.tensor_array import TensorArray
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Function, Name, checked
from tensorbow.nest import flatten, pack
from tensorbow.ops.broadcasting import shape as shape_of
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import add, greater_equal, less, subtract
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import as_dtype, int32

__all__ = ["foldl", "foldr", "map_fn", "scan"]


class _Elements:
    """The rows of the leaves of a nest of tensors."""

    def __init__(self, call: str, elems: Any):
        self.nest = elems
        self.tensors = [as_tensor(leaf) for leaf in flatten(elems)]
        if not self.tensors:
            raise InvalidArgumentError(f"{call}: elems is empty; give at least one tensor")
        for tensor in self.tensors:
            if tensor.spec.shape == ():
                raise InvalidArgumentError(
                    f"{call}: elems has a scalar, {tensor.name}; expected tensors of rank 1 or more, whose "
                    f"first axis counts the elements (made at {tensor.op.source})"
                )
        extents = [t.spec.dims[0] for t in self.tensors if t.spec.shape]
        known = {extent for extent in extents if extent is not None}
        if len(known) > 1:
            raise InvalidArgumentError(
                f"{call}: elems have {' and '.join(map(str, sorted(known)))} rows; expected one number"
            )
        self.known = next(iter(known), None)
        self.arrays: list[TensorArray] = []
        self.count: Tensor = constant(0)

    def open(self) -> None:
        """Makes the arrays of rows, in the current scope."""
        if self.known is not None:
            self.count = constant(int(self.known), int32)
        else:
            self.count = strided_slice(shape_of(self.tensors[0]), 0)
        self.arrays = [TensorArray(t.dtype, self.count).unstack(t) for t in self.tensors]

    def row(self, index: Any) -> Any:
        """The nest of rows of an index."""
        return pack(self.nest, iter([array.read(index) for array in self.arrays]))


def _same_nest(call: str, result: Any, like: Any, dtypes: Sequence[Any] | None) -> list[Tensor]:
    """The leaves of what a function returned. Raises InvalidArgumentError for another number or dtype."""
    found = [checked_result(leaf, f"{call}: result of fn") for leaf in flatten(result)]
    if len(found) != len(flatten(like)):
        raise InvalidArgumentError(
            f"{call}: fn returns {len(found)} values, expected {len(flatten(like))}; return the nest of "
            f"{'dtype' if dtypes is not None else 'initializer'}, by default that of elems"
        )
    for number, tensor in enumerate(found):
        if dtypes is not None and tensor.dtype != dtypes[number]:
            raise InvalidArgumentError(
                f"{call}: fn's result {number} is {tensor.dtype.name}, expected {dtypes[number].name}; give "
                "dtype, the dtypes of the results"
            )
    return found


@checked
def map_fn(
    fn: Function,
    elems: Any,
    dtype: Any = None,
    parallel_iterations: Iterations = 10,
    back_prop: Flag = True,
    swap_memory: Flag = False,
    infer_shape: Flag = True,
    name: Name = None,
) -> Any:
    """Applies `fn` to each row of `elems`, a nest of tensors `[rows, ...]`; returns the stacked results.

    fn: (nest of rows) -> a nest of tensors. dtype: the nest of their dtypes, by default that of elems.
    parallel_iterations, back_prop, swap_memory: as of `while_loop`. infer_shape: all results have one shape.

    Raises InvalidArgumentError for scalars, numbers of rows that differ, and results that do not fit dtype.
    """
    rows = _Elements("map_fn", elems)
    like = elems if dtype is None else dtype
    kinds = [t.dtype for t in rows.tensors] if dtype is None else [as_dtype(each) for each in flatten(dtype)]
    with graph_of(rows.tensors).as_default(), name_scope(name or "map"):
        rows.open()
        made = [TensorArray(kind, rows.count, infer_shape=infer_shape) for kind in kinds]
        shapes: list[TensorArray] = []

        def body(index: Tensor, arrays: list[TensorArray]) -> Any:
            results = _same_nest("map_fn", fn(rows.row(index)), like, kinds)
            written = [a.write(index, each) for a, each in zip(arrays, results, strict=True)]
            shapes.extend(written)
            return [add(index, 1), written]

        _, arrays = while_loop(
            lambda index, arrays: less(index, rows.count),
            body,
            [constant(0), made],
            **_loop_options(parallel_iterations, back_prop, swap_memory),
        )
        return pack(like, iter(_stacked(arrays, shapes, rows)))


def _stacked(arrays: Sequence[TensorArray], written: Sequence[TensorArray], rows: _Elements) -> list[Tensor]:
    """Arrays as tensors, with what the body has learned of the elements' shapes."""
    results = []
    for array, last in zip(arrays, written, strict=False):
        tensor = last.with_flow(array.flow).stack()
        if rows.known is not None and tensor.spec.shape is not None:
            tensor.set_shape([rows.known, *tensor.spec.shape[1:]])
        results.append(tensor)
    return results


def _loop_options(parallel_iterations: int, back_prop: bool, swap_memory: bool) -> dict[str, Any]:
    return {
        "parallel_iterations": parallel_iterations,
        "back_prop": back_prop,
        "swap_memory": swap_memory,
    }


def _folded(
    call: str,
    fn: Any,
    elems: Any,
    initializer: Any,
    backwards: bool,
    keeps: bool,
    options: dict[str, Any],
    name: str | None,
    infer_shape: bool = True,
) -> Any:
    """The last value of a fold, or with `keeps` the stack of all of them."""
    rows = _Elements(call, elems)
    with graph_of(rows.tensors).as_default(), name_scope(name or call):
        rows.open()
        last = subtract(rows.count, 1)
        first = last if backwards else constant(0)
        way = -1 if backwards else 1
        if initializer is None:
            like, start = elems, rows.row(first)
            index = add(first, way)
        else:
            like, start, index = initializer, initializer, first
        values = [as_tensor(leaf) for leaf in flatten(start)]
        kinds = [value.dtype for value in values]
        kept = [TensorArray(kind, rows.count, infer_shape=infer_shape) for kind in kinds] if keeps else []
        if keeps and initializer is None:
            kept = [array.write(first, value) for array, value in zip(kept, values, strict=True)]
        shapes: list[TensorArray] = []

        def body(index: Tensor, values: list[Tensor], arrays: list[TensorArray]) -> Any:
            results = _same_nest(call, fn(pack(like, iter(values)), rows.row(index)), like, kinds)
            written = [a.write(index, each) for a, each in zip(arrays, results, strict=False)]
            shapes.extend(written)
            return [add(index, way), results, written]

        _, values, kept = while_loop(
            lambda index, *rest: greater_equal(index, 0) if backwards else less(index, rows.count),
            body,
            [index, values, kept],
            **options,
        )
        return pack(like, iter(_stacked(kept, shapes, rows) if keeps else values))


@checked
def foldl(
    fn: Function,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: Iterations = 10,
    back_prop: Flag = True,
    swap_memory: Flag = False,
    name: Name = None,
) -> Any:
    """Combines the rows of `elems`, a nest of tensors `[rows, ...]`, from the first to the last.

    fn: (value so far, nest of rows) -> the next value, of the same shapes and dtypes. initializer: the first
    value so far, a nest of tensors; by default the first rows. Other arguments: as of `while_loop`.

    Raises InvalidArgumentError for scalars and results that do not fit; a step does for no rows and no
    initializer.
    """
    options = _loop_options(parallel_iterations, back_prop, swap_memory)
    return _folded("foldl", fn, elems, initializer, False, False, options, name)


@checked
def foldr(
    fn: Function,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: Iterations = 10,
    back_prop: Flag = True,
    swap_memory: Flag = False,
    name: Name = None,
) -> Any:
    """`foldl` from the last row to the first."""
    options = _loop_options(parallel_iterations, back_prop, swap_memory)
    return _folded("foldr", fn, elems, initializer, True, False, options, name)


@checked
def scan(
    fn: Function,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: Iterations = 10,
    back_prop: Flag = True,
    swap_memory: Flag = False,
    infer_shape: Flag = True,
    reverse: Flag = False,
    name: Name = None,
) -> Any:
    """`foldl`, but all values so far, stacked: `[rows, ...]`. reverse: from the last row to the first.

    infer_shape: all values have one shape. Raises what `foldl` raises.
    """
    options = _loop_options(parallel_iterations, back_prop, swap_memory)
    return _folded("scan", fn, elems, initializer, reverse, True, options, name, infer_shape)
