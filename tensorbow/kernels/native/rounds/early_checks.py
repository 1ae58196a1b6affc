"""Checks of indices that are fed, before any replica begins the round: labels and rows to be looked up.

A call that refuses its input ends a round in which other replicas may have written. Most such inputs come
from outside: these are checked when a launch begins, and only the rounds before the first bad one are done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tensorbow.ops.indexing import NO_ROW, GatherGrad, GatherV2
from tensorbow.ops.losses import SparseSoftmaxCrossEntropyWithLogits
from tensorbow.program.plan import Executable, Group, Region
from tensorbow.specs import int32, int64


class IndexCheck(NamedTuple):
    """Integers of an input that a call takes as indices: its `words` are those that the driver reads."""

    input: int  # its number
    offset: int  # of the first, in bytes of the input
    length: int
    nbytes: int  # of each
    least: int
    extent: int  # one more than the largest, less `least`
    group: Group  # which raises the error

    @property
    def words(self) -> tuple[int, ...]:
        """All but the group."""
        return self[:-1]


CHECK_WORDS = len(IndexCheck._fields) - 1


def index_checks(executable: Executable, groups: Iterable[Group]) -> Iterator[IndexCheck]:
    """Checks of the calls whose indices are an input of the step, or a piece of one; one for each call, which
    refuses nothing else."""
    for group in groups:
        if group.definition is SparseSoftmaxCrossEntropyWithLogits:
            least, extent = 0, group.inputs[0].shape[1]
        elif group.definition in (GatherV2, GatherGrad):
            array = group.outputs[0] if group.definition is GatherGrad else group.inputs[0]
            least = NO_ROW if group.attrs["allow_unused"] else 0
            extent = array.shape[group.attrs["axis"] % len(array.shape)]
        else:
            continue
        indices = group.inputs[1]
        if indices.region is not Region.INPUT or indices.dtype not in (int32, int64):
            continue
        for number, ref in enumerate(executable.inputs.values()):
            offset = indices.offset - ref.offset
            if 0 <= offset < ref.nbytes:
                length, nbytes = math.prod(indices.shape), indices.dtype.size
                yield IndexCheck(number, offset, length, nbytes, least, extent - least, group)
                break
