"""Loops over cells in which a function chooses inputs, outputs and the end (TensorFlow 1's raw_rnn)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.control_flow import TensorArray, while_loop
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Function, called, checked, optional, refuse, whole
from tensorbow.layers.cell import RNNCell
from tensorbow.nest import flatten, pack
from tensorbow.ops.arrays import concat, expand_dims
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import logical_not, logical_or
from tensorbow.ops.filling import fill
from tensorbow.ops.reductions import reduce_all
from tensorbow.ops.selection import select
from tensorbow.ops.slicing import strided_slice
from tensorbow.variable_scope import ScopeOrName, variable_scope

__all__ = ["raw_rnn"]

RESULTS = "a function that gives (finished, next_input, next_cell_state, emit_output, next_loop_state)"


def _following(loop_fn: Any, *arguments: Any) -> tuple[Tensor, Tensor, Any, Any, Any]:
    """The results of the user's function. Raises InvalidArgumentError."""
    results = called(loop_fn, *arguments, op="raw_rnn", argument="loop_fn", expected=RESULTS)
    if not isinstance(results, (tuple, list)) or len(results) != 5 or any(r is None for r in results[:3]):
        raise refuse("raw_rnn", "loop_fn", f"{RESULTS}, of which the first three are not None", results)
    finished, inputs, *rest = results
    return convert_to_tensor(finished), convert_to_tensor(inputs), *rest


def _chosen(finished: Tensor, new: Any, old: Any) -> list[Tensor]:
    """Examples [batch, ...] of each leaf: of `old` where they are finished, else of `new`."""
    found = []
    for after, before in zip(map(convert_to_tensor, flatten(new)), flatten(old), strict=True):
        mask = finished
        for _ in range((after.shape.ndims or 1) - 1):
            mask = expand_dims(mask, -1)
        found.append(select(mask, before, after))
    return found


def _emitted(
    emitted: Any, cell_output: Tensor, inputs: Tensor
) -> tuple[Any, list[TensorArray], list[Tensor]]:
    """The nest of outputs, with an array for each, and zeros [batch, ...] of each."""
    batch = expand_dims(strided_slice(shape(inputs), 0), 0)
    arrays, zeros = [], []
    of_examples = emitted is not None
    for leaf in map(convert_to_tensor, flatten(emitted if of_examples else cell_output)):
        dims = leaf.spec.shape
        if of_examples and dims is not None:
            dims = (inputs.spec.dims[0], *dims)
        extents = shape(leaf) if of_examples else strided_slice(shape(leaf), slice(1, None))
        zero = constant(np.zeros((), leaf.dtype.as_numpy_dtype))
        zeros.append(fill(concat([batch, extents], 0), zero))
        arrays.append(TensorArray(leaf.dtype, 0, dynamic_size=True, element_shape=dims))
    return emitted if of_examples else cell_output, arrays, zeros


@checked
def raw_rnn(
    cell: Any,
    loop_fn: Function,
    parallel_iterations: Annotated[int | None, optional(whole(1))] = None,
    swap_memory: Flag = False,
    scope: ScopeOrName = None,
) -> tuple[Any, Any, Any]:
    """A loop over a cell that a function steers; in the dynamic mode.

    loop_fn(time, cell_output, cell_state, loop_state) gives (finished, next_input, next_cell_state,
    emit_output, next_loop_state): first with time 0 and None for the others, where emit_output is a tensor,
    or a nest, of the shape and dtype of an example's output, or None for the cell's; then after each step.
    finished: bool [batch]; a finished example emits zeros and keeps its state, and the loop ends when all are
    finished. A loop state may be None. Returns the outputs of the steps, a TensorArray or a nest of them, the
    last cell state and the last loop state. `swap_memory` has no
    effect, as the loop is in the dynamic mode.
    """
    if not isinstance(cell, RNNCell):
        raise refuse("raw_rnn", "cell", "a cell such as tb.nn.rnn_cell.GRUCell(128)", cell)
    with variable_scope(scope or "rnn"):
        finished, inputs, state, emitted, loop_state = _following(loop_fn, constant(0), None, None, None)
        example = cell(inputs, state)[0]  # a step that makes the variables outside of the loop
        like, arrays, zeros = _emitted(emitted, example, inputs)
        is_kept = loop_state is not None

        def body(time: Tensor, done: Tensor, given: Tensor, outputs: Any, before: Any, kept: Any) -> Any:
            output, after = cell(given, before)
            ends, following, next_state, emit, next_loop_state = _following(
                loop_fn, time + 1, output, after, kept[0] if is_kept else None
            )
            values: Sequence[Tensor] = _chosen(done, output if emit is None else emit, zeros)
            written = [array.write(time, value) for array, value in zip(outputs, values, strict=True)]
            state_after = pack(before, iter(_chosen(done, next_state, before)))
            loop_state_after = kept if next_loop_state is None else [next_loop_state]
            return time + 1, logical_or(done, ends), following, written, state_after, loop_state_after

        *_, outputs, last, kept = while_loop(
            lambda time, done, *rest: logical_not(reduce_all(done)),
            body,
            (constant(0), finished, inputs, arrays, state, [loop_state] if is_kept else [constant(0)]),
            parallel_iterations=parallel_iterations or 32,
            swap_memory=swap_memory,
        )
        return pack(like, iter(outputs)), last, kept[0] if is_kept else None
