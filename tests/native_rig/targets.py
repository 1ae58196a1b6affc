"""Targets of generated code: this processor, and an older model of it."""

from __future__ import annotations

import llvmlite.binding as llvm

from tensorbow.kernels.native.codegen.target import Target, target_of

WIDE = ("avx512", "avx10", "amx", "evex512")  # begins the names of what `narrow_target` leaves out


def narrow_target() -> Target:
    """This machine's target without 64-byte vectors."""
    features = dict(llvm.get_host_cpu_features())
    return target_of({name: on and not name.startswith(WIDE) for name, on in features.items()})
