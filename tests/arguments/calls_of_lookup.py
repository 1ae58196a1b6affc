"""A good call of each lookup table, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

WORDS = ["a", "b"]
TEXTS = frozenset({"text", "bytes", "empty text", "str subclass"})
TABLE = {
    "num_oov_buckets": "count",
    "hasher_spec": "object",
    "default_value": "seed",
    **{"dtype": "dtype", "key_dtype": "dtype", "mapping": "strings", "vocabulary_file": "strings"},
    **{"vocab_size": "count or none", "delimiter": "text"},
    **dict.fromkeys(("key_column_index", "value_column_index", "key_index", "value_index"), "count"),
    **{"filename": "strings", "value_dtype": "dtype"},
}
OF_TABLE = ("HashTable", "TextFileInitializer", "KeyValueTensorInitializer", "constant", "cast", "range")


def initializer() -> Any:
    return tb.lookup.KeyValueTensorInitializer(WORDS, np.arange(2))


def table() -> Any:
    return tb.lookup.HashTable(initializer(), -1)


def changing() -> Any:
    return tb.lookup.MutableHashTable(tb.string, tb.int64, -1)


CALLS: Mapping[str, Call] = {
    "initialize_all_tables": Call(),
    "lookup.tables_initializer": Call(),
    "lookup.KeyValueTensorInitializer": Call(
        lambda: {"keys": WORDS, "values": [1, 2]},
        {"keys": "tensor", "values": "tensor", "key_dtype": "nothing", "value_dtype": "nothing"},
        {"keys": TEXTS, "values": TEXTS},
        names=OF_TABLE,
    ),
    "lookup.TextFileInitializer": Call(
        lambda: {
            **{"filename": "a", "key_dtype": tb.string, "key_index": 0},
            **{"value_dtype": tb.int64, "value_index": 1},
        },
        TABLE,
        dict.fromkeys(("key_index", "value_index"), frozenset({"-1"})),
    ),
    "lookup.HashTable": Call(
        lambda: {"initializer": initializer(), "default_value": -1},
        {"initializer": "object", "default_value": "value", "shared_name": "name"},
        names=("constant",),
    ),
    "lookup.MutableHashTable": Call(
        lambda: {"key_dtype": tb.string, "value_dtype": tb.int64, "default_value": -1},
        {**TABLE, "default_value": "value", "shared_name": "name"},
        names=("constant",),
    ),
    "lookup.IdTableWithHashBuckets": Call(
        lambda: {"table": table(), "num_oov_buckets": 2},
        {**TABLE, "table": "nothing", "key_dtype": "dtype or none"},
    ),
    "lookup.StaticVocabularyTable": Call(
        lambda: {"initializer": initializer(), "num_oov_buckets": 2},
        {**TABLE, "initializer": "object", "lookup_key_dtype": "dtype or none"},
    ),
    "lookup.StrongHashSpec": Call(lambda: {"key": [1, 2]}, {"key": "elements"}),
    "lookup.index_table_from_tensor": Call(lambda: {"mapping": WORDS}, TABLE, names=OF_TABLE),
    "lookup.index_table_from_file": Call(
        lambda: {"vocabulary_file": "a"},
        TABLE,
        dict.fromkeys(("key_column_index", "value_column_index"), frozenset({"-1"})),
        names=OF_TABLE,
    ),
    "lookup.index_to_string_table_from_tensor": Call(
        lambda: {"mapping": WORDS}, {**TABLE, "default_value": "text"}, names=OF_TABLE
    ),
    "lookup.index_to_string_table_from_file": Call(
        lambda: {"vocabulary_file": "a"},
        {**TABLE, "default_value": "text"},
        dict.fromkeys(("key_column_index", "value_column_index"), frozenset({"-1"})),
        names=OF_TABLE,
    ),
    "_HandledTable.lookup": Call(
        lambda: {"keys": WORDS}, {"keys": "strings"}, target=lambda: table().lookup, names=OF_TABLE
    ),
    "_HandledTable.size": Call(target=lambda: table().size),
    "HashTable.export": Call(target=lambda: table().export),
    "IdTableWithHashBuckets.lookup": Call(
        lambda: {"keys": WORDS},
        {"keys": "strings"},
        target=lambda: tb.lookup.IdTableWithHashBuckets(table(), 2).lookup,
        names=OF_TABLE,
    ),
    "IdTableWithHashBuckets.size": Call(target=lambda: tb.lookup.IdTableWithHashBuckets(table(), 2).size),
    "MutableHashTable.insert": Call(
        lambda: {"keys": WORDS, "values": [1, 2]},
        {"keys": "strings", "values": "value"},
        target=lambda: changing().insert,
        names=("LookupTableInsert", "constant", "lookup"),
    ),
    "MutableHashTable.remove": Call(
        lambda: {"keys": WORDS}, {"keys": "strings"}, target=lambda: changing().remove, names=("lookup",)
    ),
}
