"""Variables: names, initial values, reads and writes in the order of the program."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, OutOfRangeError
from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel
from tensorbow.ops.updates import ApplyMomentum

pytestmark = pytest.mark.usefixtures("graph")


def start(session):
    session.run(tb.global_variables_initializer())


def test_the_ops_of_a_variable_are_named_as_in_tensorflow(graph):
    with tb.name_scope("layer"):
        v = tb.Variable(np.zeros((2, 3), np.float32), name="w")
    made = tb.Variable(lambda: tb.zeros_like(v), name="w")
    assert v.name == "layer/w:0"
    names = [op.name for op in graph.get_operations()]
    assert names[:4] == ["layer/w/initial_value", "layer/w", "layer/w/Assign", "layer/w/read"]
    assert made.initial_value.name.startswith("w/Initializer/")
    assert tb.Variable(1.0).name == "Variable:0"
    assert tb.Variable(1.0).name == "Variable_1:0"


def test_what_a_variable_is():
    v = tb.Variable(np.zeros((2, 3)), name="v")
    assert (v.shape, v.dtype, v.trainable, v.op.name) == ([2, 3], tb.float64, True, "v")
    assert repr(v) == "<tb.Variable 'v:0' shape=[2, 3] dtype=float64>"
    attrs = v.op.attrs
    assert (attrs["role"], attrs["decayed"], attrs["combine"]) == ("weights", True, "sma")
    bias = tb.Variable(np.zeros(3)).op.attrs
    assert (bias["role"], bias["decayed"]) == ("weights", False)
    counter = tb.Variable(0).op.attrs
    assert (counter["role"], counter["combine"]) == ("statistics", "first")
    assert tb.Variable(0.0, trainable=False, combine="mean").op.attrs["combine"] == "mean"


def test_what_is_no_initial_value():
    with pytest.raises(InvalidArgumentError, match=r"variable v: the initial value is float32\[\?\]"):
        tb.Variable(tb.placeholder(tb.float32, [None]), name="v")
    with pytest.raises(
        InvalidArgumentError,
        match="expected combine to be 'sma' or 'mean' or 'sum' or 'first' or None, got str 'max'",
    ):
        tb.Variable(1.0, combine="max")
    with pytest.raises(InvalidArgumentError, match="cannot become int32"):
        tb.Variable(1.5, dtype=tb.int32)


def test_an_initial_value_may_read_other_variables(session):
    a = tb.Variable(3.0, name="a")
    b = tb.Variable(a * 2.0, name="b")
    c = tb.Variable(lambda: b + a, name="c")
    start(session)
    assert session.run([a, b, c]) == [3.0, 6.0, 9.0]


@pytest.mark.slow
def test_initialized_value_is_the_current_value_once_there_is_one(session):
    v = tb.Variable(tb.random_normal([5]), name="v")
    twin = tb.Variable(v.initialized_value(), trainable=False, name="twin")
    start(session)
    np.testing.assert_array_equal(*session.run([v, twin]))
    v.load(np.arange(5), session)
    session.run(twin.initializer)
    np.testing.assert_array_equal(session.run(twin), np.arange(5))


def test_reads_before_and_after_a_write(session):
    v = tb.Variable([1.0, 2.0], name="v")
    before = v * 1.0
    write = v.assign_add([10.0, 10.0])
    after = v * 1.0
    start(session)
    got = session.run([before, write, after, v, v.initial_value])
    np.testing.assert_array_equal(got, [[1, 2], [11, 12], [11, 12], [11, 12], [1, 2]])
    np.testing.assert_array_equal(session.run(before), [11, 12])


def test_fetching_a_variable_gives_its_value_after_all_writes(session):
    v = tb.Variable(1.0)
    first, second = v.assign_add(1.0), v.assign(v * 10.0)
    start(session)
    assert session.run([v, second, first, v.value()]) == [20.0, 20.0, 2.0, 20.0]


def test_a_read_that_is_fetched_survives_the_write(session):
    v = tb.Variable(np.arange(6.0).reshape(2, 3))
    read = v.value()
    view, inner = tb.reshape(read, [3, 2]), tb.reshape(tb.reshape(v, [6]), [1, 6])
    write = v.assign(tb.zeros_like(v))
    start(session)
    got = session.run([read, view, inner, write])
    np.testing.assert_array_equal(got[0], np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(got[1], np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(got[2], [np.arange(6.0)])
    assert not got[3].any()


def test_outputs_of_several_writes_are_values_of_their_own(session):
    v = tb.Variable(1.0)
    writes = [v.assign_add(1.0), v.assign_sub(5.0), v.assign(7.0), v.assign_add(v)]
    start(session)
    assert session.run(writes) == [2.0, -3.0, 7.0, 14.0]


def test_a_variable_is_swapped_with_another(session):
    a, b = tb.Variable(np.ones((2, 3))), tb.Variable(np.zeros((2, 3)))
    old_a, old_b = a.value(), b.value()
    swap = tb.group(a.assign(old_b), b.assign(old_a))
    start(session)
    session.run(swap)
    assert not session.run(a).any()
    assert session.run(b).all()


def test_a_variable_assigned_its_own_transpose(session):
    v = tb.Variable(np.arange(9.0).reshape(3, 3))
    start(session)
    session.run(v.assign(tb.transpose(v)))
    np.testing.assert_array_equal(session.run(v), np.arange(9.0).reshape(3, 3).T)


def test_a_writer_that_is_not_pointwise_gets_a_copy(session):
    def reversed_sum(call):
        variable, value = call.inputs
        for i in range(value.size):
            variable[i] += value[value.size - 1 - i]

    add_reversed = tb.define_op(
        "TestAddReversed",
        spec=lambda inputs, attrs: inputs[0],
        gradient=NOT_DIFFERENTIABLE,
        inputs=("ref", "value"),
        kernel=Kernel(run=reversed_sum),
        alias=((0, 0),),
        writes=(0,),
        replace=True,
    )
    v = tb.Variable(np.array([1.0, 10.0, 100.0]), name="v")
    result = add_reversed(v, v.value())
    later = v + 0.0
    start(session)
    got = session.run([result, later])
    np.testing.assert_array_equal(got[0], [101, 20, 101])
    np.testing.assert_array_equal(got[1], [101, 20, 101])
    assert any("is copied" in note for note in str(session.explain(result)).splitlines())


def test_writing_what_is_no_variable(session):
    writer = tb.define_op(
        "TestWriter",
        spec=lambda inputs, attrs: inputs[0],
        gradient=NOT_DIFFERENTIABLE,
        inputs=("ref",),
        kernel=Kernel(run=lambda call: None),
        alias=((0, 0),),
        writes=(0,),
        replace=True,
    )
    bad = writer(tb.placeholder(tb.float32, [2], name="x"), name="bad")
    with pytest.raises(InvalidArgumentError, match=r"bad \(TestWriter\) writes x:0, which is no variable"):
        session.run(bad, {"x:0": [1.0, 2.0]})


def test_a_variable_is_no_slot_of_its_own(session):
    v = tb.Variable(np.ones(3, np.float32), name="v")
    slot = tb.Variable(np.ones(3, np.float32), name="slot")
    rate = tb.constant(np.float32(0.5))
    good = ApplyMomentum(v, slot, v, rate, rate)
    bad = ApplyMomentum(v, v, slot, rate, rate, name="bad")
    session.run(tb.global_variables_initializer())
    assert session.run(good).tolist() == [0.25, 0.25, 0.25]
    with pytest.raises(
        InvalidArgumentError, match=r"ApplyMomentum bad: writes the variable v twice.*\[0, 1\]"
    ):
        session.run(bad)


def test_assignments_must_fit():
    v = tb.Variable(np.zeros((2, 3), np.float32), name="v")
    with pytest.raises(
        InvalidArgumentError, match=r"the variable is float32\[2, 3\], the value is float32\[3, 2\]"
    ):
        v.assign(np.zeros((3, 2), np.float32))
    with pytest.raises(InvalidArgumentError, match=r"expected float32; use tb.cast"):
        v.assign(tb.zeros_like(v, tb.int32))


def test_loading_and_evaluating(session):
    v = tb.Variable(np.zeros((2, 3), np.float32), name="v")
    with pytest.raises(
        FailedPreconditionError, match=r"variables without a value: v; run tb.global_variables_init"
    ):
        v.eval()
    v.load(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(v.eval(), np.arange(6.0).reshape(2, 3))
    with pytest.raises(InvalidArgumentError, match=r"variable v: expected shape \[2, 3\], got \[3, 2\]"):
        v.load(np.zeros((3, 2)), session)
    with pytest.raises(NotFoundError, match="no variable 'w'; there are: v"):
        session.load_variables({"w": 1.0})


def test_a_fed_variable_is_not_touched(session):
    v = tb.Variable([1.0, 2.0])
    y = v * 2.0
    np.testing.assert_array_equal(session.run(y, {v: [5.0, 6.0]}), [10.0, 12.0])
    start(session)
    np.testing.assert_array_equal(session.run([y, v], {v.value(): [5.0, 6.0]}), [[10.0, 12.0], [1.0, 2.0]])


def test_asking_only_for_the_shape_reads_no_value(session):
    v = tb.Variable(np.zeros((2, 3)))
    np.testing.assert_array_equal(session.run(tb.shape(v)), [2, 3])
    assert not session.run(tb.zeros_like(v)).any()


def test_no_session():
    v = tb.Variable(1.0, name="v")
    with tb.Graph().as_default(), pytest.raises(FailedPreconditionError, match="v:0: no session; use `with"):
        v.eval()
    with pytest.raises(FailedPreconditionError, match="no session"):
        v.initializer.run()


def test_tensorflows_arguments_of_variables_joined_when_read():
    on_read = {"synchronization": tb.VariableSynchronization.ON_READ}
    kinds = tb.VariableAggregation
    for aggregation, how in ((kinds.SUM, "sum"), (kinds.MEAN, "mean"), (kinds.ONLY_FIRST_REPLICA, "first")):
        v = tb.Variable(1.0, aggregation=aggregation, **on_read)
        assert (v.op.attrs["combine"], v.trainable) == (how, False)
    shared = tb.get_variable("seen", [], tb.int64, aggregation=kinds.SUM, **on_read)
    assert shared.op.attrs["combine"] == "sum"
    assert tb.Variable(1.0, synchronization=tb.VariableSynchronization.AUTO).trainable


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"synchronization": "on_read"},
            "expected aggregation SUM, MEAN or ONLY_FIRST_REPLICA .* got .* NONE",
        ),
        ({"synchronization": "on_read", "aggregation": "sum", "trainable": True}, "trainable True"),
        ({"synchronization": "on_read", "aggregation": "sum", "combine": "sum"}, "combine 'sum'"),
        ({"aggregation": "mean"}, "synchronization ON_READ with aggregation MEAN, got AUTO; add"),
        ({"synchronization": "on_write", "aggregation": "sum"}, "got ON_WRITE; write tb.all_reduce"),
        ({"synchronization": "none"}, "expected synchronization AUTO or ON_READ, got NONE"),
        ({"aggregation": "median"}, "aggregation to be one of tb.VariableAggregation"),
    ],
)
def test_arguments_of_joining_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        tb.Variable(1.0, **arguments)


def test_bools_have_no_sum_over_replicas():
    with pytest.raises(InvalidArgumentError, match="dtype bool has no sum over replicas; use an integer"):
        tb.Variable(True, combine="sum")


@pytest.mark.parametrize("dtype", [tb.int32, tb.int64, tb.uint8])
def test_integers_have_no_mean_over_replicas(dtype):
    """It would be rounded, while the dtype stays the variable's."""
    on_read = {"synchronization": "on_read", "aggregation": tb.VariableAggregation.MEAN}
    for arguments in ({"combine": "mean"}, on_read):
        with pytest.raises(InvalidArgumentError, match=f"{dtype.name}: expected a floating dtype .*; use"):
            tb.Variable(1, dtype=dtype, **arguments)


def test_assignments_take_use_locking(session):
    v = tb.Variable(1.0)
    session.run(v.initializer)
    session.run(tb.assign(v, 5.0, validate_shape=True, use_locking=True))
    session.run(tb.assign_add(v, 2.0, use_locking=True))
    assert session.run(v.assign_sub(1.0, use_locking=False)) == 6.0


def test_a_counter_ends(session):
    counter = tb.Variable(0)
    session.run(counter.initializer)
    count = counter.count_up_to(2)
    assert [int(session.run(count)) for _ in range(2)] == [0, 1]
    with pytest.raises(OutOfRangeError, match="the variable is 2, and the limit 2"):
        session.run(count)
    assert (session.run(counter), session.run(tb.count_up_to(counter, 3))) == (2, 2)
    assert session.run(counter) == 3


def test_variables_take_use_resource():
    assert tb.Variable([1.0], True, None, True, use_resource=True).shape == [1]


def test_methods_that_write_rows(session):
    v = tb.Variable([[8.0, 9.0], [2.0, 4.0]])
    start(session)
    for write, expected in (
        (lambda: v.scatter_add(tb.IndexedSlices([[1.0, 1.0], [1.0, 0.0], [9.0, 9.0]], [0, 0, -1])), [10, 10]),
        (lambda: v.scatter_sub(tb.IndexedSlices([[1.0, 2.0], [9.0, 9.0]], [0, -1])), [9, 8]),
        (lambda: v.scatter_mul(tb.IndexedSlices([[2.0, 1.0]], [0])), [18, 8]),
        (lambda: v.scatter_div(tb.IndexedSlices([[3.0, 1.0]], [0]), use_locking=True), [6, 8]),
        (lambda: v.scatter_max(tb.IndexedSlices([[7.0, 7.0]], [0])), [7, 8]),
        (lambda: v.scatter_min(tb.IndexedSlices([[9.0, 7.5]], [0])), [7, 7.5]),
        (lambda: v.scatter_update(tb.IndexedSlices([[1.0, 2.0]], [0]), name="put"), [1, 2]),
        (lambda: v.scatter_nd_add([[0, 1], [0, 1]], [1.0, 2.0]), [1, 5]),
        (lambda: v.scatter_nd_sub([[0]], [[1.0, 1.0]]), [0, 4]),
        (lambda: v.scatter_nd_update([[0, 0]], [3.0]), [3, 4]),
        (lambda: v.batch_scatter_update(tb.IndexedSlicesValue([[5.0], [4.0]], [[1], [1]])), [3, 5]),
        (lambda: v.scatter_add(tb.IndexedSlicesValue([[2.0, 0.0]], [0])), [5, 5]),
    ):
        result = session.run(write())
        assert result[0].tolist() == expected
        assert result[1].tolist() == [2, 4]
    assert session.run(v.sparse_read([1, 1])).tolist() == [[2, 4]] * 2
    assert session.run(v.gather_nd([[1, 1], [0, 0]])).tolist() == [4, 5]
    with pytest.raises(InvalidArgumentError, match=r"Variable.scatter_add: .*tb.IndexedSlices"):
        v.scatter_add([1.0])


def test_rows_of_each_example(session):
    start_value = np.zeros((2, 3, 4, 2), np.float32)
    v = tb.Variable(start_value)
    rng = np.random.default_rng(3)
    indices, updates = rng.integers(0, 4, (2, 3, 5)), rng.normal(size=(2, 3, 5, 2)).astype(np.float32)
    fed = tb.placeholder(tb.int64, [None, None, None])
    start(session)
    found = session.run(tb.batch_scatter_update(v, fed, updates), {fed: indices})
    expected = start_value.copy()
    for i, j, k in np.ndindex(*indices.shape):
        expected[i, j, indices[i, j, k]] = updates[i, j, k]
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(InvalidArgumentError, match="known rank of 1 or more"):
        tb.batch_scatter_update(v, 1, updates)
