"""A name for the code of a plan, by what it is made of, so that code on disk is found without writing any.

It covers the calls with their places, attributes and fused expressions, and the text of the modules that
write the code. A plan with anything in it whose text is not known to be the same in every process has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from tensorbow.graph import OpDef
from tensorbow.kernels.native.kernel import NativeKernel
from tensorbow.kernels.plan import Group, Ref
from tensorbow.specs import DType

OURS = "tensorbow."  # modules whose text is part of the name
WRITERS = ("kernels/*.py", "kernels/native/*.py", "kernels/scalars/*.py", "ops/*.py", "specs.py")


class _NoTextError(Exception):
    """Something that has no text of its own."""


def plan_key(runs: Sequence[Sequence[Group]], status: Ref) -> str | None:
    """The name of the code of these runs of calls, or None where there is none."""
    try:
        calls = [[_call(group) for group in groups] for groups in runs]
        return hashlib.sha256(f"{_sources()} {_text(status)} {calls}".encode()).hexdigest()
    except _NoTextError:
        return None


def _call(group: Group) -> str:
    kernel = group.kernel
    if not isinstance(kernel, NativeKernel) or not str(getattr(kernel.emit, "__module__", "")).startswith(
        OURS
    ):
        raise _NoTextError
    places = group.inputs, group.outputs, group.scratch, group.state
    return _text((group.definition, kernel.form, group.attrs, *places, group.predicated))


def _text(value: Any) -> str:
    """The same text in every process for equal values. Raises _NoTextError for what is not known here."""
    if value is None or (isinstance(value, (str, bool, int, float)) and not isinstance(value, Enum)):
        return repr(value)
    if isinstance(value, (OpDef, DType, Enum)):
        return f"{type(value).__name__} {value.name}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(k)}:{_text(v)}' for k, v in sorted(value.items()))}}}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({','.join(_text(getattr(value, f.name)) for f in fields(value))})"
    raise _NoTextError


@cache
def _sources() -> str:
    """A checksum of the modules that decide what is written. Raises _NoTextError if they cannot be read."""
    root = Path(__file__).parents[2]
    checksum = hashlib.sha256()
    try:
        for pattern in WRITERS:
            files = sorted(root.glob(pattern))
            if not files:
                raise _NoTextError
            for file in files:
                checksum.update(file.read_bytes())
    except OSError:
        raise _NoTextError from None
    return checksum.hexdigest()
