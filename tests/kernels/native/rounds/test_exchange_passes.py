"""Steps fused into the pass of an exchange, and the calls that devices make after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, StepProgram
from tensorbow.kernels import backends
from tests.scheduler_rig.programs import Model, well
from tests.scheduler_rig.round_engines import engine_of
from tests.scheduler_rig.running import Prepared

pytest.importorskip("llvmlite")

from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.rounds.code import Phase, RoundCode
from tensorbow.kernels.native.rounds.exchange_pass import CHUNK

LAYOUTS: list[int | list[int]] = [2, [1, 1]]  # replicas of one device, or of each of two


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._backends, "cpu", NativeBackend())


def code_of(engine: LearningEngine) -> RoundCode:
    launcher: Any = engine.learners.launcher
    code = launcher._program._code
    assert isinstance(code, RoundCode)
    return code


def calls_of(code: RoundCode, phase: Phase) -> list[str]:
    """Names of the ops that a replica calls in a phase, outside of passes."""
    return [group.definition.name for calls in code.calls[phase.first : phase.end] for group in calls]


@pytest.mark.parametrize("replicas", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    ("options", "meetings"),
    [
        ({}, [0, 2]),
        ({"tau": 2, "mu": 0.5}, [0, 2]),
        ({"mu": 0.5, "staleness": 1}, [0, 2, 2]),
        ({"sync": "easgd"}, [0, 2]),
        ({"sync": "diloco", "tau": 2}, [0, 2]),
        ({"sync": "diloco", "tau": 2, "staleness": 1}, [0, 2, 2]),
        ({"sync": "ssgd"}, [0, 2]),
        ({"ssgd_from": 3}, [0, 2, 2]),
        ({"sync": "none"}, [0]),
    ],
    ids=str,
)
@pytest.mark.sampled(1)
def test_all_that_averages_is_in_the_pass(
    options: dict[str, Any], meetings: list[int], replicas: int | list[int]
) -> None:
    """Threads meet before and after it, and no device has more to do. The first variant only updates."""
    with engine_of(well(), replicas, **options) as engine:
        code = code_of(engine)
    assert code.meetings == meetings
    assert [[phase.pass_address != 0 for phase in phases] for phases in code.phases] == [
        [True, False] if count else [False] for count in meetings
    ]
    assert all(phase.device_function == -1 for phases in code.phases for phase in phases)
    averaging = [name for phases in code.phases[1:] for phase in phases for name in calls_of(code, phase)]
    assert not {"AllSum", "GradientMean", "SmaMove", "Add"} & {*averaging}


@pytest.mark.parametrize("sync", ["sma", "ssgd"])
def test_the_update_is_in_the_pass_of_corrections_and_the_check_in_that_of_gradients(sync: str) -> None:
    with engine_of(well(), 2, sync=sync) as engine:
        code = code_of(engine)
    update, averaging = ([calls_of(code, phase) for phase in phases] for phases in code.phases)
    assert "ApplyMomentum" in update[0][-1]
    if sync == "sma":  # the check of its own gradient is the replica's
        assert not any("Momentum" in name or "Sma" in name for calls in averaging for name in calls)
    else:
        assert "GradientCheck" not in averaging[1]
        assert averaging[1] == ["ApplyMomentum"]


def model_with(size: int, metric: Callable[[tb.Tensor], tb.Tensor]) -> Model:
    """`well` that also reports what it makes of the sum of all replicas' inputs."""
    model = well(size)
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [size], name="x")
        w = tb.Variable(model.initial["w"], name="w")
        loss = tb.reduce_sum(tb.square(w - x)) * 0.5
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        program = StepProgram((x,), loss, update, {"made": metric(tb.all_sum(x))})
    return replace(model, program=program)


METRICS: dict[str, tuple[Callable[[tb.Tensor], tb.Tensor], Callable[[Any], Any], bool]] = {
    "square": (tb.square, np.square, False),
    "largest": (tb.reduce_max, np.max, True),
    "sum of squares": (lambda s: tb.reduce_sum(tb.square(s)), lambda s: np.square(s).sum(), True),
    "reversed": (lambda s: tb.gather(s, [6, 5, 4, 3, 2, 1, 0]), lambda s: s[6::-1], True),
    "columns": (
        lambda s: tb.reshape(s, [-1, 1]) * tb.constant([1.0, 2.0, 3.0]),
        lambda s: np.outer(s, [1, 2, 3]),
        True,
    ),
    "outer": (
        lambda s: tb.matmul(tb.reshape(s, [-1, 1]), tb.reshape(s[:3], [1, 3])),
        lambda s: np.outer(s, s[:3]),
        True,
    ),
}


@pytest.mark.parametrize("replicas", LAYOUTS, ids=str)
@pytest.mark.parametrize("size", [7, 2 * CHUNK + 5])
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.sampled(1)
def test_what_reads_other_elements_of_a_sum_comes_behind_the_pass(
    name: str, size: int, replicas: int | list[int]
) -> None:
    make, expected, is_behind = METRICS[name]
    model, results = model_with(size, make), list[Any]()
    with engine_of(model, replicas, sync="none") as engine:
        code = code_of(engine)
        engine.run(Prepared(model.batch, 2).open, 0, 4, results.extend)
    ((phase, last),) = code.phases
    assert (phase.device_function >= 0, last.device_function) == (is_behind, -1)
    assert code.meetings == [3 if is_behind else 2]
    assert len(results) == 8
    for result in results:
        total = model.batch(result.round, 0)[0] + model.batch(result.round, 1)[0]
        np.testing.assert_allclose(result.metrics[0], expected(total), rtol=1e-4, atol=1e-5)
