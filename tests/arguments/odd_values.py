"""Values that a careless or hostile caller gives, and for each sort of argument those that mean something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tensorbow as tb


class OfFloat(float):
    """A float as other libraries subclass it."""


class OfAnything:
    """A class whose objects are made of any arguments."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass


class OfText(str):
    """A string as other libraries subclass it."""


ODD: Mapping[str, Callable[[], Any]] = {  # made anew for each call, in its graph
    "none": lambda: None,
    "true": lambda: True,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "text": lambda: "1",
    "bytes": lambda: b"1",
    "empty text": lambda: "",
    "object": object,
    "empty list": list,
    "empty dict": dict,
    "tensor": lambda: tb.constant([1.0, 2.0]),
    "variable": lambda: tb.Variable(np.zeros(2, np.float32), name="odd"),
    "array": lambda: np.array([1.0, 2.0]),
    "nan array": lambda: np.full((2, 3), np.nan),
    "-1": lambda: -1,
    "2**40": lambda: 2**40,
    "2**70": lambda: 2**70,
    "10**5000": lambda: 10**5000,  # `repr` raises ValueError
    "function": lambda: lambda *_: None,
    "class": lambda: OfAnything,
    "set": lambda: {1},
    "generator": lambda: (i for i in (0, 1)),
    "float subclass": lambda: OfFloat(1.5),
    "str subclass": lambda: OfText("1"),
    "complex": lambda: 1j,
    "ragged list": lambda: [[1], [2, 3]],
    "graph": tb.Graph,
}

_TEXTS = frozenset({"text", "empty text", "str subclass"})
_NUMBERS = frozenset({"1.5", "-1", "2**40", "2**70", "float subclass"})
_TENSORS = frozenset(
    {"true", "1.5", "nan", "empty list", "tensor", "variable", "array", "nan array", "-1", "2**40"}
    | {"float subclass", "complex"}
)
_EXTENTS = frozenset({"empty list", "tensor", "variable", "array", "-1", "2**40"})

# What may be taken, by the sort of argument. Even of these a call may refuse what does not fit its other
# arguments; all others it must refuse by name.
SORTS: Mapping[str, frozenset[str]] = {
    "tensor": _TENSORS,  # whatever becomes a tensor
    "real": _TENSORS - {"true"},  # of numbers, where True would be 1
    "tensors": frozenset({"empty list", "array", "nan array", "generator"}),  # a list of them
    "flag": frozenset({"true"}),
    "truth": frozenset(),  # a tensor of one bool
    "branch": frozenset(),  # a function that is called at once
    "axis": frozenset({"-1"}),
    "axes": frozenset({"-1", "empty list"}),
    "count": frozenset({"2**40"}),
    "seed": frozenset({"-1", "2**40"}),
    "number": _NUMBERS,
    "positive": _NUMBERS - {"-1"},
    "fraction": frozenset(),  # at least 0 and below 1
    "numbers": frozenset({"array"}),  # a list of them
    "variable": frozenset({"variable"}),
    "name": _TEXTS | {"none"},
    "text": _TEXTS,
    "choice": frozenset(),  # one of a few strings
    "dtype": frozenset(),
    "shape": _EXTENTS,  # a vector of extents, which may be a tensor
    "extents": frozenset({"empty list", "2**40"}),  # numbers alone
    "windows": frozenset({"2**40"}),  # a number, [height, width] or [1, height, width, 1]
    "texts": _TEXTS | {"empty list"},  # one or several
    "nothing": frozenset({"none"}),  # of parameters that have no use
    "object": frozenset(),  # of a class of this library
    "value": _TENSORS - {"tensor", "variable"},  # a number, an array, a nested list of numbers
    "index": frozenset({"none", "-1", "2**40"}),  # what stands in x[...]
    "scalar": _NUMBERS - {"2**70"} | {"true", "nan"},
    "rate": frozenset({"1.5", "-1", "2**40", "2**70", "float subclass", "tensor", "variable"}),
    "static shape": frozenset({"none", "empty list", "-1", "2**40", "generator"}),
    "names": frozenset({"none", "empty dict"}),  # a dictionary by names
    "elements": frozenset({"none", "empty list"}),  # a list of names
    "mapping": frozenset({"empty dict"}),
    "function": frozenset({"function", "class"}),
    "list": frozenset({"empty list"}),
    "list of texts": frozenset({"empty list"}),
    "strings": _TEXTS | {"bytes", "empty list"},  # a tensor of them
    "list of strings": frozenset(),
    "integers": frozenset({"-1", "2**40", "empty list"}),  # a tensor of them
    "digits": frozenset({"-1"}),
    "fill": frozenset({"empty text"}),
    "encoding": frozenset({"empty text"}),
    "anything": frozenset(ODD),
}
