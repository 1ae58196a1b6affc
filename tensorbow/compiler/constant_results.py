"""Results of an op that are known while a step is compiled: constants, and inputs that it hands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import Kernel, NodeSpec, Operation, blame
from tensorbow.ops.arrays import Reshape
from tensorbow.ops.broadcasting import BroadcastTo, SumTo
from tensorbow.ops.control import Identity, StopGradient
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.selection import Cast
from tensorbow.program.nodes import Value
from tensorbow.specs import Array, TensorSpec

LARGEST_FOLDED = 1 << 20  # bytes: larger results are cheaper to compute than to keep
MOST_FOLDED = 64 << 20  # bytes of all folded results, or of one op's scratch; beyond it only small ones fold
SMALL_FOLDED = 1 << 10  # bytes: always folded, since shapes may depend on it
DROPPED = (SumTo, BroadcastTo, Cast, Reshape, Identity, StopGradient)  # removed where they change nothing


@dataclass
class FoldedBytes:
    """Count of the bytes of a program's folded results."""

    nbytes: int = 0

    def leaves_room(self, nbytes: int) -> bool:
        """True if results of this size may still be folded."""
        return nbytes <= SMALL_FOLDED or (nbytes <= LARGEST_FOLDED and self.nbytes + nbytes <= MOST_FOLDED)


def constant_results(
    op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec], folded: FoldedBytes
) -> tuple[Array, ...] | None:
    """The results, if they are constant and may be kept beside those that are `folded`; else None."""
    definition = op.definition
    if definition.stateful or definition.random or definition.exchange or not specs:
        return None
    if all(spec.value is not None for spec in specs):  # the spec rule alone gives the values
        return tuple(spec.value for spec in specs if spec.value is not None)
    arrays = [value.constant for value in inputs]
    if any(array is None for array in arrays) or not folded.leaves_room(sum(s.nbytes for s in specs)):
        return None
    kernel = definition.kernels.get("cpu")
    if kernel is None and not definition.is_view:
        return None
    with np.errstate(all="ignore"):
        try:
            if kernel is not None and _scratch_nbytes(kernel, op, inputs, specs) > MOST_FOLDED:
                return None
            return run_reference_kernel(definition, arrays, op.attrs)
        except TensorBowError as error:
            raise type(error)(blame(op.type, op.name, error, op.source)) from None
        except Exception as error:  # a user's kernel may raise anything
            raise InvalidArgumentError(blame(op.type, op.name, error, op.source)) from error


def _scratch_nbytes(
    kernel: Kernel, op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec]
) -> int:
    node = NodeSpec(op.attrs, tuple(value.spec for value in inputs), tuple(specs))
    return sum(scratch.nbytes for scratch in kernel.scratch_specs(node))


def changes_nothing(op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec]) -> bool:
    """True if the result equals the first input: a reduction or broadcast to the same shape, a cast to the
    same dtype, a view with the same shape. Reads of variables are kept: when they happen matters.
    """
    if op.definition not in DROPPED:
        return False
    source = inputs[0]
    return source.variable is None and source.spec == specs[0]
