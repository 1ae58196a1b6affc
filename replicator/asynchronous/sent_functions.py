"""The user's functions as bytes for other processes, with a clear error for what cannot be sent."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

from tensorbow.errors import InvalidArgumentError

MOST_LEVELS = 8  # of functions that refer to others
OURS = ("replicator", "scheduler", "tensorbow")


def pickled(dumps: Callable[[Any], bytes], functions: dict[str, Any], more: Any = None) -> bytes:
    """The values of `functions` as a list, and then `more`, pickled by value.

    dumps: of cloudpickle. functions: by the names that messages have. Raises InvalidArgumentError that names
    the variable that cannot be pickled.
    """
    try:
        return dumps([*functions.values(), more])
    except Exception as error:  # whatever the objects raise
        why = f"{type(error).__name__}: {error}"
        for name, function in functions.items():
            if not _can(dumps, function):
                raise InvalidArgumentError(
                    f"{name}: expected a function that can be sent to the workers, but "
                    f"{_culprit(dumps, function)} cannot be pickled ({why:.200}); make it inside of the "
                    "function, so that each worker makes its own, or open it from a path or a number there"
                ) from None
        raise


def _can(dumps: Callable[[Any], bytes], value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


def _culprit(dumps: Callable[[Any], bytes], function: Any) -> str:
    """The innermost variable that a function refers to and that cannot be pickled, with its kind.

    A field of an object is named with the object. Objects of this library are not looked into.
    """
    name, found, seen = "it", function, {id(function)}
    for _ in range(MOST_LEVELS):
        is_object = not isinstance(found, (FunctionType, MethodType, functools.partial))
        if is_object and type(found).__module__.partition(".")[0] in OURS:
            break
        for inner, value in _referred(found):
            if id(value) not in seen and not _can(dumps, value):
                name, found = (f"{name}.{inner}" if is_object else inner), value
                seen.add(id(value))
                break
        else:
            break
    return name if found is function else f"its variable {name} (a {type(found).__name__})"


def _referred(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a function, a method or an object refers to."""
    if isinstance(value, MethodType):
        yield from (("self", value.__self__), (value.__name__, value.__func__))
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), *((f"args[{n}]", each) for n, each in enumerate(value.args)))
        yield from value.keywords.items()
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # it is not assigned yet
                continue
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield name, value.__globals__[name]
        yield from ((f"default {n}", each) for n, each in enumerate(value.__defaults__ or ()))
    else:
        yield from getattr(value, "__dict__", {}).items()
