"""A cond compiled as one op of a plan: both branches are nodes with every shape known; one of them runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np

from tensorbow.graph import KernelCall, OpDef
from tensorbow.program.blocks import (
    Block,
    BlockCalls,
    BlockMemory,
    InplaceOf,
    ScratchOf,
    block_kernel,
    reference_kernel,
)
from tensorbow.program.control_forms import Cond, form_of, has_checks
from tensorbow.program.nodes import Node, Value, storage_of


class BranchProgram:
    """The branches of a cond: that of false, and that of true.

    The op's inputs are the condition, a bool scalar, and `captured`. A result that only one branch has is
    undefined when the other one runs. in_place: by result, the number of the captured value whose memory
    both branches change.
    """

    def __init__(
        self,
        captured: Sequence[Value],
        branches: Sequence[Block],
        in_place: Mapping[int, int],
    ):
        self.captured = tuple(captured)
        self.branches = tuple(branches)
        self.in_place = dict(in_place)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that compute something."""
        return tuple(node for block in self.branches for node in block.nodes)

    @property
    def outputs(self) -> int:
        """Number of results."""
        return len(self.branches[0].results)

    def memory(self, scratch_of: ScratchOf, inplace_of: InplaceOf, *, moving: bool) -> BlockMemory:
        """Place of each value; results are computed in the op's outputs."""
        first = 1 + len(self.captured)
        given = {value: (1 + number, 0) for number, value in enumerate(self.captured)}
        for result, number in self.in_place.items():
            given[self.captured[number]] = (first + result, 0)
        homes = {
            (branch, result): (first + result, 0)
            for branch in (0, 1)
            for result in range(self.outputs)
            if result not in self.in_place
        }
        return BlockMemory(
            self.branches,
            given,
            homes,
            first + self.outputs,
            (),
            scratch_of,
            inplace_of,
            in_turn=False,
            moving=moving,
        )

    def __repr__(self) -> str:
        return f"<BranchProgram of {' and '.join(str(len(b.nodes)) for b in self.branches)} nodes>"


def cond_form(program: BranchProgram) -> OpDef:
    """The op of a cond, which says what it writes."""
    written = {storage_of(node.inputs[index]) for node in program.nodes for index in node.definition.writes}
    writes = tuple(1 + n for n, v in enumerate(program.captured) if v in written)
    alias = tuple((result, 1 + number) for result, number in program.in_place.items())
    return form_of(Cond, writes, alias, has_checks(program.nodes))


def _bind(call: KernelCall, memory: BlockMemory, calls: BlockCalls) -> Callable[[], None]:
    """The reference: kernels of the branch that is taken, called in turn."""
    program: BranchProgram = call.attrs["branches"]
    prepared = [calls.prepare(block) for block in program.branches]
    copied = [
        [
            (output, source)
            for output, result in zip(call.outputs, block.results, strict=True)
            if result is not None
            for source in [calls.value(result)]
            if source.ctypes.data != output.ctypes.data
        ]
        for block in program.branches
    ]
    pred = call.inputs[0]

    def run() -> None:
        taken = int(bool(pred))
        for each in prepared[taken]:
            each()
        for output, source in copied[taken]:
            np.copyto(output, source)

    return run


cond_kernel = partial(block_kernel, "branches", _bind)
Cond.kernels["cpu"] = cond_kernel(reference_kernel)
