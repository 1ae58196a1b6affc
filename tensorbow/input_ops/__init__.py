"""Input ops: files, records, readers, decoding; host functions of the dynamic mode, after TensorFlow 1's."""

from tensorbow.input_ops.csv_ops import decode_csv
from tensorbow.input_ops.decoding import (
    decode_compressed,
    decode_idx,
    decode_raw,
    make_ndarray,
    make_tensor_proto,
    parse_tensor,
    serialize_tensor,
)
from tensorbow.input_ops.example_features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
)
from tensorbow.input_ops.example_parsing import (
    parse_example,
    parse_single_example,
    parse_single_sequence_example,
)
from tensorbow.input_ops.file_ops import matching_files, read_file, write_file
from tensorbow.input_ops.sparse_strings import (
    deserialize_many_sparse,
    serialize_many_sparse,
    serialize_sparse,
)

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "SparseFeature",
    "VarLenFeature",
    "decode_compressed",
    "decode_csv",
    "decode_idx",
    "decode_raw",
    "deserialize_many_sparse",
    "make_ndarray",
    "make_tensor_proto",
    "matching_files",
    "parse_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "read_file",
    "serialize_many_sparse",
    "serialize_sparse",
    "serialize_tensor",
    "write_file",
]
