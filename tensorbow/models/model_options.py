"""Options of a model: the arguments of its constructor, read from text or plain values."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import shown
from tensorbow.missing_names import did_you_mean

# Arguments of a model that the trainer gives.
GIVEN = (
    "inputs",
    "labels",
    "training",
    "classes",
    "class_weights",
    "label_smoothing",
    "label_scale",
    "mixed_labels",
)
_NONE, _TRUE, _FALSE = ("none", "null", "~"), ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class _UnreadableError(Exception):
    """A value that is not of an option's type."""


@dataclass(frozen=True)
class ModelOption:
    """Option of a model. default: `inspect.Parameter.empty` where the option must be given."""

    name: str
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        """True if there is no default."""
        return self.default is inspect.Parameter.empty

    def read(self, value: Any, model: str) -> Any:
        """The value, of the option's type; text is parsed. Raises InvalidArgumentError."""
        try:
            return _read(self.type, value)
        except _UnreadableError:
            raise InvalidArgumentError(
                f"model.{self.name}: expected {_described(self.type)} for {model}, got {shown(value)}"
            ) from None


def options_of_call(function: Callable[..., Any]) -> dict[str, ModelOption]:
    """Options of a class, by its constructor's arguments, or of a function, by those that are its own."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # built in
        return {}
    makes = function.__init__ if inspect.isclass(function) else function
    hints: dict[str, Any] = {}
    try:
        hints = typing.get_type_hints(getattr(makes, "func", makes))
    except Exception:  # an annotation that only type checkers can evaluate
        hints = {name: each.annotation for name, each in parameters.items()}
    found = {}
    for position, (name, each) in enumerate(parameters.items()):
        of_call = not inspect.isclass(function) and (name in GIVEN or position < 3)
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY) or of_call:
            continue
        hint = hints.get(name, inspect.Parameter.empty)
        if hint is inspect.Parameter.empty or isinstance(hint, str):
            hint = Any if each.default in (None, each.empty) else type(each.default)
        found[name] = ModelOption(name, hint, each.default)
    return found


def read_model_options(
    options: Mapping[str, ModelOption], given: Mapping[str, Any], model: str
) -> dict[str, Any]:
    """The options given for a model, of their types.

    Raises InvalidArgumentError for an unknown name, a value of another type, and a missing option.
    """
    for name in given:
        if name not in options:
            near = did_you_mean(str(name), options, before="model.")
            known = f"has no such option, it has {', '.join(options)}" if options else "has no options"
            raise InvalidArgumentError(f"model.{name}: {model} {known}{near}")
    missing = [name for name, option in options.items() if option.required and name not in given]
    if missing:
        raise InvalidArgumentError(
            f"model.{missing[0]}: {model} needs it; give --model.{missing[0]} "
            f"{_example(options[missing[0]].type)}"
        )
    return {name: options[name].read(value, model) for name, value in given.items()}


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value)
    if origin is typing.Annotated:
        return _read(arguments[0], value)
    if origin is typing.Literal:
        return _read_literal(arguments, value)
    if kind is types.NoneType or kind is None:
        if value is None or (isinstance(value, str) and value.lower() in _NONE):
            return None
        raise _UnreadableError
    if (origin or kind) in (tuple, list):
        return _read_items(origin or kind, arguments, value)
    if kind is bool:
        return _read_flag(value)
    if kind in (int, float):
        return _read_number(kind, value)
    if kind is str:
        if not isinstance(value, str):
            raise _UnreadableError
        return value
    return value_of_text(value) if isinstance(value, str) else value


def _read_union(members: tuple[Any, ...], value: Any) -> Any:
    for kind in sorted(members, key=lambda kind: kind is str):  # a text fits everything
        try:
            return _read(kind, value)
        except _UnreadableError:
            continue
    raise _UnreadableError


def _read_literal(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if value == choice and type(value) is type(choice):
            return choice
    for choice in choices:
        if isinstance(value, str) and value == str(choice):
            return choice
    raise _UnreadableError


def _read_items(kind: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise _UnreadableError
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(arguments) != len(value):
            raise _UnreadableError
        kinds = list(arguments)
    else:
        kinds = [arguments[0] if arguments else Any] * len(value)
    return kind(_read(each, item) for each, item in zip(kinds, value, strict=True))


def _read_flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    if not isinstance(value, bool):
        raise _UnreadableError
    return value


def _read_number(kind: type[int] | type[float], value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _UnreadableError
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise _UnreadableError from None
    if not math.isfinite(number) or (kind is int and number != float(value)):
        raise _UnreadableError
    return number


def value_of_text(text: str) -> Any:
    """The value of an option without a type: a finite number, flag or None where the text is one."""
    for kind in (types.NoneType, int, float):
        try:
            return _read(kind, text)
        except _UnreadableError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _described(kind: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_described(each) for each in arguments)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if (origin or kind) in (tuple, list):
        inner = f" of {', '.join('...' if each is ... else each.__name__ for each in arguments)}"
        return f"values separated by commas{inner if arguments else ''}"
    if kind in (None, types.NoneType):
        return "none"
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def _example(kind: Any) -> str:
    return {int: "N", float: "X", bool: "true"}.get(kind, "VALUE")
