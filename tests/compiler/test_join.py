"""Calls on neighbours in memory become one: all gradients are summed, averaged and checked together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.program import Executable, Region, SegmentKind
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of

RATE, DECAY, ROUNDS = 0.1, 0.25, 3
JOINED = ("AllSum", "GradientMean", "GradientCheck")

Shapes = dict[str, tuple[Any, tuple[int, ...]]]

MATRICES: Shapes = {
    "first": (tb.float32, (3, 5)),
    "first_bias": (tb.float32, (5,)),
    "second": (tb.float32, (5, 2)),
    "second_bias": (tb.float32, (2,)),
}


def model_of(variables: Shapes, without_gradient: str | None = None) -> Model:
    """Each variable is drawn to the replica's number; matrices decay, vectors do not."""
    initial = {name: np.ones(shape, dtype.as_numpy_dtype) for name, (dtype, shape) in variables.items()}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [], name="x")
        loss = tb.constant(0.0)
        for name, (dtype, _) in variables.items():
            variable = tb.Variable(initial[name], name=name)
            if name != without_gradient:
                distances = tb.square(variable - tb.cast(x, dtype))
                loss = loss + tb.cast(tb.reduce_sum(distances), tb.float32) * 0.5
        update = tb.train.MomentumOptimizer(RATE, 0.0, weight_decay=DECAY).minimize(loss)
    return Model(StepProgram((x,), loss, update, {}), [x.spec], initial, batch)


def batch(round: int, replica: int) -> tuple[Any, ...]:
    return (np.float32(round + 3 * replica),)


def expected_of(model: Model, without_gradient: str | None) -> dict[str, Any]:
    """The values after all rounds of two replicas, by NumPy."""
    values = {name: value.copy() for name, value in model.initial.items()}
    for round in range(ROUNDS):
        mean = (batch(round, 0)[0] + batch(round, 1)[0]) / 2
        for name, value in values.items():
            if name != without_gradient:
                decay = DECAY if value.ndim > 1 else 0.0
                value -= RATE * (value - mean + decay * value)
    return values


def trained(model: Model, sync: str) -> tuple[Executable, dict[str, Any]]:
    """The step of two replicas, and the variables' values after some rounds."""
    with engine_of(model, cpu_devices(1), 2, tb.train.Constant(RATE), sync=sync) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, ROUNDS)
        values = engine.learners.values.replica_values(1)
        return engine.learners.replicas[0].step, {name: values[name] for name in model.initial}


def sizes(step: Executable) -> dict[str, list[int]]:
    """Elements of each sum of gradients, mean of one, and check of one."""
    groups = [group for segment in step.segments for group in segment.groups]
    exchanged = [group for number in step.exchange_segments for group in step.segments[number].groups]
    assert {group.definition.name for group in exchanged} == {"AllSum"}
    return {
        name: [
            int(np.prod(group.inputs[0].shape))
            for group in groups
            if group.definition.name == name and (name == "AllSum" or reads_mean(group))
        ]
        for name in JOINED
    }


def reads_mean(group: Any) -> bool:
    """True for what is done with a sum, not with a replica's own gradient."""
    return group.inputs[0].region is Region.RESULTS


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variables", "without_gradient", "expected"),
    [
        (MATRICES, None, [15 + 5 + 10 + 2]),
        # In memory: both matrices, then both vectors.
        (MATRICES, "second", [15, 5 + 2]),
        (MATRICES, "first", [10 + 5 + 2]),
        (MATRICES, "first_bias", [15 + 10, 2]),
        (MATRICES, "second_bias", [15 + 10 + 5]),
        ({**MATRICES, "double": (tb.float64, (6,)), "table": (tb.float64, (4, 3))}, None, [32, 18]),
        ({"double": (tb.float64, (6,)), **MATRICES, "table": (tb.float64, (4, 3))}, None, [18, 32]),
        # Whole alignments: their vectors are neighbours, of two dtypes.
        ({"single": (tb.float32, (8, 8)), "double": (tb.float64, (4, 8))}, None, [64, 32]),
    ],
    ids=[
        "all",
        "no second",
        "no first",
        "no first bias",
        "no second bias",
        "two dtypes",
        "mixed",
        "without a gap",
    ],
)
def test_gradients_are_summed_averaged_and_checked_together(
    variables: Shapes, without_gradient: str | None, expected: list[int]
) -> None:
    """Decayed or not: one call of each kind for each dtype, but for a gap where there is no gradient."""
    model = model_of(variables, without_gradient)
    step, values = trained(model, "ssgd")
    assert len(step.exchange_segments) == 1
    assert sizes(step) == dict.fromkeys(JOINED, expected)
    for name, value in expected_of(model, without_gradient).items():
        np.testing.assert_allclose(values[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_replicas_own_gradients_are_checked_together() -> None:
    step, _ = trained(model_of(MATRICES), "none")
    checks = [
        group
        for segment in step.segments
        for group in segment.groups
        if group.definition.name == "GradientCheck"
    ]
    assert [group.inputs[0].shape for group in checks] == [(32,)]
    assert checks[0].inputs[0].region is Region.GRADIENTS
    assert all(segment.kind is SegmentKind.REPLICA for segment in step.segments)
