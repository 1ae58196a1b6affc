"""Samples of the samplers of candidate classes, against draws one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.candidate_samplers import FixedUnigram, LogUniform, Uniform
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers
from tests.ops_contract.samples_random import SEEDS, STATE, uniforms


def _drawn(class_of: Callable[[float, int], int], attrs: dict[str, Any]) -> tuple[Array, Array]:
    found: list[int] = []
    draws = 0
    for number in uniforms(20 * attrs["num_sampled"] + 2000, np.float64):
        if len(found) == attrs["num_sampled"]:
            break
        drawn = class_of(float(number), attrs["range_max"])
        draws += 1
        if not attrs["unique"] or drawn not in found:
            found.append(drawn)
    return np.array(found), np.array(draws)


def _sample(
    op: OpDef,
    class_of: Callable[[float, int], int] | None,
    num_sampled: int,
    range_max: int,
    unique: bool = True,
    inputs: tuple[Array, ...] = (),
    **more: Any,
) -> Sample:
    attrs = {"num_sampled": num_sampled, "range_max": range_max, "unique": unique}
    expected = None if class_of is None else lambda *_: _drawn(class_of, attrs)
    return Sample(op, inputs, expected, {**attrs, **SEEDS}, state=STATE, **more)


def _log_uniform(number: float, classes: int) -> int:
    return min(int(np.exp(number * np.log(classes + 1))) - 1, classes - 1)


WEIGHTS = integers(40, high=5, dtype=np.float64)
RUNNING = np.cumsum(WEIGHTS)

SAMPLES = [
    *(
        _sample(op, class_of, *counts, unique=unique, label=f"{counts} {unique}")
        for op, class_of in ((LogUniform, _log_uniform), (Uniform, lambda number, n: int(number * n)))
        for counts, unique in (((7, 7), True), ((30, 1000), True), ((3000, 3), False))
    ),
    *(_sample(op, None, 80_000, 200_000, label="large") for op in (LogUniform, Uniform)),
    *(
        _sample(
            FixedUnigram,
            lambda number, _: int(np.sum(number * RUNNING[-1] >= RUNNING)),
            count,
            40,
            unique,
            (WEIGHTS,),
            label=f"{count} {unique}",
        )
        for count, unique in ((20, True), (300, False))
    ),
    _sample(
        FixedUnigram,
        None,
        80_000,
        100_000,
        inputs=(integers(100_000, low=1, high=3, dtype=np.float64),),
        label="large",
    ),
]
