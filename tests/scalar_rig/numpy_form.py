"""NumPy form of scalar expressions, the reference of every other form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.kernels.scalars.expression import CAST, CONSTANT, INPUT, SELECT, Scalar, in_order
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.erf import erf
from tensorbow.specs import Array


def _erf(x: Array) -> Array:
    wide = np.atleast_1d(x)
    distance, term, out = (np.empty_like(wide) for _ in range(3))
    erf(wide, distance, term, np.empty(wide.shape, np.int64), out)
    return out.reshape(np.shape(x))


def _truncate16(x: Array) -> Array:
    """Towards zero, to 8 bits of a float32's significand; all numbers here are normal."""
    fraction, exponent = np.frexp(np.asarray(x, np.float32))
    return np.asarray(np.ldexp(np.trunc(fraction * 256) / 256, exponent), np.asarray(x).dtype)


def _reference(op: OpDef) -> Callable[..., Array]:
    return lambda x: run_reference_kernel(op, [x])[0]


_OWN: dict[str, Callable[..., Any]] = {
    "erf": _erf,
    "erfc": _reference(table.Erfc),
    "lgamma": _reference(table.Lgamma),
    "truncate16": _truncate16,
    SELECT: np.where,
}


def to_numpy(results: Sequence[Scalar], arrays: Sequence[Array]) -> list[Array]:
    """Values of the expressions for inputs that broadcast; NaN and infinities give no warning.

    A result has the broadcast shape of the inputs that it depends on.
    """
    values: dict[Scalar, Any] = {}
    with np.errstate(all="ignore"):
        for node in in_order(results):
            operands = [values[operand] for operand in node.operands]
            if node.operator == INPUT:
                values[node] = arrays[int(node.argument)]
            elif node.operator == CONSTANT:
                values[node] = node.dtype.as_numpy_dtype.type(node.argument)
            elif node.operator == CAST:
                values[node] = np.asarray(operands[0]).astype(node.dtype.as_numpy_dtype)
            else:
                function = _OWN.get(node.operator) or getattr(np, node.operator)
                values[node] = function(*operands)
    return [np.asarray(values[node], node.dtype.as_numpy_dtype) for node in results]
