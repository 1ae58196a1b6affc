"""Random programs of mixed ops in every way of running: the values of NumPy, run after run."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tensorbow as tb
from tests.program_rig.mixed import MixedProgram

OnHost = tb.define_op(
    "MixedOnHost",
    spec=lambda inputs, attrs: inputs[0],
    gradient=lambda op, gradient: [gradient],
    inputs=("x",),
    host=lambda call: np.array(call.inputs[0]),
    replace=True,
)
WAYS = {
    "planned": {},
    "loops dynamic": {"config": tb.ConfigProto(compiles_loops=False)},
    "ops of the host": {},
    "two devices": {"devices": ["/cpu:0", "/cpu:1"]},
}


def built(program: MixedProgram, way: str, random: Random):
    def hand_on(tensor):
        if way == "ops of the host" and random.randrange(6) == 0:
            return OnHost(tensor)
        if way == "two devices" and random.randrange(2):
            with tb.device("/cpu:1"):
                return tb.identity(tensor)
        return tensor

    return program.build(hand_on)


def check_values(seed: int) -> None:
    """Three runs: of some fetches, of fewer with values fed in the middle, and of the first again."""
    dtype = ("float64", "float32")[seed % 2]
    program, random = MixedProgram(seed, dtype=dtype), Random(seed)
    many = [random.randrange(len(program.values)) for _ in range(8)]
    between = {n: program.values[n] * np.asarray(0.999, dtype) for n in many[4:6] if n not in program.fed}
    between = {n: value for n, value in between.items() if program.values[n].dtype == dtype}
    for way, options in WAYS.items():
        with tb.Graph().as_default(), tb.Session(**options) as session:
            tensors, variables = built(program, way, random)
            session.run(tb.global_variables_initializer())
            state = [value.copy() for value in program.start]
            for fetches, more in ((many, {}), (many[:4], between), (many, {})):
                fed = {**program.fed, **more}
                expected = [*program.expected(fetches, state, fed), *state]
                feeds = {tensors[n]: value for n, value in fed.items()}
                found = session.run([*(tensors[n] for n in fetches), *variables], feeds)
                tolerance = 1e-4 if dtype == "float32" else 1e-9
                for n, value, want in zip([*fetches, "v", "v", "v"], found, expected, strict=True):
                    assert np.shape(value) == want.shape
                    assert value.dtype == want.dtype
                    np.testing.assert_allclose(
                        value, want, rtol=tolerance, atol=tolerance, err_msg=f"{way}, value {n}"
                    )


def check_slopes(seed: int) -> None:
    """Gradients by what is fed and by variables are slopes along a direction; at a kink there is none."""
    program, random, draw = MixedProgram(seed, writes=False), Random(seed), np.random.default_rng(seed)
    chosen = [
        n for n in sorted(random.sample(range(len(program.values)), 8)) if program.values[n].dtype.kind == "f"
    ]
    weights = {n: draw.uniform(-1, 1, program.values[n].shape) for n in chosen}
    fed_way = {n: draw.uniform(-1, 1, value.shape) for n, value in program.fed.items()}
    state_way = [draw.uniform(-1, 1, value.shape) for value in program.start]

    def loss_at(distance: float) -> float:
        state = [value + distance * way for value, way in zip(program.start, state_way, strict=True)]
        fed = {n: value + distance * fed_way[n] for n, value in program.fed.items()}
        values = program.expected(chosen, state, fed)
        return float(sum((weights[n] * value).sum() for n, value in zip(chosen, values, strict=True)))

    low, middle, high = (loss_at(distance) for distance in (-1e-6, 0, 1e-6))
    if not chosen or abs(low - 2 * middle + high) > 1e-9:
        return
    slopes = []
    for way, options in WAYS.items():
        with tb.Graph().as_default(), tb.Session(**options) as session:
            tensors, variables = built(program, way, random)
            loss = tb.add_n([tb.reduce_sum(tensors[n] * weights[n]) for n in chosen])
            sources = [*(tensors[n] for n in program.fed), *variables]
            gradients = map(tb.convert_to_tensor, tb.gradients(loss, sources, unconnected_gradients="zero"))
            along = zip(gradients, [*fed_way.values(), *state_way], strict=True)
            slope = tb.add_n([tb.reduce_sum(gradient * way) for gradient, way in along])
            session.run(tb.global_variables_initializer())
            found = session.run([loss, slope], {tensors[n]: value for n, value in program.fed.items()})
        slopes.append(found[1])
        np.testing.assert_allclose(found[0], middle, rtol=1e-9, atol=1e-9, err_msg=way)
    np.testing.assert_allclose(slopes, [(high - low) / 2e-6] * len(slopes), rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("check", [check_values, check_slopes])
@pytest.mark.parametrize("count", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_programs_by_reference_kernels(reference_kernels, count, check):
    for seed in range(count, 2 * count):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_values, check_slopes])
def test_programs_by_native_code(native_kernels, check):
    for seed in range(1000, 1020):
        check(seed)
