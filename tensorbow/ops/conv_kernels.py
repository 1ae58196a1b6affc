"""Reference kernels of convolution and its two derivatives.

They are matrix products over windows unrolled piece by piece (`im2col`). The input gradient has two
forms; the faster one is chosen by shape: convolution of the output's gradient with the flipped
filter (same extents, few output channels), or one product per filter element, added to the images at
the element's position in the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.graph import Attrs, Kernel, KernelCall, NodeSpec
from tensorbow.ops.array_views import Copy, after, as_matrix, packed
from tensorbow.ops.im2col import Unrolling, correlate, scatter
from tensorbow.ops.sliding_windows import Windows
from tensorbow.specs import DType, TensorSpec, as_dtype


def _unrolling(images: Sequence[int], filters: Sequence[int], attrs: Attrs, dtype: DType) -> Unrolling:
    windows = Windows.of(images, filters, attrs["strides"], attrs["padding"], attrs["dilations"])
    return Unrolling(images[0], windows.rows, windows.columns, images[3], dtype)


def _conv2d_scratch(node: NodeSpec) -> list[TensorSpec]:
    images, filters = node.inputs
    return _unrolling(images.extents, filters.extents, node.attrs, images.dtype).scratch()


def _prepare_conv2d(call: KernelCall) -> Callable[[], None]:
    images, filters = call.inputs
    unrolling = _unrolling(images.shape, filters.shape, call.attrs, as_dtype(images.dtype))
    copies: list[Copy] = []
    matrix = as_matrix(packed(filters, copies))
    return after(copies, correlate(unrolling, images, matrix, call.outputs[0], call.scratch))


def _backprop_filter_scratch(node: NodeSpec) -> list[TensorSpec]:
    images, _, gradient = node.inputs
    unrolling = _unrolling(images.extents, node.outputs[0].extents, node.attrs, images.dtype)
    partial = (unrolling.depth, gradient.extents[3]) if unrolling.pieces.count > 1 else (0, 0)
    return [*unrolling.scratch(), TensorSpec(partial, images.dtype)]


def _prepare_backprop_filter(call: KernelCall) -> Callable[[], None]:
    """Sum over the pieces of (windows transposed) @ gradient."""
    images, _, gradient = call.inputs
    unrolling = _unrolling(images.shape, call.outputs[0].shape, call.attrs, as_dtype(images.dtype))
    copies: list[Copy] = []
    gradient = packed(gradient, copies)
    total = as_matrix(call.outputs[0])
    frame, partial = call.scratch[1:]
    plan = [
        (piece.copies, piece.matrix.T, as_matrix(gradient[piece.images, piece.band]))
        for piece in unrolling.prepare(images, call.scratch)
    ]

    def step() -> None:
        if not plan:
            total.fill(0)
        frame.fill(0)
        for index, (piece_copies, windows, part) in enumerate(plan):
            for to, source in piece_copies:
                np.copyto(to, source)
            np.matmul(windows, part, out=partial if index else total)
            if index:
                np.add(total, partial, out=total)

    return after(copies, step)


def _is_flipped(unrolling: Unrolling, outputs: int) -> bool:
    """True if convolution with the flipped filter is the faster form of the input gradient (measured)."""
    rows, columns = unrolling.rows, unrolling.columns
    if rows.stride != 1 or columns.stride != 1 or unrolling.is_pointwise:
        return False
    extra_work = rows.extent * columns.extent / max(1, rows.count * columns.count)
    return extra_work <= 1.25 and outputs <= 2 * unrolling.channels


def _backprop_input_scratch(node: NodeSpec) -> list[TensorSpec]:
    _, filters, gradient = node.inputs
    unrolling = _unrolling(node.outputs[0].extents, filters.extents, node.attrs, gradient.dtype)
    if _is_flipped(unrolling, filters.extents[3]):
        scratch = unrolling.reversed(filters.extents[3]).scratch()
        return [*scratch, TensorSpec((*filters.extents[:2], *filters.extents[:1:-1]), filters.dtype)]
    return [] if unrolling.is_pointwise else unrolling.scatter_scratch()


def _prepare_backprop_input(call: KernelCall) -> Callable[[], None]:
    _, filters, gradient = call.inputs
    (result,) = call.outputs
    unrolling = _unrolling(result.shape, filters.shape, call.attrs, as_dtype(gradient.dtype))
    copies: list[Copy] = []
    if _is_flipped(unrolling, filters.shape[3]):
        turned = call.scratch[2]
        copies.append((turned, filters[::-1, ::-1].transpose(0, 1, 3, 2)))
        flipped = unrolling.reversed(filters.shape[3])
        return after(copies, correlate(flipped, gradient, as_matrix(turned), result, call.scratch))
    gradient, filters = packed(gradient, copies), packed(filters, copies)
    if unrolling.is_pointwise:
        left, right, product = as_matrix(gradient), filters[0, 0].T, as_matrix(result)
        return after(copies, lambda: np.matmul(left, right, out=product))
    return after(copies, scatter(unrolling, gradient, filters, result, call.scratch[0]))


CONV2D = Kernel(prepare=_prepare_conv2d, scratch=_conv2d_scratch)
BACKPROP_INPUT = Kernel(prepare=_prepare_backprop_input, scratch=_backprop_input_scratch)
BACKPROP_FILTER = Kernel(prepare=_prepare_backprop_filter, scratch=_backprop_filter_scratch)
