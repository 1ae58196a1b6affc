"""Names of arguments of a call: TensorFlow's older ones, unknown ones, and the one that an error is about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from tensorbow.array_likes import holds_strings
from tensorbow.errors import InvalidArgumentError

# TensorFlow 1's older names of parameters, read where a call has the newer one only.
OLDER_NAMES = {
    **dict.fromkeys(("concat_dim", "dim", "dimension", "split_dim", "squeeze_dims"), "axis"),
    **dict.fromkeys(("reduction_axes", "reduction_indices"), "axis"),
    "expand_nonconcat_dim": "expand_nonconcat_dims",
    "thresh": "threshold",
    "keep_dims": "keepdims",
    "seq_dim": "seq_axis",
    "batch_dim": "batch_axis",
}


class UnfitError(InvalidArgumentError):
    """A value that cannot become a tensor of the wanted dtype.

    The code that raises it knows only the value; a checked call that got the value adds its own name.
    """

    def __init__(self, reason: str, value: Any, where: str = "", made: str = ""):
        """reason: the message; where: op and argument before it; made: the user's line after it."""
        super().__init__(f"{where}: {reason}{made}" if where else f"{reason}{made}")
        self.reason, self.value, self.made = reason, value, made


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


def naming_argument(
    error: InvalidArgumentError, label: str, arguments: Mapping[str, Any], others: Collection[str]
) -> UnfitError | None:
    """The error of a call with the name of the argument that it is about; None if that is not known.

    It is the one that could not become a tensor, or the only one that has strings where tensors of numbers
    are meant. others: names of arguments that are no tensors.
    """
    if isinstance(error, UnfitError):
        argument = _name_of_argument(error.value, arguments, others)
        if argument is not None:
            return UnfitError(error.reason, error.value, f"{label}: {argument}", error.made)
    elif type(error) is not InvalidArgumentError:
        return None
    texts = [name for name, value in arguments.items() if name not in others and holds_strings(value)]
    text = str(error)
    if len(texts) != 1 or texts[0] in text:
        return None
    return UnfitError(text.removeprefix(f"{label}: "), arguments[texts[0]], f"{label}: {texts[0]}")


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
