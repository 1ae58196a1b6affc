"""A good call of each function of feature columns, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorbow as tb
from tests.arguments.public_calls import Call

fc: Any = tb.feature_column
WHOLE = {
    **dict.fromkeys(("feature_columns", "features"), "object"),
    **{
        "weight_collections": "list of texts",
        "trainable": "flag",
        "units": "count",
        "sparse_combiner": "choice",
    },
    **dict.fromkeys(("cols_to_vars", "cols_to_output_tensors"), "mapping"),
}
MAPS = dict.fromkeys(("cols_to_vars", "cols_to_output_tensors"), frozenset({"none"}))
EMPTY = {"weight_collections": frozenset({"empty list", "empty tuple"})}
EMBEDDING = {
    **{"dimension": "count", "combiner": "choice", "initializer": "anything", "trainable": "flag"},
    **{"max_norm": "positive or none", "shared_embedding_collection_name": "name"},
    **dict.fromkeys(("categorical_column", "categorical_columns"), "object"),
}
KEYED = {
    **{"key": "text", "num_buckets": "count", "hash_bucket_size": "count", "num_oov_buckets": "count"},
    **{
        "dtype": "dtype",
        "vocabulary_size": "nothing",
        "vocabulary_list": "object",
        "vocabulary_file": "object",
    },
    **{"keys": "object", "hash_key": "count or none", "weight_feature_key": "text"},
    **{"categorical_column": "object", "default_value": "nothing"},
}


def number() -> Any:
    return fc.numeric_column("x")


def category() -> Any:
    return fc.categorical_column_with_identity("n", 3)


def features() -> dict[str, Any]:
    return {"x": [1.0], "n": [1]}


CALLS: Mapping[str, Call] = {
    "feature_column.numeric_column": Call(
        lambda: {"key": "x"},
        {**KEYED, "shape": "count", "default_value": "number or none", "normalizer_fn": "function or none"},
        {
            "default_value": frozenset({"nan", "nan array", "array", "2**70"}),
            "shape": frozenset({"empty list"}),
        },
    ),
    "feature_column.bucketized_column": Call(
        lambda: {"source_column": number(), "boundaries": [1.0, 2.0]},
        {"source_column": "object", "boundaries": "numbers"},
        names=("numeric_column",),
    ),
    "feature_column.categorical_column_with_identity": Call(lambda: {"key": "n", "num_buckets": 3}, KEYED),
    "feature_column.categorical_column_with_hash_bucket": Call(
        lambda: {"key": "n", "hash_bucket_size": 3}, KEYED, names=("column",)
    ),
    "feature_column.categorical_column_with_vocabulary_list": Call(
        lambda: {"key": "n", "vocabulary_list": ["a"]},
        {**KEYED, "dtype": "dtype or none"},
        {"default_value": frozenset({"-1", "2**40"}), "vocabulary_list": frozenset({"generator"})},
        names=("column",),
    ),
    "feature_column.categorical_column_with_vocabulary_file": Call(
        lambda: {"key": "n", "vocabulary_file": "words", "vocabulary_size": 2},
        KEYED,
        {
            "default_value": frozenset({"-1", "2**40"}),
            "vocabulary_size": frozenset({"2**40"}),
            "vocabulary_file": frozenset({"text", "path", "empty text", "str subclass"}),
        },
        names=("column", "vocabulary_file"),
    ),
    "feature_column.crossed_column": Call(lambda: {"keys": ["a", "b"], "hash_bucket_size": 3}, KEYED),
    "feature_column.weighted_categorical_column": Call(
        lambda: {"categorical_column": category(), "weight_feature_key": "w"}, KEYED, names=("VarLenFeature",)
    ),
    "feature_column.indicator_column": Call(
        lambda: {"categorical_column": category()}, {"categorical_column": "object"}
    ),
    "feature_column.embedding_column": Call(
        lambda: {"categorical_column": category(), "dimension": 2},
        EMBEDDING,
    ),
    "feature_column.shared_embedding_columns": Call(
        lambda: {"categorical_columns": [category()], "dimension": 2}, EMBEDDING
    ),
    "feature_column.input_layer": Call(
        lambda: {"features": features(), "feature_columns": number()}, WHOLE, {**MAPS, **EMPTY}
    ),
    "feature_column.linear_model": Call(
        lambda: {"features": features(), "feature_columns": [number(), category()]}, WHOLE, {**MAPS, **EMPTY}
    ),
    "feature_column.make_parse_example_spec": Call(
        lambda: {"feature_columns": [number()]}, {"feature_columns": "object"}
    ),
    "sparse.cross": Call(lambda: {"inputs": [[["a"]]]}, {"inputs": "object"}, names=("sparse_cross",)),
    "sparse.cross_hashed": Call(
        lambda: {"inputs": [[["a"]]]},
        {"inputs": "object", "num_buckets": "count", "hash_key": "count or none"},
        names=("sparse_cross_hashed",),
    ),
}
