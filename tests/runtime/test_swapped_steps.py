"""Steps of sessions on a GPU with values in host memory: the bits stay, whatever the timing.

An emulated one here; what takes `opened` runs in `tests/gpu` on the GPU of the machine.
"""

from __future__ import annotations

import gc
import random
import re
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler.placement import CostModel
from tensorbow.compiler.placement.cost_model import LINKS, LinkSpeed
from tensorbow.devices import CpuDevice, GpuDevice
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

ROWS, WIDTH = 512, 32
LAYER = ROWS * WIDTH * 4


def chain(layers: int = 6) -> tuple[list[Any], dict[Any, Any]]:
    x = h = tb.placeholder(tb.float32, [None, WIDTH])
    for layer in range(layers):
        w = tb.Variable(np.eye(WIDTH, dtype=np.float32) * (1 + layer / 100), name=f"w{layer}")
        h = tb.tanh(tb.matmul(h, w))
    loss = tb.reduce_mean(tb.square(h))
    feeds = {x: np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)}
    return [loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss)], feeds


def delay(seed: int) -> Any:
    rng = random.Random(seed)
    return lambda: time.sleep(rng.random() * 1e-3 if rng.random() < 0.3 else 0)


def trained(opened: OpenedGpu, how: str, seed: int = 0, steps: int = 4) -> tuple[list[bytes], str, list[str]]:
    """Bits of losses and variables, the explanation, and on an emulated GPU the work of the largest graph."""
    graph = tb.Graph()
    with (
        graph.as_default(),
        opened(delay=delay(seed), backwards=bool(seed % 2)) as runtime,
        GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu,
    ):
        fetches, feeds = chain()
        with tb.Session(device=gpu, config=tb.ConfigProto(swap=how)) as session:
            session.run(tb.global_variables_initializer())
            losses = [session.run(fetches, feeds)[0] for _ in range(steps)]
            variables = session.run(tb.global_variables())
            text = str(session.explain(fetches, feeds))
            works: list[str] = []
            if isinstance(runtime, EmulatedCuda):
                works = max(map(runtime.graph_works, runtime._graphs), key=len)
        gc.collect()
    return [np.asarray(value).tobytes() for value in (*losses, *variables)], text, works


def slab_of(text: str) -> int:
    found = re.search(r"slab: ([\d,]+) bytes at peak", text)
    assert found is not None
    return int(found[1].replace(",", ""))


@needs_compiler
def test_the_bits_stay_and_the_slab_is_smaller() -> None:
    bits, never, _ = trained(emulated_runtime, "never")
    again, smallest, captured = trained(emulated_runtime, "smallest", seed=1)
    assert again == bits
    assert slab_of(never) >= 7 * LAYER
    assert slab_of(smallest) <= 3 * LAYER
    assert "AwaitSwapIn" in smallest
    assert "swapped+0@" in smallest
    for way in ("DEVICE_TO_HOST", "HOST_TO_DEVICE"):
        assert sum(f"copy {way} {LAYER}" in work for work in captured) >= 4, captured


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", ["hidden", "smallest"])
def test_any_timing_gives_the_same_bits(
    opened: OpenedGpu, how: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bits, _, _ = trained(opened, "never")
    links = LINKS | {
        frozenset({"cpu", "gpu"}): LinkSpeed(1e-6, 1e11)
    }  # fast copies, many of which are hidden
    monkeypatch.setattr("tensorbow.compiler.swap.COSTS", CostModel(links=links))
    again, text, _ = trained(opened, how, seed)
    assert "bytes of host memory between their uses" in text
    assert again == bits


@needs_compiler
@pytest.mark.slow
def test_a_recurrent_network_has_the_same_bits(opened: OpenedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorbow.compiler.swap.LEAST_NBYTES", 256)
    links = LINKS | {frozenset({"cpu", "gpu"}): LinkSpeed(1e-6, 1e10)}
    monkeypatch.setattr("tensorbow.compiler.swap.COSTS", CostModel(links=links))
    found, texts = [], []
    x = np.random.default_rng(2).normal(size=(6, 9, 8)).astype(np.float32)
    for swap_memory in (False, True):
        with (
            tb.Graph().as_default(),
            opened(delay=delay(4)) as runtime,
            GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27) as gpu,
        ):
            tb.set_random_seed(6)
            cell = tb.nn.rnn_cell.GRUCell(8)
            given = tb.placeholder_with_default(x, [6, None, 8])
            y, _ = tb.nn.dynamic_rnn(cell, given, swap_memory=swap_memory)
            loss = tb.reduce_mean(tb.square(y))
            fetches = [loss, tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)]
            with tb.Session(device=gpu) as session:
                session.run(tb.global_variables_initializer())
                losses = [session.run(fetches)[0] for _ in range(4)]
                found.append([value.tobytes() for value in (*losses, *session.run(tb.global_variables()))])
                texts.append(str(session.explain(fetches)))
            gc.collect()
    assert found[0] == found[1]
    assert ["bytes of host memory between their uses" in text for text in texts] == [False, True]


@needs_compiler
def test_auto_swaps_where_memory_is_short() -> None:
    config = tb.ConfigProto(swap="auto")
    texts = []
    for short in (False, True):
        with (
            tb.Graph().as_default(),
            emulated_runtime() as runtime,
            GpuDevice("/gpu:0", runtime, limit_nbytes=(9 << 20) if short else (1 << 27)) as gpu,
        ):
            x = h = tb.placeholder(tb.float32, [None, WIDTH])
            for _ in range(16):
                h = tb.tanh(tb.sin(h) + h)
            gradient = tb.gradients(tb.reduce_sum(h), x)
            with tb.Session(device=gpu, config=config) as session:
                texts.append(str(session.explain(gradient, {x: np.ones((1 << 12, WIDTH), np.float32)})))
            gc.collect()
    assert ["bytes of host memory between their uses" in text for text in texts] == [False, True]
    assert slab_of(texts[1]) < slab_of(texts[0])


def test_cpus_say_that_it_has_no_effect() -> None:
    said = "swap='smallest': swap: no effect on devices of kind cpu, .* use a GPU"
    with tb.Graph().as_default(), CpuDevice("/cpu:6") as device:
        fetches, feeds = chain()
        texts = []
        for how in ("smallest", "auto"):
            with pytest.warns(UserWarning, match=said) if how == "smallest" else nullcontext():
                session = tb.Session(device=device, config=tb.ConfigProto(swap=how))
            with session:
                session.run(tb.global_variables_initializer())
                texts.append(str(session.explain(fetches, feeds)))
                session.run(fetches, feeds)
    assert ["swap: no effect" in text for text in texts] == [True, False]
