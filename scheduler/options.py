"""Options, each declared once, as a field of a data class.

    tau: int = option(1, "Number of rounds from one averaging to the next.", whole(1))

The fields define the checks of `read_options`, the keys of configuration files, the command line and its
help, and the notices about options without effect.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from reprlib import Repr
from typing import Any, TypeVar

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import TEXT, Kind, RefusedError, number, one_of
from tensorbow.missing_names import did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """Description of an option.

    help: sentences; short listings show only the first.
    kind: the allowed values; None is also allowed if it is the default.
    choices: the allowed strings, for an option without a kind.
    shown: description of a default of None.
    metavar: placeholder of the value in the help; ends in DIR, FILE or PATH for a path.
    alias: second name, preferred on the command line.
    fixed: whether a run resumed from a checkpoint must use the checkpoint's value.
    of_model: whether None stands for the model's own default.
    of_one_run: whether the value holds only for the run that saved it; runs that copy its options skip it.
    ignored: function of all options of a run; returns why this one has no effect on that run, or "".
    name, type: name and type of the field.
    """

    default: Any
    help: str
    kind: Kind | None = None
    choices: Collection[str] = ()
    shown: str = ""
    metavar: str | None = None
    alias: str = ""
    fixed: bool = False
    of_model: bool = False
    of_one_run: bool = False
    ignored: Callable[[Any], str] = lambda run: ""
    name: str = ""
    type: str = ""

    @property
    def flag(self) -> str:
        """Name on the command line, such as `--batch-size`."""
        return f"--{(self.alias or self.name).replace('_', '-')}"

    def read(self, value: Any) -> Any:
        """Converts a value to a built-in Python type. Raises InvalidArgumentError if it is not allowed."""
        if value is None and self.default is None:
            return None
        kind = self.kind or Kind(f"one of {', '.join(self.choices)}", one_of(*self.choices).read)
        try:
            return kind.read(value)
        except InvalidArgumentError:  # the kind has its own, more specific message
            raise
        except (RefusedError, TypeError, ValueError, OverflowError) as error:
            hint = did_you_mean(value, self.choices) if isinstance(value, str) else ""
            if isinstance(error, RefusedError) and str(error):
                hint = f"; {error}"
            raise InvalidArgumentError(
                f"{self.name}: expected {kind.expected}, got {shortened(value)}{hint}"
            ) from None


def option(default: Any, help: str, kind: Kind | None = None, **more: Any) -> Any:
    """Data class field that declares an option. more: further fields of `Option`."""
    return _field(Option(default, help, kind, **more))


def same_option(cls: Any, name: str, more_help: str = "", **changes: Any) -> Any:
    """Data class field that repeats an option of another data class, with changes."""
    declared = options_of(cls)[name]
    return _field(replace(declared, help=f"{declared.help} {more_help}".strip(), **changes))


def _field(option: Option) -> Any:
    return field(default=option.default, metadata={"option": option})


def options_of(cls: Any) -> dict[str, Option]:
    """Options of a data class by name, in order of declaration."""
    return {f.name: replace(f.metadata["option"], name=f.name, type=str(f.type)) for f in fields(cls)}


def read_options(record: Any) -> None:
    """Checks and converts all options of an instance; for `__post_init__`. Raises InvalidArgumentError."""
    for name, option in options_of(record).items():
        object.__setattr__(record, name, option.read(getattr(record, name)))


def documents_options(cls: type[T]) -> type[T]:
    """Class decorator that appends the options of a data class to its docstring."""
    lines = []
    for name, option in options_of(cls).items():
        shown = "the model's" if option.of_model else option.shown or option.default
        lines.append(f"{name}: {option.help} Default: {shown}.")
    wrapped = [
        textwrap.fill(line, 106, initial_indent="    ", subsequent_indent="        ") for line in lines
    ]
    cls.__doc__ = "\n".join([f"{cls.__doc__}", *wrapped, ""])
    return cls


_shortener = Repr()
_shortener.maxlevel, _shortener.maxstring, _shortener.maxother = 2, 60, 60


def shortened(value: Any) -> str:
    """Repr of any value, shortened to one line; the type's name if its `__repr__` raises."""
    try:
        return " ".join(_shortener.repr(value).split())
    except Exception:  # from a user's __repr__, or for an integer of too many digits
        return type(value).__name__


# Kinds of options ---------------------------------------------------------------------------------


def _read_path(value: Any) -> str:
    path: str = TEXT.read(os.fspath(value) if isinstance(value, os.PathLike) else value)
    if not path:
        raise RefusedError
    return path


PATH = Kind("a path", _read_path)
MOMENTUM = Kind("a momentum in [0, 1)", number(0, 1, below=True).read)

# Devices compute in float32: larger or smaller numbers cannot be represented.
_FLOAT32 = np.finfo(np.float32)
POSITIVE = Kind(
    "a positive number, from 1.2e-38 to 3.4e+38", number(float(_FLOAT32.tiny), float(_FLOAT32.max)).read
)


def _read_rate(value: Any) -> float:
    if isinstance(value, (list, tuple)):
        raise RefusedError(
            "tb.sweep trains with several, as grid={'learning_rate': [0.1, 0.2]}; in a program of your own "
            "tb.per_replica gives each replica its own"
        )
    rate: float = POSITIVE.read(value)
    return rate


RATE = Kind(POSITIVE.expected, _read_rate)
NOT_NEGATIVE = Kind("a number of at least 0, up to 3.4e+38", (number(0, 0) | POSITIVE).read)
