"""Batch normalisation with its neighbours: what joins, what does not, and that the bits stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.products.channels import ChannelSums
from tensorbow.models import get_model
from tensorbow.ops.batch_norm import FusedBatchNorm
from tensorbow.specs import float32, float64
from tests.native_rig.fused_runs import values
from tests.native_rig.native_calls import TARGETS, each_target
from tests.ops_contract.sample import normal, uniform
from tests.program_rig.examples import given_few
from tests.scalar_rig.numpy_backend import used
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits


@pytest.fixture(autouse=True)
def graph():
    with tb.Graph().as_default():
        yield


def assert_same_bits(target, fetches, feeds, fused=(), apart=()):
    """Fused and not; `fused` are parts of `explain` of the fused one, `apart` are not. Near the reference."""
    width = TARGETS[target]()
    (ours, text), (alone, _) = (values(fetches, feeds, fuses, width) for fuses in (True, False))
    for part in fused:
        assert part in text
    for part in apart:
        assert part not in text
    for one, other in zip(ours, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    with tb.Session() as session:
        for one, other in zip(ours, session.run(fetches, feeds), strict=True):
            scale = max(1.0, float(np.abs(other).max(initial=0)))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * scale)


def vectors(channels, dtype=np.float32):
    """Scale and offset."""
    return uniform(channels, dtype=dtype, seed=8), normal(channels, dtype=dtype, seed=9)


def filters(*shape, dtype=np.float32, seed=1):
    return normal(*shape, dtype=dtype, seed=seed) / np.sqrt(np.prod(shape[:-1])).astype(dtype)


def normalized(x, dtype=np.float32):
    return tb.nn.fused_batch_norm(x, *vectors(x.shape[-1], dtype))


JOINED = "fused with Conv2D conv2d, FusedBatchNorm"


CASES = [(3, 16, (5, 16)), (2, 16, (16, 32)), (1, 8, (32, 64)), (2, 32, (3, 5))]


@each_target
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("batch", "extent", "depth", "dtype"),
    [
        *((*case, tb.float32) for case in CASES),
        (*CASES[0], tb.float64),  # what is not joined
        *(pytest.param(*case, tb.float64, marks=pytest.mark.slow) for case in CASES[1:]),
    ],
)
def test_convolution_normalisation_and_relu(batch, extent, depth, dtype, target):
    kind = dtype.as_numpy_dtype
    x = tb.placeholder(dtype, [batch, extent, extent, depth[0]])
    w = tb.constant(filters(3, 3, *depth, dtype=kind))
    y, mean, variance = normalized(tb.nn.conv2d(x, w, 1, "SAME", name="conv2d"), kind)
    y = tb.nn.relu(y)
    gradients = tb.gradients(y * y, [x, w])
    feeds = {x: normal(batch, extent, extent, depth[0], dtype=kind)}
    assert_same_bits(target, [y, mean, variance, *gradients], feeds, [JOINED] if dtype == tb.float32 else [])


@each_target
def test_blocks_of_a_residual_network(target):
    x = tb.placeholder(tb.float32, [2, 16, 16, 32])
    variables = [tb.constant(filters(3, 3, 32, 32, seed=n)) for n in range(4)]
    hidden = tb.nn.relu(x)
    for first, second in (variables[:2], variables[2:]):
        inner = tb.nn.relu(normalized(tb.nn.conv2d(hidden, first, 1, "SAME"))[0])
        hidden = tb.nn.relu(normalized(tb.nn.conv2d(inner, second, 1, "SAME"))[0] + hidden)
    loss = tb.reduce_sum(tb.square(hidden) * normal(2, 16, 16, 32, seed=3))
    parts = ["fused with Conv2D"]
    fetches = [hidden, *tb.gradients(loss, [x, *variables])]
    assert_same_bits(target, fetches, {x: normal(2, 16, 16, 32)}, parts)


@each_target
def test_projection_and_strides(target):
    x = tb.placeholder(tb.float32, [2, 32, 32, 16])
    w, p = tb.constant(filters(3, 3, 16, 32)), tb.constant(filters(1, 1, 16, 32, seed=2))
    main = normalized(tb.nn.conv2d(x, w, 2, "SAME"))[0]
    y = tb.nn.relu(main + normalized(tb.nn.conv2d(x, p, 2, "SAME"))[0])
    fetches = [y, *tb.gradients(y * y, [x, w, p])]
    assert_same_bits(target, fetches, {x: normal(2, 32, 32, 16)}, ["Conv2D", "FusedBatchNorm", "Relu"])


@each_target
def test_the_result_of_the_convolution_and_of_the_normalisation_can_be_fetched(target):
    x = tb.placeholder(tb.float32, [2, 16, 16, 32])
    made = tb.nn.conv2d(x, filters(3, 3, 32, 32), 1, "SAME")
    y = normalized(made)[0]
    feeds = {x: normal(2, 16, 16, 32)}
    assert_same_bits(target, [made, tb.nn.relu(y)], feeds, ["fused with Conv2D", "FusedBatchNorm"])
    assert_same_bits(target, [y, tb.nn.relu(y)], feeds, ["fused with Conv2D"], ["FusedBatchNorm relu"])


@each_target
def test_a_convolution_with_a_bias(target):
    x = tb.placeholder(tb.float32, [2, 16, 16, 32])
    made = tb.nn.bias_add(tb.nn.conv2d(x, filters(3, 3, 32, 32), 1, "SAME"), normal(32, seed=5))
    y = tb.nn.relu(normalized(made)[0])
    assert_same_bits(target, [y], {x: normal(2, 16, 16, 32)}, ["BiasAdd"])


@each_target
def test_bands_that_are_no_whole_chunks_are_summed_afterwards(target):
    x = tb.placeholder(tb.float32, [3, 7, 9, 16])
    y = tb.nn.relu(normalized(tb.nn.conv2d(x, filters(3, 3, 16, 16), 1, "SAME"))[0])
    (gradient,) = tb.gradients(y * y, x)
    assert_same_bits(target, [y, gradient], {x: normal(3, 7, 9, 16)}, ["FusedBatchNorm"], ["with Conv2D "])


@each_target
def test_inference_takes_its_end_in_only(target):
    x = tb.placeholder(tb.float32, [2, 16, 16, 32])
    made = tb.nn.conv2d(x, filters(3, 3, 32, 32), 1, "SAME")
    moving = normal(32, seed=3), uniform(32, seed=4)
    y, *_ = tb.nn.fused_batch_norm(made, *vectors(32), *moving, is_training=False)
    feeds = {x: normal(2, 16, 16, 32)}
    assert_same_bits(target, [tb.nn.relu(y)], feeds, ["fused with FusedBatchNorm"], ["with Conv2D "])


@each_target
def test_operands_of_the_end_may_be_columns_and_single_numbers(target):
    x, s = tb.placeholder(tb.float32, [70, 19]), tb.placeholder(tb.float32, [])
    y = tb.tanh(normalized(x)[0] * s + normal(19, seed=4) + normal(70, 19, seed=5))
    feeds = {x: normal(70, 19), s: np.float32(0.3)}
    assert_same_bits(target, [y], feeds, ["fused with FusedBatchNorm"])


def test_a_variable_is_read_as_it_was_before_a_later_write():
    """The sum with the variable may not move behind or before a write that stands between."""
    x = tb.placeholder(tb.float32, [2, 16, 16, 32])
    variable = tb.Variable(normal(2, 16, 16, 32, seed=6))
    y = normalized(tb.nn.conv2d(x, filters(3, 3, 32, 32), 1, "SAME"))[0]
    with tb.control_dependencies([y]):
        write = tb.assign(variable, np.zeros((2, 16, 16, 32), np.float32))
    with tb.control_dependencies([write]):
        result = tb.nn.relu(y + variable.read_value())
    feeds = {x: normal(2, 16, 16, 32)}
    (ours, _), (alone, _) = (values(result, feeds, fuses) for fuses in (True, False))
    np.testing.assert_array_equal(ours, alone)
    (after, _) = values(tb.nn.relu(y), feeds)
    np.testing.assert_array_equal(ours, after)


@given_few(
    1,
    10,
    st.integers(1, 4),
    st.sampled_from([(8, 8), (16, 16), (8, 32), (4, 16), (5, 7)]),
    st.sampled_from([1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65]),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.booleans(),
)
def test_any_shape(batch, extents, outputs, window, is_double, narrow):
    dtype = tb.float64 if is_double else tb.float32
    kind = dtype.as_numpy_dtype
    with tb.Graph().as_default():
        x = tb.placeholder(dtype, [batch, *extents, 6])
        v, w = (tb.constant(filters(window, window, n, outputs, dtype=kind)) for n in (6, outputs))
        inner = tb.nn.relu(normalized(tb.nn.conv2d(x, v, 1, "SAME"), kind)[0])
        y = normalized(tb.nn.conv2d(inner, w, 1, "SAME"), kind)[0] + inner
        flow = normal(batch, *extents, outputs, dtype=kind, seed=11)
        fetches = [y, *tb.gradients(tb.reduce_sum(y * flow), [x, v, w])]
        feeds = {x: normal(batch, *extents, 6, dtype=kind)}
        assert_same_bits("narrow" if narrow else "host", fetches, feeds)


@each_target
@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["flow of a convolution", "of an activation", "filter used twice"])
def test_what_others_read_of_the_way_back_is_written(case, target):
    x = tb.placeholder(tb.float32, [2, 16, 16, 32])
    v, w = (tb.constant(filters(3, 3, 32, 32, seed=n)) for n in range(2))
    inner = tb.nn.relu(normalized(tb.nn.conv2d(x, v, 1, "SAME"))[0])
    made = tb.nn.conv2d(inner, w, 1, "SAME", name="made")
    y = normalized(made)[0]
    if case == "filter used twice":
        y = y + tb.nn.conv2d(inner, w, 1, "SAME")
    more = {"flow of a convolution": [made], "of an activation": [inner]}.get(case, [])
    fetches = [y, *tb.gradients(tb.square(y) * normal(2, 16, 16, 32, seed=7), [x, v, w, *more])]
    apart = ["Conv2DBackpropFilter gradients/made_grad"] if made in more else []  # a call of its own
    assert_same_bits(target, fetches, {x: normal(2, 16, 16, 32)}, [], apart)


@pytest.mark.slow
def test_a_replica_has_the_same_bits_alone_and_beside_another():
    images, answers = normal(12, 16, 16, 3), np.arange(12) % 10
    tb.set_random_seed(2)
    x, labels = tb.placeholder(tb.float32, [3, 16, 16, 3]), tb.placeholder(tb.int64, [3])
    loss = get_model("resnet8").heads(x, labels, 10, training=True).loss
    program = StepProgram((x, labels), loss, tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss), {})
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        initial = {v.name.partition(":")[0]: session.run(v) for v in tb.global_variables()}
    shapes = [tb.TensorSpec((3, 16, 16, 3), tb.float32), tb.TensorSpec((3,), tb.int64)]

    def batch(round, replica):
        part = slice(3 * round, 3 * round + 3)
        return images[part] + np.float32(replica), answers[part]

    model = Model(program, shapes, initial, batch)
    found = []
    for replicas in (1, 2):
        with used(NativeBackend()), engine_of(model, cpu_devices(1), replicas, sync="none") as engine:
            engine.run(Prepared(batch, replicas).open, 0, 4)
            found.append(engine.learners.values.replica_values(0))
    assert same_bits(*found)


@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize("channels", [1, 16, 33, 1000, 100_000])
def test_a_chunk_stays_in_the_first_cache(channels, dtype):
    rows = ChannelSums(channels, dtype, of_flow=False).rows
    assert rows & (rows - 1) == 0
    assert rows == 1 or 8 << 10 < rows * channels * dtype.size <= 16 << 10


def test_chunks_whose_means_lie_far_apart():
    x = normal(2048, 16) + np.repeat(np.array([1000, -1000, 3, 1e4], np.float32), 512)[:, None]
    graph_x = tb.placeholder(tb.float32, [2048, 16])
    _, mean, variance, *_ = FusedBatchNorm(graph_x, *vectors(16), np.zeros(16), np.ones(16), is_training=True)
    (ours, spread), _ = values([mean, variance], {graph_x: x})
    np.testing.assert_allclose(ours, x.astype(np.float64).mean(0), rtol=1e-5)
    np.testing.assert_allclose(spread, x.astype(np.float64).var(0, ddof=1), rtol=1e-5)
