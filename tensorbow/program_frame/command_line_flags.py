"""Flags of a program on its command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import TEXT, Text, checked, sequence
from tensorbow.missing_names import did_you_mean

Texts: TypeAlias = Annotated[tuple[str, ...], sequence(TEXT, "a list of texts")]
_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")


@dataclass(eq=False)
class ProgramFlag:
    """One flag.

    read: makes a value of a text. several: each `--name` adds one. present: it is on the command line.
    assigned: the program has set the value.
    """

    name: str
    default: Any
    help: str
    expected: str
    read: Callable[[str], Any]
    several: bool = False
    required: bool = False
    value: Any = None
    present: bool = False
    assigned: bool = False

    @property
    def is_bool(self) -> bool:
        """True for a flag that needs no value, and has a `--no` form."""
        return self.read is _read_bool

    def forget(self) -> None:
        """Sets the default, as a list of its own where it is one."""
        self.value = [*self.default] if isinstance(self.default, list) else self.default
        self.present = self.assigned = False

    def parse(self, text: str) -> None:
        """Takes a value from the command line. Raises InvalidArgumentError."""
        try:
            value = self.read(text)
        except ValueError:
            raise InvalidArgumentError(f"--{self.name}: expected {self.expected}, got {text!r:.80}") from None
        self.value = [*(self.value if self.present else ()), value] if self.several else value
        self.present = True


class FlagValues:
    """The flags of the program, as attributes. `tb.flags.FLAGS` is the only instance that programs need."""

    def __init__(self) -> None:
        self.__dict__.update(_flags={}, _parsed=False)

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
        """Reads a command line, whose first word is the program; returns it and the words that are no flags.

        known_only: undefined flags are returned among these words. Raises InvalidArgumentError for an
        undefined flag otherwise, a wrong value, and a required flag without one.
        """
        left = self._read(argv, known_only)
        self._require_values()
        return left

    def _read(self, argv: Sequence[str], known_only: bool) -> list[str]:
        left, words = [*argv[:1]], [*argv[1:]]
        flags: dict[str, ProgramFlag] = self._flags
        for flag in flags.values():
            flag.forget()
        while words:
            word = words.pop(0)
            if word == "--":
                left += words
                break
            name, equals, text = word.lstrip("-").partition("=")
            if not word.startswith("-") or not name or _is_number(word):
                left.append(word)
                continue
            known = flags.get(name)
            off = flags.get(name.removeprefix("no")) if name.startswith("no") else None
            if known is None and off is not None and off.is_bool and not equals:
                off.parse("false")
            elif known is None:
                if not known_only:
                    raise InvalidArgumentError(
                        f"unknown flag --{name:.80}{did_you_mean(name, flags, before='--')}"
                    )
                left.append(word)
            elif known.is_bool and not equals:
                known.parse("true")
            elif equals or words:
                known.parse(text if equals else words.pop(0))
            else:
                raise InvalidArgumentError(f"--{name}: expected {known.expected}, got nothing after it")
        self.__dict__["_parsed"] = True
        return left

    def _require_values(self) -> None:
        missing = [f"--{flag.name}" for flag in self._flags.values() if flag.required and flag.value is None]
        if missing:
            raise InvalidArgumentError(f"expected a value of {', '.join(missing)}, got none; give it")

    def _read_first(self) -> None:
        """Reads the command line of the process; values that the program has set stay."""
        assigned = {flag: flag.value for flag in self._flags.values() if flag.assigned}
        self._read(sys.argv, known_only=True)
        for flag, value in assigned.items():
            flag.value, flag.assigned = value, True
        self._require_values()

    def is_parsed(self) -> bool:
        """True if the command line has been read."""
        return bool(self._parsed)

    def add_flag(self, flag: ProgramFlag) -> None:
        """Adds a flag. Raises InvalidArgumentError for a second one of its name."""
        if flag.name in self._flags:
            raise InvalidArgumentError(f"flags: --{flag.name} is defined already; choose another name")
        if not flag.name.isidentifier() or hasattr(FlagValues, flag.name):
            raise InvalidArgumentError(
                "flags: expected a name of letters, digits and _ that is no attribute of FLAGS, got "
                f"{flag.name!r:.80}"
            )
        flag.forget()
        self._flags[flag.name] = flag
        self.__dict__["_parsed"] = False

    def _of(self, name: str) -> ProgramFlag:
        flag: ProgramFlag | None = self._flags.get(name)
        if flag is None:
            raise AttributeError(f"FLAGS has no flag {name!r}{did_you_mean(name, self._flags)}")
        return flag

    def __getattr__(self, name: str) -> Any:
        flag = self._of(name)
        if not self._parsed:
            self._read_first()
        return flag.value

    def __setattr__(self, name: str, value: Any) -> None:
        flag = self._of(name)
        flag.value, flag.assigned = value, True

    def __delattr__(self, name: str) -> None:
        del self._flags[self._of(name).name]

    def __getitem__(self, name: str) -> ProgramFlag:
        if name not in self._flags:
            raise KeyError(name)
        return self._of(name)

    def __contains__(self, name: object) -> bool:
        return name in self._flags

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._flags))

    def __len__(self) -> int:
        return len(self._flags)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._flags]

    def flag_values_dict(self) -> dict[str, Any]:
        """The values by name."""
        return {name: getattr(self, name) for name in self}

    def get_help(self) -> str:
        """Lines on all flags: name, what is expected, default, description."""
        return "\n".join(
            f"  --{'[no]' if flag.is_bool else ''}{name}: {flag.help}\n    "
            f"({flag.expected}; {'required' if flag.required else f'default: {flag.default!r}'})"
            for name, flag in sorted(self._flags.items())
        )


FLAGS = FlagValues()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read_bool(text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError
    return text.lower() in _TRUE


def _read_list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")] if text else []


def _define(
    name: str, default: Any, help: Any, expected: str, read: Callable[[str], Any], several: bool = False
) -> None:
    """Adds a flag; a default that is a text is read as on the command line."""
    flag = ProgramFlag(name, None, str(help or ""), expected, read, several)
    texts = default if several and isinstance(default, (list, tuple)) else [default]
    values = [_default(flag, each) for each in texts]
    flag.default = None if default is None else values if several else values[0]
    FLAGS.add_flag(flag)


def _default(flag: ProgramFlag, value: Any) -> Any:
    try:
        return value if value is None or isinstance(value, list) else flag.read(str(value))
    except ValueError:
        raise InvalidArgumentError(
            f"flags: expected the default of --{flag.name} to be {flag.expected}, got {value!r:.80}"
        ) from None


@checked
def DEFINE_string(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag whose value is a text. default: its value where it is not given; may be None."""
    _define(name, default, help, "a text", str)


@checked
def DEFINE_integer(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag whose value is a whole number."""
    _define(name, default, help, "a whole number", int)


@checked
def DEFINE_float(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag whose value is a number."""
    _define(name, default, help, "a number", float)


@checked
def DEFINE_boolean(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag that is true or false: `--name`, `--noname` or `--name=true`."""
    _define(name, default, help, "true or false", _read_bool)


DEFINE_bool = DEFINE_boolean


@checked
def DEFINE_enum(name: Text, default: Any, enum_values: Texts, help: Any) -> None:  # noqa: N802
    """Defines a flag whose value is one of several texts."""

    def read(text: str) -> str:
        if text not in enum_values:
            raise ValueError
        return text

    _define(name, default, help, f"one of {', '.join(enum_values)}", read)


@checked
def DEFINE_list(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag whose value is a list of texts, separated by commas."""
    _define(name, default, help, "texts, separated by commas", _read_list)


@checked
def DEFINE_multi_string(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag that may be given several times: a list of texts."""
    _define(name, default, help, "a text, several times", str, several=True)


@checked
def DEFINE_multi_integer(name: Text, default: Any, help: Any) -> None:  # noqa: N802 - TensorFlow's name
    """Defines a flag that may be given several times: a list of whole numbers."""
    _define(name, default, help, "a whole number, several times", int, several=True)


@checked
def mark_flag_as_required(flag_name: Text) -> None:
    """Requires a value of a flag whose default is None; reading a command line without one raises.

    Raises InvalidArgumentError for an undefined flag.
    """
    if flag_name not in FLAGS:
        raise InvalidArgumentError(
            f"mark_flag_as_required: expected a flag that is defined, got {flag_name!r:.80}"
            f"{did_you_mean(flag_name, FLAGS)}"
        )
    FLAGS[flag_name].required = True
