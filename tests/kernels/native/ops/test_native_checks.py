"""Native CheckNumerics and Assert: what they pass and refuse, also in compiled loops."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.ops.checks import AssertOp, CheckNumerics
from tests.native_rig.native_calls import TARGETS, RefusedError, assert_sample, run_native, samples_of
from tests.ops_contract.collection import each

DTYPES = [np.float32, np.float64]


@each(samples_of({CheckNumerics.name, AssertOp.name}), few=4)
def test_native_samples_of_checks(sample):
    assert_sample(sample)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_check_numerics_finds_one_wrong_element_anywhere(dtype, target):
    for size, places in ((1, [0]), (131, [0, 2, 130])):
        x = np.linspace(-3, 3, size).astype(dtype)
        x[0] = np.finfo(dtype).max
        (found,) = run_native(CheckNumerics, (x,), {"message": "m"}, TARGETS[target]())
        np.testing.assert_array_equal(found, x)
        for at in places:
            for wrong in (np.nan, np.inf, -np.inf):
                bad = x.copy()
                bad[at] = wrong
                with pytest.raises(RefusedError):
                    run_native(CheckNumerics, (bad,), {"message": "m"}, TARGETS[target]())


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_native_assert_refuses_one_false_element(shape):
    condition = np.ones(shape, bool)
    run_native(AssertOp, (condition, np.float32(2.0)))
    if condition.size:
        condition[(-1,) * len(shape)] = False
        with pytest.raises(RefusedError):
            run_native(AssertOp, (condition, np.float32(2.0)))


@pytest.mark.parametrize("beside", [False, True], ids=["planned", "beside a host op"])
def test_a_check_in_a_compiled_loop_names_op_line_and_iteration(beside):
    with tb.Graph().as_default(), tb.Session() as session:
        x, n = tb.placeholder(tb.float32, [3]), tb.placeholder(tb.int32, [])

        def body(i, a):
            return i + 1, tb.check_numerics(tb.log(a), "a bad logarithm", name="watch")

        fetches = [tb.while_loop(lambda i, a: i < n, body, [0, x])[1]]
        if beside:
            fetches.append(tb.py_func(lambda value: value, [x], tb.float32))
        explanation = session.explain(fetches, {x: [1, 2, 3], n: 1})
        assert explanation.mode == ("dynamic" if beside else "planned")
        assert "CheckNumerics" in str(explanation) if beside else "in one call" in str(explanation)
        np.testing.assert_allclose(
            session.run(fetches, {x: [2, 3, 4], n: 1})[0], np.log([2, 3, 4]), rtol=1e-5
        )
        said = (
            r"CheckNumerics while/watch: a bad logarithm: tensor has infinity, 1 of 3 elements, the first at "
            r"\[0\] \(made at .*test_native_checks.py:\d+ in body.*in iteration 1 of loop 'while'"
        )
        with pytest.raises(tb.errors.InvalidArgumentError, match=said):
            session.run(fetches, {x: [1, 2, 3], n: 5})
        np.testing.assert_allclose(
            session.run(fetches, {x: [2, 3, 4], n: 1})[0], np.log([2, 3, 4]), rtol=1e-5
        )


def test_assertions_in_a_compiled_branch_fail_only_if_it_is_taken():
    with tb.Graph().as_default(), tb.Session() as session:
        x, limit = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])

        def checked():
            with tb.control_dependencies([tb.Assert(x < limit, [x])]):
                return x * 2.0

        y = tb.cond(x > 0.0, checked, lambda: -x)
        assert session.explain(y, {x: 1.0, limit: 2.0}).mode == "planned"
        assert session.run(y, {x: 1.0, limit: 2.0}) == 2.0
        assert session.run(y, {x: -3.0, limit: -5.0}) == 3.0
        with pytest.raises(tb.errors.InvalidArgumentError, match=r"cond/Assert: assertion failed: .*3"):
            session.run(y, {x: 3.0, limit: 2.0})


def test_a_cond_and_a_loop_that_only_check_are_kept():
    with tb.Graph().as_default(), tb.Session() as session:
        x, n = tb.placeholder(tb.float32, []), tb.placeholder(tb.int32, [])

        def same():
            with tb.control_dependencies([tb.Assert(x < 10.0, [x])]):
                return tb.identity(x)

        def body(i, a):
            with tb.control_dependencies([tb.cond(a > 5.0, same, lambda: x)]):
                return i + 1, tb.identity(a)

        chosen = tb.cond(x > 0.0, same, lambda: x)
        loop = tb.while_loop(lambda i, a: i < n, body, [0, x])[1]
        for fetch in (chosen, loop):
            assert session.explain(fetch, {x: 1.0, n: 2}).mode == "planned"
            assert session.run(fetch, {x: 2.0, n: 2}) == 2.0
            with pytest.raises(tb.errors.InvalidArgumentError, match="assertion failed"):
                session.run(fetch, {x: 20.0, n: 2})
