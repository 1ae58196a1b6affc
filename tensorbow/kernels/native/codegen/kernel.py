"""A kernel that is code to be generated."""

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
    """emit(emitter, group): writes the call's code. The other fields are those of any kernel.

    form: where several `emit` write the same code, what tells so. emit_part(emitter, group, bounds): for
    calls on flat arrays that can be done part by part, the code of one; its first element is a multiple of
    `grain`, and so is its end, or the arrays end there. unread: attributes that the code does not depend on.
    """

    run: Callable[[KernelCall], object] | None = _nothing_to_run
    emit: Callable[[Emitter, Group], None] = _no_code
    form: Hashable = None
    emit_part: Callable[[Emitter, Group, Bounds], None] | None = None
    grain: int = 1
    unread: tuple[str, ...] = ()
