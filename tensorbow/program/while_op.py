"""A loop compiled as one op of a plan: its condition and body are nodes with every shape known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from tensorbow.errors import CancelledError, ResourceExhaustedError, TensorBowError
from tensorbow.graph import KernelCall, OpDef, add_iteration
from tensorbow.program.blocks import (
    Block,
    BlockCalls,
    BlockMemory,
    InplaceOf,
    ScratchOf,
    StackFrame,
    block_kernel,
    reference_kernel,
)
from tensorbow.program.control_forms import While, form_of, has_checks
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.program.stacks import HandleWord, frame_at, words_at
from tensorbow.specs import TensorSpec, int64


class LoopProgram:
    """Condition and body of a loop; `variables` and `captured` are its inputs, in this order.

    In each iteration `condition` computes `holds`, a bool scalar; while it is true, `body` computes the next
    values of `variables`. own: the frames that it makes; the position of their first is then an output behind
    the variables. taken: frames of earlier loops that it reads. stop: the word that ends it when it is set.
    handles: of stacks that are empty when it begins. ends: it counts to a limit.
    name: that of its frame, for errors.
    """

    def __init__(
        self,
        variables: Sequence[Value],
        captured: Sequence[Value],
        condition: Sequence[Node],
        holds: Value,
        body: Sequence[Node],
        results: Sequence[Value],
        stop: Value,
        own: StackFrame | None = None,
        taken: Sequence[StackFrame] = (),
        handles: Sequence[Value] = (),
        ends: bool = True,
        name: str = "",
    ):
        self.variables = tuple(variables)
        self.captured = tuple(captured)
        self.condition = Block(condition, (holds,))
        self.holds = holds
        self.body = Block(body, results)
        self.results = tuple(results)
        self.stop = stop
        self.own = own
        self.taken = tuple(taken)
        self.handles = tuple(handles)
        self.ends = ends
        self.name = name

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that compute something."""
        return (*self.condition.nodes, *self.body.nodes)

    @cached_property
    def frames(self) -> tuple[StackFrame, ...]:
        """All frames, its own first."""
        return (*([] if self.own is None else [self.own]), *self.taken)

    @cached_property
    def outputs(self) -> int:
        """Number of outputs of its op."""
        return len(self.variables) + (self.own is not None)

    def memory(self, scratch_of: ScratchOf, inplace_of: InplaceOf, *, moving: bool) -> BlockMemory:
        """Place of each value; the variables are in the op's outputs."""
        count, kept = len(self.variables), len(self.captured)
        given = {value: (count + number, 0) for number, value in enumerate(self.captured)}
        homes = {}
        for number, value in enumerate(self.variables):
            given[value] = homes[1, number] = (count + kept + number, 0)
        if self.own is not None:
            given[self.own.begin] = (count + kept + count, 0)
        return BlockMemory(
            (self.condition, self.body),
            given,
            homes,
            count + kept + self.outputs,
            self.frames,
            scratch_of,
            inplace_of,
            in_turn=True,
            moving=moving,
        )

    def __repr__(self) -> str:
        return f"<LoopProgram of {len(self.condition.nodes)} + {len(self.body.nodes)} nodes>"


def specs_of_loop(loop: LoopProgram) -> list[TensorSpec]:
    """Specs of the outputs of a loop's op."""
    begin = [] if loop.own is None else [TensorSpec((), int64)]
    return [*(TensorSpec(v.spec.shape, v.spec.dtype) for v in loop.variables), *begin]


def while_form(loop: LoopProgram) -> OpDef:
    """The op of a loop, which says what it writes."""
    writes = _written(loop.nodes, (*loop.variables, *loop.captured))
    return form_of(While, writes, (), has_checks(loop.nodes))


def _written(nodes: Sequence[Node], inputs: Sequence[Value]) -> tuple[int, ...]:
    """The inputs that are variables which some nodes write."""
    written = {storage_of(node.inputs[index]) for node in nodes for index in node.definition.writes}
    return tuple(number for number, value in enumerate(inputs) if value in written)


class _Frames:
    """Frames of a reference call: copied to and from their areas in the scratch array."""

    def __init__(self, frames: Sequence[StackFrame], calls: BlockCalls, memory: BlockMemory):
        self._frames = [
            (
                frame,
                calls.value(frame.handle),
                calls.value(frame.begin),
                None if frame.number is None else calls.value(frame.number),
                [(offset, calls.value(value)) for value, offset in frame.offsets.items()],
            )
            for frame in frames
        ]

    def begin(self, number: int) -> None:
        """Fills the areas before iteration `number`."""
        for frame, handle, begin, at, values in self._frames:
            if at is None:
                for _, array in values if frame.zeroed else ():
                    array[...] = 0
                continue
            source = frame_at(handle, int(begin) + int(at), frame.nbytes, make=False)
            for offset, array in values:
                array.reshape(-1).view(np.uint8)[...] = source[offset : offset + array.nbytes]

    def end(self, number: int) -> None:
        """Keeps what iteration `number` has made."""
        for frame, handle, begin, at, values in self._frames:
            if at is None:
                position = int(begin) + number
                target = frame_at(handle, position, frame.nbytes, make=True)
                for offset, array in values:
                    target[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
                words_at(handle.ctypes.data, HandleWord.WORDS)[HandleWord.USED] = position + 1


def _bind(call: KernelCall, memory: BlockMemory, calls: BlockCalls) -> Callable[[], None]:
    """The reference: kernels of condition and body, called in turn."""
    loop: LoopProgram = call.attrs["loop"]
    condition, body = calls.prepare(loop.condition), calls.prepare(loop.body)
    holds, stop = calls.value(loop.holds), calls.value(loop.stop)
    results = [calls.value(v) for v in loop.results]
    moved = {number: calls.array(place, loop.results[number].spec) for number, place in memory.moved.items()}
    count = len(loop.variables)
    initial, variables = call.inputs[:count], call.outputs[:count]
    frames = _Frames(loop.frames, calls, memory)
    handles = [calls.value(handle).ctypes.data for handle in loop.handles]
    own = None if loop.own is None else calls.value(loop.own.handle).ctypes.data

    def iterate(number: int) -> bool:
        try:
            for each in condition:
                each()
            if not holds:
                return False
            frames.begin(number)
            for each in body:
                each()
        except TensorBowError as error:
            if not isinstance(error, CancelledError):
                add_iteration(error, loop.name, number)
            raise
        return True

    def run() -> None:
        for output, value in zip(variables, initial, strict=True):
            np.copyto(output, value)
        for handle in handles:
            words_at(handle, HandleWord.WORDS)[HandleWord.USED] = 0
        if own is not None:
            call.outputs[count][...] = words_at(own, HandleWord.WORDS)[HandleWord.USED]
        number = 0
        while True:
            if stop:
                raise CancelledError(STOPPED)
            if not iterate(number):
                return
            try:
                frames.end(number)
            except MemoryError as error:
                raise ResourceExhaustedError(str(error)) from error
            for index, kept in moved.items():
                np.copyto(kept, results[index])
            for index, output in enumerate(variables):
                source = moved.get(index, results[index])
                if source.ctypes.data != output.ctypes.data:
                    np.copyto(output, source)
            number += 1

    return run


STOPPED = "the loop was stopped before its condition became false"


loop_kernel = partial(block_kernel, "loop", _bind)
While.kernels["cpu"] = loop_kernel(reference_kernel)
