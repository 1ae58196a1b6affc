"""Recurrent cells and their unrolling, against NumPy."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.nn import rnn_cell

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(3, 4, 2))  # [batch, steps, features]


@pytest.fixture(autouse=True)
def session():
    with tb.Graph().as_default(), tb.Session() as session:
        tb.set_random_seed(2)
        yield session


def values(session):
    """Variables after an initialiser, all moved, so that biases count."""
    session.run(tb.global_variables_initializer())
    found = {}
    for v in tb.trainable_variables():
        found[v.op.name] = session.run(v) + 0.1 * RANDOM.normal(size=v.shape.as_list())
        v.load(found[v.op.name], session)
    return found


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, found, scope, peepholes=False, projected=False):
    """Outputs, and the last c and h."""
    kernel, bias = found[f"{scope}/kernel"], found[f"{scope}/bias"]
    units = len(bias) // 4
    c = np.zeros((len(x), units))
    h = np.zeros((len(x), found[f"{scope}/projection/kernel"].shape[1] if projected else units))
    outputs = []
    for step in range(x.shape[1]):
        i, j, f, o = np.split(np.concatenate([x[:, step], h], 1) @ kernel + bias, 4, 1)
        w = {gate: found[f"{scope}/w_{gate}_diag"] if peepholes else 0.0 for gate in "fio"}
        c = sigmoid(f + 1 + w["f"] * c) * c + sigmoid(i + w["i"] * c) * np.tanh(j)
        h = sigmoid(o + w["o"] * c) * np.tanh(c)
        if projected:
            h = h @ found[f"{scope}/projection/kernel"]
        outputs.append(h)
    return np.stack(outputs, 1), c, h


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_lstm(session, full):
    options = {"use_peepholes": True, "num_proj": 3} if full else {}
    given = tb.placeholder(tb.float64, [None, *X.shape[1:]])
    y, (c, h) = tb.nn.dynamic_rnn(rnn_cell.LSTMCell(5, **options), given)
    assert (y.shape, c.shape) == ([None, 4, 3 if full else 5], [None, 5])
    expected = lstm(X, values(session), "rnn/lstm_cell", full, full)
    for result, wanted in zip(session.run([y, c, h], {given: X}), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-9)


@pytest.mark.slow
def test_gated_recurrent_unit_and_basic_cell(session):
    steps = tb.unstack(tb.constant(X), axis=1)
    outputs, state = tb.nn.static_rnn(rnn_cell.GRUCell(5), steps)
    basic, _ = tb.nn.static_rnn(rnn_cell.BasicRNNCell(5), steps, scope="basic")
    session.run(tb.global_variables_initializer())
    assert session.run(tb.trainable_variables()[1]).tolist() == [1.0] * 10  # bias of the gates
    found = values(session)
    assert list(found) == [
        "rnn/gru_cell/gates/kernel",
        "rnn/gru_cell/gates/bias",
        "rnn/gru_cell/candidate/kernel",
        "rnn/gru_cell/candidate/bias",
        "basic/basic_rnn_cell/kernel",
        "basic/basic_rnn_cell/bias",
    ]
    gates, gates_bias, candidate, candidate_bias, kernel, bias = found.values()
    h, e = np.zeros((3, 5)), np.zeros((3, 5))
    for step, result, other in zip(range(4), *session.run([outputs, basic]), strict=True):
        x = X[:, step]
        r, u = np.split(sigmoid(np.concatenate([x, h], 1) @ gates + gates_bias), 2, 1)
        new = np.tanh(np.concatenate([x, r * h], 1) @ candidate + candidate_bias)
        h = u * h + (1 - u) * new
        e = np.tanh(np.concatenate([x, e], 1) @ kernel + bias)
        np.testing.assert_allclose(result, h, rtol=1e-9)
        np.testing.assert_allclose(other, e, rtol=1e-9)
    np.testing.assert_allclose(session.run(state), h, rtol=1e-9)


@pytest.mark.slow
def test_layers_of_cells_and_lengths_of_sequences(session):
    cell = rnn_cell.MultiRNNCell([rnn_cell.BasicLSTMCell(5), rnn_cell.BasicLSTMCell(3)])
    y, states = tb.nn.dynamic_rnn(cell, tb.constant(X), sequence_length=[4, 2, 3])
    assert (cell.output_size, cell.state_size) == (3, ((5, 5), (3, 3)))
    found = values(session)
    scopes = [f"rnn/multi_rnn_cell/cell_{n}/basic_lstm_cell" for n in (0, 1)]
    assert list(found) == [f"{scope}/{part}" for scope in scopes for part in ("kernel", "bias")]
    result, (_, (c, h)) = session.run([y, states])
    for example, length in enumerate([4, 2, 3]):
        part = X[example : example + 1, :length]
        below, *_ = lstm(part, found, scopes[0])
        expected, last_c, last_h = lstm(below, found, scopes[1])
        np.testing.assert_allclose(result[example, :length], expected[0], rtol=1e-9)
        assert not result[example, length:].any()
        np.testing.assert_allclose([c[example], h[example]], [last_c[0], last_h[0]], rtol=1e-9)


@pytest.mark.slow
def test_a_backward_cell_begins_at_each_examples_last_step(session):
    lengths, cells = [4, 2, 3], [rnn_cell.GRUCell(5), rnn_cell.GRUCell(3, reset_after=True)]
    outputs, fw, bw = tb.nn.static_bidirectional_rnn(
        *cells, tb.unstack(tb.constant(X), axis=1), sequence_length=tb.constant(lengths)
    )
    alone = [
        tb.nn.dynamic_rnn(cells[1], tb.constant(X[n : n + 1, :length][:, ::-1].copy()))
        for n, length in enumerate(lengths)
    ]
    values(session)
    found, forwards, last, alone = session.run([tb.stack(outputs, 1), fw, bw, alone])
    for example, (length, (reversed_outputs, state)) in enumerate(zip(lengths, alone, strict=True)):
        np.testing.assert_allclose(found[example, :length, 5:], reversed_outputs[0, ::-1], rtol=1e-9)
        np.testing.assert_allclose(last[example], state[0], rtol=1e-9)
        np.testing.assert_array_equal(forwards[example], found[example, length - 1, :5])
        assert not found[example, length:].any()
    with pytest.raises(tb.errors.InvalidArgumentError, match="one cell is given twice"):
        tb.nn.bidirectional_dynamic_rnn(cells[0], cells[0], tb.constant(X))


@pytest.mark.slow
def test_sharing(session):
    """A cell shares its variables with all its calls; another cell with those of a scope that reuses."""
    cell, x = rnn_cell.GRUCell(5), tb.constant(X)
    first, state = tb.nn.dynamic_rnn(cell, x)
    again, _ = tb.nn.dynamic_rnn(cell, x, initial_state=state)
    assert len(tb.trainable_variables()) == 4
    with tb.variable_scope("", reuse=True):
        other, _ = tb.nn.dynamic_rnn(rnn_cell.GRUCell(5), x[:, ::-1], time_major=False)
    assert len(tb.trainable_variables()) == 4
    values(session)
    one, two, three = session.run([first, again, other])
    assert not np.allclose(one, two)
    forth, _ = tb.nn.dynamic_rnn(cell, X[:, ::-1].transpose(1, 0, 2), time_major=True)
    np.testing.assert_allclose(session.run(forth).transpose(1, 0, 2), three)


@pytest.mark.slow
def test_wrappers(session):
    keep = tb.placeholder(tb.float64, [])
    inner = rnn_cell.BasicRNNCell(2)
    cell = rnn_cell.DropoutWrapper(rnn_cell.ResidualWrapper(inner), output_keep_prob=keep, seed=1)
    y, _ = tb.nn.dynamic_rnn(cell, tb.constant(X))
    plain, _ = tb.nn.dynamic_rnn(inner, tb.constant(X))
    values(session)
    whole, expected = session.run([y, plain], {keep: 1.0})
    np.testing.assert_allclose(whole, expected + X)
    dropped = session.run(y, {keep: 0.5})
    assert 0 < np.mean(dropped == 0) < 1
    np.testing.assert_allclose(dropped[dropped != 0], 2 * whole[dropped != 0])


def test_variational_dropout_drops_the_same_elements_in_all_steps_of_a_run(session):
    x, keep = tb.ones([3, 7, 4]), tb.placeholder_with_default(0.5, [])
    cell = rnn_cell.DropoutWrapper(
        rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(5), rnn_cell.GRUCell(6)]),
        input_keep_prob=keep,
        output_keep_prob=keep,
        state_keep_prob=keep,
        variational_recurrent=True,
        input_size=4,
        dtype=tb.float32,
        seed=3,
    )
    y, ((memory, h), _) = tb.nn.dynamic_rnn(cell, x, [7, 7, 4], dtype=tb.float32)
    values(session)
    runs = [session.run([y, memory, h]) for _ in range(2)]
    for outputs, kept, dropped in runs:
        zero = outputs[0] == 0
        assert zero.any()
        assert not zero.all()
        assert (zero == zero[0]).all()  # of all steps
        np.testing.assert_array_equal(outputs[1] == 0, zero)  # of all examples
        assert kept.all()
        assert (dropped == 0).any()
    assert ((runs[0][0] == 0) != (runs[1][0] == 0)).any()
    assert session.run(y, {keep: 1.0})[:2].all()


@pytest.mark.parametrize("variational", [False, True])
def test_one_seed_drops_other_elements_of_inputs_outputs_and_state(session, variational):
    cell = rnn_cell.DropoutWrapper(
        rnn_cell.ResidualWrapper(rnn_cell.GRUCell(40), lambda inputs, outputs: inputs),
        *(0.5, 0.5, 0.5, variational),
        input_size=40,
        dtype=tb.float32,
        seed=3,
    )
    output, state = cell(tb.ones([1, 40]), tb.ones([1, 40]))
    values(session)
    found, after = session.run([output, state])
    assert found.mean() == pytest.approx(1, abs=0.7)  # 4 for one of 4
    assert set(found.ravel()) == {0, 4}
    assert (found == 0).sum() > 24
    assert ((after == 0) != (found == 0)).any()


def test_parts_of_the_state_that_are_dropped():
    seen = []

    def visitor(state):
        seen.append(type(state).__name__)
        return rnn_cell.LSTMStateTuple(True, False) if isinstance(state, rnn_cell.LSTMStateTuple) else True

    inner = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(50), rnn_cell.GRUCell(50)])
    cell = rnn_cell.DropoutWrapper(inner, state_keep_prob=0.5, dropout_state_filter_visitor=visitor)
    _, after = cell(tb.ones([2, 3]), cell.zero_state(2, tb.float32))
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        (memory, h), of_gru = session.run(after)
    assert seen == ["tuple", "LSTMStateTuple", "Tensor"]
    assert (memory == 0).any()
    assert (of_gru == 0).any()
    assert h.all()


def test_each_layer_on_a_device_of_its_own():
    layers = [rnn_cell.DeviceWrapper(rnn_cell.GRUCell(2), f"/cpu:{number}") for number in (1, 0)]
    x, states = tb.zeros([3, 4]), [tb.zeros([3, 2])] * 2
    y, _ = rnn_cell.MultiRNNCell(layers)(x, states)
    assert [v.device for v in tb.trainable_variables()] == ["/device:CPU:1"] * 4 + ["/device:CPU:0"] * 4
    assert y.device == "/device:CPU:0"
    assert tb.identity(y).device == ""


def test_a_missing_name_of_a_cell_has_its_public_module_and_a_near_one():
    with pytest.raises(
        AttributeError, match=r"'tensorbow.nn.rnn_cell' has no attribute 'GRUCel'.*tb.nn.rnn_cell.GRUCell"
    ):
        rnn_cell.GRUCel  # noqa: B018


def test_gradients_flow_through_time(session):
    """The sum over steps of a linear cell's gradient is that of its closed form."""
    given = tb.constant(np.ones((1, 3, 1)))
    cell = rnn_cell.BasicRNNCell(1, activation=tb.identity)
    y, _ = tb.nn.dynamic_rnn(cell, given)
    kernel, bias = tb.trainable_variables()
    gradients = tb.gradients(y[0, 2, 0], [kernel, bias])
    session.run(tb.global_variables_initializer())
    kernel.load([[2.0], [3.0]], session)
    bias.load([0.5], session)
    of_kernel, of_bias = session.run(gradients)
    # h3 = (2 + b)(1 + w + w^2), w = 3
    np.testing.assert_allclose(of_kernel, [[13.0], [2.5 * 7]])
    np.testing.assert_allclose(of_bias, [13.0])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tb.nn.static_rnn("lstm", [X[:, 0]]), "expected cell to be a cell such as"),
        (lambda: tb.nn.static_rnn(rnn_cell.GRUCell(3), []), "expected at least one step"),
        (lambda: tb.nn.dynamic_rnn(rnn_cell.GRUCell(3), X[0]), r"expected \[batch, steps, features\]"),
        (
            lambda: rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(3)], state_is_tuple=False),
            "needs cells with one state tensor each",
        ),
        (lambda: rnn_cell.MultiRNNCell([]), "at least one"),
        (lambda: rnn_cell.MultiRNNCell([rnn_cell.GRUCell(3)] * 2), "given twice"),
        (lambda: rnn_cell.DropoutWrapper(3), "expected cell to be a cell"),
        (
            lambda: rnn_cell.DropoutWrapper(rnn_cell.GRUCell(3), 0.5, variational_recurrent=True),
            "dtype to be the cell's, for variational_recurrent",
        ),
        (
            lambda: rnn_cell.DropoutWrapper(
                rnn_cell.GRUCell(3), 0.5, variational_recurrent=True, dtype=tb.float32
            ),
            "input_size to be the width of the inputs",
        ),
        (lambda: rnn_cell.LSTMCell(3)(tb.zeros([2, 3]), tb.zeros([2, 3])), "a state of 2 tensors, got 1"),
        (
            lambda: tb.nn.dynamic_rnn(rnn_cell.GRUCell(3), X, sequence_length=[1.0, 2.0, 3.0]),
            "a sequence_length of whole numbers",
        ),
    ],
)
def test_misuse(build, words):
    with pytest.raises(InvalidArgumentError, match=words):
        build()
