"""`TestCase`: a unittest of programs, with sessions and comparisons of arrays."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from tensorbow.devices.gpu_discovery import count_gpus
from tensorbow.errors import TensorBowError
from tensorbow.graph import Graph, Operation, Tensor, get_default_session, set_random_seed
from tensorbow.nest import flatten, pack
from tensorbow.runtime import Session
from tensorbow.specs import Array
from tensorbow.variables import Variable

SEED = 87654321


def is_gpu_available(cuda_only: bool = False) -> bool:
    """True if this process may use a GPU. cuda_only: TensorFlow's; all are."""
    return count_gpus() > 0


def gpu_device_name() -> str:
    """The name of the first GPU, "/device:GPU:0", or ""."""
    return "/device:GPU:0" if is_gpu_available() else ""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the tests of the program, as `unittest.main`."""
    unittest.main(argv=None if argv is None else list(argv))


class TestCase(unittest.TestCase):
    """A unittest whose methods have a graph of their own, whose seed is 87654321, and compare arrays.

    The first argument of comparisons is what is expected or found, in either order, and may be a tensor, or a
    nest of tensors and arrays, which is computed in the default session, or in a new one.
    """

    def setUp(self) -> None:
        """Begins with a new graph as the default graph."""
        self.graph = Graph()
        self._cached: Session | None = None
        self._temporary = ""
        stack = ExitStack()
        stack.enter_context(self.graph.as_default())
        stack.callback(self._clean_up)
        self.addCleanup(stack.close)
        set_random_seed(SEED)
        if self._testMethodName == "test_session":
            self.skipTest("not a test")

    def _clean_up(self) -> None:
        if self._cached is not None:
            self._cached.close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def get_temp_dir(self) -> str:
        """A folder that the test has for itself, and that is gone after it."""
        self._temporary = self._temporary or tempfile.mkdtemp()
        return self._temporary

    @contextmanager
    def session(
        self, graph: Graph | None = None, config: Any = None, use_gpu: bool = False, force_gpu: bool = False
    ) -> Iterator[Session]:
        """Context with a new session as the default one. use_gpu: on the first GPU, if there is one.

        force_gpu: skips the test if there is none.
        """
        if force_gpu and not is_gpu_available():
            self.skipTest("there is no GPU")
        device = "/gpu:0" if (use_gpu or force_gpu) and is_gpu_available() else "/cpu:0"
        with Session("", self.graph if graph is None else graph, config, device=device) as made:
            yield made

    @contextmanager
    def test_session(
        self, graph: Graph | None = None, config: Any = None, use_gpu: bool = False, force_gpu: bool = False
    ) -> Iterator[Session]:
        """`session`, by TensorFlow's older name; unittest takes it for a test, which is skipped."""
        with self.session(graph, config, use_gpu, force_gpu) as made:
            yield made

    @contextmanager
    def cached_session(self) -> Iterator[Session]:
        """Context with one session of the test, which keeps its variables, as the default one."""
        if self._cached is None:
            self._cached = Session(graph=self.graph)
        with self._cached.as_default():
            yield self._cached

    def evaluate(self, tensors: Any) -> Any:
        """The values of a nest of tensors, in the default session, or in that of `cached_session`."""
        leaves = flatten(tensors)
        wanted = [each for each in leaves if isinstance(each, (Tensor, Variable, Operation))]
        if not wanted:
            return tensors
        session = get_default_session()
        if session is None:
            with self.cached_session() as session:
                values = iter(session.run(wanted))
        else:
            values = iter(session.run(wanted))
        return pack(tensors, (next(values) if any(each is w for w in wanted) else each for each in leaves))

    def _pairs(self, a: Any, b: Any) -> list[tuple[Array, Array]]:
        a, b = self.evaluate(a), self.evaluate(b)
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            self.assertIsInstance(a, Mapping)
            self.assertIsInstance(b, Mapping)
            self.assertEqual(set(a), set(b))
            return [pair for key in a for pair in self._pairs(a[key], b[key])]
        if not (_is_nest(a) or _is_nest(b)):
            return [(np.asarray(a), np.asarray(b))]
        lengths = [len(each) if isinstance(each, (list, tuple)) or np.ndim(each) else None for each in (a, b)]
        self.assertEqual(*lengths, f"{a}, {b}")
        return [pair for one, other in zip(a, b, strict=True) for pair in self._pairs(one, other)]

    def assertAllClose(
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Fails unless two nests have one structure, equal shapes and elements that differ by at most
        `atol + rtol * abs(b)`.
        """
        for one, other in self._pairs(a, b):
            self.assertEqual(one.shape, other.shape, msg)
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=msg or "")

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        half_tol: float = 1e-3,
        msg: str | None = None,
    ) -> None:
        """`assertAllClose`, with `half_tol` where one of both is of 16-bit floats."""
        pairs = self._pairs(a, b)
        is_half = any(each.dtype.itemsize == 2 for pair in pairs for each in pair)
        tolerances = (half_tol, half_tol) if is_half else (rtol, atol)
        for one, other in pairs:
            self.assertAllClose(one.astype(np.float64), other.astype(np.float64), *tolerances, msg)

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fails unless two nests have one structure, and equal shapes and elements; NaN equals NaN."""
        for one, other in self._pairs(a, b):
            self.assertEqual(one.shape, other.shape, msg)
            np.testing.assert_array_equal(one, other, err_msg=msg or "")

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6) -> None:
        """Fails if `assertAllClose` would not."""
        with self.assertRaises(AssertionError):
            self.assertAllClose(a, b, rtol, atol)

    def assertNotAllEqual(self, a: Any, b: Any) -> None:
        """Fails if `assertAllEqual` would not."""
        with self.assertRaises(AssertionError):
            self.assertAllEqual(a, b)

    def assertAllInRange(self, target: Any, lower_bound: float, upper_bound: float) -> None:
        """Fails unless all elements are in [lower_bound, upper_bound]."""
        array = np.asarray(self.evaluate(target))
        outside = array[~((array >= lower_bound) & (array <= upper_bound))]
        self.assertEqual(outside.size, 0, f"{outside[:5]} are not in [{lower_bound}, {upper_bound}]")

    def assertAllGreater(self, a: Any, comparison_target: float) -> None:
        """Fails unless all elements are greater than a number."""
        self.assertGreater(np.min(self.evaluate(a)), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: float) -> None:
        """Fails unless all elements are less than a number."""
        self.assertLess(np.max(self.evaluate(a)), comparison_target)

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:
        """Fails unless two numbers differ by at most `err`."""
        self.assertLessEqual(abs(f1 - f2), err, msg)

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float) -> None:
        """Fails unless the elements of two vectors differ by at most `err`."""
        self.assertAllClose(farray1, farray2, rtol=0, atol=err)

    def assertShapeEqual(self, np_array: Any, tf_tensor: Tensor) -> None:
        """Fails unless an array has the static shape of a tensor."""
        self.assertEqual(list(np.shape(np_array)), tf_tensor.shape.as_list())

    @contextmanager
    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Iterator[None]:
        """Context that fails unless an error of the library ends it: one whose text has the regular
        expression, or for which the predicate is true.
        """
        with self.assertRaises(TensorBowError) as caught:
            yield
        if callable(expected_err_re_or_predicate):
            self.assertTrue(expected_err_re_or_predicate(caught.exception), str(caught.exception))
        else:
            self.assertRegex(str(caught.exception), expected_err_re_or_predicate)


def _is_nest(value: Any) -> bool:
    """True for a list or tuple that does not consist of numbers only."""
    return isinstance(value, (list, tuple)) and any(
        isinstance(each, (Mapping, list, tuple)) or np.ndim(each) for each in value
    )
