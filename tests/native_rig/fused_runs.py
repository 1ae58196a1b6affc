"""Runs of a graph on the native backend, with fusing or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tensorbow as tb
from tensorbow.kernels import register_backend
from tests.native_rig.native_calls import native_cpu

# After what skips where llvmlite is missing.
from tensorbow.kernels.native.backend import NativeBackend  # isort: skip
from tensorbow.kernels.native.codegen.switches import Switches  # isort: skip
from tensorbow.kernels.native.codegen.target import Target, host_target  # isort: skip

APART = Switches(
    batch_norms=False,
    factored_gradients=False,
)


def unfused(target: Target | None = None) -> NativeBackend:
    """A backend for which each op is a call of its own."""
    return NativeBackend(replace(target or host_target(), switches=APART))


def values(
    fetches: Any, feeds: Mapping[tb.Tensor, Any], fuses: bool = True, target: Target | None = None
) -> tuple[Any, str]:
    """The fetched values, of variables as they begin, and what `explain` says."""
    with native_cpu():
        register_backend("cpu", NativeBackend(target) if fuses else unfused(target))
        with tb.Session() as session:
            session.run(tb.global_variables_initializer())
            return session.run(fetches, feeds), str(session.explain(fetches, feeds))
