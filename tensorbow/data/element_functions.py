"""Functions of a pipeline's elements: of NumPy arrays, or of tensors, whose graph runs for each element."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tensorbow.array_likes import as_array, string_array
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, GraphKeys, Tensor, as_tensor, get_default_graph
from tensorbow.kinds import is_tensor
from tensorbow.nest import flatten, flatten_like, map_leaves, pack
from tensorbow.ops.control import placeholder
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.runtime.session import Session
from tensorbow.specs import DType, as_dtype, string

_functions = itertools.count()  # each draws random numbers of its own


def dtype_of(leaf: Any) -> DType:
    """The dtype of an element's leaf as a tensor."""
    array = np.asarray(leaf)
    if array.dtype.kind in "USO":
        string_array(leaf)
        return string
    return as_dtype(array.dtype)


def as_leaf(value: Any) -> Any:
    """A leaf of an element: an array, or `bytes`, whose zeros at the end an array of NumPy would lose."""
    return value if type(value) is bytes else as_array(value)


def arguments_of(element: Any) -> tuple[Any, ...]:
    """Arguments of a function of an element: the parts of a tuple, else the element."""
    return element if type(element) is tuple else (element,)


class ElementFunction:
    """A function of elements, which is traced if it is one of tensors.

    It is called with arrays first. If it returns tensors, or raises an error, it is called with placeholders
    of the elements' shapes, in a graph of its own; if that fails, as it does where the function uses tensors
    or tables of another graph, in the graph that was the default one where the dataset was made.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._number = next(_functions)
        self._around = get_default_graph()
        self._lock = threading.Lock()  # guards `_traced`
        self._is_plain = False  # until a first element has come
        self._traced: _TracedFunction | None = None

    def of_iteration(self, key: Sequence[int]) -> Callable[[tuple[int, Any]], Any]:
        """The function of (number, element) for an iteration with a key, which seeds random ops."""
        seed = np.random.SeedSequence((self._number, *key))
        stream = int(seed.generate_state(1)[0] >> 1)

        def call(numbered: tuple[int, Any]) -> Any:
            number, element = numbered
            arguments = arguments_of(element)
            if self._is_plain:
                return self._function(*arguments)
            return self._call(arguments, stream, number)

        return call

    def _call(self, arguments: tuple[Any, ...], stream: int, number: int) -> Any:
        refused: Exception | None = None
        if self._traced is None:  # threads that come meanwhile do the same
            try:
                with Graph().as_default():
                    result = self._function(*arguments)
            except Exception as error:
                if self._is_plain:
                    raise
                refused = error
            else:
                if not any(is_tensor(each) or isinstance(each, SparseTensor) for each in flatten(result)):
                    self._is_plain = True
                    return result
        with self._lock:
            if self._traced is None or not self._traced.fits(arguments):
                try:
                    self._trace(arguments)
                except Exception:
                    if refused is not None:
                        raise refused from None
                    raise
            traced = self._traced
        assert traced is not None
        return traced.run(arguments, stream, number)

    def _trace(self, arguments: tuple[Any, ...]) -> None:
        if self._traced is not None:
            self._traced = self._traced.widened(arguments)
            return
        dims = [list(np.shape(leaf)) for leaf in flatten(arguments)]
        own = Graph()
        own.seed = self._around.seed
        try:
            self._traced = _TracedFunction(self._function, own, arguments, dims)
        except Exception as error:
            try:
                self._traced = _TracedFunction(self._function, self._around, arguments, dims)
            except Exception:
                raise error from None


class _TracedFunction:
    """A function's graph for elements of some shapes, and a session that runs it."""

    def __init__(self, function: Callable[..., Any], graph: Graph, arguments: Any, dims: list[Any]):
        """dims: extents of each leaf of the arguments, None where they differ; None for unknown rank."""
        self._function, self.graph, self._dims = function, graph, dims
        self._arguments = map_leaves(lambda *_: None, arguments, "element")
        with graph.as_default():
            fed = [
                placeholder(dtype_of(leaf), shape, name="element")
                for leaf, shape in zip(flatten(arguments), dims, strict=True)
            ]
            results = function(*pack(arguments, iter(fed)))
            self._is_sparse = any(isinstance(each, SparseTensor) for each in flatten(results))
            fetches = map_leaves(lambda _, leaf: _fetched(leaf), results, "result")
            self._session = Session(graph=graph)
            if tables := graph.get_collection(GraphKeys.TABLE_INITIALIZERS):
                self._session.run(tables)
        self._compute = self._session.make_callable(fetches, fed)
        self._lock = threading.Lock()  # guards the random state between `restart` and the draw
        self._is_random: bool | None = None  # None: has not run yet

    def leaves_of(self, arguments: Any) -> list[Any]:
        """The leaves, in the order of the graph's. Raises InvalidArgumentError for another structure."""
        return flatten_like(self._arguments, arguments, "element")

    def fits(self, arguments: Any) -> bool:
        """Tells whether the shapes of the arguments are those of the graph."""
        return all(
            dims is None
            or (len(dims) == len(shape) and all(d in (None, n) for d, n in zip(dims, shape, strict=True)))
            for dims, shape in zip(self._dims, map(np.shape, self.leaves_of(arguments)), strict=True)
        )

    def widened(self, arguments: Any) -> _TracedFunction:
        """The function traced for the shapes of these arguments, too."""
        made: list[Any] = []
        leaves = self.leaves_of(arguments)
        for dims, shape in zip(self._dims, map(np.shape, leaves), strict=True):
            same = dims is not None and len(dims) == len(shape)
            made.append([d if d == n else None for d, n in zip(dims, shape, strict=True)] if same else None)
        return _TracedFunction(self._function, self.graph, pack(self._arguments, iter(leaves)), made)

    def run(self, arguments: Any, stream: int, number: int) -> Any:
        """The results for an element, of the given number in the iteration that draws from `stream`."""
        with nullcontext() if self._is_random is False else self._lock:
            if self._is_random is not False:
                self._session.random_state.restart(stream, number)
            values = self._compute(*self.leaves_of(arguments))
            if self._is_random is None:
                self._is_random = bool(self._session.random_state.counters)
        return values


def _fetched(leaf: Any) -> Any:
    return leaf if is_tensor(leaf) or isinstance(leaf, SparseTensor) else as_tensor(leaf)


def made_datasets(
    function: Callable[..., Any], elements: Iterable[Any], kind: type, op: str
) -> Iterator[Any]:
    """The datasets that a function of arrays makes of elements.

    Raises InvalidArgumentError for other results.
    """
    for element in elements:
        with Graph().as_default():
            made = function(*arguments_of(element))
        if not isinstance(made, kind):
            raise InvalidArgumentError(
                f"{op}: expected the function to give a tb.data.Dataset, got {type(made).__name__}"
            )
        yield made


def source_arrays(op: str, tensors: Any) -> Any:
    """The arrays of a nest of arrays, tensors, numbers, and lists of numbers or texts, which are arrays.

    Tensors are computed. Raises InvalidArgumentError for what is no array.
    """

    def of(path: str, value: Any) -> Any:
        if is_tensor(value):
            return _computed(op, path, value)
        try:
            return as_leaf(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{op}: {path}: {error}") from None

    def read(value: Any) -> Any:
        if type(value) is list and all(type(each) in _PLAIN for each in flatten(value)):
            return _Listed(value)
        if type(value) is tuple:
            return tuple(map(read, value))
        if type(value) is dict:
            return {key: read(each) for key, each in value.items()}
        return value

    return map_leaves(
        lambda path, leaf: of(path, leaf.values if isinstance(leaf, _Listed) else leaf),
        read(tensors),
        "tensors",
    )


def source_texts(op: str, argument: str, given: Any) -> list[bytes]:
    """The texts of a text, a list or array of them, or a tensor of strings, which is computed.

    Raises InvalidArgumentError for other values.
    """
    try:
        texts: list[bytes] = string_array(source_arrays(op, given)).ravel().tolist()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{op}: expected {argument} to be one or several texts: {error}") from None
    return texts


_PLAIN = (bool, int, float, complex, str, bytes)


class _Listed:
    """A list that is one array, as a leaf of a nest."""

    def __init__(self, values: list[Any]):
        self.values = values


def _computed(op: str, path: str, tensor: Tensor) -> Any:
    tensor = as_tensor(tensor)
    try:
        with Session(graph=tensor.graph) as session:
            return session.run(tensor)
    except Exception as error:
        raise InvalidArgumentError(
            f"{op}: {path} is the tensor {tensor.name}, which cannot be computed when the data set is made: "
            f"{error}; give arrays, or tensors that depend on no placeholder or variable"
        ) from error
