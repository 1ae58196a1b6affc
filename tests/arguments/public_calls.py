"""Every public callable of the library, and the notation of its arguments in the tables of calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import tensorbow as tb
from tests.arguments.odd_values import SORTS

# Modules of other names for functions of this library: their functions count under the first name.
FACADES = (
    *("debugging", "dtypes", "io", "linalg", "manip", "math", "random", "sets", "signal", "sparse"),
    *("spectral", "strings"),
)
PACKAGES = ("tensorbow", "replicator", "scheduler")

# The sort of an argument by its parameter's name, where a row does not say otherwise.
SORT_OF: Mapping[str, str] = {
    **dict.fromkeys(
        ("input", "input_tensor", "tensor", "value", "x", "y", "a", "b", "t", "features"), "tensor"
    ),
    **dict.fromkeys(("logits", "labels", "indices", "params", "bias", "filter", "out_backprop"), "tensor"),
    **dict.fromkeys(("mean", "variance", "offset", "scale", "stddev", "values", "inputs"), "tensor"),
    "axis": "axis",
    "keepdims": "flag",
    "keep_dims": "flag",
    "name": "name",
    "shape": "shape",
    "dtype": "dtype",
    "seed": "seed",
    **dict.fromkeys(("padding", "data_format"), "choice"),
    **dict.fromkeys(("strides", "ksize", "dilations"), "windows"),
}


@dataclass(frozen=True)
class Call:
    """A good call of a public callable.

    arguments: makes the good arguments, in the graph of the call; parameters left out keep their defaults.
    sorts: by parameter, the sort of argument (a key of `SORTS`) where `SORT_OF` does not say; "sort or none"
        where None means something.
    takes: by parameter, odd values that mean something here beyond those of the sort.
    target: makes the callable itself, for methods; None: the public object.
    names: what errors may call the callable beside its own name, as the op's name.
    """

    arguments: Callable[[], Mapping[str, Any]] = dict
    sorts: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    target: Callable[[], Callable[..., Any]] | None = None
    names: tuple[str, ...] = ()

    def accepted(self, parameter: str) -> frozenset[str]:
        """The odd values that the call may take for a parameter. Raises KeyError for one without a sort."""
        sort = self.sorts.get(parameter) or SORT_OF[parameter]
        plain = sort.removesuffix(" or none")
        more = frozenset({"none"}) if plain != sort else frozenset()
        return SORTS[plain] | more | self.takes.get(parameter, frozenset())


def public_callables() -> dict[str, Any]:
    """Public callables by name: functions (`nn.conv2d`), constructors (`Session`), methods (`Session.run`).

    An object with several names is listed once, under the first. Exceptions, methods without parameters, and
    callables made by NumPy, Python or a dataclass are left out.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def add(name: str, value: Any) -> None:
        if id(value) not in seen:
            seen.add(id(value))
            found[name] = value

    def walk(prefix: str, module: ModuleType, names: list[str]) -> None:
        for name in sorted(names, key=lambda name: (name in FACADES, name)):
            value = getattr(module, name)
            if inspect.ismodule(value):
                if value is not tb.errors:
                    walk(f"{prefix}{name}.", value, getattr(value, "__all__", None) or _own(value))
            elif inspect.isclass(value) and not issubclass(value, Exception):
                add(f"{prefix}{name}", value)
                for method, function in inspect.getmembers(value, callable):
                    if _is_public(method) and _is_ours(function):
                        add(getattr(function, "__qualname__", f"{name}.{method}"), function)
            elif inspect.isroutine(value):
                add(f"{prefix}{name}", value)

    walk("", tb, dir(tb))
    return {name: value for name, value in found.items() if parameters(value)}


def parameters(target: Any) -> list[str]:
    """The names of the parameters that can be given by name."""
    try:
        signature = inspect.signature(target)
    except ValueError:
        return []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in signature.parameters.values() if p.kind in by_name and p.name != "self"]


def names_of(name: str, call: Call, target: Any) -> tuple[str, ...]:
    """Names that an error may use for a callable; of several names of one object, any."""
    own = (getattr(target, "__name__", name), name.rpartition(".")[2])
    return (*own, *name.split(".")[:-1][-1:], *call.names)


def plain(text: str) -> str:
    """A text without case and underscores: `reduce_sum` and `ReduceSum` alike."""
    return re.sub(r"_", "", text.lower())


def _own(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _is_public(method: str) -> bool:
    return method == "__call__" or not method.startswith("_")


def _is_ours(function: Any) -> bool:
    module = getattr(function, "__module__", None) or ""
    return inspect.isroutine(function) and module.split(".")[0] in PACKAGES
