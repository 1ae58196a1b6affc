"""Fused element-wise nodes, run by their NumPy form, give the bits of single ones on real graphs."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tensorbow as tb
from tensorbow.kernels.scalars.fusion import MAX_INPUTS
from tensorbow.models import LeNet, ResNet
from tensorbow.program import Region
from tests.program_rig.interpreter import initial_values, programs
from tests.program_rig.poisoned import PoisonedStep
from tests.scalar_rig.numpy_backend import NumpyRulesBackend, used

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def fusing():
    with used(NumpyRulesBackend(merges=False)):
        yield


def groups(executable):
    return [g for s in executable.segments for g in s.groups]


def names(step):
    return [g.definition.name for g in groups(step.executable)]


def run(fetches, feeds):
    with PoisonedStep(fetches, feeds) as step:
        return step.run(), step.executable


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def test_a_chain_and_a_tree_are_one_kernel(fusing):
    x, b = tb.placeholder(tb.float32, [3, 4]), tb.placeholder(tb.float32, [4])
    s = tb.sigmoid(tb.nn.relu(x + b))
    y = s * (1.0 - s)
    feeds = {x: X, b: X[0]}
    (result,), executable = run([y], feeds)
    (group,) = groups(executable)
    for name in ("Add", "Relu", "Sigmoid", "Sub"):
        assert f"{name} " in group.note
    assert len(group.inputs) == 3  # x, b, and the constant
    s = 1 / (1 + np.exp(-np.maximum(X + X[0], 0)))
    np.testing.assert_allclose(result, s * (1 - s), rtol=1e-6)


def test_explain_names_all_fused_ops(fusing):
    x = tb.placeholder(tb.float32, [3, 4])
    y = tb.exp(tb.negative(x, name="turned"), name="raised")
    with tb.Session() as session:
        text = str(session.explain([y], {x: X}))
    assert "segment step: 1 kernel calls" in text
    assert "Exp                      raised" in text
    assert "fused with Neg turned" in text


def test_what_is_fetched_or_read_elsewhere_is_kept(fusing):
    x = tb.placeholder(tb.float32, [3, 4])
    inner = tb.exp(x)
    y, total = tb.negative(inner), tb.reduce_sum(inner)
    with PoisonedStep([y, total], {x: X}) as step:
        assert names(step) == ["Exp", "Neg", "Sum"]
    with PoisonedStep([y, inner], {x: X}) as step:
        assert names(step) == ["Exp", "Neg"]
    with PoisonedStep([y, tb.reshape(inner, [12])], {x: X}) as step:
        assert names(step) == ["Exp", "Neg"]
    with PoisonedStep([y], {x: X}) as step:
        assert names(step) == ["Neg"]


def test_shapes_decide(fusing):
    x, row = tb.placeholder(tb.float32, [3, 4]), tb.placeholder(tb.float32, [4])
    scalar = tb.placeholder(tb.float32, [])
    feeds = {x: X, row: X[1], scalar: np.float32(3)}
    y = x * tb.exp(row)  # exp(row) would be computed three times
    z = x * tb.exp(scalar)
    flat = tb.negative(tb.reshape(tb.exp(x), [12]))
    passed = tb.negative(tb.identity(tb.exp(x)))
    for fetch, expected, value in (
        (y, ["Exp", "Mul"], X * np.exp(X[1])),
        (z, ["Mul"], X * np.exp(np.float32(3))),
        (flat, ["Exp", "Neg"], -np.exp(X).reshape(-1)),
        (passed, ["Neg"], -np.exp(X)),
    ):
        with PoisonedStep([fetch], feeds) as step:
            assert names(step) == expected
            np.testing.assert_allclose(step.run()[0], value, rtol=1e-6)


def test_a_read_is_not_moved_behind_a_write(fusing):
    v = tb.Variable(X, name="v")
    before = v.read_value() * 2.0
    with tb.control_dependencies([before]):
        write = v.assign(tb.zeros([3, 4]))
    with tb.control_dependencies([write]):
        late = tb.negative(before)
        other = tb.negative(v.read_value() + 1.0)
    with PoisonedStep([late, other], {tb.placeholder(tb.float32, []): 0.0}) as step:
        step.container.load({"v": X})
        np.testing.assert_array_equal(step.run()[0], -2 * X)
        assert names(step).count("Mul") == 1
        step.container.load({"v": X})
        np.testing.assert_array_equal(step.run()[1], -np.ones_like(X))


def test_random_numbers_stay_alone_and_an_assignment_ends_a_unit(fusing):
    x = tb.placeholder(tb.float32, [3, 4])
    v = tb.Variable(np.zeros((3, 4), np.float32))
    y = v.assign_add(tb.exp(tb.random_uniform([3, 4], seed=1) * x))
    with PoisonedStep([y], {x: X}) as step:
        assert names(step) == ["RandomUniform", "AssignAdd"]


def test_an_average_that_moves_is_one_kernel(fusing):
    """In a moving average of batch normalization the unit that writes the variable also reads it."""
    x = tb.placeholder(tb.float32, [4])
    v, other = tb.Variable(X[0], name="v"), tb.Variable(X[1], name="other")
    moved = v.assign_sub((v - x) * 0.25)
    with tb.control_dependencies([moved]):
        copied = other.assign(v + other)
    with PoisonedStep([moved.op, copied, v], {x: X[2]}) as step:
        step.container.load({"v": X[0], "other": X[1]})
        assert names(step) == ["AssignSub", "Assign"]
        average = X[0] - (X[0] - X[2]) * np.float32(0.25)
        results = step.run()
        np.testing.assert_array_equal(results[0], average + X[1])
        np.testing.assert_array_equal(results[1], average)
        np.testing.assert_array_equal(step.container.read("other"), average + X[1])
        first, second = groups(step.executable)
        assert first.inputs[0] in first.writes
        assert {str(ref) for ref in second.reads} >= {
            str(step.layout.ref("v")),
            str(step.layout.ref("other")),
        }


def test_an_update_keeps_its_gradient_in_memory(fusing):
    x = tb.placeholder(tb.float32, [3, 4])
    w = tb.Variable(X, name="w")
    train = tb.train.GradientDescentOptimizer(0.5).apply_gradients([(tb.exp(x) * 2.0, w)])
    with PoisonedStep([train], {x: X}) as step:
        step.container.load({"w": X})
        made = groups(step.executable)
        assert [g.definition.name for g in made] == ["Mul", "ApplyGradientDescent"]
        assert made[0].outputs[0].region is Region.GRADIENTS
        step.run()
        np.testing.assert_allclose(step.container.read("w"), X - np.exp(X), rtol=1e-5)


def test_a_guarded_assignment_waits_for_the_status(fusing):
    x = tb.placeholder(tb.float32, [4])
    v = tb.Variable(X[0], name="v")
    loss = tb.reduce_sum(x)
    write = v.assign(tb.exp(x) + v)
    with PoisonedStep([write.op], {x: X[2]}, guard=loss) as step:
        step.container.load({"v": X[0]})
        assert names(step)[-1] == "Assign"
        assert groups(step.executable)[-1].predicated
        step.binding.write({}, {"status": 1})
        step.run()
        np.testing.assert_array_equal(step.container.read("v"), X[0])
        step.binding.write({}, {"status": 0})
        step.run()
        np.testing.assert_array_equal(step.container.read("v"), np.exp(X[2]) + X[0])


def test_the_number_of_inputs_is_limited(fusing):
    parts = [tb.placeholder(tb.float32, [3, 4]) for _ in range(40)]
    feeds = {x: X + i for i, x in enumerate(parts)}
    total = tb.add_n(parts)
    (result,), executable = run([total], feeds)
    np.testing.assert_array_equal(result, sum(feeds.values()))
    made = groups(executable)
    assert 1 < len(made) <= 5
    assert max(len(g.inputs) for g in made) == MAX_INPUTS


def test_a_result_takes_over_the_memory_of_an_input(fusing):
    x = tb.placeholder(tb.float32, [3, 4])
    a = tb.transpose(tb.transpose(x))
    y = tb.negative(tb.exp(a + tb.reduce_sum(a, 0)))
    (result,), executable = run([y], {x: X})
    group = groups(executable)[-1]
    assert group.definition.name == "Neg"
    assert group.inputs[0].region is Region.SLAB
    assert group.outputs[0] == group.inputs[0]
    np.testing.assert_array_equal(result, -np.exp(X + X.sum(0)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_programs_equal_the_interpreter(fusing, program):
    start = initial_values()
    expected, after = program.interpret(start)
    with tb.Graph().as_default():
        fetches, feeds, variables = program.build()
        with PoisonedStep(fetches, feeds) as step:
            step.container.load({v.op.name: value for v, value in zip(variables, start, strict=True)})
            for result, value in zip(step.run(), expected, strict=True):
                np.testing.assert_array_equal(result, value)
            for variable, value in zip(variables, after, strict=True):
                np.testing.assert_array_equal(step.container.read(variable.op.name), value)


def trained(model, shape, steps):
    """Losses and variables of a few steps of momentum, and the number of kernel calls."""
    rng = np.random.default_rng(3)
    with tb.Graph().as_default() as graph:
        tb.set_random_seed(5)
        images = tb.placeholder(tb.float32, [4, *shape])
        labels = tb.placeholder(tb.int64, [4])
        loss = model(images, labels, training=True, classes=10).loss
        with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
            train = tb.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
        feeds = {images: rng.standard_normal((4, *shape)).astype(np.float32), labels: np.arange(4)}
        with tb.Session(graph=graph) as session:
            session.run(tb.global_variables_initializer())
            losses = [session.run([loss, train], feeds)[0] for _ in range(steps)]
            calls = len(groups(session.explain([loss, train], feeds).executable))
            values = session.run(tb.trainable_variables())
    return losses, values, calls


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize(
    ("model", "shape"), [(LeNet(), (28, 28, 1)), (ResNet(1), (32, 32, 3))], ids=["lenet", "resnet8"]
)
def test_training_steps_have_the_same_bits(request, model, shape):
    losses, values, calls = trained(model, shape, 2)
    request.getfixturevalue("fusing")
    fused_losses, fused_values, fewer = trained(model, shape, 2)
    assert fewer < calls
    assert losses == fused_losses
    for value, fused in zip(values, fused_values, strict=True):
        np.testing.assert_array_equal(value, fused)
