"""Ops that give each string a bucket by its hash, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import REQUIRED, Attrs, OpDef, Tensor
from tensorbow.kinds import WORD, Name, checked, sequence, whole
from tensorbow.specs import int64
from tensorbow.string_ops.elements import Map, as_strings, define_map
from tensorbow.string_ops.fingerprints import digest64, fingerprint64, sip_hash

__all__ = ["string_to_hash_bucket", "string_to_hash_bucket_fast", "string_to_hash_bucket_strong"]

Buckets: TypeAlias = Annotated[int, whole(1, (1 << 63) - 1)]


def _bucket(name: str, hashed: Callable[[Attrs], Map], **attrs: Any) -> OpDef:
    def function(attrs: Attrs) -> Map:
        count, of_text = attrs["num_buckets"], hashed(attrs)
        return lambda text: of_text(text) % count

    return define_map(name, function, result=int64, attrs={"num_buckets": REQUIRED, **attrs})


StringToHashBucket = _bucket("StringToHashBucket", lambda attrs: digest64)
StringToHashBucketFast = _bucket("StringToHashBucketFast", lambda attrs: fingerprint64)
StringToHashBucketStrong = _bucket(
    "StringToHashBucketStrong",
    lambda attrs: lambda text: sip_hash(attrs["hash_key"], text),
    hash_key=REQUIRED,
)


@checked
def string_to_hash_bucket(string_tensor: Any, num_buckets: Buckets, name: Name = None) -> Tensor:
    """A number from 0 to num_buckets - 1 for each string, int64: a hash of it, modulo `num_buckets`.

    The hash is the first 8 bytes of BLAKE2b: the same in every process and version. TensorFlow's own hash
    under this name is another; `string_to_hash_bucket_fast` gives TensorFlow's numbers.
    """
    return StringToHashBucket.tensor(as_strings(string_tensor), num_buckets=num_buckets, name=name)


@checked
def string_to_hash_bucket_fast(input: Any, num_buckets: Buckets, name: Name = None) -> Tensor:
    """A number below `num_buckets` for each string, int64, by FarmHash's Fingerprint64, as in TensorFlow."""
    return StringToHashBucketFast.tensor(as_strings(input), num_buckets=num_buckets, name=name)


@checked
def string_to_hash_bucket_strong(
    input: Any,
    num_buckets: Buckets,
    key: Annotated[Any, sequence(WORD, "two whole numbers of 64 bits")],
    name: Name = None,
) -> Tensor:
    """`string_to_hash_bucket` by SipHash-2-4 with a secret key, so that nobody can choose what collides.

    key: two whole numbers of 64 bits. Gives the numbers that TensorFlow gives. Raises InvalidArgumentError
    for another key.
    """
    if len(key) != 2:
        raise InvalidArgumentError(
            f"string_to_hash_bucket_strong: expected key to be two whole numbers, got {len(key)}"
        )
    return StringToHashBucketStrong.tensor(
        as_strings(input), num_buckets=num_buckets, hash_key=key, name=name
    )
