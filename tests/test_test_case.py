"""`tb.test`: comparisons, sessions and gradients of programs' tests; each is seen to fail."""

from __future__ import annotations

import os
import unittest
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError


class Comparisons(tb.test.TestCase):
    def test_arrays(self) -> None:
        self.assertAllClose([1.0, 2.0], tb.constant([1.0, 2.0 + 1e-7]))
        self.assertAllClose(
            {"a": np.ones(2), "b": [tb.ones([2]), 3.0]}, {"a": [1, 1], "b": [np.ones(2), 3.0]}
        )
        self.assertAllEqual(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
        self.assertAllCloseAccordingToType(np.float16([1.0]), np.float16([1.0005]))
        self.assertNotAllClose([1.0], [1.1])
        self.assertNotAllEqual([1], [2])
        self.assertAllInRange(tb.constant([0.0, 1.0]), 0, 1)
        self.assertAllGreater([2.0], 1)
        self.assertAllLess([2.0], 3)
        self.assertNear(1.0, 1.1, 0.2)
        self.assertArrayNear([1.0, 2.0], [1.1, 2.1], 0.2)
        self.assertShapeEqual(np.zeros((2, 3)), tb.zeros([2, 3]))

    def test_sessions(self) -> None:
        v = tb.Variable(3.0)
        with self.cached_session() as session:
            session.run(v.initializer)
            self.assertEqual(v.eval(), 3)
        self.assertEqual(self.evaluate({"v": v, "n": 4}), {"v": 3, "n": 4})
        with self.test_session() as session:
            self.assertIs(tb.get_default_session(), session)
        with self.session(use_gpu=True), self.assertRaisesOpError("without a value"):
            v.eval()
        with self.session(), self.assertRaisesOpError(lambda error: "Variable" in error.message):
            v.eval()
        self.assertTrue(os.path.isdir(self.get_temp_dir()))


class Failures(tb.test.TestCase):
    __test__ = False  # of pytest

    def test_values(self) -> None:
        self.assertAllClose([1.0], [1.1])

    def test_shapes(self) -> None:
        self.assertAllEqual([[1]], [1])

    def test_ranges(self) -> None:
        self.assertAllInRange([2.0, np.nan], 0, 3)

    def test_nests(self) -> None:
        self.assertAllClose({"a": 1}, {"b": 1})

    def test_a_nest_and_a_scalar(self) -> None:
        self.assertAllEqual([[1, 2]], tb.constant(3))

    def test_errors(self) -> None:
        with self.assertRaisesOpError("two"):
            raise InvalidArgumentError("one")

    def test_predicates_of_errors(self) -> None:
        with self.assertRaisesOpError(lambda error: False):
            raise InvalidArgumentError("one")

    def test_lengths_of_rows(self) -> None:
        self.assertAllEqual([[1], [2, 3]], [[1], [2, 3], [4]])

    def test_dictionaries_in_a_list(self) -> None:
        self.assertAllEqual([{"a": [1, 2]}], [{"a": [1, 2]}])
        self.assertAllEqual([{"a": [1, 2]}], [{"a": [1, 3]}])


def results_of(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


def test_failures_are_found() -> None:
    found = results_of(Failures)
    assert (len(found.failures), len(found.skipped), found.errors) == (9, 1, [])


def wrong_square(x: Any) -> Any:
    @tb.custom_gradient
    def square(x: Any) -> Any:
        return x * x, lambda g: g * 3.0 * x

    return square(x)


def test_gradients() -> None:
    with tb.Graph().as_default(), tb.Session():
        x = tb.placeholder(tb.float64, [2, 3])
        w = tb.Variable(np.array([2.0, 1.0, 3.0]))
        y = tb.reduce_sum(x * x * w, 1)
        theoretical, numeric = tb.test.compute_gradient(x, [2, 3], y, [2], init_targets=w.initializer)
        assert theoretical.shape == (6, 2)
        np.testing.assert_allclose(theoretical, numeric, atol=1e-6)
        assert theoretical[0, 1] == 0 < theoretical[0, 0]
        assert tb.test.compute_gradient_error([x], [[2, 3]], y, [2], [np.ones((2, 3))]) < 1e-6
        assert tb.test.compute_gradient_error(x, [2, 3], wrong_square(x), [2, 3], np.ones((2, 3))) > 0.5
        assert tb.test.compute_gradient_error(x, [2, 3], tb.ones([2], tb.float64), [2]) == 0
        with pytest.raises(
            InvalidArgumentError, match=r"expected x_init_value to be an array of shape \[2, 3\]"
        ):
            tb.test.compute_gradient(x, [2, 3], y, [2], np.ones(3))
        with pytest.raises(InvalidArgumentError, match="expected y_shape to be a shape of known extents"):
            tb.test.compute_gradient(x, [2, 3], y, [None])
    assert tb.test.gpu_device_name() == ("/device:GPU:0" if tb.test.is_gpu_available() else "")
