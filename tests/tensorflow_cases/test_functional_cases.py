"""map_fn, foldl, foldr and scan: TensorFlow 1's cases of `functional_ops_test`."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import TensorBowError

ELEMS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.fixture(params=[True, False], ids=["compiled", "dynamic"])
def session(request, graph):
    with tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as made:
        yield made


@pytest.fixture
def elems(graph):
    return tb.constant(ELEMS, name="data")


def close(found, expected):
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


# Folds: testFoldl_*, testFoldr_*, testFold_Grad, testFoldShape ------------------------------------------


@pytest.mark.parametrize(
    ("fold", "start", "expected"),
    [("foldl", None, 208.0), ("foldl", 10.0, 880.0), ("foldr", None, 450.0), ("foldr", 10.0, 1282.0)],
)
def test_folds(session, elems, fold, start, expected):
    y = getattr(tb, fold)(lambda a, x: (a + x) * 2.0, elems, initializer=start)
    assert session.run(y) == expected


def test_folds_of_several_results(session, elems):  # testFoldl_SingleInputMultiOutput
    start = np.array([1.0, -1.0])
    for fold in (tb.foldl, tb.foldr):
        close(session.run(fold(lambda a, x: a + tb.cast(x, tb.float64), elems, start)), [22.0, 20.0])


def test_folds_over_several_inputs(session, elems):  # testFoldl_MultiInputSingleOutput
    for fold in (tb.foldl, tb.foldr):
        assert session.run(fold(lambda a, x: a + x[0] + x[1], (elems, -elems), initializer=1.0)) == 1.0


def test_folds_over_inputs_of_different_extents(session):  # ...MultiInputDifferentDimensionsSingleOutput
    elems = (tb.constant(np.arange(6.0).reshape(3, 2)), tb.constant([1.0, 2.0, 3.0], tb.float64))
    y = tb.foldl(lambda a, x: a + x[0] * x[1], elems, initializer=tb.zeros([2], tb.float64))
    close(session.run(y), [16.0, 22.0])


def test_the_gradient_of_a_fold(session, elems):
    for fold in (tb.foldl, tb.foldr):
        v = tb.constant(2.0)
        y = fold(lambda a, x: a * x, elems, initializer=v)
        assert session.run(tb.gradients(y, v)[0]) == 720.0


def test_the_shape_of_a_fold(session):
    x = tb.placeholder(tb.float32, [None, 3])
    y = tb.foldl(lambda a, x: a + x, x, initializer=tb.zeros([3]))
    assert y.shape.as_list() == [3]
    close(session.run(y, {x: np.ones((4, 3))}), [4, 4, 4])


def test_a_fold_over_no_elements(session):
    x = tb.placeholder(tb.float32, [None])
    assert session.run(tb.foldl(lambda a, x: a + x, x, initializer=5.0), {x: []}) == 5.0


def test_variables_of_a_fold_lie_in_the_scope_around(graph):  # testFoldl_Scoped
    def step(a, x):
        return a * tb.get_variable("two", [], initializer=tb.constant_initializer(2.0)) + x

    with tb.variable_scope("root") as scope:
        first = tb.foldl(step, tb.constant([1.0, 2.0]), initializer=0.0)
        assert [each.name for each in tb.trainable_variables()] == ["root/two:0"]
        scope.reuse_variables()
        second = tb.foldl(step, tb.constant([3.0, 4.0]), initializer=0.0)
        assert len(tb.trainable_variables()) == 1
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        assert session.run([first, second]) == [4.0, 10.0]


# map_fn: testMap_* --------------------------------------------------------------------------------------


def test_a_map(session, elems):
    close(session.run(tb.map_fn(lambda x: (x + 3.0) * 2.0, elems)), (np.array(ELEMS) + 3) * 2)


def test_a_map_over_arrays(session):  # testMap_SimpleNotTensor
    close(session.run(tb.map_fn(lambda x: x * 2, np.array([1, 2, 3]))), [2, 4, 6])


def test_a_map_over_a_scalar_is_refused(graph):  # testMapOverScalarErrors
    with pytest.raises((TensorBowError, ValueError)):
        tb.map_fn(lambda x: x, tb.constant(1))
    with pytest.raises((TensorBowError, ValueError)):
        tb.map_fn(lambda x: x[0], [tb.constant([1]), tb.constant(1)])


def test_a_map_of_several_results(session, elems):  # testMap_SingleInputMultiOutput
    a, b = tb.map_fn(lambda x: (x + 1.0, -x), elems, dtype=(tb.float32, tb.float32))
    close(session.run([a, b]), [np.array(ELEMS) + 1, -np.array(ELEMS)])


def test_a_map_of_another_dtype(session, elems):  # testMap_MultiOutputMismatchedDtype
    close(
        session.run(tb.map_fn(lambda x: tb.cast(x, tb.int64) * 3, elems, dtype=tb.int64)),
        [3, 6, 9, 12, 15, 18],
    )
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.map_fn(lambda x: (x + 1.0, -x), elems, dtype=[tb.float32, tb.float32, tb.float32])
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.map_fn(lambda x: tb.cast(x, tb.int32), elems)


def test_a_map_over_several_inputs(session, elems):  # testMap_MultiInputSingleOutput, ...SameStructureOutput
    y = tb.map_fn(lambda x: x[0] * x[1][0] + x[1][1], (elems, (elems, -elems)), dtype=tb.float32)
    close(session.run(y), np.array(ELEMS) ** 2 - np.array(ELEMS))
    a, (b, c) = tb.map_fn(lambda x: (x[1][0], (x[1][1], x[0])), (elems, (2 * elems, -elems)))
    close(session.run([a, b, c]), [2 * np.array(ELEMS), -np.array(ELEMS), ELEMS])


def test_the_gradient_of_a_map(session, elems):  # testMap_Grad
    p = tb.constant(2.0)
    y = tb.map_fn(lambda x: tb.multiply(tb.square(x), p), elems)
    close(session.run(tb.gradients(y, [p, elems])), [91.0, 4 * np.array(ELEMS)])


def test_the_shape_of_a_map(session):  # testMapShape, testMapUnknownShape
    y = tb.map_fn(lambda x: x, tb.constant([[1, 2, 3], [4, 5, 6]]))
    assert y.shape.as_list() == [2, 3]
    x = tb.placeholder(tb.float32, None)
    assert tb.map_fn(lambda x: x, x).shape.ndims is None
    rows = tb.placeholder(tb.float32, [None, 3])
    assert tb.map_fn(lambda x: tb.reduce_sum(x), rows).shape.as_list() == [None]


def test_a_map_over_no_elements(session):  # testMapEmptyScalar, testMapEmptyTensor
    x = tb.placeholder(tb.float32, [None, 3])
    assert session.run(tb.map_fn(lambda x: tb.reduce_sum(x), x), {x: np.zeros((0, 3))}).shape == (0,)
    assert session.run(tb.map_fn(lambda x: tb.zeros([3, 2]), x), {x: np.zeros((0, 3))}).shape == (0, 3, 2)


def test_a_map_within_a_map(session):
    x = tb.constant(np.arange(6.0).reshape(2, 3))
    y = tb.map_fn(lambda row: tb.map_fn(lambda v: v * v, row), x)
    np.testing.assert_array_equal(session.run(y), np.arange(6.0).reshape(2, 3) ** 2)


# scan: testScan_* ---------------------------------------------------------------------------------------


def test_a_scan(session, elems):  # testScan_Simple
    close(session.run(tb.scan(lambda a, x: a * x, elems)), [1, 2, 6, 24, 120, 720])
    close(session.run(tb.scan(lambda a, x: a * x, elems, initializer=2.0)), [2, 4, 12, 48, 240, 1440])


def test_a_scan_from_the_end(session, elems):  # testScan_Reverse
    close(session.run(tb.scan(lambda a, x: a * x, elems, reverse=True)), [720, 720, 360, 120, 30, 6])
    y = tb.scan(lambda a, x: a * x, elems, initializer=2.0, reverse=True)
    close(session.run(y), [1440, 1440, 720, 240, 60, 12])


def test_a_scan_of_several_results(session):  # testScan_SingleInputMultiOutput
    y = tb.scan(
        lambda a, x: (a[0] * x, -a[1] * x),
        np.array([1.0, 2.0, 3.0]),
        initializer=(1.0 * np.float64(1), np.float64(-1)),
    )
    close(session.run(y), [[1, 2, 6], [1, -2, 6]])


def test_a_scan_over_several_inputs(session, elems):  # testScan_MultiInputSingleOutput
    y = tb.scan(lambda a, x: a + x[0] * x[1], (elems, -elems), initializer=1.0)
    close(session.run(y), 1 - np.cumsum(np.array(ELEMS) ** 2))


def test_a_scan_in_the_nest_of_its_inputs(session, elems):  # testScan_MultiInputSameTypeOutput
    y = tb.scan(lambda a, x: (a[0] + x[0], a[1] + x[1]), (elems, -elems))
    close(session.run(y), [np.cumsum(ELEMS), -np.cumsum(ELEMS)])


def test_a_scan_whose_results_do_not_fit_the_start(graph, elems):  # testScan_MultiOutputMismatchedInitializer
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.scan(lambda a, x: (a, -a), elems, initializer=1.0)


def test_a_fold_in_a_scan(session):  # testScanFoldl_Nested
    inner = tb.constant([1.0, 2.0, 3.0])

    def step(a, x):
        return tb.foldl(lambda b, y: b * y * x, inner, initializer=a)

    # each step multiplies by 6 x^3
    close(
        session.run(tb.scan(step, tb.constant([1.0, 2.0, 3.0]), initializer=1.0)), [6, 6 * 48, 6 * 48 * 162]
    )


def test_a_scan_with_control_dependencies(session):  # testScan_Control
    flag = tb.placeholder(tb.bool, [])
    with tb.control_dependencies([flag]):
        y = tb.scan(lambda a, x: a * x, tb.constant([1, 2, 3]))
    np.testing.assert_array_equal(session.run(y, {flag: True}), [1, 2, 6])


def test_the_gradient_of_a_scan(session, elems):  # testScan_Grad
    v = tb.constant(2.0)
    y = tb.scan(lambda a, x: a * x, elems, initializer=v)
    close(session.run(tb.gradients(y, v)), [873.0])


def test_a_gradient_that_stops_at_a_part_of_a_scans_state(session):  # testScanGradientWithPartStopGradient
    a = tb.Variable(0.0)
    b = tb.Variable(0.0)
    elems = tb.zeros([5])
    lost, kept = tb.scan(lambda s, x: (tb.stop_gradient(s[0]) + a, s[1] + b), elems, initializer=(0.0, 0.0))
    session.run(tb.global_variables_initializer())
    slopes = tb.gradients(tb.reduce_sum(lost) + tb.reduce_sum(kept), [a, b])
    close(session.run(slopes), [5.0, 15.0])


def test_the_shape_of_a_scan(session):  # testScanShape, testScanUnknownShape, testScanVaryingShape
    x = tb.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = tb.scan(lambda a, x: a + x, x, initializer=tb.zeros([3]))
    assert y.shape.as_list() == [2, 3]
    rows = tb.placeholder(tb.float32, [None, 2])
    assert tb.scan(lambda a, x: a + x, rows).shape.as_list() == [None, 2]
    anything = tb.placeholder(tb.float32)
    z = tb.scan(lambda a, x: a + tb.reduce_sum(x), anything, initializer=0.0)
    close(session.run(z, {anything: np.ones((3, 2, 2))}), [4, 8, 12])


def test_a_scan_over_no_elements(session):  # testScanEmptyTensor
    x = tb.placeholder(tb.float32, [None, 2])
    y = tb.scan(lambda a, x: a + x, x, initializer=tb.zeros([2]))
    assert session.run(y, {x: np.zeros((0, 2))}).shape == (0, 2)
