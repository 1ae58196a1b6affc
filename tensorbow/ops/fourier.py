"""Discrete Fourier transforms over the last one, two or three axes, by NumPy.

Each transform of a stack is made on its own, so a step allocates the size of one transform, never of the
stack. There are no GPU kernels of complex numbers: they run on a CPU beside a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    OpDef,
    Operation,
    Tensor,
    as_numbers,
    name_scope,
)
from tensorbow.kinds import AxisNumbers, Name, checked, optional, sequence, whole
from tensorbow.ops.arrays import stack
from tensorbow.ops.broadcasting import checked_axis, dims_of_vector, shape
from tensorbow.ops.complex_numbers import WHY_CPU
from tensorbow.ops.control import identity
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import divide, floordiv, multiply
from tensorbow.ops.positions import roll
from tensorbow.ops.reductions import reduce_prod
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import COMPLEX, FLOATING, Array, DType, TensorSpec, complex64, complex128, float32

__all__ = [
    "fft",
    "fft2d",
    "fft3d",
    "ifft",
    "ifft2d",
    "ifft3d",
]

FftLength = Annotated[Any, optional(sequence(whole(1), "a list of whole numbers of at least 1", lone=True))]


def _each(name: str, axes: int, transform: Callable[[Array, Attrs], Array]) -> Kernel:
    """A kernel that transforms the last axes, for each index of the others."""

    def prepare(call: KernelCall) -> Callable[[], None]:
        (x,), (out,) = call.inputs, call.outputs
        lead = x.ndim - axes
        indices = list(np.ndindex(*x.shape[:lead])) if out.size else []

        def run() -> None:
            for index in indices:
                out[index] = transform(x[index], call.attrs)

        return run

    return Kernel(prepare=prepare)


def _extents(op: str, x: TensorSpec, axes: int) -> tuple[int | None, ...]:
    if x.rank < axes:
        raise InvalidArgumentError(
            f"{op}: the input is {x}, expected rank {axes} or more; use tb.expand_dims"
        )
    extents = x.dims[x.rank - axes :]
    if 0 in extents:
        raise InvalidArgumentError(f"{op}: the input is {x}, expected at least one element along each axis")
    return extents


# Complex to complex -----------------------------------------------------------------------------------


def _number_of_elements(x: Tensor, axes: int, dtype: DType) -> Tensor:
    return cast(reduce_prod(strided_slice(shape(x), slice(-axes, None))), dtype)


def _complex_transform(axes: int, inverse: bool) -> OpDef:
    name = f"{'I' if inverse else ''}FFT{f'{axes}D' if axes > 1 else ''}"
    function = np.fft.ifftn if inverse else np.fft.fftn

    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        require_dtype(name, inputs[0], COMPLEX)
        _extents(name, inputs[0], axes)
        return TensorSpec(inputs[0].shape, inputs[0].dtype)

    def gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
        """The other transform, times the number of elements or divided by it."""
        count = _number_of_elements(g, axes, g.dtype)
        turned: Tensor = _TRANSFORMS[axes, not inverse](g)
        return [divide(turned, count) if inverse else multiply(turned, count)]

    return define_op(
        name,
        spec=spec,
        gradient=gradient,
        kernel=_each(name, axes, lambda x, attrs: function(x)),
        inputs=("input",),
        why_cpu=WHY_CPU,
    )


_BOTH = (False, True)
_TRANSFORMS = {(axes, inverse): _complex_transform(axes, inverse) for axes in (1, 2, 3) for inverse in _BOTH}
FFT, IFFT, FFT2D, IFFT2D, FFT3D, IFFT3D = _TRANSFORMS.values()


def _transformed(axes: int, inverse: bool, x: Any, name: str | None) -> Tensor:
    result: Tensor = _TRANSFORMS[axes, inverse](x, name=name)
    return result


@checked
def fft(input: Any, name: Name = None) -> Tensor:
    """The discrete Fourier transform of complex numbers along the last axis, without a factor."""
    return _transformed(1, False, input, name)


@checked
def ifft(input: Any, name: Name = None) -> Tensor:
    """The inverse of `fft`: divided by the number of elements."""
    return _transformed(1, True, input, name)


@checked
def fft2d(input: Any, name: Name = None) -> Tensor:
    """The discrete Fourier transform of complex numbers over the last two axes, without a factor."""
    return _transformed(2, False, input, name)


@checked
def ifft2d(input: Any, name: Name = None) -> Tensor:
    """The inverse of `fft2d`: divided by the number of elements."""
    return _transformed(2, True, input, name)


@checked
def fft3d(input: Any, name: Name = None) -> Tensor:
    """The discrete Fourier transform of complex numbers over the last three axes, without a factor."""
    return _transformed(3, False, input, name)


@checked
def ifft3d(input: Any, name: Name = None) -> Tensor:
    """The inverse of `fft3d`: divided by the number of elements."""
    return _transformed(3, True, input, name)


# Real to complex, and back ------------------------------------------------------------------------------


def _fitted(x: Array, extents: Sequence[int]) -> Array:
    """The first elements along each axis, and zeros behind them where there are too few."""
    if x.shape == tuple(extents):
        return x
    result = np.zeros(extents, x.dtype)
    both = tuple(slice(min(a, b)) for a, b in zip(x.shape, extents, strict=True))
    result[both] = x[both]
    return result


def _half(extents: Sequence[int]) -> tuple[int, ...]:
    return (*extents[:-1], extents[-1] // 2 + 1)


def _forward(x: Array, lengths: Sequence[int]) -> Array:
    return np.fft.rfftn(x, lengths, axes=range(-len(lengths), 0))


def _forward_adjoint(g: Array, lengths: Sequence[int], extents: Sequence[int]) -> Array:
    """Inverse transform without its factor, of g and zeros for the half that `_forward` leaves out."""
    return _fitted(np.fft.ifftn(_fitted(g, lengths), norm="forward").real, extents)


def _backward(y: Array, lengths: Sequence[int]) -> Array:
    return np.fft.irfftn(y, lengths, axes=range(-len(lengths), 0))


def _backward_adjoint(g: Array, lengths: Sequence[int], extents: Sequence[int]) -> Array:
    """The forward transform divided by the number of elements; an element that also stands for the one of
    the other half counts twice."""
    y = np.fft.rfftn(g, norm="forward")
    y[..., 1 : (lengths[-1] + 1) // 2] *= 2
    return _fitted(y, extents)


def _lengths(op: str, x: TensorSpec, axes: int, attrs: Attrs, half: bool = False) -> tuple[int | None, ...]:
    """The extents of the real numbers: the attribute, or those that the input has."""
    extents, lengths = _extents(op, x, axes), attrs["fft_length"]
    if lengths is not None:
        if len(lengths) != axes:
            raise InvalidArgumentError(
                f"{op}: fft_length is {list(lengths)}, expected one number for each of the {axes} axes"
            )
        return tuple(lengths)
    if not half or extents[-1] is None:
        return extents
    return (*extents[:-1], max(2 * extents[-1] - 2, 1))


class _RealTransform:
    """A linear map between real numbers and halves of transforms, and its adjoint, as a pair of ops.

    Each is the gradient of the other, so gradients of any order are exact.
    """

    def __init__(self, axes: int, inverse: bool):
        self.axes = axes
        self.inverse = inverse
        self.name = f"{'I' if inverse else ''}RFFT{f'{axes}D' if axes > 1 else ''}"
        self.op = define_op(
            self.name,
            spec=self._spec,
            gradient=lambda op, g: [self.adjoint(g, shape(op.inputs[0]), **op.attrs)],
            kernel=Kernel(prepare=self._prepare),
            inputs=("input",),
            attrs={"fft_length": None},
            why_cpu=WHY_CPU,
            unknown_dtypes=lambda inputs, attrs: (self._result(inputs[0].dtype),),
        )
        self.adjoint = define_op(
            f"{self.name}Grad",
            spec=self._adjoint_spec,
            gradient=lambda op, g: [self.op(g, **op.attrs), None],
            kernel=Kernel(prepare=self._prepare_adjoint),
            inputs=("gradient", "shape"),
            attrs={"fft_length": None},
            shape_inputs=(1,),
            why_cpu=WHY_CPU,
            unknown_dtypes=lambda inputs, attrs: (self._result(inputs[0].dtype),),
        )

    @staticmethod
    def _result(dtype: DType) -> DType:
        return dtype.real_dtype if dtype.is_complex else complex64 if dtype == float32 else complex128

    def _spec(self, inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        (x,) = inputs
        require_dtype(self.name, x, COMPLEX if self.inverse else FLOATING)
        lengths = _lengths(self.name, x, self.axes, attrs, half=self.inverse)
        lead = x.dims[: x.rank - self.axes]
        if self.inverse:
            return TensorSpec((*lead, *lengths), self._result(x.dtype))
        last = None if lengths[-1] is None else lengths[-1] // 2 + 1
        return TensorSpec((*lead, *lengths[:-1], last), self._result(x.dtype))

    def _adjoint_spec(self, inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        g, target = inputs
        name = f"{self.name}Grad"
        require_dtype(name, g, FLOATING if self.inverse else COMPLEX, "the gradient")
        _extents(name, g, self.axes)
        dims, lead = dims_of_vector(name, target), g.dims[: g.rank - self.axes]
        if dims is not None:
            same = (
                len(dims) == g.rank
                and 0 not in dims[len(lead) :]
                and all(a == b or None in (a, b) for a, b in zip(dims, lead, strict=False))
            )
            if not same:
                raise InvalidArgumentError(
                    f"{name}: the gradient is {g}; expected the rank of the shape {list(dims)}, its extents "
                    f"before the last {self.axes}, and no empty axis"
                )
        return TensorSpec(dims, self._result(g.dtype))

    def _prepare(self, call: KernelCall) -> Callable[[], None]:
        (x,), (out,) = call.inputs, call.outputs
        lead = x.ndim - self.axes
        lengths = call.attrs["fft_length"] or (out if self.inverse else x).shape[lead:]
        transform = _backward if self.inverse else _forward
        indices = list(np.ndindex(*x.shape[:lead]))

        def run() -> None:
            for index in indices:
                out[index] = transform(x[index], lengths)

        return run

    def _prepare_adjoint(self, call: KernelCall) -> Callable[[], None]:
        (g, _), (out,) = call.inputs, call.outputs
        lead = g.ndim - self.axes
        lengths = call.attrs["fft_length"] or (g if self.inverse else out).shape[lead:]
        transform = _backward_adjoint if self.inverse else _forward_adjoint
        indices, extents = list(np.ndindex(*g.shape[:lead])), out.shape[lead:]

        def run() -> None:
            for index in indices:
                out[index] = transform(g[index], lengths, extents)

        return run


_REAL = {(axes, inverse): _RealTransform(axes, inverse) for axes in (1, 2, 3) for inverse in _BOTH}
RFFT, IRFFT, RFFT2D, IRFFT2D, RFFT3D, IRFFT3D = (each.op for each in _REAL.values())
RFFTGrad, IRFFTGrad, RFFT2DGrad, IRFFT2DGrad, RFFT3DGrad, IRFFT3DGrad = (
    each.adjoint for each in _REAL.values()
)


def _real_transformed(axes: int, inverse: bool, x: Any, fft_length: Any, name: str | None) -> Tensor:
    result: Tensor = _REAL[axes, inverse].op(x, fft_length=fft_length, name=name)
    return result


@checked
def rfft(input: Any, fft_length: FftLength = None, name: Name = None) -> Tensor:
    """The first n // 2 + 1 elements of the Fourier transform of real numbers along the last axis.

    fft_length: n, for which the input is cut or padded with zeros; by default the extent. float32 gives
    complex64, float64 complex128.
    """
    return _real_transformed(1, False, input, fft_length, name)


@checked
def irfft(input: Any, fft_length: FftLength = None, name: Name = None) -> Tensor:
    """The inverse of `rfft`: `fft_length` real numbers, by default an even number, 2 * (extent - 1)."""
    return _real_transformed(1, True, input, fft_length, name)


@checked
def rfft2d(input: Any, fft_length: FftLength = None, name: Name = None) -> Tensor:
    """The Fourier transform of real numbers over the last two axes: of the last its first half, see `rfft`.

    fft_length: two whole numbers.
    """
    return _real_transformed(2, False, input, fft_length, name)


@checked
def irfft2d(input: Any, fft_length: FftLength = None, name: Name = None) -> Tensor:
    """The inverse of `rfft2d`; fft_length: two whole numbers, see `irfft`."""
    return _real_transformed(2, True, input, fft_length, name)


@checked
def rfft3d(input: Any, fft_length: FftLength = None, name: Name = None) -> Tensor:
    """The Fourier transform of real numbers over the last three axes: of the last its first half, see `rfft`.

    fft_length: three whole numbers.
    """
    return _real_transformed(3, False, input, fft_length, name)


@checked
def irfft3d(input: Any, fft_length: FftLength = None, name: Name = None) -> Tensor:
    """The inverse of `rfft3d`; fft_length: three whole numbers, see `irfft`."""
    return _real_transformed(3, True, input, fft_length, name)


# Order of the frequencies -------------------------------------------------------------------------------


@checked
def fftshift(x: Any, axes: AxisNumbers = None, name: Name = None) -> Tensor:
    """`x` rolled by half of each of `axes` (default: all), so that frequency 0 is in the middle."""
    return _shifted(x, axes, 1, name)


@checked
def ifftshift(x: Any, axes: AxisNumbers = None, name: Name = None) -> Tensor:
    """The inverse of `fftshift`; another only along axes of odd extent."""
    return _shifted(x, axes, -1, name)


def _shifted(x: Any, axes: tuple[int, ...] | None, sign: int, name: str | None) -> Tensor:
    tensor = as_numbers(x)
    rank = tensor.spec.rank
    chosen = [checked_axis("fftshift", axis, rank) for axis in (range(rank) if axes is None else axes)]
    if not chosen:
        return identity(tensor, name)
    with tensor.graph.as_default(), name_scope(name or "fftshift"):
        extents = shape(tensor)
        halves = stack([floordiv(strided_slice(extents, axis), 2) for axis in chosen])
        return roll(tensor, multiply(halves, sign), chosen)
