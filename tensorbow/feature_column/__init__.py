"""`tb.feature_column`: columns of tables as inputs of layers, under TensorFlow 1's names.

A column says how a feature of `features`, a dictionary of tensors `[batch, n]` or `[batch]` or of sparse
tensors, becomes numbers: `input_layer` joins them, `linear_model` weights them. Dense features keep every
shape known, so that steps of replicas take them; the empty text, or -1, is a missing feature.
"""

from tensorbow.feature_column.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from tensorbow.feature_column.combinations import crossed_column, weighted_categorical_column
from tensorbow.feature_column.embeddings import embedding_column, indicator_column, shared_embedding_columns
from tensorbow.feature_column.numeric import bucketized_column, numeric_column
from tensorbow.feature_column.whole_inputs import input_layer, linear_model, make_parse_example_spec

__all__ = [
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "embedding_column",
    "indicator_column",
    "input_layer",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "shared_embedding_columns",
    "weighted_categorical_column",
]
