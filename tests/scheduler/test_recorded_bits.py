"""Training has the bits of an earlier version, whatever the kernels, the devices and the rounds of a launch.

The numbers were computed by commit 99c02b6. The models go element by element, in correctly rounded operations
only, so that neither the processor nor BLAS changes a bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import tensorbow as tb
from scheduler import StepProgram
from scheduler.batches.sources import gathered
from tensorbow.optimizers import Optimizer
from tensorbow.specs import Array
from tensorbow.training import load_arrays
from tests.scheduler_rig.programs import Model, well
from tests.scheduler_rig.round_engines import engine_of
from tests.scheduler_rig.running import Prepared

ROUNDS = 9
LAYOUTS: list[int | list[int]] = [3, [2, 2]]  # replicas of one device, or of each of two

OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "gradient descent": lambda: tb.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tb.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: tb.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tb.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tb.train.AdadeltaOptimizer(0.5, epsilon=1e-4),
    "rmsprop": lambda: tb.train.RMSPropOptimizer(0.05, momentum=0.5),
    "adam": lambda: tb.train.AdamOptimizer(0.05),
}

# Optimiser, options, whether the rate drops and averaging restarts, CRC32 of the state by layout.
RECORDED: list[tuple[str, dict[str, Any], bool, tuple[int, int]]] = [
    ("momentum", {}, False, (0x38E7FD67, 0xD5D22D53)),
    ("momentum", {}, True, (0xB8111D9B, 0x514E0EB5)),
    ("momentum", {"mu": 0.7}, False, (0x2E8EB15E, 0xD48ECABB)),
    ("momentum", {"tau": 2}, False, (0x7A314D7E, 0x8ED0AAA9)),
    ("momentum", {"tau": 3, "mu": 0.5}, True, (0x2166AB12, 0x23038411)),
    ("momentum", {"staleness": 1}, True, (0xA2A6573A, 0x552F1967)),
    ("momentum", {"staleness": 2, "tau": 2, "mu": 0.4}, False, (0x2376399C, 0xD5FC1C6D)),
    ("momentum", {"alpha": 0.1}, False, (0x2FF4E785, 0xFC79D12E)),
    ("momentum", {"ssgd_from": 5}, False, (0xCC57FF21, 0x0131ACE7)),
    ("momentum", {"ssgd_from": 7, "staleness": 1, "mu": 0.2}, True, (0x7790CE2C, 0xD8079A47)),
    ("momentum", {"clear_velocity": True, "mu": 0.2}, True, (0x04BA0242, 0xDBB00DC1)),
    ("momentum", {"sync": "ssgd"}, False, (0x4A477642, 0xFDEB955B)),
    ("momentum", {"sync": "ssgd"}, True, (0x8263E260, 0xC68AC79D)),
    ("momentum", {"sync": "easgd"}, True, (0x3F3A8B15, 0x412C19C2)),
    ("momentum", {"sync": "easgd", "tau": 2, "staleness": 1}, False, (0x9D737BFD, 0x7212D0B3)),
    ("momentum", {"sync": "none"}, False, (0x3AC30CFA, 0x6EC6ECD9)),
    ("gradient descent", {"tau": 2, "mu": 0.3}, True, (0x128E8A49, 0x25A40815)),
    ("gradient descent", {"sync": "ssgd"}, False, (0x5C570ABD, 0x0C648805)),
    ("nesterov", {"tau": 2, "mu": 0.3}, False, (0x7E417E75, 0x2A3EC9D0)),
    ("nesterov", {"sync": "ssgd"}, True, (0x3026DCA2, 0x08949D7F)),
    ("adagrad", {"tau": 2, "mu": 0.3}, False, (0xB4494F2C, 0x4A66B280)),
    ("adadelta", {"sync": "ssgd"}, False, (0x47739C34, 0x843991D2)),
    ("rmsprop", {"tau": 2, "mu": 0.3}, True, (0x467D7CFA, 0xD0B1AD7E)),
    ("rmsprop", {"sync": "none"}, False, (0xF5BAA042, 0xFE8BE188)),
    ("adam", {"tau": 2, "mu": 0.3}, True, (0xDE521E40, 0x4C63E0E3)),
    ("adam", {"sync": "ssgd"}, False, (0x5F88435B, 0x6EF78546)),
]


def model_of(optimizer: str, mode: str = "auto") -> Model:
    """`well` with another optimiser. mode: of the StepProgram."""
    model = well()
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [7], name="x")
        w = tb.Variable(model.initial["w"], name="w")
        loss = tb.reduce_sum(tb.square(w - x)) * 0.5
        update = OPTIMIZERS[optimizer]().minimize(loss)
    return Model(StepProgram((x,), loss, update, {}, mode=mode), model.shapes, model.initial, model.batch)


def checksum(
    layout: int | list[int],
    steps: int,
    restarts: bool = False,
    optimizer: str = "momentum",
    start: int = 0,
    state: Mapping[str, Array] | None = None,
    mode: str = "auto",
    **options: Any,
) -> str:
    """CRC32 of names and values of the state after the last round, in the order of names.

    start: the first round to train, from `state` if given.
    """
    model = model_of(optimizer, mode)
    schedule = tb.train.PiecewiseConstant([4], [0.1, 0.05]) if restarts else tb.train.Constant(0.1)
    with engine_of(model, layout, steps, schedule=schedule, **options) as engine:
        if state is not None:
            engine.learners.values.load_state_arrays(state)
        source = Prepared(model.batch, engine.learners.count).open
        engine.run(source if steps == 1 else gathered(source, steps), start, ROUNDS)
        left = engine.learners.values.state_arrays()
    crc = 0
    for name in sorted(left):
        crc = zlib.crc32(left[name].tobytes(), zlib.crc32(name.encode(), crc))
    return f"{crc:08X}"


@pytest.fixture
def launches(kernels: str) -> tuple[int, ...]:
    """Rounds of a launch."""
    return (1, 4) if kernels == "native" else (1,)


@pytest.mark.parametrize(("optimizer", "options", "restarts", "expected"), RECORDED, ids=str)
@pytest.mark.sampled(1)
def test_the_bits_of_an_earlier_version(
    launches: tuple[int, ...],
    optimizer: str,
    options: dict[str, Any],
    restarts: bool,
    expected: tuple[int, int],
) -> None:
    for steps in launches:
        found = [checksum(layout, steps, restarts, optimizer, **options) for layout in LAYOUTS]
        assert found == [f"{crc:08X}" for crc in expected]


@pytest.mark.parametrize(("optimizer", "options", "restarts", "expected"), RECORDED, ids=str)
@pytest.mark.sampled(1)
def test_the_dynamic_mode_has_these_bits(
    kernels: str, optimizer: str, options: dict[str, Any], restarts: bool, expected: tuple[int, int]
) -> None:
    layouts = LAYOUTS if kernels == "native" else LAYOUTS[:1]
    found = [checksum(layout, 1, restarts, optimizer, mode="dynamic", **options) for layout in layouts]
    assert found == [f"{crc:08X}" for crc in expected[: len(found)]]


@pytest.mark.sampled(1)
def test_a_checkpoint_of_an_earlier_version_goes_on_with_its_bits(launches: tuple[int, ...]) -> None:
    """Commit 99c02b6 saved the file after 5 rounds, and computed the number after all."""
    state, about = load_arrays(Path(__file__).parent / "checkpoint_99c02b6.safetensors")
    for steps in launches:
        for mode in ("auto", "dynamic") if steps == 1 else ("auto",):
            found = checksum(
                3, steps, start=about["round"], state=state, mode=mode, mu=0.5, staleness=1, tau=2
            )
            assert found == "707C3F3A"
