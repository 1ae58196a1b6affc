"""Lookup tables: numbers of words, buckets for others, files, sessions, tables that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

pytestmark = pytest.mark.usefixtures("session")

WORDS = ["emerson", "lake", "palmer"]


def test_numbers_of_words_and_words_of_numbers(session: tb.Session) -> None:
    table = tb.lookup.index_table_from_tensor(WORDS, default_value=-7)
    back = tb.lookup.index_to_string_table_from_tensor(tb.constant(WORDS))
    words = tb.placeholder(tb.string, [None, 2])
    numbers = table.lookup(words)
    assert (numbers.dtype, numbers.shape, table.key_dtype) == (tb.int64, [None, 2], tb.string)
    given = {words: [["lake", "emerson"], ["and", "palmer"]]}
    with pytest.raises(FailedPreconditionError, match=r"hash_table' has no values yet; run tb\.tables_ini"):
        session.run(numbers, given)
    session.run(tb.tables_initializer())
    assert session.run([numbers, table.size()], given)[0].tolist() == [[1, 0], [-7, 2]]
    assert session.run(table.size()) == 3
    assert session.run(back.lookup(numbers), given).tolist() == [[b"lake", b"emerson"], [b"UNK", b"palmer"]]
    assert session.run(table.lookup("lake")) == 1
    session.run(tb.initialize_all_tables())  # again: nothing changes
    assert [column.tolist() for column in session.run(table.export())] == [
        [b"emerson", b"lake", b"palmer"],
        [0, 1, 2],
    ]
    with tb.Session() as other, pytest.raises(FailedPreconditionError):
        other.run(numbers, given)


@pytest.mark.parametrize("strong", [False, True])
def test_other_words_have_buckets_by_their_hashes(session: tb.Session, strong: bool) -> None:
    hasher = tb.lookup.StrongHashSpec([3, 4]) if strong else tb.lookup.FastHashSpec
    table = tb.lookup.index_table_from_tensor(WORDS, 5, hasher_spec=hasher)
    words = ["lake", "and", "", "emerson", "Lake"]
    hashed = (
        tb.string_to_hash_bucket_strong(words, 5, [3, 4])
        if strong
        else tb.string_to_hash_bucket_fast(words, 5)
    )
    session.run(tb.tables_initializer())
    numbers, buckets, size = session.run([table.lookup(words), hashed, table.size()])
    known = {0: 1, 3: 0}
    assert numbers.tolist() == [known.get(i, 3 + buckets[i]) for i in range(5)]
    assert size == 8
    alone = tb.lookup.IdTableWithHashBuckets(None, 5, hasher)
    assert session.run([alone.lookup(words), alone.size()])[0].tolist() == buckets.tolist()


def test_keys_that_are_numbers(session: tb.Session) -> None:
    table = tb.lookup.index_table_from_tensor([10, -3, 7], 2, dtype=tb.int32)
    initializer = tb.lookup.KeyValueTensorInitializer([1, 2], [0.5, 0.25], tb.int64, tb.float32)
    weights = tb.lookup.HashTable(initializer, -1.0)
    keys = tb.constant([7, 8, 10], tb.int32)
    session.run(tb.tables_initializer())
    numbers, bucket = session.run([table.lookup(keys), tb.string_to_hash_bucket_fast(["8"], 2)])
    assert numbers.tolist() == [2, 3 + bucket[0], 0]
    found = weights.lookup(tb.constant([2, 9, 1], tb.int64))
    assert (found.dtype, session.run(found).tolist()) == (tb.float32, [0.25, -1.0, 0.5])
    with pytest.raises(InvalidArgumentError, match="expected keys of int64, got string"):
        weights.lookup(["1"])
    with pytest.raises(InvalidArgumentError, match="or whole numbers, got float32"):
        tb.lookup.HashTable(tb.lookup.KeyValueTensorInitializer([1.0], [1]), 0)


def test_vocabularies_in_files(session: tb.Session, tmp_path: Path) -> None:
    path, columns, numbers = tmp_path / "words.txt", tmp_path / "columns.csv", tmp_path / "numbers.txt"
    path.write_bytes("\n".join([*WORDS, "größe"]).encode() + b"\n")
    columns.write_text("a,10\nb,20\nc,30\n")
    numbers.write_text("11\n22\n33\n")
    table = tb.lookup.index_table_from_file(str(path), num_oov_buckets=1)
    short = tb.lookup.index_table_from_file(str(path), vocab_size=2)
    back = tb.lookup.index_to_string_table_from_file(str(path), default_value="?")
    of_columns = tb.lookup.index_table_from_file(
        str(columns), key_column_index=0, value_column_index=1, delimiter=","
    )
    of_numbers = tb.lookup.index_table_from_file(str(numbers), key_dtype=tb.int64)
    session.run(tb.tables_initializer())
    assert session.run(table.lookup(["palmer", "größe", "x"])).tolist() == [2, 3, 4]
    assert session.run([short.lookup(WORDS), short.size()])[0].tolist() == [0, 1, -1]
    assert session.run(back.lookup(tb.constant([3, 0, 9], tb.int64))).tolist() == [
        "größe".encode(),
        b"emerson",
        b"?",
    ]
    assert session.run(of_columns.lookup(["c", "a"])).tolist() == [30, 10]
    assert session.run(of_numbers.lookup(tb.constant([33, 5], tb.int64))).tolist() == [2, -1]


def test_files_that_do_not_fit(session: tb.Session, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("one 1\ntwo\n")

    def message(**options: Any) -> tuple[type[Exception], str]:
        arguments: dict[str, Any] = {"vocabulary_file": str(path), "delimiter": " ", **options}
        table: Any = tb.lookup.index_table_from_file(**arguments)
        try:
            session.run(table.initializer)
        except tb.errors.TensorBowError as error:
            return type(error), str(error)
        raise AssertionError("no error")

    assert message(vocabulary_file=str(path) + "x")[0] is NotFoundError
    kind, text = message(vocab_size=3)
    assert (kind, "expected 3 lines, as vocab_size says, got 2" in text) == (InvalidArgumentError, True)
    assert "line 2 has 1 columns, expected one of index 1" in message(key_column_index=1)[1]
    assert "line 1 has 'one', expected int64" in message(value_column_index=0)[1]
    path.write_text("a\nb\na\n")
    kind, text = message()
    assert (kind, "key 'a' has the values 0 and 2" in text) == (FailedPreconditionError, True)
    with pytest.raises(InvalidArgumentError, match="with value_index=-1 expected value_dtype to be int64"):
        tb.lookup.TextFileInitializer("x", tb.string, -2, tb.float32, -1)


def test_sparse_tensors_and_embeddings(session: tb.Session) -> None:
    table = tb.lookup.index_table_from_tensor(WORDS, 1)
    words = tb.string_split(["lake palmer", "", "and"])
    numbers = table.lookup(words)
    rows = tb.Variable(np.eye(4, dtype=np.float32))
    sums = tb.nn.embedding_lookup_sparse(rows, numbers, None, combiner="sum")
    session.run([tb.tables_initializer(), tb.global_variables_initializer()])
    assert session.run(tb.sparse_tensor_to_dense(numbers, -1)).tolist() == [[1, 2], [-1, -1], [3, -1]]
    assert session.run(sums).tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_tables_that_change(session: tb.Session) -> None:
    table = tb.lookup.MutableHashTable(tb.string, tb.int64, default_value=-1)
    keys, values = tb.placeholder(tb.string, [None]), tb.placeholder(tb.int64, [None])
    insert, remove, look = table.insert(keys, values), table.remove(keys), table.lookup(keys)
    assert session.run(table.size()) == 0
    session.run(insert, {keys: ["a", "b", "a"], values: [1, 2, 3]})
    assert session.run(look, {keys: ["a", "b", "c"]}).tolist() == [3, 2, -1]
    session.run(remove, {keys: ["b", "c"]})
    assert [each.tolist() for each in session.run(table.export())] == [[b"a"], [3]]
    with pytest.raises(InvalidArgumentError, match=r"insert: keys are string\[2\], values int64\[3\]"):
        table.insert(["a", "b"], [1, 2, 3])


def test_sessions_share_a_table_of_one_name() -> None:
    table = tb.lookup.MutableHashTable(tb.string, tb.string, "none", shared_name="of the process")
    with tb.Session() as one, tb.Session() as other:
        one.run(table.insert(["key"], ["value"]))
        assert other.run(table.lookup(["key", "x"])).tolist() == [b"value", b"none"]
    tb.Session.reset()


@pytest.mark.parametrize("target", ["", "tensorbow"])
def test_monitored_sessions_initialise_tables(target: str) -> None:
    table = tb.lookup.StaticVocabularyTable(
        tb.lookup.KeyValueTensorInitializer(WORDS, np.arange(3), value_dtype=tb.int64), 1
    )
    numbers = table.lookup(["lake", "x"])
    for make in (tb.train.MonitoredSession, tb.train.MonitoredTrainingSession):
        with make(target=target) as session:
            assert session.run(numbers).tolist() == [1, 3]


def test_a_classifier_of_words_learns_beside_replicas() -> None:
    """Words come in as text; the lookup is part of the training step of two replicas."""
    words, labels = tb.placeholder(tb.string, [None]), tb.placeholder(tb.float32, [None])
    table = tb.lookup.index_table_from_tensor(WORDS, 2)
    weights = tb.get_variable("weights", [5], initializer=tb.zeros_initializer())
    loss = tb.reduce_mean(tb.square(tb.gather(weights, table.lookup(words)) - labels))
    update = tb.train.GradientDescentOptimizer(0.4).minimize(loss)
    feeds = {words: ["lake", "palmer", "lake", "palmer"], labels: [1.0, -1.0, 1.0, -1.0]}
    with tb.train.MonitoredSession(target="tensorbow", replicas_per_device=2) as session:
        for _ in range(20):
            session.run(update, feeds)
        np.testing.assert_allclose(session.run(weights)[:3], [0, 1, -1], atol=0.05)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.lookup.HashTable(3, -1), "expected initializer to be a table initializer"),
        (lambda: tb.lookup.index_table_from_tensor(WORDS, -1), "expected num_oov_buckets to be"),
        (
            lambda: tb.lookup.index_table_from_tensor(WORDS, 1, -1, 7),
            "hasher_spec to be tb.lookup.Fast",
        ),
        (lambda: tb.lookup.IdTableWithHashBuckets(None, 0), "num_oov_buckets of at least 1 without a table"),
        (
            lambda: tb.lookup.KeyValueTensorInitializer(["a"], [[1]]).initialize(
                tb.lookup.index_table_from_tensor(WORDS)
            ),
            "keys are string.*expected one shape",
        ),
    ],
)
def test_wrong_arguments_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        make()


def test_a_key_with_a_value_that_is_no_number(session: tb.Session) -> None:
    pairs = tb.lookup.KeyValueTensorInitializer(["a"], [float("nan")], value_dtype=tb.float32)
    table = tb.lookup.HashTable(pairs, -1.0)
    session.run(tb.tables_initializer())
    assert np.isnan(session.run(table.lookup(tb.constant(["a"])))).all()


def test_keys_of_more_bits_are_refused() -> None:
    pairs = tb.lookup.KeyValueTensorInitializer([1, 2], [10, 20], key_dtype=tb.int32)
    table = tb.lookup.HashTable(pairs, -1)
    with pytest.raises(InvalidArgumentError, match="int64"):
        table.lookup(tb.constant([2**32 + 1], tb.int64))
