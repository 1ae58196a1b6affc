"""The operators of tensors, such as `x + y`, `x @ y` and `x[...]`.

Importing this module installs them. `==` and `!=` compare tensors by identity; use `tb.equal`.
"""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Tensor
from tensorbow.ops.elementwise import (
    abs,
    add,
    divide,
    floordiv,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    mod,
    multiply,
    negative,
    pow,
    subtract,
)
from tensorbow.ops.matmul import matmul
from tensorbow.ops.tensor_indices import item


def _times(x: Any, y: Any) -> Any:
    """x * y; a sparse tensor does it itself."""
    return NotImplemented if hasattr(y, "_with_values") else multiply(x, y)


def _reflected(function: Any) -> Any:
    def operator(y: Any, x: Any) -> Any:
        return function(x, y)

    operator.__doc__ = function.__doc__
    return operator


for _symbol, _function in {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "floordiv": floordiv,
    "mod": mod,
    "pow": pow,
    "and": logical_and,
    "or": logical_or,
    "xor": logical_xor,
}.items():
    Tensor.install_operator(f"__{_symbol}__", _function)
    Tensor.install_operator(f"__r{_symbol}__", _reflected(_function))
for _symbol, _comparison in {"lt": less, "le": less_equal, "gt": greater, "ge": greater_equal}.items():
    Tensor.install_operator(f"__{_symbol}__", _comparison)
Tensor.install_operator("__mul__", _times)
Tensor.install_operator("__matmul__", matmul)
Tensor.install_operator("__rmatmul__", _reflected(matmul))
Tensor.install_operator("__neg__", negative)
Tensor.install_operator("__abs__", abs)
Tensor.install_operator("__invert__", logical_not)
Tensor.install_operator("__getitem__", item)
