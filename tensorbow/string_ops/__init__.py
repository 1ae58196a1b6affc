"""Ops of strings, host functions of the dynamic mode: TensorFlow 1's, on tensors of bytes."""

from tensorbow.string_ops.conversion import as_string, decode_base64, encode_base64, string_to_number
from tensorbow.string_ops.hashing import (
    string_to_hash_bucket,
    string_to_hash_bucket_fast,
    string_to_hash_bucket_strong,
)
from tensorbow.string_ops.joining import reduce_join, string_join
from tensorbow.string_ops.patterns import regex_full_match, regex_replace
from tensorbow.string_ops.splitting import (
    string_length,
    string_lower,
    string_split,
    string_strip,
    string_upper,
    substr,
)
from tensorbow.string_ops.unicode import unicode_decode, unicode_encode, unicode_split, unicode_transcode

__all__ = [
    "as_string",
    "decode_base64",
    "encode_base64",
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "string_join",
    "string_length",
    "string_lower",
    "string_split",
    "string_strip",
    "string_to_hash_bucket",
    "string_to_hash_bucket_fast",
    "string_to_hash_bucket_strong",
    "string_to_number",
    "string_upper",
    "substr",
    "unicode_decode",
    "unicode_encode",
    "unicode_split",
    "unicode_transcode",
]
