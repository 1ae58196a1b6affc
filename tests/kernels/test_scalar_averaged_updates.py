"""An update and the averaging around it as one pass: when, and the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorbow.graph import Kernel, OpDef
from tensorbow.kernels.averaged_updates import merge_averaging
from tensorbow.kernels.merging import merge_updates
from tensorbow.ops.averaging import GradientCheck, SmaCorrect, SmaDifference
from tensorbow.ops.definition import kernel_for
from tensorbow.ops.exchanges import AllSum
from tensorbow.ops.updates import ApplyGradientDescent, ApplyMomentum
from tensorbow.program import Group, Ref, Region
from tensorbow.specs import float32, float64, int64
from tests.scalar_rig.numpy_backend import NumpyRulesBackend, averaged_kernel, used
from tests.scheduler_rig.programs import Model, convolutional, well
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits

ROUNDS = 7


def trained(model: Model, backend: NumpyRulesBackend, **options: Any) -> dict[str, Any]:
    with used(backend), engine_of(model, cpu_devices(1), 3, **options) as engine:
        engine.run(Prepared(model.batch, 3).open, 0, ROUNDS)
        return engine.learners.values.state_arrays()


def update_calls(backend: NumpyRulesBackend) -> set[tuple[str, ...]]:
    """Ops of the calls of each segment that averages."""
    return {
        tuple(g.definition.name for g in segment.groups)
        for executable in backend.bound
        for segment in executable.segments
        if segment.name.startswith("update, averaging") and ":" not in segment.name and segment.groups
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, {"tau": 2, "mu": 0.5}, {"staleness": 1}], ids=str)
def test_the_bits_are_those_of_three_passes(options: dict[str, Any]) -> None:
    model, plain, merged = convolutional(dropout=False), NumpyRulesBackend(merges=False), NumpyRulesBackend()
    assert same_bits(trained(model, merged, **options), trained(model, plain, **options))
    (calls,) = update_calls(merged)
    assert set(calls) == {"GradientCheck", "ApplyMomentum"}
    (calls,) = update_calls(plain)
    assert {"SmaDifference", "SmaCorrect"} <= set(calls)


@pytest.mark.slow
def test_a_replica_whose_status_is_set_keeps_its_values_and_gives_no_correction() -> None:
    model = well()
    bad = Model(
        model.program,
        model.shapes,
        model.initial,
        lambda t, i: (np.full(7, np.nan, np.float32),) if (t, i) in ((2, 1), (3, 0)) else model.batch(t, i),
    )
    states = [trained(bad, NumpyRulesBackend(merges=merges), on_nan="skip") for merges in (False, True)]
    assert same_bits(*states)
    assert not same_bits(states[1], trained(model, NumpyRulesBackend()))
    assert all(np.isfinite(value).all() for value in states[1].values())


# When ---------------------------------------------------------------------------------------------------


def moved(ref: Ref, region: Region, shift: int) -> Ref:
    return replace(ref, region=region, offset=ref.offset + shift)


WEIGHTS = Ref(Region.WEIGHTS, 0, (9,), float32)
CENTRAL, CORRECTION = moved(WEIGHTS, Region.CENTRAL, 36), moved(WEIGHTS, Region.EXCHANGE, 36)
RATE, STATUS = Ref(Region.STATE, 0, (), float32), Ref(Region.STATE, 16, (), int64)
STATE = (("alpha", Ref(Region.STATE, 8, (), float64)), ("status", STATUS))


def group(
    definition: OpDef,
    inputs: tuple[Ref, ...],
    *,
    outputs: tuple[Ref, ...] = (),
    writes: tuple[Ref, ...] = (),
    state: tuple[tuple[str, Ref], ...] = (),
) -> Group:
    reads = (*inputs, *(ref for _, ref in state))
    kernel = kernel_for(definition, "cpu")
    return Group(
        definition.name, definition, kernel, {}, inputs, outputs, (), state, reads, (*outputs, *writes)
    )


def difference() -> Group:
    return group(SmaDifference, (WEIGHTS, CENTRAL), outputs=(CORRECTION,), state=STATE)


def correct() -> Group:
    return group(SmaCorrect, (WEIGHTS, CORRECTION), writes=(WEIGHTS,))


def check() -> Group:
    return group(GradientCheck, (moved(WEIGHTS, Region.GRADIENTS, 0),), writes=(STATUS,), state=STATE[1:])


def update(start: int, shape: tuple[int, ...]) -> Group:
    """Momentum, of as many elements of the flat buffer as `shape` has."""
    w = Ref(Region.WEIGHTS, 4 * start, shape, float32)
    v, g = moved(w, Region.SLOTS, 0), moved(w, Region.GRADIENTS, 0)
    return Group(
        f"of {start}",
        ApplyMomentum,
        Kernel(run=lambda call: None, pointwise=True),
        dict(ApplyMomentum.attrs),
        (w, v, g, RATE, RATE),
        (w,),
        reads=(w, v, g, RATE),
        writes=(w, v),
        predicated=True,
        note="a note",
    )


def names(groups: list[Group]) -> list[str]:
    return [call.definition.name for call in merge_averaging(groups, averaged_kernel)]


def test_updates_that_cover_the_weights_take_averaging_in() -> None:
    groups = [check(), difference(), update(4, (5,)), update(0, (2, 2)), correct()]
    merged = merge_averaging(groups, averaged_kernel)
    assert [call.name for call in merged] == ["GradientCheck", "of 4", "of 0"]
    last, first = merged[1:]
    (c,), z = first.outputs, first.inputs[-1]
    assert [(c.offset, c.shape), (z.offset, z.shape)] == [(36, (4,)), (36, (4,))]
    assert [ref.shape for ref in first.inputs] == [(4,), (4,), (4,), (), (), (4,)]
    assert last.outputs[0].offset == last.inputs[-1].offset == 36 + 16
    assert {str(ref) for ref in first.writes} == {"WEIGHTS+0:16", "SLOTS+0:16", "EXCHANGE+36:16"}
    assert {"CENTRAL+36:16", "STATE+8:8", "STATE+16:8"} <= {str(ref) for ref in first.reads}
    assert not first.predicated  # as it has to write c = 0
    assert "a note; c = alpha * (w - z), the update and w -= c in one pass; while the status" in first.note


def test_merged_updates_do_too() -> None:
    groups = [difference(), update(4, (5,)), update(0, (2, 2)), correct()]
    assert [call.name for call in merge_averaging(merge_updates(groups), averaged_kernel)] == ["of 0 to of 4"]


def test_anything_in_the_way_leaves_three_passes() -> None:
    whole = update(0, (9,))
    assert names([difference(), whole, correct()]) == ["ApplyMomentum"]
    apart = ["SmaDifference", "ApplyMomentum", "SmaCorrect"]
    assert names([difference(), update(0, (8,)), correct()]) == apart  # a weight that nobody updates
    assert names([difference(), update(1, (8,)), correct()]) == apart
    assert names([difference(), replace(whole, scratch=(RATE,)), correct()]) == apart
    assert names([difference(), replace(whole, kernel=Kernel(run=lambda call: None)), correct()]) == apart
    twice = ["SmaDifference", "ApplyMomentum", "ApplyMomentum", "SmaCorrect"]
    assert names([difference(), whole, whole, correct()]) == twice
    between = group(ApplyGradientDescent, (WEIGHTS, WEIGHTS, RATE), writes=(WEIGHTS,))
    written = replace(between, scratch=(RATE,))
    assert len(names([difference(), whole, written, correct()])) == 4
    assert len(names([difference(), check(), whole, correct()])) == 4  # the status comes after c
    reader = group(AllSum, (WEIGHTS,), outputs=(moved(WEIGHTS, Region.SLAB, 0),))
    assert len(names([difference(), whole, reader, correct()])) == 4  # it reads w before c is subtracted
    assert len(names([reader, difference(), whole, correct(), reader])) == 3
    assert names([difference(), whole]) == ["SmaDifference", "ApplyMomentum"]
    assert names([whole, correct()]) == ["ApplyMomentum", "SmaCorrect"]
