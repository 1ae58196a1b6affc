"""Native code of NextDraw."""

from __future__ import annotations

from tensorbow.kernels.native.codegen.emitter import INT, Emitter, index
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.program.draws import SHIFT, NextDraw
from tensorbow.program.plan import Group
from tensorbow.program.stacks import HandleWord


def _emit(emitter: Emitter, group: Group) -> None:
    counter, draws = (emitter.address(ref) for ref in group.inputs)
    b = emitter.builder
    count = b.gep(draws, [index(HandleWord.USED)], source_etype=INT)
    drawn = b.load(count, typ=INT)
    b.store(b.add(b.load(counter, typ=INT), b.shl(drawn, index(SHIFT))), emitter.address(group.outputs[0]))
    b.store(b.add(drawn, index(1)), count)


lower(NextDraw, Lowering(_emit))
