"""Element-wise functions of a sparse tensor: they map its values and keep its coordinates and shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tensorbow.graph import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def maps_values(function: Function) -> Function:
    """A function of a tensor `x` that takes a `tb.SparseTensor`, too, and then gives one.

    Only for functions that are 0 at 0, since what has no entry stays without one.
    """

    @wraps(function)
    def mapped(x: Any, *args: Any, **kwargs: Any) -> Any:
        if type(x) is Tensor:
            return function(x, *args, **kwargs)
        with_values = getattr(x, "_with_values", None)
        if with_values is None:
            return function(x, *args, **kwargs)
        return with_values(function(x.values, *args, **kwargs))

    return mapped  # type: ignore[return-value]
