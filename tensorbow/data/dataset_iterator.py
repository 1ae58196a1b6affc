"""Iterators of a dataset in graphs: operations that give its elements, one in each step (TensorFlow 1)."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tensorbow.data.element_functions import dtype_of
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, OutOfRangeError
from tensorbow.graph import Operation, Tensor, as_tensor
from tensorbow.kinds import Kind, Name, RefusedError, checked, read_as, refuse
from tensorbow.nest import flatten, flatten_like, leaves_like, pack
from tensorbow.queues.python_functions import PyFunc
from tensorbow.specs import DType, as_dims, as_dtype, string


def _read_handle(value: Any) -> Tensor:
    try:
        return as_tensor(value, string)
    except InvalidArgumentError:
        raise RefusedError from None


_HANDLE = Kind("a scalar string", _read_handle)
_numbers = itertools.count()
_by_handle: weakref.WeakValueDictionary[bytes, DatasetIterator] = weakref.WeakValueDictionary()


class DatasetIterator:
    """Iteration over a dataset whose elements are tensors of a graph.

    In each step of a session each `get_next()` takes an element of its own; all sessions share the iteration.
    Steps that read it run in the dynamic mode. Made by `Dataset.make_one_shot_iterator` and
    `make_initializable_iterator`; for several datasets in turn by `from_structure` and `from_string_handle`.
    """

    def __init__(
        self,
        structure: Any,
        dtypes: list[DType],
        dims: list[list[int | None] | None],
        dataset: Any = None,
        begun: Iterator[Any] | None = None,
        is_one_shot: bool = False,
        handle: Tensor | None = None,
    ):
        """Not for users.

        structure: a nest like an element. dtypes, dims: of its leaves; an extent None may differ, and dims
        None have an unknown rank. dataset: which the initializer begins; None if it has none of its own.
        begun: its first iteration, whose first element has been read. is_one_shot: elements can be taken
        without an initializer. handle: tensor with the handle of the iterator to take elements of.
        """
        self._structure, self._dtypes, self._dims = structure, dtypes, dims
        self._dataset, self._lock, self._from = dataset, threading.Lock(), handle
        self._is_one_shot = is_one_shot
        self._elements = begun if is_one_shot else None
        self._begun = None if is_one_shot else begun  # for the first initialization
        self._initializer: Operation | None = None
        self._handle = b"iterator-%d" % next(_numbers)
        _by_handle[self._handle] = self

    @staticmethod
    def of_dataset(
        dataset: Iterable[Any], dims_of: Callable[[Any], list[list[int | None]]], is_one_shot: bool
    ) -> DatasetIterator:
        """Reads the first element, which determines dtypes and shapes and is the first one returned.

        dims_of: gives the extents of the leaves of all elements from one of them, None where they may differ.
        Raises InvalidArgumentError for a dataset without elements.
        """
        elements = iter(dataset)
        first = next(elements, None)
        if first is None:
            raise InvalidArgumentError("iterator: expected a dataset with an element, got an empty one")
        begun = itertools.chain([first], elements)
        dtypes = [dtype_of(leaf) for leaf in flatten(first)]
        dims: Any = dims_of(first)
        return DatasetIterator(first, dtypes, dims, dataset, begun, is_one_shot)

    @staticmethod
    @checked
    def from_structure(
        output_types: Any, output_shapes: Any = None, shared_name: Name = None, output_classes: Any = None
    ) -> DatasetIterator:
        """An iterator over datasets that `make_initializer` gives it, one after the other.

        output_types, output_shapes: dtypes and shapes of the elements, as those of a dataset; by default the
        shapes are unknown. shared_name, output_classes: TensorFlow's; have no effect.
        """
        dtypes = dtypes_like(output_types, "from_structure")
        return DatasetIterator(output_types, dtypes, dims_like(output_types, output_shapes, "from_structure"))

    @staticmethod
    @checked
    def from_string_handle(
        string_handle: Any, output_types: Any, output_shapes: Any = None, output_classes: Any = None
    ) -> DatasetIterator:
        """An iterator that takes the elements of the one whose handle is fed, a scalar string.

        `session.run(other.string_handle())` gives a handle. The other arguments are as of `from_structure`.
        """
        handle = read_as(_HANDLE, string_handle, "from_string_handle", "string_handle")
        dims = dims_like(output_types, output_shapes, "from_string_handle")
        dtypes = dtypes_like(output_types, "from_string_handle")
        return DatasetIterator(output_types, dtypes, dims, handle=handle)

    @property
    def initializer(self) -> Operation:
        """Operation that starts from the dataset's beginning.

        Raises FailedPreconditionError for an iterator that has none: a one-shot one starts by itself, and
        others get their dataset by `make_initializer`, or a handle.
        """
        if self._is_one_shot:
            raise FailedPreconditionError(
                "initializer: a one-shot iterator starts by itself; use make_initializable_iterator"
            )
        if self._dataset is None:
            raise FailedPreconditionError(
                "initializer: this iterator has no dataset of its own; use make_initializer(dataset)"
            )
        if self._initializer is None:
            self._initializer = PyFunc(func=self._start, Tout=[], object=self, name="MakeIterator")
        return self._initializer

    @checked
    def make_initializer(self, dataset: Any, name: Name = None) -> Operation:
        """Operation that starts from the beginning of a dataset, of an iterator of `from_structure`.

        Raises InvalidArgumentError for a dataset with other dtypes or shapes than those of the iterator.
        """
        if self._is_one_shot or self._from is not None or self._dataset is not None:
            raise FailedPreconditionError("make_initializer: expected an iterator made by from_structure")
        if not hasattr(dataset, "output_types"):
            raise refuse("make_initializer", "dataset", "a tb.data.Dataset", dataset)
        of_iterator = partial(flatten_like, self._structure, name="make_initializer: element")
        given = [as_dtype(leaf) for leaf in of_iterator(dataset.output_types, like="the iterator")]
        shapes = [shape.dims for shape in of_iterator(dataset.output_shapes, like="the iterator")]
        if given != self._dtypes or not all(map(_may_fit, shapes, self._dims)):
            raise InvalidArgumentError(
                f"make_initializer: expected elements of {_described(self._dtypes, self._dims)}, "
                f"got a dataset of {_described(given, shapes)}"
            )

        def start() -> None:
            with self._lock:
                self._elements = iter(dataset)

        made: Operation = PyFunc(func=start, Tout=[], object=self, name=name or "MakeIterator")
        return made

    @checked
    def string_handle(self, name: Name = None) -> Tensor:
        """The handle of this iterator, a scalar string, for iterators of `from_string_handle`."""
        made: Tensor = PyFunc(
            func=lambda: self._handle, Tout=[string], object=self, name=name or "IteratorHandle"
        )
        made.set_shape([])
        return made

    @checked
    def get_next(self, name: Name = None) -> Any:
        """Tensors with the structure of an element, whose values in each step are those of the next one.

        The operations of several calls take an element each; in one step the one that was made first takes
        the first of them. The first extent of each shape is unknown, and so are others that `padded_batch`
        pads. A step raises OutOfRangeError at the end, FailedPreconditionError before the initializer has
        run, and InvalidArgumentError for elements of other structures or shapes than the first one.
        """
        inputs = [] if self._from is None else [self._from]
        made = PyFunc(
            *inputs, func=self._taken, Tout=self._dtypes, object=self, name=name or "IteratorGetNext"
        )
        tensors = list(made) if isinstance(made, tuple) else [made][: len(self._dtypes)]
        for tensor, dims in zip(tensors, self._dims, strict=True):
            tensor.set_shape(dims)
        packed: Any = pack(self._structure, iter(tensors)) if tensors else ()
        return packed

    def _start(self) -> None:
        with self._lock:
            self._elements = iter(self._dataset) if self._begun is None else self._begun
            self._begun = None

    def _taken(self, handle: Any = None) -> list[Any]:
        """The leaves of the next element, of the iterator with the handle if there is one."""
        source = self if self._from is None else _by_handle.get(handle)
        if source is None:
            raise NotFoundError(
                f"get_next: no iterator has the handle {handle!r}; feed that of string_handle()"
            )
        leaves = flatten_like(self._structure, source._next(), "element", "the iterator")
        given = [list(np.shape(leaf)) for leaf in leaves]
        if not all(map(_fits, given, self._dims)):
            raise InvalidArgumentError(f"expected elements of the shapes {self._dims}, got {given}")
        return leaves

    def _next(self) -> Any:
        with self._lock:
            if self._elements is None:
                raise FailedPreconditionError("the iterator is not initialized; run its initializer")
            element = next(self._elements, None)
        if element is None:
            raise OutOfRangeError("the dataset has no further element; use repeat, or run the initializer")
        return element

    def __repr__(self) -> str:
        return f"<tb.data iterator of {self._dataset!r}>"


def dtypes_like(output_types: Any, op: str) -> list[DType]:
    """The dtypes of a nest. Raises InvalidArgumentError for another leaf, and for a nest without any."""
    leaves = flatten(output_types)
    try:
        if not leaves:
            raise InvalidArgumentError("it has none")
        return [as_dtype(leaf) for leaf in leaves]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{op}: expected output_types to be a nest of dtypes: {error}") from None


def dims_like(output_types: Any, output_shapes: Any, op: str) -> list[list[int | None] | None]:
    """The extents of each leaf of `output_types`, from shapes in the same nest; None for an unknown rank.

    Raises InvalidArgumentError for another structure.
    """
    if output_shapes is None:
        return [None] * len(flatten(output_types))
    found = []
    for name, shape in _shapes_like(output_types, output_shapes, f"{op}: output_shapes"):
        try:
            dims = as_dims(shape)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
        found.append(None if dims is None else list(dims))
    return found


def _shapes_like(types: Any, shapes: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(types, (tuple, list)) and isinstance(shapes, (tuple, list)) and len(types) == len(shapes):
        for number, (part, shape) in enumerate(zip(types, shapes, strict=True)):
            yield from _shapes_like(part, shape, f"{name}[{number}]")
    elif isinstance(types, DType):
        yield name, shapes
    else:
        yield from leaves_like(types, shapes, name, "output_types")


def _fits(given: list[int], dims: list[int | None] | None) -> bool:
    return dims is None or (
        len(given) == len(dims) and all(dim in (None, own) for own, dim in zip(given, dims, strict=True))
    )


def _may_fit(shape: Any, dims: list[int | None] | None) -> bool:
    if shape is None or dims is None:
        return True
    pairs = zip(shape, dims, strict=False)
    return len(shape) == len(dims) and all(a is None or b is None or a == b for a, b in pairs)


def _described(dtypes: list[DType], dims: Any) -> str:
    shapes = ["<unknown>" if each is None else str(list(each)) for each in dims]
    return ", ".join(f"{dtype.name}{shape}" for dtype, shape in zip(dtypes, shapes, strict=True)) or "nothing"
