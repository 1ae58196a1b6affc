"""A kernel that is code to be generated."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorbow.errors import InternalError
from tensorbow.graph import Kernel, KernelCall

if TYPE_CHECKING:
    from tensorbow.kernels.native.emitter import Emitter
    from tensorbow.kernels.plan import Group


def _nothing_to_run(call: KernelCall) -> None:
    raise InternalError("a native kernel runs in its segment only")


def _no_code(emitter: Emitter, group: Group) -> None:
    raise InternalError("a native kernel without code")


@dataclass(frozen=True)
class NativeKernel(Kernel):
    """emit(emitter, group): writes the call's code. The other fields are those of any kernel.

    form: where several `emit` write the same code, what tells so.
    """

    run: Callable[[KernelCall], object] | None = _nothing_to_run
    emit: Callable[[Emitter, Group], None] = _no_code
    form: Hashable = None
