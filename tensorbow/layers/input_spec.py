"""`tb.layers.InputSpec`: the inputs that a layer takes, which its calls check (TensorFlow 1's name)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import AsDType, AsShape, Count, Kind, RefusedError, checked, optional, whole

__all__ = ["InputSpec"]

_AXIS, _EXTENT = whole(), optional(whole(0))


def _read_axes(value: Any) -> dict[int, int | None]:
    if not isinstance(value, Mapping):
        raise RefusedError
    return {_AXIS.read(axis): _EXTENT.read(extent) for axis, extent in value.items()}


AxisExtents: TypeAlias = Annotated[Any, Kind("a dictionary of extents by axes, as {-1: 3}", _read_axes)]


class InputSpec:
    """Dtype, rank and extents that a layer's inputs must have, as its attribute `input_spec`."""

    @checked
    def __init__(
        self,
        dtype: AsDType | None = None,
        shape: AsShape | None = None,
        ndim: Count | None = None,
        max_ndim: Count | None = None,
        min_ndim: Count | None = None,
        axes: AxisExtents | None = None,
    ):
        """shape: None for extents that may be any; it sets ndim. axes: extents by axis, negative ones from
        the end.
        """
        self.dtype, self.shape = dtype, shape
        self.ndim = ndim if shape is None or shape.ndims is None else shape.ndims
        self.max_ndim, self.min_ndim, self.axes = max_ndim, min_ndim, axes or {}

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if value not in (None, {})}
        return f"InputSpec({', '.join(f'{name}={value}' for name, value in given.items())})"

    def check(self, tensor: Any, layer: str) -> None:
        """Raises InvalidArgumentError, which names the layer, for another tensor; unknown extents pass."""
        tensor = tensor if isinstance(tensor, Tensor) else convert_to_tensor(tensor)
        ranks = (self.ndim, self.min_ndim, self.max_ndim)
        rank = tensor.shape.ndims
        if self.dtype is not None and tensor.dtype != self.dtype:
            raise self._unfit(tensor, layer)
        if rank is None:
            if self.axes or any(each is not None for each in ranks):
                raise self._unfit(tensor, layer)
            return
        exact, least, most = ranks
        if exact not in (None, rank) or rank < (least or 0) or (most is not None and rank > most):
            raise self._unfit(tensor, layer)
        wanted = dict(self.axes)
        if self.shape is not None and self.shape.ndims is not None:
            wanted |= dict(enumerate(self.shape.as_list()))
        for axis, extent in wanted.items():
            found = tensor.shape[axis] if -rank <= axis < rank else -1
            if None not in (extent, found) and found != extent:
                raise self._unfit(tensor, layer)

    def _unfit(self, tensor: Tensor, layer: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{layer}: expected inputs that fit {self}, got {tensor.spec}; reshape or cast them"
        )
