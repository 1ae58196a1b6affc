"""Conversion of docstrings (plain text, `code` in single backticks) to reStructuredText.

A paragraph stays one, `name: text` of an argument becomes an item of a list, deeper indented text stays as
it is. Signatures show plain types: of `Annotated[int, ...]` the `int`.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

_FIELD = re.compile(r"(?:^|(?<=[.;)] ))(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): (?=\S)")
_SINCE = re.compile(r"(?<=[.)]) (?=(?:Raises|Returns) )")  # where descriptions of names end
_CODE = re.compile(r"``?([^`]+)``?")
_SPECIAL = re.compile(r"([\\*_|`<>])")


def markup(text: str) -> str:
    """Text as reStructuredText: `code` becomes a literal, everything else stands for itself."""
    parts: list[str] = []
    end = 0
    for match in _CODE.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[end : match.start()]), f"\\ ``{match.group(1).strip()}``\\ "]
        end = match.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\1", text[end:])]).strip()


def converted(lines: list[str], names: set[str]) -> Iterator[str]:
    """Lines of a docstring as lines of reStructuredText. names: of arguments and fields."""
    for block in re.split(r"\n\s*\n", "\n".join(lines).expandtabs()):
        yield from _block([line.rstrip() for line in block.split("\n") if line.strip()], names)
        yield ""


def _block(lines: list[str], names: set[str]) -> Iterator[str]:
    if not lines:
        return
    if lines[0] in ("Args:", "Attributes:"):
        yield from _block(inspect.cleandoc("\n" + "\n".join(lines[1:])).split("\n"), names)
    elif lines[0].startswith("    "):  # code or a formula
        yield "::"
        yield ""
        yield from lines
    elif lines[0].startswith("- "):
        for item in " ".join(line.strip() for line in lines).split("- ")[1:]:
            yield f"- {markup(item)}"
    else:
        yield from _paragraph(lines, names)


def _paragraph(lines: list[str], names: set[str]) -> Iterator[str]:
    """Text, in which `name: ` at the beginning of a sentence begins the description of a name."""
    text = " ".join(line.strip() for line in lines)
    fields = [match for match in _FIELD.finditer(text) if names.issuperset(re.findall(r"\w[\w.]*", match[1]))]
    deeper = next((number for number, line in enumerate(lines) if line.startswith("    ")), None)
    if deeper is not None and not fields:  # code behind its introduction
        yield markup(" ".join(lines[:deeper]))
        yield from ("", "::", "", *lines[deeper:])
        return
    starts = [match.start() for match in fields] + [len(text)]
    if text[: starts[0]]:
        yield from (markup(text[: starts[0]]), "")
    rest = ""
    for match, end in zip(fields, starts[1:], strict=True):
        described, *others = _SINCE.split(text[match.end() : end], maxsplit=1)
        rest = f"{rest} {''.join(others)}".strip()
        yield f"- ``{match[1]}``: {markup(described)}"
    if rest:
        yield from ("", markup(rest))


def _docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    names = set(getattr(thing, "__annotations__", ()))
    with contextlib.suppress(TypeError, ValueError):
        names |= set(inspect.signature(thing).parameters)
    lines[:] = converted(lines, names)


def _plain(annotation: Any) -> str:
    text = stringify_annotation(annotation, "smart").replace("~", "")
    text = re.sub(
        r"\b(?:tensorbow|scheduler|replicator|collections|typing|numpy)(?:\.\w+)*\.(?=\w+)", "", text
    )
    return text if len(text) < 60 else ""


def _signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    call = thing.__init__ if inspect.isclass(thing) else thing
    try:
        found = inspect.signature(thing)
        hints = typing.get_type_hints(call)
    except (TypeError, ValueError, NameError):
        return signature, returns
    shown = []
    for key, parameter in found.parameters.items():
        if what == "method" and not shown and key in ("self", "cls"):
            continue
        if key.startswith("_"):
            continue
        hint = _plain(hints[key]) if hints.get(key, Any) is not Any else ""
        default = parameter.default
        if default is not parameter.empty and not isinstance(default, (int, float, str, tuple, type(None))):
            default = _Shown(getattr(default, "name", None) or "...")
        shown.append(parameter.replace(annotation=_Shown(hint) if hint else parameter.empty, default=default))
    ends = _plain(hints["return"]) if "return" in hints and not inspect.isclass(thing) else None
    result = str(inspect.Signature(shown)) if _ordered(shown) else signature
    return result, ends or None


def _ordered(parameters: list[inspect.Parameter]) -> bool:
    try:
        inspect.Signature(parameters)
    except ValueError:
        return False
    return True


class _Shown:
    """A default or an annotation that a signature shows as it stands."""

    def __init__(self, text: object) -> None:
        self.text = str(text)

    def __repr__(self) -> str:
        return self.text


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the two conversions with autodoc."""
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
