"""Names and arguments of TensorFlow 1: sessions' options, moving averages, tensors as positions."""

import warnings

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.graph.defaults import default_graphs

pytestmark = pytest.mark.usefixtures("graph")

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def test_older_names_of_arguments():
    x = tb.placeholder(tb.float32, [None, 3])
    assert tb.reduce_sum(x, reduction_indices=[1], keep_dims=True).shape == [None, 1]
    assert tb.argmax(x, dimension=1).shape == [None]
    assert tb.expand_dims(x, dim=0).shape == [1, None, 3]
    assert tb.squeeze(tb.zeros([1, 2]), squeeze_dims=[0]).shape == [2]
    with pytest.raises(InvalidArgumentError, match=r"reduce_sum: keep_dims is the older name of keepdims"):
        tb.reduce_sum(x, 1, keep_dims=True, keepdims=True)
    with pytest.raises(TypeError, match=r"'dim'; it takes input, name$"):
        tb.identity(x, dim=1)


def test_a_known_extent_has_a_value():
    shape = tb.placeholder(tb.float32, [None, 3]).get_shape()
    assert (shape[1].value, shape[0], list(shape), shape.as_list()) == (3, None, [None, 3], [None, 3])
    assert shape[0].value is None
    assert [extent.value for extent in shape] == [extent.value for extent in shape[:]] == [None, 3]
    assert (shape[0] or 7, shape[0] * 2 + 1, tb.TensorShape([shape[0], 2])) == (7, None, [None, 2])
    assert tb.placeholder(tb.float32, [shape[0], shape[1]]).shape[0] is None
    assert tb.reshape(tb.zeros([2, 3]), [shape[0], 6]).shape == [1, 6]
    with pytest.raises(InvalidArgumentError):
        tb.zeros([shape[0]])
    assert tb.zeros([shape[1], 2]).shape == [3, 2]
    assert tb.Variable(tb.zeros(shape[1:])).shape == [3]


def test_an_interactive_session_lets_the_default_graph_be_reset():
    session = tb.InteractiveSession(graph=tb.Graph())
    with pytest.raises(FailedPreconditionError, match=r"an InteractiveSession\(graph=...\): leave it"):
        tb.reset_default_graph()
    session.close()
    stack = default_graphs.stack[:]
    default_graphs.stack.clear()  # as outside of this file's fixture
    try:
        before = tb.get_default_graph()
        session = tb.InteractiveSession()
        assert (session.graph, tb.get_default_session()) == (before, session)
        tb.reset_default_graph()
        assert tb.get_default_graph() is not before
        session.close()
    finally:
        default_graphs.stack.extend(stack)


def test_initializers_take_a_dtype():
    assert tb.zeros_initializer(dtype=tb.float64)([2]).dtype == tb.float64
    assert tb.random_normal_initializer(0.0, 1.0, None, tb.float64)([2]).dtype == tb.float64
    assert tb.constant_initializer(3, dtype=tb.int32)([2]).dtype == tb.int32


def test_reuse_variables():
    with tb.variable_scope("d") as scope:
        made = tb.get_variable("w", [2])
        scope.reuse_variables()
        assert tb.get_variable("w") is made
    with tb.variable_scope("d") as again:
        assert again.reuse is False
    with tb.variable_scope(scope) as entered:
        assert tb.get_variable("w") is made
        assert entered is not scope


def test_a_placeholder_with_a_default():
    x = tb.placeholder_with_default(tb.constant([[1.0, 2.0]]), [None, 2])
    total = tb.reduce_sum(x * x)
    gradient = tb.gradients(total, x.op.inputs[0])[0]
    with tb.Session() as session:
        assert session.run([total, gradient])[0] == 5
        assert session.run(gradient).tolist() == [[2, 4]]
        assert session.run(total, {x: np.ones((3, 2))}) == 6
    with pytest.raises(InvalidArgumentError, match=r"expected a value of shape \[3\], got float32\[2\]"):
        tb.placeholder_with_default(tb.zeros([2]), [3])


def test_tensors_as_positions_and_bounds():
    x = tb.placeholder(tb.float32, [None, 4, 5])
    i, v = tb.placeholder(tb.int32, []), tb.placeholder(tb.int64, [None])
    n, rows = tb.shape(v)[0], np.array([1, -1, 0])
    cases = [
        (x[i], X[-2]),
        (x[..., i], X[..., -2]),
        (x[:, i, 1:3], X[:, -2, 1:3]),
        (x[:, v], X[:, rows]),
        (x[:, rows], X[:, rows]),
        (x[1, v, ::2], X[1][rows][:, ::2]),
        (x[i, i], X[-2, -2]),
        (x[:, :n], X[:, :3]),
        (x[:, -n:], X[:, -3:]),
        (x[None, :, 1:n, i], X[None, :, 1:3, -2]),
        (x[tb.constant(1)], X[1]),
        (x[n:], X[3:]),
    ]
    picked = x[:, v, 1:n]
    with tb.Session() as session:
        feeds = {x: X, i: -2, v: rows}
        tensors = [tensor for tensor, _ in cases]
        for result, (_, expected) in zip(session.run(tensors, feeds), cases, strict=True):
            assert np.array_equal(result, expected)
        expected = np.zeros_like(X)
        expected[:, rows, 1:3] = 2 * X[:, rows, 1:3]
        found = session.run(tb.gradients(tb.reduce_sum(tb.square(picked)), x)[0], feeds)
        assert np.array_equal(found, expected)
    for index, words in (
        (x > 0, "a mask gives a shape that depends on data"),
        ((v, v), "at most one tensor of positions"),
        (slice(None, None, n), "expected the step of a slice with tensors to be 1"),
        (tb.constant(1.5), "whole numbers of known rank"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            x[index]


def test_options_of_tensorflows_sessions():
    config = tb.ConfigProto(allow_soft_placement=True, gpu_options=tb.GPUOptions(allow_growth=True))
    with tb.device("/gpu:99"):
        y = tb.constant(2.0) * 3.0
    with tb.Session(config=config) as session:
        assert session.run(y, options=tb.RunOptions(), run_metadata=tb.RunMetadata()) == 6
    config.intra_op_parallelism_threads = 4
    with pytest.warns(UserWarning, match=r"intra_op_parallelism_threads=4 has no effect; every stream"):
        tb.Session(config=config).close()


def test_an_interactive_session_is_the_default_until_it_is_closed():
    outer = tb.InteractiveSession()
    inner = tb.InteractiveSession(graph=tb.Graph())
    assert tb.get_default_session() is inner
    outer.close()  # not the newest
    assert tb.get_default_session() is inner
    assert tb.get_default_graph() is inner.graph
    assert (tb.constant(2.0) + 1.0).eval() == 3
    inner.close()
    assert tb.get_default_session() is None
    with pytest.raises(InvalidArgumentError, match=r"for another target write tb\.Session\(target\)"):
        tb.InteractiveSession("tensorbow")


def test_feeds_that_do_not_fit_name_the_remedy():
    x = tb.placeholder(tb.float32, [16, 4], name="images")
    with tb.Session() as session:
        with pytest.raises(InvalidArgumentError, match=r"give the placeholder the shape \[None, 4\]"):
            session.run(x, {x: np.zeros((64, 4))})
        with pytest.raises(NotFoundError, match=r"no operation 'x'; placeholders are 'images'$"):
            session.run(x, {"x": 1})


def test_a_session_tells_once_that_every_new_shape_is_compiled():
    x = tb.placeholder(tb.float32, [None])
    y = tb.reduce_sum(x)
    with tb.Session() as session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for length in range(15):
                session.run(y, {x: np.zeros(length)})
        with pytest.warns(UserWarning, match=r"compiled for 16 different shapes .*pad the batches") as told:
            session.run(y, {x: np.zeros(15)})
        assert len(told) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.run(y, {x: np.zeros(16)})


def test_moving_averages_of_variables_and_tensors():
    w = tb.Variable(np.array([1.0, 2.0]), name="w")
    doubled = w * 2.0
    averages = tb.train.ExponentialMovingAverage(0.5)
    step = w.assign_add([1.0, 1.0])
    with tb.control_dependencies([step]):
        update = averages.apply([w])
    followed = tb.train.ExponentialMovingAverage(0.5, name="of_tensors")
    with tb.control_dependencies([step]):
        update_of_tensor = followed.apply([doubled])
    assert averages.average(w).op.name == averages.average_name(w) == "w/ExponentialMovingAverage"
    assert averages.average(doubled) is None
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        expected, biased = np.array([1.0, 2.0]), np.zeros(2)
        for number in range(1, 4):
            session.run([update, update_of_tensor])
            value = np.array([1.0, 2.0]) + number
            expected = 0.5 * expected + 0.5 * value
            assert np.array_equal(session.run(averages.average(w)), expected)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for number in range(1, 4):
            session.run(update_of_tensor)
            biased = 0.5 * biased + 0.5 * (2.0 * number + np.array([0.0, 2.0]))  # before the step
            found = session.run(followed.average(doubled))
            np.testing.assert_allclose(found, biased / (1 - 0.5**number))
    names = averages.variables_to_restore()
    assert names["w/ExponentialMovingAverage"] is w
    assert averages.average(w) not in names.values()


@pytest.mark.parametrize("step", [0, 3, 10, 14])
def test_decays(step):
    rates = {
        tb.train.polynomial_decay(0.5, step, 10, 0.1, 2.0): 0.4 * (1 - min(step, 10) / 10) ** 2 + 0.1,
        tb.train.polynomial_decay(0.5, step, 10, 0.1, cycle=True): (
            0.4 * (1 - step / (10 * max(1, -(-step // 10)))) + 0.1
        ),
        tb.train.linear_cosine_decay(0.5, step, 12, 2, 0.1, 0.01): 0.5
        * ((1.1 - min(step / 12, 1)) * (1 + np.cos(4 * np.pi * min(step / 12, 1))) / 2 + 0.01),
        tb.train.inverse_time_decay(0.5, step, 4, 0.3): 0.5 / (1 + 0.3 * step / 4),
        tb.train.natural_exp_decay(0.5, step, 4, 0.3, staircase=True): 0.5 * np.exp(-0.3 * (step // 4)),
    }
    with tb.Session() as session:
        np.testing.assert_allclose(session.run([*rates]), [*rates.values()], rtol=1e-5)


@pytest.mark.parametrize("t_mul", [1.0, 2.0, 1.5])
def test_cosine_decays_begin_again(t_mul):
    """Fractions from the beginning of a decay, and its middle."""
    step = tb.placeholder(tb.int64, [])
    rate = tb.train.cosine_decay_restarts(0.5, step, 8, t_mul, m_mul=0.5, alpha=0.1)
    with tb.Session() as session:
        start, length = 0.0, 8.0
        for number in range(4):
            for share in (0.25, 0.5, 0.75):
                done = start + share * length
                expected = 0.5 * (0.9 * 0.5**number * (1 + np.cos(np.pi * share)) / 2 + 0.1)
                if done == int(done):
                    assert session.run(rate, {step: int(done)}) == pytest.approx(expected, rel=1e-4)
            start, length = start + length, length * t_mul


def test_sampled_losses_learn_and_agree_with_the_full_ones_where_all_classes_are_sampled():
    rng = np.random.default_rng(0)
    weights, biases = rng.normal(size=(5, 3)), rng.normal(size=5)
    inputs, labels = rng.normal(size=(4, 3)), np.array([[1], [0], [4], [1]])
    ones = np.ones(5, np.float32)
    sampled = (np.arange(5), np.ones((4, 1), np.float32), ones)  # expected once each: logits stay as they are
    arguments = tb.constant(weights), tb.constant(biases), labels, tb.constant(inputs), 5, 5
    softmax = tb.nn.sampled_softmax_loss(*arguments, sampled_values=sampled)
    logits = inputs @ weights.T + biases
    full = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), labels[:, 0]]
    nce = tb.nn.nce_loss(*arguments, sampled_values=sampled)
    of_true = logits[np.arange(4), labels[:, 0]]
    estimated = np.log1p(np.exp(-of_true)) + np.log1p(np.exp(logits)).sum(1)
    with tb.Session() as session:
        np.testing.assert_allclose(session.run(softmax), full, rtol=1e-5)
        np.testing.assert_allclose(session.run(nce), estimated, rtol=1e-5)
        classes, of_labels, expected = session.run(
            tb.nn.log_uniform_candidate_sampler(labels, 1, 40_000, False, 5, seed=1)
        )
    share = np.log((np.arange(5) + 2) / (np.arange(5) + 1)) / np.log(6)
    np.testing.assert_allclose(np.bincount(classes, minlength=5) / 40_000, share, atol=0.02)
    np.testing.assert_allclose(expected, 40_000 * share[classes], rtol=1e-5)
    np.testing.assert_allclose(of_labels, 40_000 * share[labels], rtol=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"class numbers \[batch, 1\].*got int64\[4\]"):
        tb.nn.nce_loss(*arguments[:2], labels[:, 0], *arguments[3:])


def test_modules_have_the_functions_under_their_shorter_names():
    assert tb.linalg.inv is tb.matrix_inverse
    assert tb.math.reduce_sum is tb.reduce_sum
    assert tb.math.top_k is tb.nn.top_k
    assert tb.sparse.split is tb.sparse_split
    assert tb.sets.union is tb.sets.set_union
    assert tb.spectral.rfft is tb.signal.rfft
    assert tb.random.normal is tb.random_normal
    assert tb.random.shuffle is tb.random_shuffle
    assert tb.strings.lower is tb.string_lower
    assert tb.debugging.assert_all_finite is tb.verify_tensor_all_finite
    assert tb.manip.roll is tb.roll
    assert tb.dtypes.cast is tb.cast
    assert tb.dtypes.bool is tb.bool
    assert tb.io.decode_png is tb.image.decode_png
    assert tb.io.TFRecordWriter is tb.python_io.TFRecordWriter
    assert tb.io.gfile.makedirs is tb.gfile.MakeDirs


def test_a_timer_of_hooks():
    timer = tb.train.SecondOrStepTimer(every_steps=3)
    assert (timer.last_triggered_step(), timer.should_trigger_for_step(1)) == (None, True)
    assert timer.update_last_triggered_step(1) == (None, None)
    assert [step for step in range(1, 6) if timer.should_trigger_for_step(step)] == [4, 5]
    assert timer.update_last_triggered_step(5)[1] == 4
    assert timer.last_triggered_step() == 5
    timer.reset()
    assert timer.should_trigger_for_step(5)
    often = tb.train.SecondOrStepTimer(every_secs=1e-9)
    often.update_last_triggered_step(2)
    assert [often.should_trigger_for_step(step) for step in (2, 3)] == [False, True]
    with pytest.raises(InvalidArgumentError, match="expected either every_steps or every_secs"):
        tb.train.SecondOrStepTimer(1.0, 2)


def test_assert_global_step():
    tb.train.assert_global_step(tb.train.get_or_create_global_step())
    for wrong in (tb.Variable(1.0), tb.constant([1, 2]), 3):
        with pytest.raises(InvalidArgumentError, match=r"global.step.* expected"):
            tb.train.assert_global_step(wrong)


def test_a_singular_monitored_session(tmp_path):
    step = tb.train.get_or_create_global_step()
    path = f"{tmp_path}/model"
    more = step.assign_add(2)
    saver = tb.train.Saver()
    with tb.train.SingularMonitoredSession(hooks=[tb.train.StopAtStepHook(last_step=4)]) as session:
        while not session.should_stop():
            session.run(more)
        assert isinstance(session.raw_session(), tb.Session)
        path = saver.save(session.raw_session(), path)
    with pytest.raises(FailedPreconditionError, match="is closed"):
        session.raw_session()
    with tb.train.SingularMonitoredSession(checkpoint_filename_with_path=path) as session:
        assert session.raw_session().run(step) == 4


def test_savers_that_are_built_later(tmp_path):
    v = tb.Variable(1.0, name="v")
    saver = tb.train.Saver(defer_build=True, pad_step_number=True, name="backup")
    w = tb.Variable(2.0, name="w")
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        with pytest.raises(FailedPreconditionError, match=r"call build\(\) before"):
            saver.save(session, f"{tmp_path}/model")
        saver.build()
        path = saver.save(session, f"{tmp_path}/model", global_step=12)
        session.run([v.assign(0.0), w.assign(0.0)])
        saver.restore(session, path)
        assert session.run([v, w]) == [1, 2]
    assert path.endswith("model-00000012.safetensors")
    assert saver.saver_def.restore_op_name == "backup/restore_all"
    with pytest.raises(FailedPreconditionError, match="the saver is built"):
        saver.build()


def test_functions_that_make_variables():
    calls = []

    def fixed(next_creator, **arguments):
        calls.append(("fixed", arguments["name"], arguments["trainable"]))
        return next_creator(**{**arguments, "trainable": False})

    def doubled(next_creator, **arguments):
        calls.append(("doubled", arguments["name"], arguments["trainable"]))
        return next_creator(**arguments) * 2.0

    with tb.variable_creator_scope(doubled):
        with tb.variable_creator_scope(fixed):
            product = tb.Variable(3.0, name="v")
        tb.Variable([1.0], name="u")
    plain = tb.Variable(4.0)
    assert calls == [("fixed", "v", None), ("doubled", "v", False), ("doubled", "u", None)]
    assert tb.trainable_variables()[1:] == [plain]
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.run(product) == 6
    with pytest.raises(InvalidArgumentError, match="variable_creator"), tb.variable_creator_scope("v"):
        pass
