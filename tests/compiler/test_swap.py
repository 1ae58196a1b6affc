"""Plans with swaps: smaller slabs, and no memory that a copy is still reading or writing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.compiler import VariableLayout, compile_step
from tensorbow.compiler.plan_memory import overlap
from tensorbow.kernels.backends import backend_of_kind
from tensorbow.program import Region
from tensorbow.program.swaps import AwaitSwapIn, AwaitSwapOut, SwapIn, SwapOut
from tensorbow.specs import TensorSpec

ROWS, WIDTH = 512, 64
LAYER = ROWS * WIDTH * 4


def chain(layers, skips=()):
    """A step of dense layers; skips: pairs of layers whose results are added."""
    x = h = tb.placeholder(tb.float32, [ROWS, WIDTH])
    made = [h]
    for layer in range(layers):
        w = tb.Variable(np.eye(WIDTH, dtype=np.float32), name=f"w{layer}")
        h = tb.tanh(tb.matmul(h, w))
        for source, target in skips:
            if target == layer and source < len(made):
                h = h + tb.reshape(made[source], [ROWS, WIDTH])
        made.append(h)
    loss = tb.reduce_mean(tb.square(h))
    return [loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss)], x


def planned(fetches, x, swap, kind="gpu", **options):
    layout = VariableLayout.of_graph(tb.get_default_graph())
    feeds = {x: TensorSpec((ROWS, WIDTH), tb.float32)}
    return compile_step(fetches, feeds, layout, backend_of_kind(kind), swap=swap, **options)


def check_copies(executable):
    """Plays the calls: a copy is under way until its wait, and ends at any time before.

    Nothing may write what a copy out reads, nor touch what a copy in writes. What is copied in is what was
    copied out, and lies there unharmed until it is.
    """
    under_way, kept = {}, {}
    for segment in executable.segments:
        for group in segment.groups:
            op = group.definition
            if op is AwaitSwapOut:
                under_way.pop((SwapOut, group.inputs[1]))
            elif op is AwaitSwapIn:
                under_way.pop((SwapIn, group.inputs[1]))
            for (kind, host), device in under_way.items():
                touched = (*group.writes, *(group.reads if kind is SwapIn else ()))
                mine = {(SwapOut, device): group.inputs, (SwapIn, host): group.outputs}
                assert (op, device) in mine or not any(overlap(device, ref) for ref in touched), group.name
            if op is SwapOut:
                (device,), (host,) = group.inputs, group.outputs
                assert not any(overlap(host, other) for other in kept)
                under_way[SwapOut, host] = device
                kept[host] = group.name
            elif op is SwapIn:
                (host,), (device,) = group.inputs, group.outputs
                assert (SwapOut, host) not in under_way
                assert kept.pop(host).rpartition("/")[0] == group.name.rpartition("/")[0]
                under_way[SwapIn, host] = device
        assert not under_way, segment.name
    assert not kept


def test_peaks():
    with tb.Graph().as_default():
        fetches, x = chain(24)
        never, hidden, smallest = (planned(fetches, x, how) for how in ("never", "hidden", "smallest"))
    assert never.peak_nbytes >= 24 * LAYER
    assert hidden.peak_nbytes < 0.9 * never.peak_nbytes
    assert smallest.peak_nbytes < 4 * LAYER
    assert never.region_nbytes[Region.SWAPPED] == 0
    assert smallest.region_nbytes[Region.SWAPPED] >= never.peak_nbytes - smallest.peak_nbytes - 4 * LAYER
    for step in (hidden, smallest):
        check_copies(step)
        assert step.lower_bound_nbytes <= step.peak_nbytes <= 1.05 * step.lower_bound_nbytes
        text = "\n".join(step.notes)
        assert "bytes of host memory between their uses" in text
        assert f"swap: peak bytes of the slab with never {never.peak_nbytes:,}, " in text


@settings(deadline=None, max_examples=12)
@given(
    st.integers(4, 12),
    st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda ends: ends[0] < ends[1]), max_size=4
    ),
    st.sampled_from(["hidden", "smallest"]),
    st.sampled_from([0, 3 * LAYER, 6 * LAYER]),
)
def test_nothing_is_touched_that_a_copy_is_at(layers, skips, how, below):
    with tb.Graph().as_default():
        fetches, x = chain(layers, skips)
        never = planned(fetches, x, "never")
        step = planned(fetches, x, how, swap_below=below)
    check_copies(step)
    assert step.peak_nbytes <= never.peak_nbytes
    if how == "smallest":
        assert step.peak_nbytes < never.peak_nbytes or never.peak_nbytes <= max(below, 4 * LAYER)


def test_the_checker_sees_a_missing_wait():
    with tb.Graph().as_default():
        fetches, x = chain(8)
        step = planned(fetches, x, "smallest")
    (segment,) = step.segments
    for waits in (AwaitSwapIn, AwaitSwapOut):
        groups = tuple(group for group in segment.groups if group.definition is not waits)
        broken = type("Broken", (), {"segments": [type(segment)(segment.name, groups)]})
        with pytest.raises((AssertionError, KeyError)):
            check_copies(broken)


def test_with_recomputation():
    with tb.Graph().as_default():
        fetches, x = chain(24)
        one, other = (planned(fetches, x, swap, recompute="cheap") for swap in ("never", "smallest"))
    check_copies(other)
    assert other.peak_nbytes < one.peak_nbytes
    text = "\n".join(other.notes)
    assert "recomputation: peak bytes of the slab with never " in text
    assert "swap: peak bytes of the slab with never " in text


def test_cpus_swap_nothing():
    with tb.Graph().as_default():
        fetches, x = chain(4)
        steps = [planned(fetches, x, swap, "cpu") for swap in ("never", "smallest")]
    assert steps[0].peak_nbytes == steps[1].peak_nbytes
    assert "swap: no effect on devices of kind cpu, which compute in host memory" in "\n".join(steps[1].notes)


def test_what_is_fetched_stays():
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [ROWS, WIDTH])
        early = h = tb.tanh(tb.matmul(x, tb.Variable(np.eye(WIDTH, dtype=np.float32))))
        for _ in range(12):
            h = tb.tanh(tb.matmul(h, tb.Variable(np.eye(WIDTH, dtype=np.float32))))
        loss = tb.reduce_mean(tb.square(h))
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        step = planned([early, loss, update], x, "smallest")
    check_copies(step)
    outs = [group for segment in step.segments for group in segment.groups if group.definition is SwapOut]
    assert outs
    assert not any(group.name.startswith(early.name) for group in outs)


def recurrent(swap_memory, steps=24, kind="gpu", swap="never"):
    """A step of a recurrent network; elsewhere in it a chain of large values."""
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [steps, ROWS, WIDTH])
        cell = tb.nn.rnn_cell.GRUCell(WIDTH)
        y, _ = tb.nn.dynamic_rnn(cell, x, time_major=True, dtype=tb.float32, swap_memory=swap_memory)
        loss = tb.reduce_mean(tb.square(y))
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        layout = VariableLayout.of_graph(tb.get_default_graph())
        feeds = {x: TensorSpec((steps, ROWS, WIDTH), tb.float32)}
        return compile_step([loss, update], feeds, layout, backend_of_kind(kind), swap=swap)


def test_loops_swap_by_their_own_option():
    plain, swapped = recurrent(False), recurrent(True)
    check_copies(swapped)
    assert swapped.peak_nbytes < 0.95 * plain.peak_nbytes
    assert plain.region_nbytes[Region.SWAPPED] == 0
    assert recurrent(True, kind="cpu").region_nbytes[Region.SWAPPED] == 0


def test_only_values_of_the_loop_are_swapped_then():
    with tb.Graph().as_default() as graph:
        x = h = tb.placeholder(tb.float32, [ROWS, WIDTH])
        w = tb.Variable(np.eye(WIDTH, dtype=np.float32), name="w")
        for _ in range(6):
            h = tb.tanh(tb.matmul(h, w))
        first = graph.version
        _, y = tb.while_loop(
            lambda n, h: n < 16, lambda n, h: (n + 1, tb.tanh(tb.matmul(h, w))), (0, h), swap_memory=True
        )
        loop = {op.name for op in graph.get_operations()[first:]}
        step = planned(tb.gradients(tb.reduce_sum(y), x), x, "never")
    outs = [group for segment in step.segments for group in segment.groups if group.definition is SwapOut]
    check_copies(step)
    assert outs
    assert {group.name.partition(":")[0] for group in outs} <= loop


def test_a_graph_def_keeps_the_option_of_a_loop():
    with tb.Graph().as_default() as graph:
        tb.while_loop(lambda n: n < 3, lambda n: tb.while_loop(lambda m: m < n, lambda m: m + 1, [n]), [0])
        tb.while_loop(lambda n: n < 3, lambda n: n + 1, [0], swap_memory=True)
        definition = graph.as_graph_def()
    with tb.Graph().as_default() as graph:
        tb.import_graph_def(definition, name="")
        loops = {op.context.name: op.context.swap_memory for op in graph.get_operations() if op.context}
    assert len(loops) == 3
    assert sum(loops.values()) == 1
