"""Recurrent networks: cells over the steps of sequences, unrolled or in a loop."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.control_flow import TensorArray, while_loop
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import AsDType, Flag, Items, checked, optional, refuse, whole
from tensorbow.layers.building import known_extent
from tensorbow.layers.cell import RNNCell
from tensorbow.nest import flatten, pack
from tensorbow.ops.arrays import concat, expand_dims, stack, transpose
from tensorbow.ops.broadcasting import INDEX, shape
from tensorbow.ops.constant import constant
from tensorbow.ops.control import AtMost
from tensorbow.ops.elementwise import greater, less, maximum
from tensorbow.ops.reductions import reduce_max, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.shaping import unstack
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import DType, compatible, int32
from tensorbow.variable_scope import ScopeOrName, variable_scope

__all__ = ["bidirectional_dynamic_rnn", "dynamic_rnn", "static_bidirectional_rnn", "static_rnn"]

Iterations: TypeAlias = Annotated["int | None", optional(whole(1))]
MOST_STEPS = 64  # unrolled in the graph; longer sequences are gone over by a loop


@checked
def static_rnn(
    cell: Any,
    inputs: Items,
    initial_state: Any = None,
    dtype: AsDType | None = None,
    sequence_length: Any = None,
    scope: ScopeOrName = None,
) -> tuple[list[Tensor], Any]:
    """Unrolls a cell over a list of steps `[batch, features]`; returns a list of outputs and the last state.

    initial_state: by default zeros of `dtype`, or of the inputs' dtype. sequence_length: whole numbers
    `[batch]`; from there on an example's outputs are 0 and its state stays. scope: a name, by default `rnn`,
    or a `tb.VariableScope`.

    Raises InvalidArgumentError for what is no cell, for no steps, and for an initial state that the cell does
    not take.
    """
    steps = _steps_of("static_rnn", inputs, cell)
    with steps[0].graph.as_default(), variable_scope(scope or "rnn"):
        return _unrolled("static_rnn", cell, steps, initial_state, dtype, sequence_length)


@checked
def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Items,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: AsDType | None = None,
    sequence_length: Any = None,
    scope: ScopeOrName = None,
) -> tuple[list[Tensor], Any, Any]:
    """Unrolls one cell forwards and one backwards (Schuster and Paliwal, 1997) over a list of steps.

    inputs, initial states, dtype, sequence_length: as of `static_rnn`; the backward cell begins at each
    example's last step. scope: a name, by default `bidirectional_rnn`, or a `tb.VariableScope`.
    Returns a list of both cells' outputs side by side, `[batch, units of fw + units of bw]`, and the last
    state of each: of the backward cell after the first step. Raises as `static_rnn`, and InvalidArgumentError
    for one cell in both directions.
    """
    both, states = _both_ways(
        *("static_bidirectional_rnn", (cell_fw, cell_bw), inputs, (initial_state_fw, initial_state_bw)),
        *(dtype, sequence_length, scope),
    )
    return [concat(pair, 1) for pair in zip(*both, strict=True)], *states


@checked
def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: AsDType | None = None,
    parallel_iterations: Iterations = None,
    swap_memory: Flag = False,
    time_major: Flag = False,
    scope: ScopeOrName = None,
) -> tuple[tuple[Tensor, Tensor], tuple[Any, Any]]:
    """`static_bidirectional_rnn` of one tensor `[batch, steps, features]`: a pair of outputs
    `[batch, steps, units]`, forwards and backwards, and a pair of last states.

    Steps are unrolled, or there are two loops, as `dynamic_rnn` says. Raises as `dynamic_rnn` and
    `static_bidirectional_rnn`.
    """
    label, axis = "bidirectional_dynamic_rnn", 0 if time_major else 1
    cells, initial_states = (cell_fw, cell_bw), (initial_state_fw, initial_state_bw)
    sequences, sequence_length, loops = _sequences(inputs, sequence_length, axis, swap_memory)
    if loops:
        _check_directions(label, cells)
        made, last = [], []
        with sequences.graph.as_default(), variable_scope(scope or "bidirectional_rnn"):
            for direction, cell, initial in zip(("fw", "bw"), cells, initial_states, strict=True):
                with variable_scope(direction):
                    outputs, state = _looped(
                        *(label, cell, sequences, axis, initial, dtype, sequence_length),
                        *(parallel_iterations, swap_memory, direction == "bw"),
                    )
                made.append(outputs)
                last.append(state)
        return (made[0], made[1]), (last[0], last[1])
    steps = _unstacked(label, sequences, axis)
    with steps[0].graph.as_default():
        (forwards, backwards), states = _both_ways(
            label, cells, steps, initial_states, dtype, sequence_length, scope
        )
        return (stack(forwards, axis), stack(backwards, axis)), states


def _both_ways(
    label: str,
    cells: tuple[Any, Any],
    inputs: Any,
    initial_states: tuple[Any, Any],
    dtype: DType | None,
    sequence_length: Any,
    scope: Any,
) -> tuple[list[list[Tensor]], tuple[Any, Any]]:
    """Outputs of a forward and a backward cell, by step, and their last states."""
    steps = _steps_of(label, inputs, *cells)
    _check_directions(label, cells)
    outputs, states = [], []
    with steps[0].graph.as_default(), variable_scope(scope or "bidirectional_rnn"):
        for direction, cell, initial in zip(("fw", "bw"), cells, initial_states, strict=True):
            with variable_scope(direction):
                found = _unrolled(
                    label, cell, steps, initial, dtype, sequence_length, backwards=direction == "bw"
                )
            outputs.append(found[0])
            states.append(found[1])
    return outputs, (states[0], states[1])


def _check_directions(label: str, cells: tuple[Any, Any]) -> None:
    if cells[0] is cells[1]:
        raise InvalidArgumentError(
            f"{label}: one cell is given twice, and would share its variables; make one per direction"
        )


def _steps_of(label: str, inputs: Any, *cells: Any) -> list[Tensor]:
    """The steps, as tensors. Raises InvalidArgumentError."""
    for cell in cells:
        if not isinstance(cell, RNNCell):
            raise refuse(label, "cell", "a cell such as tb.nn.rnn_cell.GRUCell(128)", cell)
    steps = [convert_to_tensor(step) for step in inputs]
    if not steps:
        raise InvalidArgumentError(f"{label}: expected at least one step, got no inputs")
    for step in steps:
        if step.shape.ndims != 2:
            raise InvalidArgumentError(f"{label}: expected inputs [batch, features], got {step.spec}")
    return steps


def _unrolled(
    label: str,
    cell: RNNCell,
    steps: list[Tensor],
    initial_state: Any,
    dtype: DType | None,
    sequence_length: Any,
    backwards: bool = False,
) -> tuple[list[Tensor], Any]:
    """Outputs of a cell by step, and its last state; see `static_rnn`."""
    batch = steps[0].spec.dims[0]
    state = initial_state
    if state is not None and len(flatten(state)) != len(flatten(cell.state_size)):
        raise refuse(label, "initial_state", "one that cell.zero_state(batch_size) gives", state)
    if state is None:
        extent = strided_slice(shape(steps[0]), 0) if batch is None else batch
        state = cell.zero_state(extent, dtype or steps[0].dtype)
    lengths = None if sequence_length is None else convert_to_tensor(sequence_length)
    _check_lengths(label, lengths, batch, "steps", steps[0])
    outputs, way = [], -1 if backwards else 1
    for number, step in [*enumerate(steps)][::way]:
        output, after = cell(step, state)
        if lengths is not None:
            runs = expand_dims(greater(lengths, constant(number, lengths.dtype)), 1)
            output = select(runs, output, 0.0)
            pairs = zip(flatten(after), flatten(state), strict=True)
            after = pack(after, iter([select(runs, new, old) for new, old in pairs]))
        outputs.append(output)
        state = after
    return outputs[::way], state


def _looped(
    label: str,
    cell: Any,
    sequences: Tensor,
    axis: int,
    initial_state: Any,
    dtype: DType | None,
    lengths: Tensor | None,
    parallel_iterations: int | None,
    swap_memory: bool,
    backwards: bool = False,
) -> tuple[Tensor, Any]:
    """Outputs, with steps at `axis` as in the inputs, and last state of a loop over the steps."""
    by_step = sequences if axis == 0 else transpose(sequences, [1, 0, 2])
    known = by_step.spec.dims[0]
    count = strided_slice(shape(by_step), 0) if known is None else constant(known, int32)
    rows = TensorArray(by_step.dtype, count).unstack(by_step)
    example = strided_slice(by_step, slice(0, 1))
    first = reduce_sum(example, 0)  # a step, also of no steps, to make the variables outside the loop
    if not isinstance(cell, RNNCell):
        raise refuse(label, "cell", "a cell such as tb.nn.rnn_cell.GRUCell(128)", cell)
    state = initial_state
    if state is not None and len(flatten(state)) != len(flatten(cell.state_size)):
        raise refuse(label, "initial_state", "one that cell.zero_state(batch_size) gives", state)
    batch = by_step.spec.dims[1]
    if state is None:
        extent = strided_slice(shape(by_step), 1) if batch is None else batch
        state = cell.zero_state(extent, dtype or by_step.dtype)
    _check_lengths(label, lengths, batch, "inputs", sequences)
    limit = count
    if lengths is not None:  # where all examples have ended, nothing changes any more
        longest = cast(reduce_max(lengths), count.dtype)
        limit = AtMost(maximum(longest, constant(1, count.dtype)), count)
    like = cell(first, state)[0]
    bodies: list[Tensor] = []

    def body(number: Tensor, outputs: TensorArray, before: Any) -> Any:
        step = limit - 1 - number if backwards else number
        output, after = cell(rows.read(step), before)
        if lengths is not None:
            runs = expand_dims(greater(lengths, cast(step, lengths.dtype)), 1)
            output = select(runs, output, 0.0)
            pairs = zip(flatten(after), flatten(before), strict=True)
            after = pack(after, iter([select(runs, new, old) for new, old in pairs]))
        following = number + 1
        bodies.append(following)
        return following, outputs.write(step, output), after

    _, outputs, state = while_loop(
        lambda number, outputs, state: less(number, limit),
        body,
        (constant(0), TensorArray(like.dtype, count, element_shape=like.spec.shape), state),
        parallel_iterations=parallel_iterations or 32,
        swap_memory=swap_memory,
    )
    context = bodies[-1].op.context
    if context is not None:
        context.unrolls_fully = known is not None
    made = outputs.stack() if lengths is None else outputs.stack_or_zeros()
    made.set_shape([known, batch, *like.spec.dims[1:]])
    return (made if axis == 0 else transpose(made, [1, 0, 2])), state


def _check_lengths(label: str, lengths: Tensor | None, batch: int | None, what: str, given: Tensor) -> None:
    if lengths is not None and not (lengths.dtype in INDEX and compatible(lengths.spec.shape, (batch,))):
        raise InvalidArgumentError(
            f"{label}: expected a sequence_length of whole numbers [batch], got {lengths.spec} for {what} "
            f"{given.spec}"
        )


def _sequences(
    inputs: Any, sequence_length: Any, axis: int, swap_memory: bool
) -> tuple[Tensor, Tensor | None, bool]:
    """Inputs and lengths as tensors, and True if a loop goes over the steps, which are not unrolled."""
    sequences, lengths = convert_to_tensor(inputs), None
    if sequence_length is not None:
        with sequences.graph.as_default():
            lengths = convert_to_tensor(sequence_length)
    if sequences.shape.ndims != 3:
        return sequences, lengths, False
    ends_early = lengths is not None and lengths.op.type != "Const"
    count = sequences.spec.dims[axis]
    return sequences, lengths, count is None or count > MOST_STEPS or ends_early or swap_memory


def _unstacked(label: str, inputs: Any, axis: int) -> list[Tensor]:
    """Steps of a tensor of sequences. Raises InvalidArgumentError."""
    tensor = convert_to_tensor(inputs)
    if tensor.shape.ndims != 3:
        raise InvalidArgumentError(f"{label}: expected [batch, steps, features], got {tensor.spec}")
    count = known_extent(label, tensor, axis)
    with tensor.graph.as_default():
        return unstack(tensor, count, axis)


@checked
def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: AsDType | None = None,
    parallel_iterations: Iterations = None,
    swap_memory: Flag = False,
    time_major: Flag = False,
    scope: ScopeOrName = None,
) -> tuple[Tensor, Any]:
    """`static_rnn` of one tensor `[batch, steps, features]`: outputs `[batch, steps, units]`, last state.

    A known number of at most 64 steps is unrolled in the graph; otherwise there is a `tb.while_loop`, which a
    plan unrolls or, where that is too long, has as one call on CPU devices. Other devices unroll a known
    number of steps however long. With a `sequence_length` that is no constant the loop ends with the
    longest example: CPU devices compile it once for all lengths, others do all steps. time_major: steps come
    first, in inputs and outputs. parallel_iterations (by default 32) and swap_memory are those of the loop;
    with swap_memory there is one for few steps, too. Raises what `static_rnn` refuses.
    """
    axis = 0 if time_major else 1
    sequences, sequence_length, loops = _sequences(inputs, sequence_length, axis, swap_memory)
    if loops:
        with sequences.graph.as_default(), variable_scope(scope or "rnn"):
            return _looped(
                *("dynamic_rnn", cell, sequences, axis, initial_state, dtype, sequence_length),
                *(parallel_iterations, swap_memory),
            )
    steps = _unstacked("dynamic_rnn", sequences, axis)
    with steps[0].graph.as_default():
        outputs, state = static_rnn(cell, steps, initial_state, dtype, sequence_length, scope)
        return stack(outputs, axis), state
