"""A good call of each op of strings and files, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping

from tests.arguments.public_calls import Call

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
