"""Kernel whose code is generated."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorbow.errors import InternalError
from tensorbow.graph import Kernel, KernelCall

if TYPE_CHECKING:
    from tensorbow.kernels.native.codegen.emitter import Bounds, Emitter
    from tensorbow.program.plan import Group


def _nothing_to_run(call: KernelCall) -> None:
    raise InternalError("a native kernel runs in its segment only")


def _no_code(emitter: Emitter, group: Group) -> None:
    raise InternalError("a native kernel without code")


@dataclass(frozen=True)
class NativeKernel(Kernel):
    """emit(emitter, group): emits the call's code. The other fields are those of any kernel.

    form: key that is equal for `emit`s with equal code. emit_part(emitter, group, bounds): emits the code of
    one part, for calls on flat arrays that can be divided; a part begins and ends at multiples of `grain`, or
    ends with the arrays. unread: attributes that do not affect the code. rounds: it is a product of operands
    rounded to bfloat16.
    """

    run: Callable[[KernelCall], object] | None = _nothing_to_run
    emit: Callable[[Emitter, Group], None] = _no_code
    form: Hashable = None
    emit_part: Callable[[Emitter, Group, Bounds], None] | None = None
    grain: int = 1
    unread: tuple[str, ...] = ()
    rounds: bool = False
