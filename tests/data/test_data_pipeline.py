"""Pipelines: what each transformation gives, against plain Python; orders, threads, and what is refused."""

from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.data import Dataset, pipeline
from tensorbow.errors import InvalidArgumentError


def numbers(dataset):
    return [int(each) for each in dataset]


def plain(count):
    """The same elements by rows of an array, and by a generator."""
    return Dataset.range(count), Dataset.from_generator(lambda: iter(range(count)))


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 12),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 14)),
            st.tuples(st.just("skip"), st.integers(0, 14)),
            st.tuples(st.just("repeat"), st.integers(0, 3)),
            st.tuples(st.just("shard"), st.integers(1, 4)),
            st.tuples(st.just("map"), st.integers(1, 3)),
            st.tuples(st.just("filter"), st.integers(2, 3)),
            st.tuples(st.just("shuffle"), st.integers(1, 9)),
        ),
        max_size=5,
    ),
)
def test_transformations_equal_those_of_lists(count, steps):
    for dataset in plain(count):
        expected = list(range(count))
        shuffled = False
        for name, argument in steps:
            if name == "take":
                dataset, expected = dataset.take(argument), expected[:argument]
            elif name == "skip":
                dataset, expected = dataset.skip(argument), expected[argument:]
            elif name == "repeat":
                dataset, expected = dataset.repeat(argument), expected * argument
            elif name == "shard":
                dataset, expected = dataset.shard(argument, argument - 1), expected[argument - 1 :: argument]
            elif name == "map":
                dataset = dataset.map(lambda x: x * 2 + 1, num_parallel_calls=argument)
                expected = [x * 2 + 1 for x in expected]
            elif name == "filter":
                dataset = dataset.filter(lambda x, by=argument: x % by == 0)
                expected = [x for x in expected if x % argument == 0]
            else:
                dataset, shuffled = dataset.shuffle(argument, seed=5), True
                break
        found = numbers(dataset)
        assert found == numbers(dataset)  # the same order each time
        assert (Counter(found) == Counter(expected)) if shuffled else (found == expected)
        if dataset._length is not None:
            assert len(dataset) == len(expected)


def test_batches_of_nests():
    x, y = np.arange(14.0).reshape(7, 2), np.arange(7)
    dataset = Dataset.from_tensor_slices({"x": x, "y": y})
    batches = list(dataset.batch(3))
    assert [batch["x"].shape for batch in batches] == [(3, 2), (3, 2), (1, 2)]
    np.testing.assert_array_equal(batches[1]["y"], [3, 4, 5])
    assert len(list(dataset.batch(3, drop_remainder=True))) == len(dataset.batch(3, drop_remainder=True)) == 2
    made = dataset.map(lambda nest: (nest["x"] * 2, nest["y"])).batch(2)
    first = next(iter(made))
    assert isinstance(first, tuple)
    np.testing.assert_array_equal(first[0], 2 * x[:2])
    nested = next(iter(dataset.batch(2).batch(2)))
    assert nested["x"].shape == (2, 2, 2)


def test_shuffling():
    dataset = Dataset.range(100)
    whole = dataset.shuffle(100, seed=3)
    assert sorted(numbers(whole)) == list(range(100))
    assert numbers(whole) != list(range(100))
    assert numbers(whole) != numbers(dataset.shuffle(100, seed=4))
    epochs = np.array(numbers(whole.repeat(3))).reshape(3, 100)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    same = np.array(numbers(dataset.shuffle(100, 3, reshuffle_each_iteration=False).repeat(2))).reshape(
        2, 100
    )
    np.testing.assert_array_equal(*same)
    near = numbers(dataset.shuffle(5, seed=1))
    assert all(value <= place + 4 for place, value in enumerate(near))
    places = Counter(numbers(dataset.shuffle(100, seed=seed)).index(0) // 25 for seed in range(400))
    assert min(places.values()) > 60  # of 100: every quarter is as likely


def test_orders_without_a_seed_depend_on_the_calls_before(monkeypatch):
    found = []
    for _ in range(2):
        monkeypatch.setattr(pipeline, "_shuffles", itertools.count())  # as in a new process
        found.append([numbers(Dataset.range(20).shuffle(20)) for _ in range(2)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_repeat_without_end_and_of_nothing():
    assert numbers(Dataset.range(3).repeat().take(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert numbers(Dataset.range(0).repeat()) == []
    with pytest.raises(TypeError, match="infinite"):
        len(Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(Dataset.range(3).filter(lambda x: True))


def test_interleaving():
    dataset = Dataset.range(4).interleave(lambda n: Dataset.range(3).map(lambda x: 10 * n + x), 2, 2)
    assert numbers(dataset) == [0, 1, 10, 11, 2, 12, 20, 21, 30, 31, 22, 32]
    with pytest.raises(InvalidArgumentError, match=r"to give a tb\.data\.Dataset, got int"):
        list(Dataset.range(2).interleave(lambda n: 3))


def test_zip_and_arguments_of_functions():
    pairs = Dataset.zip(Dataset.range(3), Dataset.range(5).skip(1))
    assert [tuple(map(int, pair)) for pair in pairs] == [(0, 1), (1, 2), (2, 3)]
    assert numbers(pairs.map(lambda x, y: x * y)) == [0, 2, 6]
    assert [int(x) for x, _ in pairs.filter(lambda x, y: y != 2)] == [0, 2]


def test_threads_that_map_keep_the_order_and_tell_of_errors():
    barrier = threading.Barrier(3)

    def slow(x):
        barrier.wait(20)  # three at a time
        return x

    assert numbers(Dataset.range(9).map(slow, num_parallel_calls=3)) == list(range(9))

    def fails(x):
        if x == 4:
            raise ValueError("four")
        return x

    for parallel in (None, 2):
        elements = iter(Dataset.range(9).map(fails, parallel))
        found = [int(next(elements)) for _ in range(4)]
        assert found == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="four"):
            next(elements)


def test_prefetching():
    made = []

    def generator():
        for number in range(50):
            made.append(number)
            yield number

    dataset = Dataset.from_generator(generator).prefetch(3)
    iterator = iter(dataset)
    assert int(next(iterator)) == 0
    assert [int(each) for each in itertools.islice(iterator, 5)] == [1, 2, 3, 4, 5]
    iterator.close()
    assert len(made) <= 10
    del iterator
    gc.collect()
    assert not [each for each in threading.enumerate() if each.name == "tensorbow prefetch"]
    assert numbers(Dataset.from_generator(generator).prefetch(2)) == list(range(50))

    def broken():
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(Dataset.from_generator(broken).prefetch(1))


def test_what_is_refused():
    with pytest.raises(
        InvalidArgumentError, match=r"same number of rows, got tensors\['a'\] \[2\], .* \[3\]"
    ):
        Dataset.from_tensor_slices({"a": np.zeros(2), "b": np.zeros((3, 4))})
    with pytest.raises(InvalidArgumentError, match="same number of rows"):
        Dataset.from_tensor_slices(3.0)
    with pytest.raises(InvalidArgumentError, match=r"shard.*index.*from 0 to 1"):
        Dataset.range(3).shard(2, 2)
    uneven = Dataset.from_generator(lambda: iter([np.zeros(2), np.zeros(3)]))
    with pytest.raises(
        InvalidArgumentError, match=r"one shape, got \[\[2\]\] and \[\[3\]\]; padded_batch pads them"
    ):
        list(uneven.batch(2))
    with pytest.raises(InvalidArgumentError, match="batch: element: expected an array as in the first"):
        list(Dataset.from_generator(lambda: iter([1, (1, 2)])).batch(2))
    with pytest.raises(InvalidArgumentError, match=r"zip.*datasets"):
        Dataset.zip(Dataset.range(2), [1, 2])


@pytest.mark.parametrize("replication", [tb.PER_REPLICA, tb.PER_WORKER])
def test_as_the_input_of_a_replicator(replication):
    x = np.arange(16, dtype=np.float32).reshape(16, 1)
    dataset = Dataset.from_tensor_slices(x)

    def input_fn(context):
        if replication == tb.PER_WORKER:
            return dataset.batch(4)
        return dataset.shard(2, context.replica_id).batch(2)

    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2) as replicator:
        found = [value[..., 0] for value in replicator.train(lambda rows: rows, input_fn, None, replication)]
    order = np.arange(16).reshape(4, 2, 2)
    expected = order if replication == tb.PER_WORKER else order.swapaxes(1, 2)
    np.testing.assert_array_equal(found, expected)


def sentences(*lengths):
    """(words 1, 2, 3, ..., the length of the sentence)."""
    return Dataset.from_generator(
        lambda: iter([(np.arange(1, n + 1, dtype=np.int32), np.int64(n)) for n in lengths])
    )


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), max_size=9),
    size=st.integers(1, 4),
    drop=st.booleans(),
    fixed=st.sampled_from([None, 6, 8]),
)
def test_padded_batches_hold_the_elements_and_the_value(lengths, size, drop, fixed):
    dataset = sentences(*lengths).padded_batch(size, ([fixed], []), (-1, None), drop_remainder=drop)
    batches = list(dataset)
    kept = lengths[: len(lengths) - len(lengths) % size] if drop else lengths
    assert [length for _, numbers in batches for length in numbers.tolist()] == kept
    for words, numbers in batches:
        assert words.dtype == np.int32
        assert words.shape == (len(numbers), fixed or (numbers.max() if fixed is None else fixed))
        for row, length in zip(words.tolist(), numbers.tolist(), strict=True):
            assert row == [*range(1, length + 1)] + [-1] * (len(row) - length)
    shuffled = sentences(*lengths).shuffle(9, seed=1).padded_batch(size).repeat(2)
    assert sorted(n for _, numbers in shuffled for n in numbers.tolist()) == sorted([*lengths, *lengths])


def test_padded_batches_of_nests_axes_and_texts():
    """Each axis is padded by itself; the number of batches is known where that of elements is."""
    made = [
        {"grid": np.ones((rows, cols), np.float32), "name": np.array(name)}
        for rows, cols, name in [(2, 1, "ab"), (1, 3, "abc")]
    ]
    (batch,) = Dataset.from_generator(lambda: iter(made)).padded_batch(2)
    assert batch["grid"].tolist() == [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [0, 0, 0]]]
    assert batch["name"].tolist() == ["ab", "abc"]
    shapes = {"grid": (-1, 4), "name": ()}
    values = {"grid": 0.5, "name": None}
    (batch,) = Dataset.from_generator(lambda: iter(made)).padded_batch(2, shapes, values)
    assert batch["grid"].shape == (2, 2, 4)
    assert batch["grid"][0].tolist() == [[1, 0.5, 0.5, 0.5]] * 2
    texts = Dataset.from_generator(lambda: iter([np.array([b"a"]), np.array([b"bc", b"d"])]))
    assert next(iter(texts.padded_batch(2, padding_values="-"))).tolist() == [[b"a", b"-"], [b"bc", b"d"]]
    flags = Dataset.from_generator(lambda: iter([np.ones(1, bool), np.ones(2, bool)]))
    assert next(iter(flags.padded_batch(2))).tolist() == [[True, False], [True, True]]
    assert len(Dataset.range(7).padded_batch(3)) == 3
    assert len(Dataset.range(7).padded_batch(3, [], drop_remainder=True)) == 2


@pytest.mark.parametrize(
    ("shapes", "values", "message"),
    [
        (
            ([2], []),
            None,
            r"padded_shapes: expected element\[0\] to have at most \[2\], got \[3\]; give larger",
        ),
        (([None, 2], []), None, r"padded_shapes: expected 1 extents for element\[0\] \[1\], got \[None, 2\]"),
        ([None], None, r"expected padded_shapes to be 2 parts, as the elements have"),
        ((["x"], []), None, r"expected padded_shapes to be a shape for element\[0\], as \[None, 3\]"),
        (None, (0.5, None), r"expected padding_values to be a scalar int32 for element\[0\]"),
        (None, (1 << 40, None), r"expected padding_values to be a scalar int32 for element\[0\]"),
        (None, {"x": 1}, r"expected padding_values to be 2 parts"),
    ],
)
def test_paddings_that_do_not_fit_are_refused(shapes, values, message):
    with pytest.raises(InvalidArgumentError, match=message):
        list(sentences(1, 3).padded_batch(2, shapes, values))


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([np.ones(2), np.ones((1, 2))], "one rank, got element of 1 and 2 axes"),
        ([np.ones(2, np.float32), np.ones(2)], "one dtype, got element float32 and float64"),
        ([(1, 2), 3], "padded_batch: element: expected a tuple of 2 as in the first one"),
    ],
)
def test_elements_that_no_padding_joins_are_refused(elements, message):
    with pytest.raises(InvalidArgumentError, match=message):
        list(Dataset.from_generator(lambda: iter(elements)).padded_batch(2))


def test_dictionaries_may_have_their_keys_in_another_order():
    def rows():
        yield {"a": [1.0], "b": [3.0]}
        yield {"b": [4.0], "a": [2.0]}

    arrays = Dataset.from_generator(rows, {"a": tb.float32, "b": tb.float32})
    plain = Dataset.from_generator(lambda: ({key: np.array(each[key]) for key in each} for each in rows()))
    for dataset in (arrays, plain):
        for batch in (next(iter(dataset.batch(2))), next(iter(dataset.padded_batch(2)))):
            assert {key: value.tolist() for key, value in batch.items()} == {"a": [[1], [2]], "b": [[3], [4]]}
        assert [float(each) for each in dataset.map(lambda row: tb.subtract(row["b"], row["a"])[0])] == [2, 2]
    with tb.Graph().as_default(), tb.Session() as session:
        ready = plain.make_one_shot_iterator().get_next()
        assert [session.run(ready["a"]).tolist() for _ in "ab"] == [[1], [2]]


def test_iterators_in_graphs_know_which_extents_padding_changes():
    ready = sentences(1, 2, 3).padded_batch(2)
    for data, dims in [
        (ready.prefetch(1), [[None, None], [None]]),
        (ready.map(lambda words, number: words + 1), [[None, None]]),
        (Dataset.zip(ready, Dataset.range(2)), [[None, None], [None], []]),
        (sentences(1, 2).padded_batch(1, ([3], [])), [[None, 3], [None]]),
        (sentences(1, 2).padded_batch(1, ([3], [])).map(lambda words, n: words * 2), [[None, 3]]),
        (Dataset.zip(Dataset.range(4).batch(2), Dataset.range(2)).map(lambda a, b: a + b), [[None]]),
    ]:
        with tb.Graph().as_default(), tb.Session() as session:
            element = data.make_one_shot_iterator().get_next()
            assert [leaf.shape.as_list() for leaf in pipeline.flatten(element)] == dims
            first, second = (session.run(element) for _ in range(2))
            assert len(pipeline.flatten(first)) == len(pipeline.flatten(second)) == len(dims)
