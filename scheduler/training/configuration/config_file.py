"""Reading and writing options in YAML files; ambiguous values are refused with their line.

Only PyYAML's parser is used. Its resolver follows YAML 1.1: it reads `1:30` as 90, `010` as 8, `no` as false
and `1e-2` as text, keeps the last of two equal keys, and expands nested aliases without limit.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tensorbow.errors import InvalidArgumentError
from tensorbow.files import read_file

LIMIT = 1 << 16  # bytes; the file that a run saves has some 800
DEPTH = 4  # levels of nested lists and mappings; options need three
LONGEST_NUMBER = 40  # characters

_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*|[1-9]\d{0,2}(_\d{3})+)", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=e))(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# Literals that YAML readers interpret differently: as different numbers, or as text.
_RIDDLE = re.compile(
    r"[+-]?(0x[\da-f_]+|0o?[\d_]+|0b[\d_]+|\d[\d_.]*_[\d_.]*|\.(inf|nan))", re.ASCII | re.IGNORECASE
)


class _FaultError(Exception):
    """Fault of a file, with its line."""

    def __init__(self, reason: str, mark: Any):
        super().__init__(f"line {mark.line + 1}: {reason}")


def read_config_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the mapping of a YAML file: strings, numbers, booleans, None, and lists and mappings of them.

    Raises what `tensorbow.files.read_file` raises, and InvalidArgumentError, without the file's name, for
    anything but one mapping of plain values and for duplicate keys.
    """
    blob = read_file(path, LIMIT)
    try:
        events = yaml.parse(blob.decode("utf-8"), Loader=yaml.SafeLoader)
        values = _document(iter(events))
    except _FaultError as error:
        raise InvalidArgumentError(str(error)) from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise InvalidArgumentError(f"it is no YAML: {line}{_one_line(reason)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"it is no YAML: {_one_line(str(error))}") from None
    if values is None:
        raise InvalidArgumentError("it is empty; expected options, as 'batch_size: 16'")
    if not isinstance(values, dict):
        raise InvalidArgumentError(
            f"expected a mapping of options, as 'batch_size: 16'; got {type(values).__name__}"
        )
    return values


def config_text(values: Mapping[str, Any]) -> str:
    """YAML text that `read_config_file` reads as these values, in this order."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Quotes strings that look like another type, and repeats values instead of using aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """YAML node of a string, quoted if it looks like a number."""
        style = "'" if _is_number(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def _document(events: Iterator[yaml.Event]) -> Any:
    """Value of the only document."""
    values: Any = None
    documents = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _FaultError("a second document begins; give one", event.start_mark)
        elif isinstance(event, yaml.NodeEvent):
            values = _value(event, events, DEPTH)
    return values


def _value(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
    """Value that starts with `event`; consumes its events. depth: nesting levels still allowed."""
    mark = event.start_mark
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise _FaultError("anchors (&) and aliases (*) are not supported; write the value out", mark)
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise _FaultError(f"tags ({tag[:40]}) are not supported; write the value alone", mark)
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if depth == 0:
        raise _FaultError(f"lists and mappings are more than {DEPTH} deep", mark)
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_value(event, events, depth - 1))
        return items
    found: dict[str, Any] = {}
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        name = _key(key)
        if name in found:
            raise _FaultError(f"{name[:60]!r} is given twice; remove one", key.start_mark)
        found[name] = _value(next(events), events, depth - 1)
    return found


def _key(event: yaml.Event) -> str:
    """Key of a mapping entry. Raises _FaultError for keys that are not strings."""
    name = event.value if isinstance(event, yaml.ScalarEvent) else None
    if not isinstance(event, yaml.ScalarEvent) or not isinstance(_value(event, iter(()), 0), str):
        got = "a list or mapping" if name is None else repr(name[:40])
        raise _FaultError(f"expected names of options, got {got}", event.start_mark)
    if name == "<<" and event.implicit[0]:
        raise _FaultError("merge keys (<<) are not supported; write the options out", event.start_mark)
    return str(name)


def _scalar(event: yaml.ScalarEvent) -> Any:
    """Value of a scalar: a quoted string as it is, otherwise None, a boolean, a number or a string."""
    text: str = event.value
    if not event.implicit[0]:  # quoted
        return text
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if not _is_number(text):
        return text
    if len(text) > LONGEST_NUMBER:
        raise _FaultError(
            f"a number of {len(text):,} characters, {text[:20]!r}; at most {LONGEST_NUMBER} are supported",
            event.start_mark,
        )
    if not (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)):
        raise _FaultError(
            f"{text!r} may mean different numbers, or a text; write a number in decimal, a text in quotes",
            event.start_mark,
        )
    number = int(text) if _INTEGER.fullmatch(text) else float(text)
    if not math.isfinite(number):
        raise _FaultError(f"{text!r} is no finite number", event.start_mark)
    return number


def _is_number(text: str) -> bool:
    """True if some YAML reader takes an unquoted string for a number."""
    return any(pattern.fullmatch(text) for pattern in (_INTEGER, _FLOAT, _RIDDLE))
