"""Iterators of a dataset in graphs: operations that give its elements, one in each step (TensorFlow 1)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tensorbow.array_likes import string_array
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from tensorbow.graph import Operation
from tensorbow.kinds import Name, checked
from tensorbow.nest import flatten, pack
from tensorbow.queues.python_functions import PyFunc
from tensorbow.specs import DType, as_dtype, string


class DatasetIterator:
    """Iteration over a dataset whose elements are tensors of a graph.

    In each step of a session each `get_next()` takes an element of its own; all sessions share the iteration.
    Steps that read it run in the dynamic mode. Made by `Dataset.make_one_shot_iterator` and
    `make_initializable_iterator`.
    """

    def __init__(
        self, dataset: Iterable[Any], is_initialized: bool, dims_of: Callable[[Any], list[list[int | None]]]
    ):
        """Reads the first element, which determines dtypes and shapes and is the first one returned.

        is_initialized: elements can be taken without running the initializer. dims_of: gives the extents of
        the leaves of all elements from one of them, None where they may differ.
        Raises InvalidArgumentError for a dataset without elements.
        """
        self._dataset, self._lock = dataset, threading.Lock()
        elements = iter(dataset)
        first = next(elements, None)
        if first is None:
            raise InvalidArgumentError("iterator: expected a dataset with an element, got an empty one")
        self._first, self._dims = first, dims_of(first)
        self._dtypes = [_dtype_of(leaf) for leaf in flatten(first)]
        begun = itertools.chain([first], elements)
        self._elements: Iterator[Any] | None = begun if is_initialized else None
        self._begun: Iterator[Any] | None = None if is_initialized else begun  # for the first initialization
        self._initializer: Operation | None = None
        self._is_one_shot = is_initialized

    @property
    def initializer(self) -> Operation:
        """Operation that starts from the dataset's beginning.

        Raises FailedPreconditionError for a one-shot iterator, which has none.
        """
        if self._is_one_shot:
            raise FailedPreconditionError(
                "initializer: a one-shot iterator starts by itself; use make_initializable_iterator"
            )
        if self._initializer is None:
            self._initializer = PyFunc(func=self._start, Tout=[], object=self, name="MakeIterator")
        return self._initializer

    @checked
    def get_next(self, name: Name = None) -> Any:
        """Tensors with the structure of an element, whose values in each step are those of the next one.

        The operations of several calls take an element each; in one step the one that was made first takes
        the first of them. The first extent of each shape is unknown, and so are others that `padded_batch`
        pads. A step raises OutOfRangeError at the end, FailedPreconditionError before the initializer has
        run, and InvalidArgumentError for elements of other structures or shapes than the first one.
        """
        made = PyFunc(func=self._next, Tout=self._dtypes, object=self, name=name or "IteratorGetNext")
        tensors = list(made) if isinstance(made, tuple) else [made][: len(self._dtypes)]
        for tensor, dims in zip(tensors, self._dims, strict=True):
            tensor.set_shape(dims)
        packed: Any = pack(self._first, iter(tensors)) if tensors else ()
        return packed

    def _start(self) -> None:
        with self._lock:
            self._elements = self._begun or iter(self._dataset)
            self._begun = None

    def _next(self) -> list[Any]:
        with self._lock:
            if self._elements is None:
                raise FailedPreconditionError("the iterator is not initialized; run its initializer")
            element = next(self._elements, None)
        if element is None:
            raise OutOfRangeError("the dataset has no further element; use repeat, or run the initializer")
        leaves = flatten(element)
        given = [list(np.shape(leaf)) for leaf in leaves]
        if len(given) != len(self._dims) or not all(map(_fits, given, self._dims)):
            raise InvalidArgumentError(f"expected elements of the shapes {self._dims}, got {given}")
        return leaves

    def __repr__(self) -> str:
        return f"<tb.data iterator of {self._dataset!r}>"


def _fits(given: list[int], dims: list[int | None]) -> bool:
    return len(given) == len(dims) and all(dim in (None, own) for own, dim in zip(given, dims, strict=True))


def _dtype_of(leaf: Any) -> DType:
    array = np.asarray(leaf)
    if array.dtype.kind in "USO":
        string_array(leaf)
        return string
    return as_dtype(array.dtype)
