"""Recurrent networks: a cell, unrolled over the steps of sequences when the graph is built."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import AsDType, Flag, Items, Name, checked, refuse
from tensorbow.layers.building import known_extent
from tensorbow.layers.rnn_cells import RNNCell
from tensorbow.nest import flatten, pack
from tensorbow.ops.arrays import expand_dims, stack
from tensorbow.ops.broadcasting import INDEX, shape
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import greater
from tensorbow.ops.selection import where
from tensorbow.ops.shaping import unstack
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import compatible
from tensorbow.variable_scope import variable_scope

__all__ = ["dynamic_rnn", "static_rnn"]


@checked
def static_rnn(
    cell: Any,
    inputs: Items,
    initial_state: Any = None,
    dtype: AsDType | None = None,
    sequence_length: Any = None,
    scope: Name = None,
) -> tuple[list[Tensor], Any]:
    """Unrolls a cell over a list of steps `[batch, features]`; returns a list of outputs and the last state.

    initial_state: by default zeros of `dtype`, or of the inputs' dtype. sequence_length: whole numbers
    `[batch]`; from there on an example's outputs are 0 and its state stays. scope: name, by default `rnn`.

    Raises InvalidArgumentError for what is no cell, for no steps, and for an initial state that the cell does
    not take.
    """
    if not isinstance(cell, RNNCell):
        raise refuse("static_rnn", "cell", "a cell such as tb.nn.rnn_cell.GRUCell(128)", cell)
    steps = [convert_to_tensor(step) for step in inputs]
    if not steps:
        raise InvalidArgumentError("static_rnn: expected at least one step, got no inputs")
    for step in steps:
        if step.shape.ndims != 2:
            raise InvalidArgumentError(f"static_rnn: expected inputs [batch, features], got {step.spec}")
    with steps[0].graph.as_default(), variable_scope(scope or "rnn"):
        batch = steps[0].spec.dims[0]
        state = initial_state
        if state is not None and len(flatten(state)) != len(flatten(cell.state_size)):
            raise refuse("static_rnn", "initial_state", "one that cell.zero_state(batch_size) gives", state)
        if state is None:
            extent = strided_slice(shape(steps[0]), 0) if batch is None else batch
            state = cell.zero_state(extent, dtype or steps[0].dtype)
        lengths = None if sequence_length is None else convert_to_tensor(sequence_length)
        if lengths is not None and not (lengths.dtype in INDEX and compatible(lengths.spec.shape, (batch,))):
            raise InvalidArgumentError(
                f"static_rnn: expected a sequence_length of whole numbers [batch], got {lengths.spec} for "
                f"steps {steps[0].spec}"
            )
        outputs = []
        for number, step in enumerate(steps):
            output, after = cell(step, state)
            if lengths is not None:
                runs = expand_dims(greater(lengths, constant(number, lengths.dtype)), 1)
                output = where(runs, output, 0.0)
                pairs = zip(flatten(after), flatten(state), strict=True)
                after = pack(after, iter([where(runs, new, old) for new, old in pairs]))
            outputs.append(output)
            state = after
        return outputs, state


@checked
def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: AsDType | None = None,
    time_major: Flag = False,
    scope: Name = None,
) -> tuple[Tensor, Any]:
    """`static_rnn` of one tensor `[batch, steps, features]`: outputs `[batch, steps, units]`, last state.

    The number of steps must be known, as the graph has every step. time_major: steps come first, in inputs
    and outputs. Raises InvalidArgumentError for an unknown number of steps, and what `static_rnn` refuses.
    """
    tensor = convert_to_tensor(inputs)
    axis = 0 if time_major else 1
    if tensor.shape.ndims != 3:
        raise InvalidArgumentError(f"dynamic_rnn: expected [batch, steps, features], got {tensor.spec}")
    count = known_extent("dynamic_rnn", tensor, axis)
    with tensor.graph.as_default():
        steps = unstack(tensor, count, axis)
        outputs, state = static_rnn(cell, steps, initial_state, dtype, sequence_length, scope)
        return stack(outputs, axis), state
