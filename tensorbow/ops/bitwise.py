"""Functions of the bits of whole numbers: of integers of one dtype, signed or not, which broadcast."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Tensor
from tensorbow.kinds import Name, checked
from tensorbow.ops import elementwise_table as table

__all__ = ["bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"]


@checked
def bitwise_and(x: Any, y: Any, name: Name = None) -> Tensor:
    """The bits that are set in both integers."""
    return table.BitwiseAnd.tensor(x, y, name=name)


@checked
def bitwise_or(x: Any, y: Any, name: Name = None) -> Tensor:
    """The bits that are set in one of the integers, or in both."""
    return table.BitwiseOr.tensor(x, y, name=name)


@checked
def bitwise_xor(x: Any, y: Any, name: Name = None) -> Tensor:
    """The bits that are set in one of the integers alone."""
    return table.BitwiseXor.tensor(x, y, name=name)


@checked
def invert(x: Any, name: Name = None) -> Tensor:
    """The bits that are not set in an integer: -x - 1 of a signed one."""
    return table.Invert.tensor(x, name=name)


@checked
def left_shift(x: Any, y: Any, name: Name = None) -> Tensor:
    """`x` with its bits moved up by `y` places; those above the dtype's are lost.

    As in TensorFlow a `y` below 0 counts as 0, and one of all bits or more as all but one.
    """
    return table.LeftShift.tensor(x, y, name=name)


@checked
def right_shift(x: Any, y: Any, name: Name = None) -> Tensor:
    """`x` with its bits moved down by `y` places, limited as in `left_shift`; a signed `x` keeps its sign."""
    return table.RightShift.tensor(x, y, name=name)
