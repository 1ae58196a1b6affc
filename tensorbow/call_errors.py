"""Errors of public calls, in the words of the call that the user made: its name and its argument's.

A public call is made of others: `dense` of `matmul`, `adjust_hue` of `rgb_to_hsv`. An error of an inner call
knows only that one. Each checked call that it passes gives it its own name; the outermost one's remains.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Any

from tensorbow.array_likes import holds_strings
from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError

# Folder of the packages; the file name is as in frames, possibly a relative path.
ROOT = os.path.dirname(os.path.dirname((lambda: 0).__code__.co_filename))
PACKAGES = tuple(
    os.path.join(ROOT, package) + os.sep for package in ("tensorbow", "scheduler", "replicator", "allocators")
)
_MODELS = os.path.join(ROOT, "tensorbow", "models") + os.sep  # shipped models count as user code
_PYTHONS = os.path.dirname(os.__file__) + os.sep  # contextlib, functools and the like
# TensorFlow 1's older names of parameters, read where a call has the newer one only.
OLDER_NAMES = {
    **dict.fromkeys(
        (
            *("concat_dim", "dim", "dimension", "split_dim"),
            "reduction_axes",
            "reduction_indices",
            "squeeze_dims",
        ),
        "axis",
    ),
    "expand_nonconcat_dim": "expand_nonconcat_dims",
    "thresh": "threshold",
    "keep_dims": "keepdims",
    "seq_dim": "seq_axis",
    "batch_dim": "batch_axis",
}


_PLAIN = (InvalidArgumentError, NotFoundError)  # no subclass, as for NaN at run time


class UnfitError(InvalidArgumentError):
    """A value that cannot become a tensor of the wanted dtype.

    The code that raises it knows only the value; a checked call that got the value adds its own name.
    """

    def __init__(self, reason: str, value: Any, where: str = "", made: str = ""):
        """reason: the message; where: op and argument before it; made: the user's line after it."""
        super().__init__(f"{where}: {reason}{made}" if where else f"{reason}{made}")
        self.reason, self.value, self.made = reason, value, made

    def __reduce__(self) -> Any:
        return InvalidArgumentError, self.args  # another process has no use for the value

    def named(self, call: str, argument: str) -> UnfitError:
        """The error of a call that got the value as this argument."""
        return UnfitError(self.reason, self.value, f"{call}: {argument}", self.made)


class RefusedArgumentError(InvalidArgumentError):
    """An argument that is not what its call expects."""

    def __init__(self, call: str, argument: str, expected: str, value: Any, got: str):
        """got: the value in words, and the remedy."""
        super().__init__(f"{call}: expected {argument} to be {expected}, got {got}")
        self.call, self.argument, self.expected, self.value, self.got = call, argument, expected, value, got

    def __reduce__(self) -> Any:
        return InvalidArgumentError, self.args

    def named(self, call: str, argument: str) -> RefusedArgumentError:
        """The error of a call that got the value as this argument."""
        return RefusedArgumentError(call, argument, self.expected, self.value, self.got)


def of_call(
    error: TensorBowError, call: str, arguments: Mapping[str, Any], others: Collection[str]
) -> TensorBowError:
    """The error that a checked call raises for an error within it.

    The argument is the one whose value could not become a tensor or was refused, or the only one that has
    strings where tensors of numbers are meant. The same error is returned if that is not known.
    arguments: those of the call by name. others: names of arguments that are no tensors.
    """
    if isinstance(error, UnfitError):
        argument = _name_of_argument(error.value, arguments, others)
        if argument is not None:
            return error.named(call, argument)
    elif isinstance(error, RefusedArgumentError):
        is_own = error.call in call.split(".") and error.argument in arguments
        is_own = is_own or not error.argument.isidentifier()  # says more, as a variable's initializer
        argument = None if is_own else _only_name_of(error, arguments)
        if argument is not None and not _passes_user_code(error):
            return error.named(call, argument)
    elif type(error) is not InvalidArgumentError:
        return error
    text = str(error)
    texts = [name for name, value in arguments.items() if name not in others and holds_strings(value)]
    if len(texts) == 1 and texts[0] not in text and type(error) in (InvalidArgumentError, UnfitError):
        return UnfitError(text.removeprefix(f"{call}: "), arguments[texts[0]], f"{call}: {texts[0]}")
    return error


def name_function(error: TensorBowError, call: str) -> None:
    """Begins an error's text with a function's name, in place of an inner one's that was put before it.

    Errors within a user's function that was called keep the names of the calls in it.
    """
    if isinstance(error, (UnfitError, RefusedArgumentError)) or type(error) in _PLAIN:
        text: str = vars(error).setdefault("_innermost_text", str(error))
        if not _passes_user_code(error):
            error.args = (text if _is_named(call, text) else f"{call}: {text}",)


def _is_named(call: str, text: str) -> bool:
    """True if one of the words before a colon is the call's name, or its op's, as `Conv2D` of `conv2d`."""
    before = text.partition("(made at ")[0].split(": ")[:-1]
    return _plain(call) in map(_plain, re.findall(r"\w+", " ".join(before)))


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _passes_user_code(error: BaseException) -> bool:
    """True if a user's function lies between the call that caught an error and the line that raised it."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        is_ours = file.startswith((*PACKAGES, "<")) and not file.startswith(_MODELS)  # <: generated code
        if not is_ours and not (file.startswith(_PYTHONS) and "site-packages" not in file):
            return True
        trace = trace.tb_next
    return False


def _only_name_of(error: RefusedArgumentError, arguments: Mapping[str, Any]) -> str | None:
    """Name of the argument that is the refused value; of several, the one named as in the inner call."""
    names = [name for name, value in arguments.items() if value is error.value]
    if error.argument in names:
        return error.argument
    return names[0] if len(names) == 1 else None


def _name_of_argument(value: Any, arguments: Mapping[str, Any], others: Collection[str]) -> str | None:
    """Name of the argument that is `value`, none of the others, or that lists it, then with the index."""
    for name, argument in arguments.items():
        if argument is value and name not in others:
            return name
    for name, argument in arguments.items():
        if isinstance(argument, (list, tuple)):
            for index, item in enumerate(argument):
                if item is value:
                    return f"{name}[{index}]"
    return None


def by_newer_names(label: str, given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Arguments with older names replaced. Raises InvalidArgumentError for one given by both names."""
    result: dict[str, Any] = {}
    for name, value in given.items():
        newer = OLDER_NAMES.get(name, name)
        chosen = newer if name not in known and newer in known else name
        if chosen != name and chosen in given:
            raise InvalidArgumentError(f"{label}: {name} is the older name of {chosen}: give one of them")
        result[chosen] = value
    return result


def remedy_of_unknown(error: TypeError, given: Iterable[str], known: Iterable[str]) -> str | None:
    """Remedy for the unknown argument that an error of a call is about: a name like it, or all names."""
    unknown = next((name for name in given if name not in known and repr(name) in str(error)), None)
    if unknown is None:
        return None
    names = [name for name in known if name != "self"]
    near = get_close_matches(unknown, names, 1) or [name for name in names if name.startswith(unknown)]
    return f"did you mean {near[0]}?" if near else f"it takes {', '.join(names)}"
