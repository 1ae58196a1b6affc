"""Tensors of strings: conversion, moves, comparisons, control flow and queues, and where they are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def run(fetches, feeds=None):
    with tb.Session() as session:
        return session.run(fetches, feeds)


def words(array):
    assert array.dtype == object
    return array.tolist()


def test_texts_and_bytes_become_bytes():
    tensor = tb.constant(["a", b"\0b\0", "é", ""])
    assert (tensor.dtype, tensor.shape) == (tb.string, [4])
    assert words(run(tensor)) == [b"a", b"\0b\0", "é".encode(), b""]
    assert run(tb.constant("one")) == b"one"
    assert words(run(tb.constant("x", shape=[2]))) == [b"x", b"x"]
    assert run(tb.constant([["a"], ["b"]])).shape == (2, 1)
    assert run(tb.zeros([2], tb.string)).tolist() == [b"", b""]


@pytest.mark.parametrize(
    "value",
    [
        np.array(["ab", "c"]),
        np.array([b"ab", b"c"]),
        np.array(["ab", b"c"], object),
        ("ab", "c"),
        np.array(["ab", "c"], np.dtypes.StringDType()),
    ],
)
def test_what_can_be_fed(value):
    x = tb.placeholder(tb.string, [None])
    assert words(run(x, {x: value})) == [b"ab", b"c"]
    assert words(run(tb.identity(x), {x: value})) == [b"ab", b"c"]


@pytest.mark.parametrize("dtype", [str, bytes, object, "string", "str", np.dtype("S3"), np.dtype("<U2")])
def test_dtypes_of_strings(dtype):
    assert tb.as_dtype(dtype) is tb.string


def test_a_fetched_array_is_the_callers_own():
    fixed = tb.constant(["a", "b"])
    with tb.Session() as session:
        session.run(fixed)[0] = b"changed"
        assert words(session.run(fixed)) == [b"a", b"b"]


TEXTS = np.array([["a", "bc"], ["", "d"], ["e\0", "a"]])
ROWS = np.vectorize(str.encode, [object])(TEXTS)
CHANGED = np.where(ROWS == b"a", b"A", ROWS)


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (lambda x: tb.reshape(x, [2, -1]), ROWS.reshape(2, 3)),
        (lambda x: tb.reshape(x, tb.shape(x)[::-1]), ROWS.reshape(2, 3)),
        (lambda x: tb.gather(x, [2, 0]), ROWS[[2, 0]]),
        (lambda x: tb.concat([x, [["y", "z"]]], 0), [*ROWS.tolist(), [b"y", b"z"]]),
        (lambda x: tb.stack([x, x], 1), np.stack([ROWS, ROWS], 1)),
        (lambda x: tb.unstack(x, num=3)[1] if x.shape.dims else x[1], ROWS[1]),
        (lambda x: x[1:, ::-1], ROWS[1:, ::-1]),
        (lambda x: tb.slice(x, [1, 0], [2, 1]), ROWS[1:, :1]),
        (lambda x: tb.transpose(x), ROWS.T),
        (lambda x: tb.expand_dims(x, 1), ROWS[:, None]),
        (lambda x: tb.tile(x, [1, 2]), np.tile(ROWS, (1, 2))),
        (lambda x: tb.reverse(x, [0]), ROWS[::-1]),
        (lambda x: tb.where(tb.equal(x, "a"), tb.fill(tb.shape(x), "A"), x), CHANGED),
        (lambda x: tb.equal(x, [["a", "d"]]), ROWS == [[b"a", b"d"]]),
        (lambda x: tb.not_equal(x, x[0]), ROWS[0] != ROWS),
        (lambda x: tb.boolean_mask(x, [True, False, True]), ROWS[[0, 2]]),
        (lambda x: tb.gather_nd(x, [[0, 1], [2, 0]]), [b"bc", b"e\0"]),
        (lambda x: tb.unique(tb.reshape(x, [-1]))[0], [b"a", b"bc", b"", b"d", b"e\0"]),
        (lambda x: tb.dynamic_partition(x, [0, 1, 0], 2)[0], ROWS[[0, 2]]),
        (lambda x: [tb.size(x), tb.rank(x)], [6, 2]),
    ],
)  # fmt: skip
def test_moves(move, expected):
    x = tb.placeholder(tb.string, [3, 2])
    for source, feeds in ((x, {x: TEXTS}), (tb.constant(ROWS), None)):
        assert np.array_equal(np.asarray(run(move(source), feeds)), np.asarray(expected))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(max_size=4), min_size=1, max_size=5))
def test_any_bytes_pass(elements):
    with tb.Graph().as_default():
        x = tb.placeholder(tb.string, [None])
        there, joined = run([tb.identity(x), tb.concat([x, x], 0)], {x: elements})
        assert (words(there), words(joined)) == (elements, elements * 2)


def test_a_row_in_random_order():
    x = tb.constant(list("abcdefgh"))
    shuffled = run(tb.random_shuffle(x, seed=1))
    assert words(shuffled) != words(run(x))
    assert sorted(words(shuffled)) == words(run(x))


def test_control_flow():
    text = tb.placeholder(tb.string, [])
    chosen = tb.cond(tb.equal(text, "a"), lambda: tb.stack([text, "yes"]), lambda: tb.stack([text, "no"]))
    count, joined = tb.while_loop(
        lambda i, t: i < 3,
        lambda i, t: (i + 1, tb.concat([t, [text]], 0)),
        [0, tb.constant(["start"])],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None])],
    )
    with tb.Session() as session:
        assert words(session.run(chosen, {text: "a"})) == [b"a", b"yes"]
        assert words(session.run(chosen, {text: "b"})) == [b"b", b"no"]
        assert session.run(count, {text: "b"}) == 3
        assert words(session.run(joined, {text: "b"})) == [b"start", b"b", b"b", b"b"]


def test_what_a_late_tensor_array_gives_comes_before_the_loop_ends():
    """The rows are there only after ops of the host; what follows the loop must not wait with them."""
    rows = tb.constant(["a", "b", "c"])
    assert words(run(tb.map_fn(tb.identity, rows))) == [b"a", b"b", b"c"]
    assert run(tb.map_fn(lambda x: tb.equal(x, "b"), rows, dtype=tb.bool)).tolist() == [False, True, False]


def test_queues_and_python_functions():
    queue = tb.FIFOQueue(10, [tb.string, tb.int32], [[], []])
    fill = queue.enqueue_many([["a", "b", "c"], [1, 2, 3]])
    one, many = queue.dequeue(), queue.dequeue_many(2)
    padded = tb.PaddingFIFOQueue(4, tb.string, [[None]])
    puts = [padded.enqueue([["x"]]), padded.enqueue([["y", "z"]])]
    rows = padded.dequeue_many(2)
    upper = tb.py_func(lambda x, y: [x.item(0).upper() + y, "text"], [["a"], "b"], [tb.string, tb.string])
    with tb.Session() as session:
        session.run(fill)
        assert session.run(one) == [b"a", 1]
        texts, numbers = session.run(many)
        assert (words(texts), numbers.tolist()) == ([b"b", b"c"], [2, 3])
        for put in puts:
            session.run(put)
        assert words(session.run(rows)) == [[b"x", b""], [b"y", b"z"]]
        assert session.run(upper) == [b"Ab", b"text"]


def test_barriers_and_staging_areas_by_keys():
    barrier = tb.Barrier([tb.string, tb.float32], [[], []], key_dtype=tb.string)
    area = tb.MapStagingArea([tb.string])
    with tb.Session() as session:
        session.run(barrier.insert_many(0, ["b", "a"], ["x", "y"]))
        session.run(barrier.insert_many(1, ["a", "b"], [1.0, 2.0]))
        _, keys, (texts, numbers) = session.run(barrier.take_many(2))
        assert (words(keys), words(texts), numbers.tolist()) == ([b"b", b"a"], [b"x", b"y"], [2, 1])
        session.run(area.put(tb.constant(7, tb.int64), ["text"]))
        assert session.run(area.get(tb.constant(7, tb.int64))) == b"text"


def test_prints_and_assertions(capsys):
    x = tb.constant(["a", "é"])
    shown = tb.Print(x, [x, tb.constant([1, 2])], "values: ", first_n=2)
    with tb.Session() as session:
        for _ in range(3):
            session.run(shown)
        assert capsys.readouterr().err == "values: [a é][1 2]\n" * 2
        with pytest.raises(InvalidArgumentError, match=r"assertion failed: : \[a é\]"):
            session.run(tb.Assert(tb.equal(tb.size(x), 3), [x]))
        session.run(tb.Assert(tb.equal(tb.size(x), 2), [x]))


@pytest.mark.parametrize("shape", [None, [None]])
def test_placeholders_with_a_default_of_open_shape(shape):
    given = tb.placeholder_with_default(tb.constant(["a", "b"]), shape)
    with tb.Session() as session:
        assert session.run(given).tolist() == [b"a", b"b"]
        assert session.run(given, {given: ["c"]}).tolist() == [b"c"]


def test_partial_runs():
    x = tb.placeholder(tb.string, [])
    first, y = tb.identity(x), tb.placeholder(tb.string, [])
    both = tb.stack([first, y])
    with tb.Session() as session:
        handle = session.partial_run_setup([first, both], [x, y])
        assert session.partial_run(handle, first, {x: "a\0"}) == b"a\0"
        assert words(session.partial_run(handle, both, {y: "b"})) == [b"a\0", b"b"]


def test_an_op_of_the_user():
    double = tb.define_op(
        "DoubledText",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        kernel=lambda call: np.add(call.inputs[0], call.inputs[0], out=call.outputs[0]),
        inputs=("x",),
        strings=True,
        replace=True,
    )
    assert words(run(double(["a", "b"]))) == [b"aa", b"bb"]


def test_explain_says_why():
    text = str(tb.Session().explain(tb.identity(tb.constant("a"))))
    assert "of strings" in text


def test_gradients_stop_at_strings():
    v = tb.Variable([1.0, 2.0])
    names = tb.constant(["a", "b"])
    loss = tb.reduce_sum(tb.where(tb.equal(names, "a"), v * 3.0, v))
    (gradient,) = tb.gradients(loss, [v])
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.run(gradient).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tb.matmul([["a"]], [["b"]]), r"MatMul: input 0 is string\[1, 1\], and the op has no kernel"),
        (lambda: tb.constant(["a"]) + "b", r"add: y: it is string\[\], and the op has no kernel for strings"),
        (lambda: tb.cast(tb.constant("a"), tb.float32), "no kernel for strings; tb.string_to_number"),
        (lambda: tb.cast(1.0, tb.string), "output 0 is .*; tb.as_string makes strings"),
        (lambda: tb.reduce_max(["a"]), "reduce_max: input_tensor: "),
        (lambda: tb.equal("a", 1), "equal: y: cannot make a tensor of strings of int"),
        (lambda: tb.Variable("a").assign_add("b"), "AssignAddHostVariable: .* has no kernel for strings"),
        (lambda: tb.constant(["a", ["b"]]), "is ragged"),
        (lambda: tb.constant("a", tb.int32), "a value of strings cannot become int32"),
        (lambda: tb.constant(1, tb.string), "strings of int with 1 in it: expected texts and bytes"),
        (lambda: tb.ones([1], tb.string), "no one among strings"),
        (lambda: tb.placeholder(tb.string, []).op.run(), "Placeholder: the placeholder of .* is not fed"),
    ],
)  # fmt: skip
def test_refused(call, words):
    with tb.Session().as_default(), pytest.raises(InvalidArgumentError, match=words):
        call()


def test_strings_stay_on_cpus():
    with tb.device("/null:0"):
        x = tb.identity(tb.placeholder(tb.string, [], name="text"))
    with (
        tb.Session() as session,
        pytest.raises(
            InvalidArgumentError,
            match="strings are in host memory, expected a CPU device, got /device:NULL:0",
        ),
    ):
        session.run(x, {"text:0": "a"})
    with tb.Session(allow_soft_placement=True) as session:
        assert session.run(x, {"text:0": "a"}) == b"a"


def test_replicas_take_strings():
    replicator = tb.MultiGpuReplicator(devices=["/cpu:0"], replicas_per_gpu=2)

    def step(batch):
        return tb.cast(tb.equal(batch, "a"), tb.float32)

    (result,) = replicator.train(step, lambda: [np.array(["a", "b"])], 1)
    assert np.asarray(result).tolist() == [[1, 0], [1, 0]]
