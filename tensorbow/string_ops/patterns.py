"""Ops of regular expressions, those of Python's `re` on text of UTF-8."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, graph_of
from tensorbow.kinds import Flag, Name, checked
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, bool_, string
from tensorbow.string_ops.elements import as_strings, mapped, require_strings, scalar_of, shown_text

__all__ = ["regex_full_match", "regex_replace"]

_CODING = ("utf-8", "surrogateescape")  # keeps bytes that are no UTF-8


@lru_cache(maxsize=256)
def _compiled(op: str, pattern: bytes) -> re.Pattern[str]:
    try:
        return re.compile(pattern.decode(*_CODING))
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{op}: pattern {shown_text(pattern)} is no regular expression: {error}"
        ) from None


def _rewriting(rewrite: bytes, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    r"""The text that replaces a match: `\0` to `\9` are groups, `\\` is a backslash."""
    parts: list[str | int] = []
    text = rewrite.decode(*_CODING)
    for found in re.finditer(r"\\(.?)|[^\\]+", text, re.DOTALL):
        escaped = found.group(1)
        if escaped is None:
            parts.append(found.group())
        elif escaped == "\\":
            parts.append("\\")
        elif escaped in "0123456789" and escaped and int(escaped) <= pattern.groups:
            parts.append(int(escaped))
        else:
            raise InvalidArgumentError(
                f"RegexReplace: rewrite {shown_text(rewrite)} has \\{escaped}, expected \\\\ or a group from "
                f"\\0 to \\{min(9, pattern.groups)}"
            )

    def replaced(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)

    return replaced


def _require_scalars(op: str, inputs: Sequence[TensorSpec], names: Sequence[str]) -> None:
    for spec, what in zip(inputs, names, strict=True):
        require_strings(op, spec, what)
        if what != "input" and spec.shape not in ((), None):
            raise InvalidArgumentError(f"{op}: {what} is {spec}, expected a scalar")


def _replace_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    _require_scalars("RegexReplace", inputs, ("input", "pattern", "rewrite"))
    return TensorSpec(inputs[0].shape, string)


def _replace(call: HostCall) -> Array:
    pattern = _compiled("RegexReplace", scalar_of("RegexReplace", "pattern", call.inputs[1]))
    rewriting = _rewriting(scalar_of("RegexReplace", "rewrite", call.inputs[2]), pattern)
    count = 0 if call.attrs["replace_global"] else 1

    def changed(text: bytes) -> bytes:
        return pattern.sub(rewriting, text.decode(*_CODING), count=count).encode(*_CODING)

    return mapped(call.inputs[0], changed, string)


RegexReplace = define_op(
    "RegexReplace",
    spec=_replace_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input", "pattern", "rewrite"),
    attrs={"replace_global": True},
    host=_replace,
    strings=True,
    doc="Each string with the matches of a regular expression replaced.",
)


@checked
def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: Flag = True, name: Name = None
) -> Tensor:
    r"""Each string with the matches of `pattern`, or only the first one, replaced by `rewrite`.

    pattern, rewrite: scalars. `\1` to `\9` in `rewrite` stand for groups, `\0` for the match. Expressions are
    those of Python's `re` (TensorFlow has RE2's), so do not take them from whom you do not trust: some take
    very long. Raises InvalidArgumentError, when it runs, for one that is none.
    """
    with graph_of([input, pattern, rewrite]).as_default():
        texts = [as_strings(each) for each in (input, pattern, rewrite)]
        result: Tensor = RegexReplace(*texts, replace_global=replace_global, name=name)
    return result


def _match_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    _require_scalars("RegexFullMatch", inputs, ("input", "pattern"))
    return TensorSpec(inputs[0].shape, bool_)


def _match(call: HostCall) -> Array:
    pattern = _compiled("RegexFullMatch", scalar_of("RegexFullMatch", "pattern", call.inputs[1]))
    return mapped(call.inputs[0], lambda text: bool(pattern.fullmatch(text.decode(*_CODING))), bool_)


RegexFullMatch = define_op(
    "RegexFullMatch",
    spec=_match_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input", "pattern"),
    host=_match,
    strings=True,
    doc="True where a regular expression matches the whole string.",
)


@checked
def regex_full_match(input: Any, pattern: Any, name: Name = None) -> Tensor:
    """True for each string that `pattern`, a scalar, matches from begin to end. See `regex_replace`."""
    with graph_of([input, pattern]).as_default():
        result: Tensor = RegexFullMatch(as_strings(input), as_strings(pattern), name=name)
    return result
