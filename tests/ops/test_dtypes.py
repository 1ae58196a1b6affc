"""Dtypes beyond those of generated code: constants, feeds, variables, moves, casts, arithmetic, errors."""

import ml_dtypes
import numpy as np
import pytest

import tensorbow as tb
from tensorbow.checkpoint_files.arrays_file import load_arrays, save_arrays
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import COMPILED, DTYPES, INTEGERS, NUMERIC

OTHERS = [dtype for dtype in DTYPES.values() if dtype not in COMPILED]
each_dtype = pytest.mark.parametrize("dtype", OTHERS, ids=lambda dtype: dtype.name)
VALUES = np.array([[1, 2, 3], [4, 5, 100]])
OPERAND = np.array([[7, 1, 2], [3, 3, 9]])


@each_dtype
def test_moves_keep_the_bits(dtype):
    x = VALUES.astype(dtype.as_numpy_dtype)
    with tb.Graph().as_default(), tb.Session() as session:
        fed = tb.placeholder(dtype, [2, 3])
        variable = tb.Variable(tb.constant(x), trainable=False)
        moves = {
            "reshape": (tb.reshape(fed, [3, 2]), x.reshape(3, 2)),
            "transpose": (tb.transpose(fed), x.T),
            "concat": (tb.concat([fed, variable], 1), np.concatenate([x, x], 1)),
            "slice": (fed[1:, ::2], x[1:, ::2]),
            "gather": (tb.gather(fed, [1, 0, 1]), x[[1, 0, 1]]),
            "stack": (tb.stack([fed, variable]), np.stack([x, x])),
            "where": (tb.where(tb.constant([[True, False, True]]), fed, variable), x),
            "pad": (tb.pad(fed, [[1, 0], [0, 2]]), np.pad(x, [[1, 0], [0, 2]])),
            "tile": (tb.tile(fed, [2, 1]), np.tile(x, [2, 1])),
            "equal": (tb.equal(fed, variable), np.ones((2, 3), bool)),
        }
        session.run(tb.global_variables_initializer())
        got = session.run({name: tensor for name, (tensor, _) in moves.items()}, {fed: x})
        session.run(variable.assign(fed), {fed: x[::-1]})
        assert session.run(variable).tolist() == x[::-1].tolist()
    for name, (_, expected) in moves.items():
        assert got[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(got[name], expected, name)


@each_dtype
def test_casts_are_those_of_numpy(dtype):
    for source in DTYPES.values():
        given = np.array([0, 1, 3, 100]).astype(source.as_numpy_dtype)
        with tb.Graph().as_default(), tb.Session() as session:
            fed = tb.placeholder(source, [4])
            there = tb.cast(fed, dtype)
            back, there = session.run([tb.cast(there, source), there], {fed: given})
        real = given if dtype.is_complex else given.real
        np.testing.assert_array_equal(there, real.astype(dtype.as_numpy_dtype))
        np.testing.assert_array_equal(back, given)


def test_casts_wrap_around_round_and_truncate():
    with tb.Graph().as_default(), tb.Session() as session:
        assert session.run(tb.cast([300, -1, 128], "int8")).tolist() == [44, -1, -128]
        assert session.run(tb.cast([-1, 70000], "uint16")).tolist() == [65535, 4464]
        assert session.run(tb.cast([2.9, -2.9], "int16")).tolist() == [2, -2]
        assert session.run(tb.cast([257.0, 1 + 2**-9], "bfloat16")).astype(float).tolist() == [256, 1]
        assert session.run(tb.cast([2049.0, 1e6], "float16")).tolist() == [2048, np.inf]
        assert session.run(tb.cast(tb.constant([3 - 4j, 0]), "float32")).tolist() == [3, 0]
        assert session.run(tb.cast(tb.constant([1j, 0]), "bool")).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [d for d in OTHERS if d in NUMERIC], ids=lambda dtype: dtype.name)
def test_arithmetic_is_that_of_numpy(dtype):
    x, y = (values.astype(dtype.as_numpy_dtype) for values in (VALUES, OPERAND))
    with tb.Graph().as_default(), tb.Session() as session:
        a, b = tb.placeholder(dtype, [2, 3]), tb.placeholder(dtype, [2, 3])
        wide = np.int64 if dtype.is_integer else np.float32
        cases = [
            (tb.add(a, b), x + y), (tb.subtract(a, b), x - y), (tb.multiply(a, b), x * y),
            (tb.maximum(a, b), np.maximum(x, y)), (tb.less(a, b), x < y), (tb.floordiv(a, b), x // y),
            (tb.negative(a), -x), (tb.square(b), y * y), (tb.nn.relu(a), np.maximum(x, 0)),
            (tb.reduce_sum(a, 0), x.astype(wide).sum(0)), (tb.reduce_max(a, 1), x.max(1)),
            (tb.reduce_min(a), x.min()), (tb.argmin(a, 1), [0, 0]), (tb.argmax(b, 0), [0, 1, 1]),
            (tb.matmul(a, b, transpose_b=True), x.astype(wide) @ y.astype(wide).T),
        ]  # fmt: skip
        got = session.run([tensor for tensor, _ in cases], {a: x, b: y})
    for value, (tensor, expected) in zip(got, cases, strict=True):
        assert value.dtype == tensor.dtype, tensor.name
        np.testing.assert_array_equal(value, np.asarray(expected).astype(value.dtype), tensor.name)


@pytest.mark.parametrize("dtype", [tb.float16, tb.bfloat16], ids=lambda dtype: dtype.name)
def test_gradients_in_half_precision_are_near_those_of_float32(dtype):
    def slopes(kind):
        x = tb.constant([0.5, -0.25, 2.0], kind)
        loss = tb.reduce_mean(tb.tanh(x) * tb.exp(x) + tb.sigmoid(x))
        return tb.cast(tb.gradients(loss, [x])[0], "float32")

    with tb.Graph().as_default(), tb.Session() as session:
        low, full = session.run([slopes(dtype), slopes(tb.float32)])
    np.testing.assert_allclose(low, full, rtol=0.05)


@pytest.mark.parametrize("dtype", [tb.float16, tb.bfloat16], ids=lambda dtype: dtype.name)
def test_sums_of_half_precision_are_rounded_once(dtype):
    with tb.Graph().as_default(), tb.Session() as session:
        ones = tb.ones([64, 64], dtype)
        assert float(session.run(tb.reduce_sum(ones))) == 4096
        assert (
            float(session.run(tb.matmul(tb.ones([1, 4096], dtype), tb.ones([4096, 1], dtype)))[0, 0]) == 4096
        )


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
def test_means_of_integers_are_rounded_towards_zero(dtype):
    sign = 1 if dtype == tb.uint64 else -1  # wraps around to the highest numbers of the others
    x = np.array([[1, 2, 3, 120], [3 * sign, 4 * sign, 0, 119]]).astype(dtype.as_numpy_dtype)
    with tb.Graph().as_default(), tb.Session() as session:
        fed, none = tb.placeholder(dtype), tb.zeros([0, 3], dtype)
        means = [
            tb.reduce_mean(fed),
            tb.reduce_mean(fed, 0, keepdims=True),
            tb.reduce_mean(tb.constant(x), [1]),
            tb.reduce_mean(none, 0),
            tb.reduce_euclidean_norm(none + tb.constant(1, dtype), 1),
        ]
        got = session.run(means, {fed: x})
    assert [value.dtype for value in got] == [x.dtype] * 5
    wide = x.astype(object)  # of Python's integers
    total = sum(wide.flat)
    assert got[0] == int(abs(total) // 8) * (1 if total > 0 else -1)
    assert got[1].tolist() == [[int(each / 2) for each in wide.sum(0)]]
    assert got[2][0] == 31
    assert got[3].tolist() == [0, 0, 0]
    assert got[4].shape == (0,)


def test_a_sum_of_small_integers_does_not_wrap_around():
    with tb.Graph().as_default(), tb.Session() as session:
        assert session.run(tb.reduce_mean(tb.constant([250, 251, 253], tb.uint8))) == 251
        assert session.run(tb.reduce_mean(tb.constant([2**31 - 1, 2**31 - 2], tb.int32))) == 2**31 - 2
        assert session.run(tb.reduce_mean(tb.constant([-7, -8]))) == -7
        assert session.run(tb.reduce_euclidean_norm(tb.constant([3, 4, 1]))) == 5


@pytest.mark.parametrize("dtype", [tb.float16, tb.bfloat16], ids=lambda dtype: dtype.name)
def test_halves_are_computed_as_float32_and_rounded_once(dtype):
    values = np.linspace(-2, 2, 48).reshape(1, 4, 4, 3).astype(dtype.as_numpy_dtype)
    filters = np.linspace(-1, 1, 24).reshape(2, 2, 3, 2).astype(dtype.as_numpy_dtype)
    functions = {
        "softmax": tb.nn.softmax,
        "log_softmax": lambda x: tb.nn.log_softmax(x, axis=1),
        "l2_loss": tb.nn.l2_loss,
        "l2_normalize": lambda x: tb.nn.l2_normalize(x, -1),
        "max_pool": lambda x: tb.nn.max_pool(x, 2, 2, "SAME"),
        "avg_pool": lambda x: tb.nn.avg_pool(x, 2, 2, "SAME"),
        "conv2d": lambda x: tb.nn.conv2d(x, tb.constant(filters.astype(x.dtype.as_numpy_dtype)), 1, "SAME"),
        "digamma": lambda x: tb.digamma(tb.abs(x) + 1),
        "erf": tb.erf,
    }
    with tb.Graph().as_default(), tb.Session() as session:
        half, wide = tb.constant(values), tb.constant(values.astype(np.float32))
        got, expected = session.run(
            [{name: function(x) for name, function in functions.items()} for x in (half, wide)]
        )
        slope = tb.gradients(tb.nn.l2_loss(tb.nn.softmax(half)), half)[0]
        assert session.run(slope).dtype == values.dtype
        drawn = session.run(tb.random_uniform([4096], dtype=dtype))
        assert (drawn.dtype, drawn.min() >= 0, float(drawn.max()) < 1) == (values.dtype, True, True)
        bell = session.run(tb.truncated_normal([4096], 1, 2, dtype)).astype(float)
        assert abs(bell.mean() - 1) < 0.2
        assert abs(bell - 1).max() <= 4
        session.run(tb.get_variable("half", [3], dtype).initializer)
    for name, value in got.items():
        assert value.dtype == values.dtype, name
        tolerance = 0.02 if name == "digamma" else 0
        np.testing.assert_allclose(
            value.astype(float),
            expected[name].astype(value.dtype).astype(float),
            tolerance,
            tolerance,
            err_msg=name,
        )


def test_bands_of_truths():
    with tb.Graph().as_default(), tb.Session() as session:
        assert session.run(tb.matrix_band_part(tb.ones([2, 2], tb.bool), 0, -1)).tolist() == [[1, 1], [0, 1]]


def test_segments_of_complex_numbers():
    with tb.Graph().as_default(), tb.Session() as session:
        assert session.run(tb.segment_mean(tb.constant([2j, 4.0, 6]), [0, 0, 1])).tolist() == [2 + 1j, 6]


def test_limits_and_names():
    assert (tb.int8.min, tb.int8.max, tb.uint64.max) == (-128, 127, 2**64 - 1)
    assert tb.bfloat16.max == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert tb.float16.is_floating
    assert tb.bfloat16.is_floating
    assert tb.uint16.is_unsigned
    assert tb.complex64.is_complex
    assert tb.complex64.real_dtype == tb.float32
    assert tb.as_dtype(complex) == tb.complex64
    assert tb.as_dtype("bfloat16") == tb.bfloat16
    with pytest.raises(InvalidArgumentError, match="complex64 has no order"):
        _ = tb.complex64.max


def test_constants_that_lose_information_are_refused():
    with tb.Graph().as_default():
        for value, dtype in ((128, "int8"), (-1, "uint16"), (1.5, "int8"), (1j, "float32")):
            with pytest.raises(InvalidArgumentError, match=f"cannot become {dtype} without loss"):
                tb.constant(value, dtype)
        with pytest.raises(InvalidArgumentError, match="overflows float16"):
            tb.constant(1e6, "float16")


def test_ops_and_optimisers_say_which_dtypes_they_have():
    with tb.Graph().as_default():
        images = tb.zeros([1, 4, 4, 1], "float16")
        with pytest.raises(InvalidArgumentError, match=r"float16, expected float32 or float64; use tb\.cast"):
            tb.nn.depthwise_conv2d(images, tb.zeros([3, 3, 1, 2], "float16"), 1, "SAME")
        with pytest.raises(
            InvalidArgumentError, match=r"Less: input has dtype complex64, expected float32 or"
        ):
            tb.less(tb.constant(1j), tb.constant(2j))
        weights = tb.Variable(tb.ones([3], "bfloat16"), name="weights")
        with pytest.raises(InvalidArgumentError, match=r"weights:0 is bfloat16, expected float32 or float64"):
            tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(weights))


@each_dtype
def test_files_of_arrays(dtype, tmp_path):
    x = VALUES.astype(dtype.as_numpy_dtype)
    save_arrays(tmp_path / "x", {"x": x}, {})
    loaded = load_arrays(tmp_path / "x")[0]["x"]
    assert loaded.dtype == x.dtype
    assert loaded.tobytes() == x.tobytes()
