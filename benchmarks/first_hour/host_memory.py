"""Stage 8: training steps that keep values in the host's memory, or compute them again: bytes and rates."""

from __future__ import annotations

import gc
import hashlib
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorbow as tb
from first_hour.gpus import opened
from first_hour.records import Recorder
from tensorbow.devices import GpuDevice
from tensorbow.models import get_model

CLASSES = 10
WARM_STEPS = 2
TURNS = 3
SWAPPED = re.compile(r"swapped: (\d+) values of ([\d,]+) bytes lie in ([\d,]+) bytes of host memory")


def model_steps(
    recorder: Recorder, model: str, batch_size: int, extent: int, ways: Sequence[Sequence[str]], most_s: float
) -> None:
    """Part: steps of a model on pictures [batch, extent, extent, 3] that lie on the GPU.

    ways: values of the options swap and recompute, tried in turn; all must give the bits of the first one.
    """

    def build() -> list[Any]:
        x, labels = _pictures(batch_size, extent)
        loss = get_model(model)(x, labels, training=True, classes=CLASSES).loss
        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            return [loss, tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)]

    bits: dict[str, str] = {}
    for swap, recompute in ways:
        config = tb.ConfigProto(swap=swap, recompute=recompute)
        name = f"{model}:{batch_size}, swap {swap}, recompute {recompute}"
        recorder.check(name, lambda config=config: _measured(build, config, batch_size, most_s, bits))  # type: ignore[misc]


def loop_steps(recorder: Recorder, steps: int, batch_size: int, units: int, most_s: float) -> None:
    """Part: steps of an LSTM's loop over [batch, steps, units], without and with swap_memory."""
    bits: dict[str, str] = {}
    for swap_memory in (False, True):

        def build(swap_memory: bool = swap_memory) -> list[Any]:
            x = tb.Variable(_numbers(batch_size, steps, units), trainable=False, name="x")
            given = tb.placeholder_with_default(x, [batch_size, None, units])
            cell = tb.nn.rnn_cell.BasicLSTMCell(units)
            y, _ = tb.nn.dynamic_rnn(cell, given, dtype=tb.float32, swap_memory=swap_memory)
            loss = tb.reduce_mean(tb.square(y))
            return [loss, tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)]

        name = f"LSTM of {units} over {steps} steps, b={batch_size}, swap_memory={swap_memory}"
        recorder.check(name, lambda build=build: _measured(build, tb.ConfigProto(), batch_size, most_s, bits))  # type: ignore[misc]


def _numbers(*extents: int) -> Any:
    return np.random.default_rng(1).normal(size=extents).astype(np.float32)


def _pictures(batch_size: int, extent: int) -> tuple[Any, Any]:
    x = tb.Variable(_numbers(batch_size, extent, extent, 3), trainable=False, name="x")
    labels = tb.Variable(np.arange(batch_size) % CLASSES, trainable=False, name="labels")
    return tb.identity(x), tb.identity(labels)


def _measured(
    build: Callable[[], list[Any]],
    config: tb.ConfigProto,
    batch_size: int,
    most_s: float,
    bits: dict[str, str],
) -> dict[str, Any]:
    """Memory and rate of a step. bits: the digest of the first losses, of all that are compared."""
    with opened() as (device,), tb.Graph().as_default():
        tb.set_random_seed(1)
        fetches = build()
        with tb.Session(device=device, config=config) as session:
            session.run(tb.global_variables_initializer())
            explained = session.explain(fetches)
            losses = [session.run(fetches)[0] for _ in range(WARM_STEPS)]
            found = {**_memory(explained), **_rate(session, fetches, device, batch_size, most_s)}
    gc.collect()  # the graphs that hold the device
    digest = hashlib.sha256(np.asarray(losses).tobytes()).hexdigest()[:16]
    assert bits.setdefault("losses", digest) == digest, (
        f"losses are {losses}, expected those of the first way"
    )
    return found


def _memory(explained: Any) -> dict[str, Any]:
    said = SWAPPED.search(str(explained))
    values, nbytes, host_nbytes = (
        (int(word.replace(",", "")) for word in said.groups()) if said else (0, 0, 0)
    )
    return {
        "slab_nbytes": explained.peak_nbytes,
        "swapped_values": values,
        "swapped_nbytes_each_way": nbytes,
        "host_nbytes": host_nbytes,
    }


def _rate(
    session: tb.Session, fetches: Any, device: GpuDevice, batch_size: int, most_s: float
) -> dict[str, Any]:
    """Median of some windows."""
    call, taken = session.make_callable(fetches), []
    for _ in range(TURNS):
        steps, began_s = 0, time.perf_counter()
        while steps < 1 or time.perf_counter() - began_s < most_s / TURNS:
            call()
            steps += 1
        taken.append((time.perf_counter() - began_s) / steps)
    step_s = statistics.median(taken)
    return {"ms_per_step": round(1e3 * step_s, 3), "examples_per_second": round(batch_size / step_s, 1)}
