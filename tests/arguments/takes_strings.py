"""Parameters that take tensors of strings, where a text or bytes are good arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.arguments.public_calls import Call

STRINGS = frozenset({"text", "bytes", "empty text", "str subclass"})
TAKE_STRINGS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("broadcast_to", "expand_dims", "identity", "rank", "shape", "size"), ("input",)),
    **dict.fromkeys(("guarantee_const", "squeeze", "stop_gradient", "Print"), ("input",)),
    **dict.fromkeys(
        ("summary.tensor_summary", "assert_scalar", "serialize_tensor", "train.limit_epochs", "zeros_like"),
        ("tensor",),
    ),
    **dict.fromkeys(("constant", "convert_to_tensor", "convert_to_tensor_or_indexed_slices"), ("value",)),
    "fill": ("value",),
    "get_session_handle": ("data",),
    **dict.fromkeys(("foldl", "foldr", "scan"), ("initializer",)),
    "layers.flatten": ("inputs",),
    "sparse_from_dense": ("tensor",),
    "transpose": ("a",),
}


def with_strings(calls: Mapping[str, Call]) -> dict[str, Call]:
    """The calls, with texts among what those parameters take."""
    found = dict(calls)
    for name, parameters in TAKE_STRINGS.items():
        if name in found:
            call = found[name]
            takes = {each: call.takes.get(each, frozenset()) | STRINGS for each in parameters}
            found[name] = replace(call, takes={**call.takes, **takes})
    return found
