"""Options, each declared once, as a field of a data class.

    tau: int = option(1, "Rounds between two averagings.", whole(1))

The checks of `read_options`, configuration files, the command line with its help, and the lines about options
without effect are all made from these fields.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from reprlib import Repr
from typing import Any, TypeVar

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import TEXT, Kind, RefusedError, number, one_of

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """Description of an option.

    help: sentences; a command that shows the option in short shows the first.
    kind: the values that fit; None fits, too, where it is the default.
    choices: the values, where they are a few strings; then there is no kind.
    shown: a default of None in words.
    metavar: name of the value in the help; it ends in DIR, FILE or PATH for a path.
    alias: another name, the first one on the command line.
    fixed: whether a run that goes on from a checkpoint needs the value that the checkpoint has.
    of_model: whether None stands for the model's own default.
    of_one_run: whether the value is for the run that saved it, never for another that reads its options.
    ignored: takes all options of a run; says why this one has no effect on it, or nothing.
    name, type: those of the field.
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
        """Its name on the command line."""
        return f"--{(self.alias or self.name).replace('_', '-')}"

    def read(self, value: Any) -> Any:
        """The value as Python's own type. Raises InvalidArgumentError for one that does not fit."""
        if value is None and self.default is None:
            return None
        kind = self.kind or Kind(f"one of {', '.join(self.choices)}", one_of(*self.choices).read)
        try:
            return kind.read(value)
        except InvalidArgumentError:  # of a kind that says more
            raise
        except (RefusedError, TypeError, ValueError, OverflowError):
            raise InvalidArgumentError(
                f"{self.name}: expected {kind.expected}, got {shortened(value)}"
            ) from None


def option(default: Any, help: str, kind: Kind | None = None, **more: Any) -> Any:
    """The field of an option; more: as `Option` has it."""
    return _field(Option(default, help, kind, **more))


def same_option(cls: Any, name: str, more_help: str = "", **changes: Any) -> Any:
    """The field of an option that another data class declares, with some changes."""
    declared = options_of(cls)[name]
    return _field(replace(declared, help=f"{declared.help} {more_help}".strip(), **changes))


def _field(option: Option) -> Any:
    return field(default=option.default, metadata={"option": option})


def options_of(cls: Any) -> dict[str, Option]:
    """The options of a data class by name, in order."""
    return {f.name: replace(f.metadata["option"], name=f.name, type=str(f.type)) for f in fields(cls)}


def read_options(record: Any) -> None:
    """Checks the options of a data class's instance, in `__post_init__`. Raises InvalidArgumentError."""
    for name, option in options_of(record).items():
        object.__setattr__(record, name, option.read(getattr(record, name)))


def listed(cls: type[T]) -> type[T]:
    """Adds the options of a data class to its docstring."""
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
    """A value that a stranger may have made, in one short line."""
    try:
        return " ".join(_shortener.repr(value).split())
    except Exception:  # of a type of the stranger's, or an integer of too many digits
        return type(value).__name__


# Kinds of options ---------------------------------------------------------------------------------


def _read_path(value: Any) -> str:
    path: str = TEXT.read(value)
    if not path:
        raise RefusedError
    return path


PATH = Kind("a path", _read_path)
MOMENTUM = Kind("a momentum in [0, 1)", number(0, 1, below=True).read)

# What float32 holds, in which devices compute.
_FLOAT32 = np.finfo(np.float32)
POSITIVE = Kind(
    "a positive number, from 1.2e-38 to 3.4e+38", number(float(_FLOAT32.tiny), float(_FLOAT32.max)).read
)
NOT_NEGATIVE = Kind("a number of at least 0, up to 3.4e+38", (number(0, 0) | POSITIVE).read)
