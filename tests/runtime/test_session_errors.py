"""Errors give in one line expectation, actual value and remedy; the session stays usable."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture
def x():
    return tb.placeholder(tb.float32, [None, 3], name="x")


def message(kind, call, *args):
    with pytest.raises(kind) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    return text


def test_names_of_tensorflows_errors_and_indices(session, x):
    with pytest.raises(tb.OpError) as caught:
        session.run(x[:, tb.newaxis])
    assert caught.value.message == str(caught.value)
    assert tb.OpError is tb.errors.OpError
    assert session.run(x[:, tb.newaxis], {x: [[1, 2, 3]]}).shape == (1, 1, 3)


def test_a_placeholder_that_is_not_fed(session, x):
    text = message(InvalidArgumentError, session.run, x * 2.0)
    assert text.startswith(
        "placeholder x (float32[?, 3]) is needed but not fed; add it to feed_dict (made at "
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((3, 2)), "feed x:0: expected shape [?, 3], got [3, 2]"),
        (np.zeros(3), "feed x:0: expected shape [?, 3], got [3]"),
        (
            np.zeros((1, 3), complex),
            "feed x:0: a value of type complex128 cannot become float32 without loss",
        ),
        (np.zeros((1, 3), bool), "feed x:0: a value of type bool cannot become float32 without loss"),
        ([["a", "b", "c"]], "feed x:0: a value of strings cannot become float32"),
        ([[1.0, 2.0, 3.0], [1.0]], "feed x:0: nested list [[1.0, 2.0, 3.0], [1.0]] is ragged"),
        (None, "feed x:0: cannot make a tensor of NoneType"),
        ({"a": 1}, "feed x:0: cannot make a tensor of dict"),
    ],
)
def test_values_that_do_not_fit(session, x, value, words):
    assert words in message(InvalidArgumentError, session.run, x, {x: value})
    np.testing.assert_array_equal(session.run(x, {x: [[1, 2, 3]]}), [[1.0, 2.0, 3.0]])


def test_floats_for_integers(session):
    n = tb.placeholder(tb.int32, [], name="n")
    b = tb.placeholder(tb.uint8, [], name="b")
    assert "float64 cannot become int32 without loss; give integers" in message(
        InvalidArgumentError, session.run, n, {n: 1.5}
    )
    assert "cannot become uint8 without loss" in message(InvalidArgumentError, session.run, b, {b: 256})
    assert session.run([n, b], {n: 7, b: 255}) == [7, 255]


def test_what_floats_take(session, x):
    for value in (
        [[1, 2, 3]],
        np.ones((1, 3), np.int64),
        np.ones((1, 3), np.float64),
        np.ones((1, 3), ">f4"),
    ):
        assert session.run(x, {x: value}).dtype == np.float32
    with np.errstate(all="raise"):
        assert np.isinf(session.run(x, {x: [[np.inf, 0.0, 0.0]]})[0, 0])
    for value in ([[1e300, 0.0, 0.0]], np.array([[0.0, -1e39, np.nan]])):
        assert "finite value" in (text := message(InvalidArgumentError, session.run, x, {x: value}))
        assert "overflows float32" in text
    strided = np.arange(24.0, dtype=np.float32).reshape(2, 12)[:, ::4]
    np.testing.assert_array_equal(session.run(x, {x: strided}), strided)


def test_tensors_and_variables_cannot_be_fed_as_values(session, x):
    v = tb.Variable(np.zeros((1, 3), np.float32), name="v")
    for value in (x, v):
        assert "cannot be fed; run it first" in message(InvalidArgumentError, session.run, x, {x: value})
    assert "feed x:0: cannot make an array of list" in message(InvalidArgumentError, session.run, x, {x: [x]})


def test_tuples_of_tensors_are_fed_by_tuples_of_values(session, x):
    state = (
        tb.placeholder(tb.float32, [2]),
        (tb.placeholder(tb.int32, []), tb.sparse_placeholder(tb.float32)),
    )
    sparse = tb.SparseTensorValue([[0]], [5.0], [2])
    found = session.run([x, state], {x: [[1, 2, 3]], state: ([1, 2], (3, sparse))})
    assert found[1][0].tolist() == [1, 2]
    assert found[1][1][0] == 3
    assert found[1][1][1].values.tolist() == [5]
    assert "expected a value of the same structure, 2 parts" in message(
        InvalidArgumentError, session.run, state, {state: [1.0]}
    )


def test_keys_that_cannot_be_fed(session, x):
    update = tb.no_op("update")
    assert "feed x: an operation cannot be fed; feed its tensor 'x:0'" in message(
        InvalidArgumentError, session.run, x, {"x": 1.0}
    )
    text = message(InvalidArgumentError, session.run, x, {update: 1.0})
    assert text == "feed update: an operation cannot be fed"
    assert "x:0: it is fed twice" in message(InvalidArgumentError, session.run, x, {x: 1.0, "x:0": 2.0})
    assert (
        "run: expected feed_dict to be a dictionary of values by tensor or name, got list [1.0]"
        in message(InvalidArgumentError, session.run, x, [1.0])
    )
    assert "run: expected feed_dict to be tensors" in message(InvalidArgumentError, session.run, x, {3: 1.0})


def test_unknown_names(session, x):
    text = message(NotFoundError, session.run, "xx:0")
    assert text == "run: fetches: the graph has no operation 'xx'; did you mean x?"
    assert "run: feed_dict: the graph has no operation 'y'" in message(
        NotFoundError, session.run, x, {"y:0": 1.0}
    )
    assert "run: fetches: the graph has no tensor 'x:3'" in message(NotFoundError, session.run, "x:3")


@pytest.mark.parametrize("item", [None, 3, 2.5, object])
def test_what_cannot_be_fetched(session, item):
    assert "run: expected fetches to be tensors, operations, variables or their names, got" in message(
        InvalidArgumentError, session.run, item
    )


def test_elements_of_another_graph(session):
    with tb.Graph().as_default():
        foreign = tb.placeholder(tb.float32, name="foreign")
        v = tb.Variable(1.0, name="v")
    for item in (foreign, foreign.op, v):
        text = message(InvalidArgumentError, session.run, [item])
        assert "is not an element of this graph; use a session of the graph it was made in" in text
    assert "run: feed_dict: foreign:0 is not" in message(
        InvalidArgumentError, session.run, [], {foreign: 1.0}
    )


def test_variables_without_a_value(session):
    v, w = tb.Variable(1.0, name="v"), tb.Variable(1.0, name="w")
    text = message(FailedPreconditionError, session.run, v + w)
    assert text.startswith("variables without a value: v, w; run tb.global_variables_initializer() first")
    session.run(v.initializer)
    assert "without a value: w;" in message(FailedPreconditionError, session.run, [v, w.assign_add(1.0)])
    assert session.run([v, w.assign(4.0)]) == [1.0, 4.0]


def test_a_closed_session(x):
    session = tb.Session()
    call = session.make_callable(x, [x])
    session.close()
    session.close()
    assert session.closed
    for act in (
        lambda: session.run(x, {x: [[1.0, 2.0, 3.0]]}),
        lambda: call([[1.0, 2.0, 3.0]]),
        lambda: session.explain(x, {x: [[1.0, 2.0, 3.0]]}),
        lambda: session.load_variables({}),
        session.__enter__,
    ):
        assert "the session is closed; make a new one" in message(FailedPreconditionError, act)


def test_targets_and_devices():
    assert "target str 'ssh://a:1' is unknown" in message(InvalidArgumentError, tb.Session, "ssh://a:1")
    with pytest.raises(NotFoundError, match="tpu"):
        tb.Session(device="/tpu:0")
    with tb.device("/gpu:1"):
        y = tb.constant(1.0, name="y") + 1.0
    with tb.Session() as session:
        text = message(InvalidArgumentError, session.run, y)
        assert text.startswith(
            "Const y requests device /device:GPU:1, which does not exist; there are: /cpu:0"
        )
    with tb.device("/cpu:1"):
        z = tb.constant(1.0) + 1.0
    with tb.Session(device="/cpu:1") as session:
        assert session.run(z) == 2.0


def failing(fail):
    def run(call):
        if fail(call.inputs[0]):
            raise ArithmeticError("too much")
        call.outputs[0][...] = call.inputs[0]

    return tb.define_op(
        "TestSometimes",
        spec=lambda i, a: i[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=run,
        replace=True,
    )


@pytest.mark.parametrize("option", ["replicas_per_device", "synchronisation", "on_nan"])
def test_options_of_a_target_that_was_forgotten(option):
    message = f"option {option} is one of target 'tensorbow', got no target; give target='tensorbow' too"
    with pytest.raises(InvalidArgumentError, match=message):
        tb.Session(**{option: 2})
    with pytest.raises(InvalidArgumentError, match=message):
        tb.Session("", tb.Graph(), devices=["/cpu:0"], **{option: 2})
    with pytest.raises(TypeError, match="unexpected keyword argument 'replicas'"):
        tb.Session(replicas=2)


def test_options_of_an_argument_that_were_given_beside_it():
    message = r"option tau is one of synchronisation.*give synchronisation=tb.Synchronisation\(tau=...\)"
    for made in (tb.TensorBowSession, lambda **options: tb.Session("tensorbow", **options)):
        with pytest.raises(InvalidArgumentError, match=message):
            made(replicas_per_device=2, tau=4)
        with pytest.raises(TypeError, match="unexpected keyword argument 'replicas'"):
            made(replicas=2)


def test_a_kernel_that_fails_names_op_and_line_and_leaves_the_session_usable(session, x):
    v = tb.Variable(0.0, name="v")
    session.run(v.initializer)
    with tb.control_dependencies([v.assign_add(1.0)]):
        y = failing(lambda a: a.sum() > 10)(tb.identity(x), name="y")
    with tb.control_dependencies([y]):
        last = v.assign_add(100.0)
    for count in range(1, 4):
        text = message(InvalidArgumentError, session.run, last, {x: [[10.0, 20.0, 30.0]]})
        assert text.startswith("TestSometimes y: ArithmeticError: too much (made at ")
        assert "y = failing(" in text
        assert session.run(v) == 100.0 * (count - 1) + 2 * count - 1  # what ran before it stays
        assert session.run(last, {x: [[1.0, 2.0, 3.0]]}) == 100.0 * count + 2 * count
    assert session.run(x * 2.0, {x: [[1.0, 2.0, 3.0]]})[0, 2] == 6.0


def test_a_variable_whose_initializer_fails_has_no_value(session):
    op = failing(lambda a: True)
    v = tb.Variable(op(tb.random_uniform([2])), name="v")
    message(InvalidArgumentError, session.run, v.initializer)
    assert "without a value: v" in message(FailedPreconditionError, session.run, v)


def test_memory_that_is_not_there():
    from tensorbow.devices import CpuDevice
    from tensorbow.errors import ResourceExhaustedError

    with CpuDevice("/cpu:7", limit_nbytes=8 << 20) as device, tb.Session(device=device) as session:
        small = tb.Variable(np.ones(1000), name="small")
        session.run(small.initializer)
        large = tb.Variable(lambda: tb.zeros_like(tb.broadcast_to(tb.constant(0.0), [3 << 20])), name="large")
        with pytest.raises(ResourceExhaustedError, match=r"variables needs .* bytes for WEIGHTS"):
            session.run(large.initializer)
        np.testing.assert_array_equal(session.container.read("small"), np.ones(1000))


def test_fed_pictures_with_their_channels_first_are_told(session):
    """A reshape of such would mix their pixels."""
    pictures = tb.placeholder(tb.float32, [None, 4, 5, 3], name="pictures")
    for shape, remedy in (
        ((2, 3, 4, 5), "got [2, 3, 4, 5]; pictures have their channels last: give numpy.transpose(value,"),
        ((2, 5, 4, 3), "got [2, 5, 4, 3]; reshape the value"),
    ):
        feed = {pictures: np.zeros(shape, np.float32)}
        assert remedy in message(InvalidArgumentError, session.run, pictures, feed)
