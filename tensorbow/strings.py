"""`tb.strings`: ops of strings under TensorFlow's shorter names, in the dynamic mode."""

from tensorbow.string_ops import (
    as_string,
    reduce_join,
    regex_full_match,
    regex_replace,
    substr,
    unicode_decode,
    unicode_encode,
    unicode_split,
    unicode_transcode,
)
from tensorbow.string_ops import string_join as join
from tensorbow.string_ops import string_length as length
from tensorbow.string_ops import string_lower as lower
from tensorbow.string_ops import string_strip as strip
from tensorbow.string_ops import string_to_hash_bucket as to_hash_bucket
from tensorbow.string_ops import string_to_hash_bucket_fast as to_hash_bucket_fast
from tensorbow.string_ops import string_to_hash_bucket_strong as to_hash_bucket_strong
from tensorbow.string_ops import string_to_number as to_number
from tensorbow.string_ops import string_upper as upper

__all__ = [
    "as_string",
    "join",
    "length",
    "lower",
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "strip",
    "substr",
    "to_hash_bucket",
    "to_hash_bucket_fast",
    "to_hash_bucket_strong",
    "to_number",
    "unicode_decode",
    "unicode_encode",
    "unicode_split",
    "unicode_transcode",
    "upper",
]
