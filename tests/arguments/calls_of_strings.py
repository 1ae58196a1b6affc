"""A good call of each op of strings and files, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

FEATURES = {"x": tb.FixedLenFeature([], tb.int64, 0)}
NO_OPTIONS = frozenset({"none", "empty text"})


def names() -> tb.QueueBase:
    return tb.FIFOQueue(3, tb.string, shapes=[[]])


def written() -> str:
    """A file of one record."""
    with tb.python_io.TFRecordWriter("written") as writer:
        writer.write(b"a")
    return "written"


PICTURE = np.zeros((2, 3, 3), np.uint8)

UNICODE = {"input": "strings", "errors": "choice", "replacement_char": "axis"}
STRINGS = {"input": "strings", "string_tensor": "strings", "source": "strings", "delimiter": "strings"}
NUM_BUCKETS = {**STRINGS, "num_buckets": "count"}
UNIT = {**STRINGS, "unit": "choice"}

CALLS: Mapping[str, Call] = {
    "as_string": Call(
        lambda: {"input": [1.0]},
        {
            **dict.fromkeys(("precision", "width"), "digits"),
            **{"scientific": "flag", "shortest": "flag", "fill": "fill"},
        },
    ),
    "decode_csv": Call(
        lambda: {"records": ["1,2"], "record_defaults": [[0], [0]]},
        {
            **{"records": "strings", "record_defaults": "list", "field_delim": "text", "na_value": "text"},
            **{"use_quote_delim": "flag", "select_cols": "choice"},
        },
        {
            "field_delim": frozenset({"text", "str subclass"}),
            "select_cols": frozenset({"none", "empty list"}),
            "record_defaults": frozenset({"array", "generator"}),
        },
    ),
    "decode_idx": Call(lambda: {"contents": ""}, {"contents": "strings", "out_type": "dtype"}),
    "decode_compressed": Call(
        lambda: {"bytes": ["ab"]},
        {"bytes": "strings", "compression_type": "choice"},
        {"compression_type": frozenset({"empty text"})},
    ),
    "image.is_jpeg": Call(lambda: {"contents": "a"}, {"contents": "strings"}),
    "image.extract_jpeg_shape": Call(
        lambda: {"contents": "a"}, {"contents": "strings", "output_type": "dtype"}
    ),
    "decode_raw": Call(
        lambda: {"bytes": ["ab"], "out_type": tb.uint8},
        {"bytes": "strings", "out_type": "dtype", "little_endian": "flag"},
    ),
    "matching_files": Call(lambda: {"pattern": "*"}, {"pattern": "strings"}),
    "parse_tensor": Call(
        lambda: {"serialized": "", "out_type": tb.int32}, {"serialized": "strings", "out_type": "dtype"}
    ),
    "read_file": Call(lambda: {"filename": "a"}, {"filename": "strings"}),
    "make_tensor_proto": Call(
        lambda: {"values": 1.0}, {"values": "anything", "dtype": "dtype or none", "shape": "static shape"}
    ),
    "make_ndarray": Call(lambda: {"tensor": tb.make_tensor_proto(1.0)}, {"tensor": "object"}),
    "serialize_tensor": Call(lambda: {"tensor": 1.0}),
    "train.match_filenames_once": Call(lambda: {"pattern": "*"}, {"pattern": "strings"}),
    "write_file": Call(
        lambda: {"filename": "a", "contents": "b"}, {"filename": "strings", "contents": "strings"}
    ),
    **{
        f"image.decode_{kind}": Call(
            lambda: {"contents": ""},
            {"contents": "strings", "channels": "choice", "ratio": "choice", "dct_method": "fill"},
            {"channels": frozenset({"none"} if kind == "image" else ())},
        )
        for kind in ("bmp", "gif", "image", "jpeg", "png")
    },
    "image.decode_and_crop_jpeg": Call(
        lambda: {"contents": "", "crop_window": [0, 0, 1, 1]},
        {
            "contents": "strings",
            "crop_window": "shape",
            "channels": "choice",
            "ratio": "choice",
            "dct_method": "fill",
        },
        names=("crop_to_bounding_box", "decode_jpeg"),
    ),
    "image.encode_png": Call(lambda: {"image": PICTURE}, {"image": "tensor", "compression": "digits"}),
    "image.encode_jpeg": Call(
        lambda: {"image": PICTURE},
        {
            **{"image": "tensor", "format": "encoding", "quality": "choice"},
            **dict.fromkeys(("progressive", "optimize_size", "chroma_downsampling"), "flag"),
        },
    ),
    **{
        kind: Call(
            dict,
            {
                **dict.fromkeys(("skip_header_lines", "header_bytes"), "count or none"),
                **dict.fromkeys(("footer_bytes", "hop_bytes"), "count or none"),
                **{"shared_name": "name", "options": "choice"},
            },
            {"options": frozenset({"none", "empty text"})},
        )
        for kind in ("IdentityReader", "TFRecordReader", "TextLineReader", "WholeFileReader")
    },
    "FixedLengthRecordReader": Call(
        lambda: {"record_bytes": 3},
        {
            **dict.fromkeys(("header_bytes", "footer_bytes", "hop_bytes"), "count or none"),
            **{"record_bytes": "count", "shared_name": "name"},
        },
    ),
    **{
        f"ReaderBase.{method}": Call(
            lambda given=given: {key: value() for key, value in given.items()},
            {"queue": "object", "num_records": "integers"},
            target=lambda method=method: getattr(tb.IdentityReader(), method),
        )
        for method, given in (
            ("read", {"queue": names}),
            ("read_up_to", {"queue": names, "num_records": lambda: 2}),
            ("num_records_produced", {}),
            ("num_work_units_completed", {}),
            ("reset", {}),
        )
    },
    "python_io.TFRecordOptions": Call(
        dict, {"compression_type": "choice"}, {"compression_type": frozenset({"empty text"})}
    ),
    "python_io.TFRecordWriter": Call(
        lambda: {"path": "records"}, {"path": "text", "options": "choice"}, {"options": NO_OPTIONS}
    ),
    "python_io.tf_record_iterator": Call(
        lambda: {"path": written()}, {"path": "text", "options": "choice"}, {"options": NO_OPTIONS}
    ),
    "FixedLenFeature": Call(
        lambda: {"shape": [2], "dtype": tb.int64},
        {"shape": "extents", "dtype": "dtype", "default_value": "anything"},
        {"shape": frozenset({"generator"})},
    ),
    "FixedLenSequenceFeature": Call(
        lambda: {"shape": [2], "dtype": tb.int64},
        {"shape": "extents", "dtype": "dtype", "allow_missing": "flag", "default_value": "anything"},
        {"shape": frozenset({"generator"})},
    ),
    "SparseFeature": Call(
        lambda: {"index_key": "i", "value_key": "v", "dtype": tb.int64, "size": 3},
        {
            **{"index_key": "text", "value_key": "text", "dtype": "dtype", "size": "count"},
            **{"already_sorted": "flag"},
        },
    ),
    "VarLenFeature": Call(lambda: {"dtype": tb.int64}, {"dtype": "dtype"}),
    **{
        call: Call(
            lambda call=call: {"serialized": "" if "single" in call else [""], "features": FEATURES},
            {"serialized": "strings", "features": "object", "example_names": "strings or none"},
            names=("ParseExample",),
        )
        for call in ("parse_example", "parse_single_example")
    },
    "parse_single_sequence_example": Call(
        lambda: {"serialized": "", "context_features": FEATURES},
        {
            **dict.fromkeys(("context_features", "sequence_features"), "mapping or none"),
            **{"serialized": "strings", "example_name": "strings or none"},
        },
    ),
    "decode_base64": Call(lambda: {"input": ["YQ"]}, STRINGS),
    "encode_base64": Call(lambda: {"input": ["a"]}, {**STRINGS, "pad": "flag"}),
    "reduce_join": Call(
        lambda: {"inputs": [["a", "b"]]}, {"inputs": "strings", "axis": "axes or none", "separator": "text"}
    ),
    "regex_full_match": Call(lambda: {"input": ["a"], "pattern": "a"}, {**STRINGS, "pattern": "strings"}),
    "regex_replace": Call(
        lambda: {"input": ["a"], "pattern": "a", "rewrite": "b"},
        {**STRINGS, "pattern": "strings", "rewrite": "strings", "replace_global": "flag"},
    ),
    "string_join": Call(lambda: {"inputs": ["a", "b"]}, {"inputs": "list of strings", "separator": "text"}),
    "string_length": Call(lambda: {"input": ["a"]}, UNIT),
    "string_lower": Call(lambda: {"input": ["a"]}, {**STRINGS, "encoding": "encoding"}),
    "unicode_decode": Call(
        lambda: {"input": ["a"], "input_encoding": "UTF-8"},
        {**UNICODE, "input_encoding": "text", "replace_control_characters": "flag"},
    ),
    "unicode_split": Call(
        lambda: {"input": ["a"], "input_encoding": "UTF-8"}, {**UNICODE, "input_encoding": "text"}
    ),
    "unicode_encode": Call(
        lambda: {"input": [97], "output_encoding": "UTF-8"},
        {**UNICODE, "input": "tensor", "output_encoding": "choice"},
    ),
    "unicode_transcode": Call(
        lambda: {"input": ["a"], "input_encoding": "UTF-8", "output_encoding": "UTF-8"},
        {
            **UNICODE,
            **{"input_encoding": "text", "output_encoding": "choice", "replace_control_characters": "flag"},
        },
    ),
    "string_split": Call(lambda: {"source": ["a b"]}, {**STRINGS, "skip_empty": "flag"}),
    "string_strip": Call(lambda: {"input": ["a"]}, STRINGS),
    "string_to_hash_bucket": Call(lambda: {"string_tensor": ["a"], "num_buckets": 3}, NUM_BUCKETS),
    "string_to_hash_bucket_fast": Call(lambda: {"input": ["a"], "num_buckets": 3}, NUM_BUCKETS),
    "string_to_hash_bucket_strong": Call(
        lambda: {"input": ["a"], "num_buckets": 3, "key": [1, 2]}, {**NUM_BUCKETS, "key": "choice"}
    ),
    "string_to_number": Call(lambda: {"string_tensor": ["1"]}, {**STRINGS, "out_type": "dtype"}),
    "string_upper": Call(lambda: {"input": ["a"]}, {**STRINGS, "encoding": "encoding"}),
    "substr": Call(
        lambda: {"input": ["abc"], "pos": 1, "len": 1}, {**UNIT, "pos": "integers", "len": "integers"}
    ),
}
