"""Registry of native code templates by op, in addition to the ops' reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels.native.codegen.emitter import Emitter
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.program.plan import Group
from tensorbow.specs import TensorSpec, uncompiled

Emit: TypeAlias = "Callable[[Emitter, Group], None]"


@dataclass(frozen=True)
class Lowering:
    """Native code of an op.

    emit(emitter, group): emits the call's code at the end of the function; reads `group.inputs`, writes all
        of `group.outputs`, may use `group.scratch` and read `group.state`, like the reference kernel.
    takes(node, target): True if it supports these shapes, dtypes and attributes; else the reference kernel
        runs.
    scratch(node, target): specs, of fully known shape, of its scratch arrays.
    inplace: pairs (output, input) that may share memory.
    """

    emit: Emit
    takes: Callable[[NodeSpec, Target], bool] = lambda node, target: True
    scratch: Callable[[NodeSpec, Target], Sequence[TensorSpec]] = lambda node, target: ()
    inplace: tuple[tuple[int, int], ...] = ()
    pointwise: bool = False


LOWERINGS: dict[OpDef, Lowering] = {}


def lowering_for(definition: OpDef, node: NodeSpec, target: Target) -> Lowering | None:
    """An op's native code for these shapes, dtypes and attributes; None if the reference kernel runs.

    Arrays of a dtype that is not in `specs.COMPILED` are left to NumPy.
    """
    lowering = LOWERINGS.get(definition.form_of or definition)
    if lowering is None or uncompiled(spec.dtype for spec in (*node.inputs, *node.outputs)):
        return None
    return lowering if lowering.takes(node, target) else None


def lowering_of(definition: OpDef) -> Lowering:
    """The native code of an op that has some."""
    return LOWERINGS[definition.form_of or definition]


def lower(definition: OpDef, lowering: Lowering) -> None:
    """Registers an op's native code."""
    LOWERINGS[definition] = lowering
