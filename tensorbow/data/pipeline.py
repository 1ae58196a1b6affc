"""Pipelines of examples: sources, and transformations of what they give, for a step's inputs."""

from __future__ import annotations

import glob
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorbow.array_likes import string_array
from tensorbow.data.dataset_iterator import DatasetIterator, dims_like, dtypes_like
from tensorbow.data.element_functions import (
    ElementFunction,
    as_leaf,
    dtype_of,
    made_datasets,
    source_arrays,
    source_texts,
)
from tensorbow.data.padded_batches import are_fixed, batch_dims, padded, paddings_of
from tensorbow.data.pipeline_threads import in_parallel, made_ahead
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.kinds import Count, Flag, Function, Kind, Name, Positive, checked, optional, refuse, whole
from tensorbow.kinds import Items as GivenItems
from tensorbow.nest import flatten, flatten_like, leaves_like, map_leaves, named_leaves, pack
from tensorbow.specs import TensorShape

Key: TypeAlias = tuple[int, ...]  # the number of each repetition around an iteration: it seeds shuffling
Items: TypeAlias = Callable[[Key], Iterator[Any]]
AUTOTUNE = -1  # a number of threads or of elements ahead that is chosen here


def _read_threads(value: Any) -> int:
    return AUTOTUNE if type(value) is int and value == AUTOTUNE else int(whole(1).read(value))


MapThreads: TypeAlias = Annotated[int, Kind("a whole number of at least 1, or AUTOTUNE", _read_threads)]
PrefetchSize: TypeAlias = Annotated["int | None", optional(whole(AUTOTUNE))]
DimsOf: TypeAlias = Callable[[Any], "list[list[int | None]]"]

_shuffles = itertools.count()  # without a seed
ROWS_AT_ONCE = 256  # numbers of rows that are drawn ahead of their use, for speed
_MOST_NUMBERS = 1 << 24  # of a range that are kept as one array, which batches are taken of fast
_UNSEEDED = 0x7A5D  # keeps their orders apart from those of seeds


class Dataset:
    """Elements, each a nest of NumPy arrays, made one after the other while it is iterated.

    Made by `from_tensor_slices`, `from_generator`, `range`, `zip` and so on; every method returns a further
    dataset and leaves this one as it is. An iteration starts from the beginning, with the same order each
    time; `repeat` shuffles anew each time. Functions get the parts of elements that are tuples as arguments.

        examples = tb.data.Dataset.from_tensor_slices((images, labels))
        batches = examples.shuffle(len(images), seed=1).batch(16).repeat()
    """

    def __init__(
        self,
        items: Items,
        length: float | None,
        source: Any = None,
        batched: bool = False,
        dims_of: DimsOf | None = None,
    ):
        """Not for users.

        items: makes an iteration. length: of one; None if unknown, infinite if it never ends. source: nest of
        arrays `[rows, ...]`, of which the items are the numbers of rows; None if the items are the elements.
        batched: an item has the numbers of a batch of rows, int64 [batch].
        dims_of: gives the extents of each leaf of all elements from one of them, None where they differ; by
        default elements have the same extents, but for the first one.
        """
        self._items, self._length, self._source, self._batched = items, length, source, batched
        self._dims_of = dims_of or _dims_but_the_first

    def __iter__(self) -> Iterator[Any]:
        return self._elements(())

    def __len__(self) -> int:
        """Number of elements. Raises TypeError where it is unknown or infinite."""
        if self._length is None or self._length == np.inf:
            raise TypeError(f"the number of elements is {'unknown' if self._length is None else 'infinite'}")
        return int(self._length)

    def __repr__(self) -> str:
        count = "?" if self._length is None else f"{self._length:,}"
        return f"<tb.data.Dataset of {count} elements>"

    def _elements(self, key: Key) -> Iterator[Any]:
        if self._source is None:
            return self._items(key)
        return (self._row(number) for number in self._items(key))

    def _with(self, items: Items, length: float | None) -> Dataset:
        """Other items of the same kind."""
        return Dataset(items, length, self._source, self._batched, self._dims_of)

    def row_batches(self) -> tuple[Any, Iterator[NDArray[np.int64]]] | None:
        """Gives arrays `[rows, ...]` in a nest, and the batches of their rows in an iteration; not for users.

        An element has the rows of a batch's numbers, int64 [batch]. None if elements are made in another way.
        """
        return (self._source, self._items(())) if self._batched else None

    def _row(self, number: Any) -> Any:
        return map_leaves(lambda _, array: array[number], self._source, "element")

    # Sources ------------------------------------------------------------------------------------

    @staticmethod
    @checked
    def from_tensor_slices(tensors: Any) -> Dataset:
        """A dataset of the rows of a nest of arrays `[rows, ...]`, which are not copied.

        A list of numbers or texts is an array. Tensors are computed at once, by a session of their own.
        Raises InvalidArgumentError for a scalar, and for arrays with different numbers of rows.
        """
        arrays = source_arrays("from_tensor_slices", tensors)
        counts = {name: np.shape(array)[:1] for name, array in named_leaves(arrays, "tensors")}
        different = set(counts.values())
        if len(different) != 1 or () in different:
            got = ", ".join(f"{name} {list(shape)}" for name, shape in counts.items())
            raise InvalidArgumentError(
                f"from_tensor_slices: expected tensors to have the same number of rows, got {got or 'none'}"
            )
        (rows,) = different.pop()
        return Dataset(lambda key: iter(range(rows)), rows, arrays)

    @staticmethod
    @checked
    def from_tensors(tensors: Any) -> Dataset:
        """A dataset with one element, a nest of arrays or tensors, as `from_tensor_slices` takes them."""
        element = source_arrays("from_tensors", tensors)
        return Dataset(lambda key: iter([element]), 1, dims_of=_all_dims)

    @staticmethod
    @checked
    def from_generator(
        generator: Function, output_types: Any = None, output_shapes: Any = None, args: GivenItems = ()
    ) -> Dataset:
        """A dataset of what a function yields: nests of arrays, of one structure.

        The function is called with `args` for each iteration.
        output_types: nest of dtypes, to which values are converted; a list in place of a dtype is an array.
        output_shapes: nest of shapes of the same structure, with None for extents that differ.
        """
        dtypes = [] if output_types is None else dtypes_like(output_types, "from_generator")
        if output_shapes is not None and not dtypes:
            raise InvalidArgumentError("from_generator: expected output_types with output_shapes, got none")
        dims = None if output_shapes is None else dims_like(output_types, output_shapes, "from_generator")

        def dims_of(element: Any) -> list[list[int | None]]:
            ranks = _unknown_dims(element)
            return [own if given is None else given for given, own in zip(dims or ranks, ranks, strict=True)]

        def typed(value: Any) -> Any:
            if output_types is None:
                return _element(value)
            leaves = leaves_like(output_types, value, "element", "output_types")
            pairs = zip(leaves, dtypes, strict=True)
            return pack(output_types, iter([_typed(leaf, dtype) for (_, leaf), dtype in pairs]))

        dims_known = None if dims is None else dims_of
        return Dataset(lambda key: map(typed, generator(*args)), None, dims_of=dims_known)

    @staticmethod
    @checked
    def list_files(file_pattern: Any, shuffle: Flag = True, seed: Count | None = None) -> Dataset:
        """A dataset of the paths, as bytes, of the files that match a pattern as "logs/*.txt", or several.

        shuffle: in another order for each repetition; otherwise in that of the alphabet. seed: see `shuffle`.
        Raises NotFoundError if no file matches.
        """
        patterns = source_texts("list_files", "file_pattern", file_pattern)
        paths = sorted({os.fsencode(path) for each in patterns for path in glob.glob(os.fsdecode(each))})
        if not paths:
            raise NotFoundError(f"list_files: no file matches {', '.join(map(os.fsdecode, patterns))}")
        listed = Dataset(lambda key: iter(paths), len(paths))
        return listed.shuffle(len(paths), seed) if shuffle else listed

    @staticmethod
    @checked
    def range(count: Count) -> Dataset:
        """The numbers from 0 to count - 1, as int64 scalars."""
        if count > _MOST_NUMBERS:
            return Dataset(lambda key: map(np.int64, range(count)), count)
        return Dataset.from_tensor_slices(np.arange(count, dtype=np.int64))

    @staticmethod
    def zip(*datasets: Dataset) -> Dataset:
        """Tuples of the elements of several datasets, or a tuple of them, as many as the shortest has."""
        if len(datasets) == 1 and isinstance(datasets[0], tuple):
            datasets = datasets[0]
        if not datasets or not all(isinstance(each, Dataset) for each in datasets):
            raise refuse("zip", "datasets", "one or several tb.data.Dataset", datasets)
        lengths = [each._length for each in datasets]
        known = None if None in lengths else min(length for length in lengths if length is not None)

        def dims_of(element: Any) -> list[list[int | None]]:
            pairs = zip(datasets, element, strict=True)
            return [dims for dataset, part in pairs for dims in dataset._dims_of(part)]

        def items(key: Key) -> Iterator[Any]:
            return zip(*(each._elements(key) for each in datasets), strict=False)

        plain = all(each._dims_of is _dims_but_the_first for each in datasets)
        return Dataset(items, known, dims_of=None if plain else dims_of)

    # Transformations ----------------------------------------------------------------------------

    @checked
    def shuffle(
        self, buffer_size: Positive, seed: Count | None = None, reshuffle_each_iteration: Flag = True
    ) -> Dataset:
        """Elements in random order: each is drawn from the next `buffer_size` ones.

        A buffer as large as the dataset gives every order the same chance. Each repetition of a following
        `repeat` has another order, unless `reshuffle_each_iteration` is False.
        seed: without one, each call of `shuffle` in a process has an order of its own, the same in every
        process that makes the same calls: data sets that an `input_fn` makes for several replicas differ.
        """
        own = (seed,) if seed is not None else (next(_shuffles), _UNSEEDED)

        at_once = 1 if self._source is None else ROWS_AT_ONCE

        def items(key: Key) -> Iterator[Any]:
            draw = np.random.default_rng((*own, *(key if reshuffle_each_iteration else ())))
            upstream = self._items(key)
            buffer = list(itertools.islice(upstream, buffer_size))
            while drawn := list(itertools.islice(upstream, at_once)):
                numbers = draw.integers(len(buffer), size=len(drawn)).tolist()
                for item, number in zip(drawn, numbers, strict=True):
                    buffer[number], chosen = item, buffer[number]
                    yield chosen
            yield from (buffer[number] for number in draw.permutation(len(buffer)))

        return self._with(items, self._length)

    @checked
    def batch(self, batch_size: Positive, drop_remainder: Flag = False) -> Dataset:
        """Elements stacked, `batch_size` at a time; the last batch may be smaller, or is dropped."""
        of_rows = self._source is not None and not self._batched

        def batches(key: Key) -> Iterator[Any]:
            items = self._items(key) if of_rows else self._elements(key)
            while group := list(itertools.islice(items, batch_size)):
                if len(group) == batch_size or not drop_remainder:
                    yield np.array(group, np.int64) if of_rows else _stacked(group)

        length = self._batches(batch_size, drop_remainder)
        return Dataset(batches, length, self._source, True) if of_rows else Dataset(batches, length)

    @checked
    def padded_batch(
        self,
        batch_size: Positive,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: Flag = False,
    ) -> Dataset:
        """Elements of different shapes stacked, `batch_size` at a time, after padding at their ends.

            sentences.padded_batch(16, ([None], []), (-1, None))  # words [16, longest], labels [16]

        padded_shapes: a shape for each leaf of an element, in the same nest; None, or -1, is the largest
            extent of the batch. By default it is that of each axis. A step is compiled once for each shape
            of its inputs: with numbers here it is compiled once.
        padding_values: a scalar for each leaf, in the same nest, or one for all; None is 0, False, or "".
        drop_remainder: whether a smaller last batch is dropped.

        The iteration raises InvalidArgumentError for shapes and values that do not fit the elements, for
        elements of different rank, dtype or structure, and for elements larger than `padded_shapes`.
        """

        def batches(key: Key) -> Iterator[Any]:
            elements = self._elements(key)
            first = paddings = None
            while group := list(itertools.islice(elements, batch_size)):
                if paddings is None:
                    first = group[0]
                    paddings = paddings_of(first, padded_shapes, padding_values)
                if len(group) == batch_size or not drop_remainder:
                    yield padded(group, first, paddings)

        def dims_of(batch: Any) -> list[list[int | None]]:
            first = map_leaves(lambda _, leaf: leaf[0], batch, "element")
            return batch_dims(paddings_of(first, padded_shapes, padding_values), first)

        length = self._batches(batch_size, drop_remainder)
        return Dataset(batches, length, dims_of=None if are_fixed(padded_shapes) else dims_of)

    def _batches(self, batch_size: int, drop_remainder: bool) -> float | None:
        """Number of batches."""
        length = self._length
        if length is not None and length != np.inf:
            length = length // batch_size if drop_remainder else -(-length // batch_size)
        return length

    @checked
    def repeat(self, count: Count | None = None) -> Dataset:
        """The dataset `count` times, or without end."""

        def items(key: Key) -> Iterator[Any]:
            for number in itertools.count() if count is None else range(count):
                empty = True
                for item in self._items((*key, number)):
                    empty = False
                    yield item
                if empty:
                    return

        times = np.inf if count is None else count
        length = 0 if self._length == 0 else None if self._length is None else self._length * times
        return self._with(items, length)

    @checked
    def take(self, count: Count) -> Dataset:
        """The first `count` elements."""
        length = None if self._length is None else min(self._length, count)
        return self._with(lambda key: itertools.islice(self._items(key), count), length)

    @checked
    def skip(self, count: Count) -> Dataset:
        """All but the first `count` elements."""
        length = None if self._length is None else max(0, self._length - count)
        return self._with(lambda key: itertools.islice(self._items(key), count, None), length)

    @checked
    def shard(self, num_shards: Positive, index: Count) -> Dataset:
        """Every `num_shards`-th element, from number `index` on: the part of one replica or worker."""
        if index >= num_shards:
            raise refuse("shard", "index", f"a number from 0 to {num_shards - 1}", index)
        length = self._length
        if length is not None and length != np.inf:
            length = max(0, -(-(length - index) // num_shards))
        return self._with(lambda key: itertools.islice(self._items(key), index, None, num_shards), length)

    @checked
    def map(self, function: Function, num_parallel_calls: MapThreads | None = None) -> Dataset:
        """The result of a function for each element, in order.

        function: of arrays, or of tensors: then it is called with placeholders, once for elements of one
        shape, and its graph runs for each element. Its random ops draw other numbers for each element and
        each repetition, and the same ones in each iteration. It may use tensors of the default graph that
        depend on no placeholder, and its lookup tables, which are initialised for it.
        num_parallel_calls: threads that call it at the same time; by default the thread that iterates, with
        `tb.data.experimental.AUTOTUNE` as many as the machine has processors.
        """
        threads = os.cpu_count() or 1 if num_parallel_calls == AUTOTUNE else num_parallel_calls
        calls = ElementFunction(function)

        def items(key: Key) -> Iterator[Any]:
            call = calls.of_iteration(key)
            numbered = enumerate(self._elements(key))
            if threads is None:
                return (_element(call(each)) for each in numbered)
            return in_parallel(lambda each: _element(call(each)), numbered, threads)

        own = self._dims_of is _dims_but_the_first
        return Dataset(items, self._length, dims_of=None if own else _unknown_dims)

    @checked
    def filter(self, predicate: Function) -> Dataset:
        """The elements for which a function, of arrays or of tensors as in `map`, is true."""
        calls = ElementFunction(predicate)

        def items(key: Key) -> Iterator[Any]:
            call = calls.of_iteration(key)
            return (each for number, each in enumerate(self._elements(key)) if call((number, each)))

        return Dataset(items, None, dims_of=self._dims_of)

    @checked
    def interleave(
        self, function: Function, cycle_length: Positive = 2, block_length: Positive = 1
    ) -> Dataset:
        """Elements of the datasets that a function makes of each element, `block_length` from each in turn.

        cycle_length: datasets that take turns; one that has ended is replaced by the next.
        """

        def items(key: Key) -> Iterator[Any]:
            datasets = made_datasets(function, self._elements(key), Dataset, "interleave")
            made = map(iter, datasets)
            cycle = deque(itertools.islice(made, cycle_length))
            while cycle:
                current = cycle.popleft()
                block = list(itertools.islice(current, block_length))
                yield from block
                if len(block) == block_length:
                    cycle.append(current)
                else:
                    cycle.extend(itertools.islice(made, 1))

        return Dataset(items, None)

    @checked
    def flat_map(self, function: Function) -> Dataset:
        """Elements of the datasets that a function makes of each element, one dataset after the other."""

        def items(key: Key) -> Iterator[Any]:
            made = made_datasets(function, self._elements(key), Dataset, "flat_map")
            return itertools.chain.from_iterable(made)

        return Dataset(items, None)

    @checked
    def concatenate(self, dataset: Any) -> Dataset:
        """The elements of this dataset, then those of another one of the same structure."""
        if not isinstance(dataset, Dataset):
            raise refuse("concatenate", "dataset", "a tb.data.Dataset", dataset)
        lengths = self._length, dataset._length
        length = None if lengths[0] is None or lengths[1] is None else lengths[0] + lengths[1]
        plain = self._dims_of is dataset._dims_of is _dims_but_the_first
        return Dataset(
            lambda key: itertools.chain(self._elements(key), dataset._elements(key)),
            length,
            dims_of=None if plain else _unknown_dims,
        )

    @checked
    def apply(self, transformation_func: Function) -> Any:
        """The result of a function of this dataset, usually a further dataset."""
        return transformation_func(self)

    @checked
    def prefetch(self, buffer_size: PrefetchSize) -> Dataset:
        """The same elements, made by a thread up to `buffer_size` ahead of the iteration.

        None and AUTOTUNE mean 2; with 0 there is no thread.
        """
        count = 2 if buffer_size is None or buffer_size < 0 else buffer_size
        if not count:
            return self
        return Dataset(
            lambda key: made_ahead(self._elements(key), count), self._length, dims_of=self._dims_of
        )

    # In graphs ----------------------------------------------------------------------------------

    @property
    def output_types(self) -> Any:
        """The dtypes of an element, in its structure. Reads the first element."""
        return map_leaves(lambda _, leaf: dtype_of(leaf), self._first_element(), "element")

    @property
    def output_shapes(self) -> Any:
        """The shapes of an element, in its structure, as those of `get_next()`. Reads the first element."""
        first = self._first_element()
        return pack(first, iter([TensorShape(dims) for dims in self._dims_of(first)]))

    def _first_element(self) -> Any:
        for element in self:
            return element
        raise InvalidArgumentError(
            "Dataset: expected an element, which has dtypes and shapes, got an empty one"
        )

    def make_one_shot_iterator(self) -> DatasetIterator:
        """An iterator whose `get_next()` gives the tensors of the next element in each step of a session."""
        return DatasetIterator.of_dataset(self, self._dims_of, True)

    @checked
    def make_initializable_iterator(self, shared_name: Name = None) -> DatasetIterator:
        """The same; it starts, and starts again, when its operation `initializer` runs.

        shared_name: TensorFlow's; has no effect, since all sessions share an iterator.
        """
        return DatasetIterator.of_dataset(self, self._dims_of, False)


def _dims_but_the_first(element: Any) -> list[list[int | None]]:
    return [[None, *np.shape(leaf)[1:]][: np.ndim(leaf)] for leaf in flatten(element)]


def _unknown_dims(element: Any) -> list[list[int | None]]:
    return [[None] * np.ndim(leaf) for leaf in flatten(element)]


def _all_dims(element: Any) -> list[list[int | None]]:
    return [list(np.shape(leaf)) for leaf in flatten(element)]


def _element(value: Any) -> Any:
    """A nest of arrays, and of bytes in the place of scalar strings."""
    return map_leaves(lambda _, leaf: as_leaf(leaf), value, "element")


def _typed(value: Any, dtype: Any) -> Any:
    if dtype.is_string:
        array = string_array(value)
        return array if array.ndim else array.item()
    return np.asarray(as_leaf(value)).astype(dtype.as_numpy_dtype, copy=False)


def _stacked(group: list[Any]) -> Any:
    columns = [flatten_like(group[0], each, "batch: element") for each in group]
    try:
        stacks = [
            string_array(leaves) if type(leaves[0]) is bytes else np.stack(leaves)
            for leaves in map(list, zip(*columns, strict=True))
        ]
        return pack(group[0], iter(stacks))
    except ValueError as error:
        shapes = sorted({str([list(np.shape(leaf)) for leaf in column]) for column in columns})
        raise InvalidArgumentError(
            f"batch: expected elements of one shape, got {' and '.join(shapes[:3])}; padded_batch pads them"
        ) from error
