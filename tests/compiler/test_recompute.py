"""Recomputation: lower peaks with the bits of the plan that keeps everything."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import Binding, VariableLayout, compile_step
from tensorbow.compiler.fold import fold
from tensorbow.compiler.merge import merge
from tensorbow.compiler.prune import drop_unused, prune
from tensorbow.compiler.recompute import HOW, recompute
from tensorbow.devices import CpuDevice, get_device
from tensorbow.kernels import backend_for
from tensorbow.models import get_model
from tensorbow.specs import TensorSpec
from tests.scheduler_rig.running import Prepared


@pytest.fixture(autouse=True)
def graph():
    with tb.Graph().as_default() as graph:
        tb.set_random_seed(3)
        yield graph


def resnet(batch=2, width=8):
    images, labels = tb.placeholder(tb.float32, [None, width, width, 3]), tb.placeholder(tb.int64, [None])
    outputs = get_model("resnet14")(images, labels, classes=10)
    update = tb.train.MomentumOptimizer(0.1, 0.9, weight_decay=1e-4).minimize(outputs.loss)
    random = np.random.default_rng(0)
    feeds = {
        images: random.normal(size=(batch, width, width, 3)).astype(np.float32),
        labels: np.arange(batch),
    }
    step = tb.group(update, *tb.get_collection(tb.GraphKeys.UPDATE_OPS))
    return [outputs.loss, step], feeds


def chain(layers=16, width=64, rate=0.0):
    """Layers with an elementwise function behind each product, and dropout if asked for."""
    x = h = tb.placeholder(tb.float32, [None, width])
    for layer in range(layers):
        w = tb.Variable(np.eye(width, dtype=np.float32) * (1 + layer / 100), name=f"w{layer}")
        h = tb.tanh(tb.matmul(h, w))
        if rate:
            h = tb.nn.dropout(h, rate=rate)
    loss = tb.reduce_mean(tb.square(h))
    feeds = {x: np.random.default_rng(1).normal(size=(512, width)).astype(np.float32)}
    return [loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss)], feeds


def planned(fetches, feeds, how):
    specs = {t: TensorSpec(np.shape(v), t.dtype) for t, v in feeds.items()}
    layout = VariableLayout.of_graph(tb.get_default_graph())
    return compile_step(fetches, specs, layout, backend_for(get_device("/cpu:0")), recompute=how)


def test_peaks_of_networks(graph):
    fetches, feeds = resnet(batch=32, width=32)
    peaks = {how: planned(fetches, feeds, how).peak_nbytes for how in HOW}
    assert peaks["cheap"] < 0.75 * peaks["never"]
    assert peaks["segments"] < 0.6 * peaks["never"]
    assert peaks["smallest"] == min(peaks.values())
    notes = planned(fetches, feeds, "smallest").notes
    assert f"recomputation: peak bytes of the slab with never {peaks['never']:,}, " in "\n".join(notes)


def test_a_chain_needs_about_the_root_of_its_layers():
    fetches, feeds = chain(layers=36)
    layer = 512 * 64 * 4
    assert planned(fetches, feeds, "never").peak_nbytes >= 35 * layer
    assert planned(fetches, feeds, "segments").peak_nbytes <= 17 * layer


def trained(fetches, feeds, how, steps=3):
    with tb.Session(config=tb.ConfigProto(recompute=how)) as session:
        session.run(tb.global_variables_initializer())
        losses = [session.run(fetches, feeds)[0] for _ in range(steps)]
        values = session.run([v.read_value() for v in tb.global_variables()])
        text = str(session.explain(fetches, feeds))
    return losses, [value.tobytes() for value in values], text


BUILT = [
    pytest.param(resnet, id="resnet", marks=pytest.mark.slow),
    pytest.param(chain, id="chain"),
    pytest.param(lambda: chain(6, rate=0.5), id="dropout"),
]


@pytest.mark.parametrize("build", BUILT)
def test_the_bits_stay(build):
    fetches, feeds = build()
    losses, values, _ = trained(fetches, feeds, "never")
    for how in ("cheap", "segments"):
        again, those, text = trained(fetches, feeds, how)
        assert again == losses
        assert those == values
        assert "recomputation: peak bytes of the slab with never " in text
        assert how == "cheap" or "ops run again for the gradient" in text


def program_of(fetches, feeds):
    specs = {t: TensorSpec(np.shape(v), t.dtype) for t, v in feeds.items()}
    targets = [getattr(f, "op", f) for f in fetches]
    tensors = [f for f in fetches if isinstance(f, tb.Tensor)]
    operations = [f for f in fetches if not isinstance(f, tb.Tensor)]
    return drop_unused(merge(drop_unused(fold(prune(targets, specs), specs, tensors, operations))))


def effects_of(program):
    """Names of the nodes with effects or random numbers."""
    definitions = [(node.name, node.definition) for node in program.nodes]
    return [name for name, op in definitions if op.stateful or op.writes or op.random]


@pytest.mark.parametrize("how", ["cheap", "segments"])
def test_what_must_not_run_twice_does_not(how):
    fetches, feeds = chain(6, rate=0.5)
    before = program_of(fetches, feeds)
    effects = effects_of(before)
    after = recompute(program_of(fetches, feeds), how)
    after.check_invariants()
    copies = [node for node in after.nodes if node.name.endswith("/again")]
    assert copies
    assert effects == effects_of(after)
    assert len({node.name for node in after.nodes}) == len(after.nodes)
    if how == "cheap":
        assert "MatMul" not in {node.definition.name for node in copies}


def test_a_variable_that_is_written_meanwhile_is_not_read_again():
    x = tb.placeholder(tb.float32, [64, 64])
    w = tb.Variable(np.eye(64, dtype=np.float32), name="w")
    h = tb.exp(tb.matmul(x, w) * 0.1)
    k = tb.exp(h * 0.1)
    with tb.control_dependencies([k]):
        write = w.assign(tb.zeros([64, 64]))
    with tb.control_dependencies([write]):
        end = tb.reduce_sum(tb.identity(h) * k) + tb.reduce_sum(tb.exp(k) * h)
    feeds = {x: np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)}
    results = []
    for how in ("never", "segments", "cheap"):
        with tb.Session(config=tb.ConfigProto(recompute=how)) as session:
            session.run(w.initializer)
            results.append(session.run([end, write], feeds)[0])
    assert results[0] == results[1] == results[2]


def test_auto_recomputes_where_memory_is_short():
    fetches, feeds = chain(layers=24)
    step = planned(fetches, feeds, "never")
    needed = sum(Binding.blocks(step, {}, ring=1))
    texts = []
    for limit in (1 << 30, needed):
        config = tb.ConfigProto(recompute="auto")
        with (
            CpuDevice("/cpu:7", limit_nbytes=limit) as device,
            tb.Session(device=device, config=config) as session,
        ):
            session.run(tb.global_variables_initializer())
            session.run(fetches, feeds)
            texts.append(str(session.explain(fetches, feeds)))
    assert ["ops run again for the gradient" in text for text in texts] == [False, True]


def test_replicas_take_it_from_their_program():
    peaks, losses = {}, {}
    for how in ("never", "segments"):
        with tb.Graph().as_default():
            tb.set_random_seed(0)
            (loss, update), feeds = chain(layers=9, width=16)
            (x,) = feeds
            program = tb.StepProgram((x,), loss, update, recompute=how)
            with tb.LearningEngine(program, 64, replicas_per_device=2) as engine:
                engine.initialize()
                peaks[how] = engine.learners.replicas[0].own_step.peak_nbytes
                source, losses[how] = (
                    Prepared(lambda n, replica: (np.full((64, 16), 0.1 * (n + 1), np.float32),), 2),
                    [],
                )
                engine.run(source.open, 0, 4, losses[how].append)
    assert peaks["segments"] < peaks["never"]
    told = {how: [result.losses for result in results] for how, results in losses.items()}
    assert told["segments"] == told["never"]
    assert len(set(told["never"])) == 4
