"""Native code of convolution and its two derivatives.

Images with padding are copied, a band of rows at a time, into a frame of zeros. The gradient of the images
is made in one of two ways, the cheaper of which is chosen by shape: as a convolution of the output's
gradient with the turned filter, or tap by tap, each adding its product where it lay (strides; small images,
whose windows reach far beyond the border).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from tensorbow.graph import Attrs, NodeSpec
from tensorbow.kernels.native.contraction import contraction
from tensorbow.kernels.native.contraction_fusion import NO_ENDING, WriteContraction, lower_contraction
from tensorbow.kernels.native.convolution import ConvolutionShape
from tensorbow.kernels.native.emitter import POINTER, Emitter, index, type_of
from tensorbow.kernels.native.ending import Ending
from tensorbow.kernels.native.epilogue import Spread
from tensorbow.kernels.native.microkernel import shared_function
from tensorbow.kernels.native.packing import copy_row, copy_rows, fill_zero, transpose
from tensorbow.kernels.native.target import Target
from tensorbow.kernels.plan import Ref
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.specs import FLOATING, DType, TensorSpec

Places = Sequence[ir.Value]
Shapes = tuple[Sequence[int], Sequence[int]]


Write = Callable[[Emitter, ConvolutionShape, Places, Ending[ir.Value]], None]


def _writer(write: Write, shapes: Callable[[Sequence[Ref], Ref], Shapes]) -> WriteContraction:
    """A template: `write` gets the places of floating inputs, the output and scratch.

    shapes: of images and filters, given the inputs and the output.
    """

    def written(
        e: Emitter,
        attrs: Attrs,
        inputs: Sequence[Ref],
        output: Ref,
        scratch: Sequence[Ref],
        ending: Ending[Ref] = NO_ENDING,
    ) -> None:
        what = ConvolutionShape.of(*shapes(inputs, output), attrs, output.dtype)
        own = [*(ref for ref in inputs if ref.dtype == output.dtype), output, *scratch]
        places = [e.address(ref) for ref in (*own, *ending.places)]
        count = len(own)
        function = shared_function(
            e,
            (write.__name__, what, ending.epilogue, ending.sums),
            [POINTER] * len(places),
            lambda inner, given: write(inner, what, given[:count], ending.at(given[count:])),
        )
        e.builder.call(function, places)

    return written


def _image(e: Emitter, what: ConvolutionShape, base: ir.Value, number: ir.Value, size: int) -> ir.Value:
    return e.offset(base, type_of(what.dtype), e.builder.mul(number, index(size)))


def _bands(
    e: Emitter, what: ConvolutionShape, images: ir.Value, frame: ir.Value
) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
    """What the windows of each band lie on, the number of the image, and that of the band, in their loops."""
    _clear(e, what, frame)
    with e.loop(what.batch) as i:
        for source, band in _bands_of(e, what, _image(e, what, images, i, what.image_size), frame):
            yield source, i, band


def _clear(e: Emitter, what: ConvolutionShape, frame: ir.Value) -> None:
    """Zeros around what will lie in a frame."""
    if what.is_framed:
        fill_zero(e, frame, math.prod(what.band_spec().extents), what.dtype)


def _bands_of(
    e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """What the windows of each band of an image lie on, and its number, in their loop."""
    with e.loop(what.rows.count // what.band) as band:
        if what.is_framed:
            _copy_band(e, what, image, frame, band)
        yield (frame if what.is_framed else image), band


def _copy_band(e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value, band: ir.Value) -> None:
    """The rows of an image that the windows of a band reach, zeros for those beyond it."""
    builder, element = e.builder, type_of(what.dtype)
    down, across = what.steps(what.channels)
    size = what.columns.extent * what.channels
    first = builder.sub(builder.mul(band, index(what.band * what.rows.stride)), index(what.rows.before))
    with e.loop(what.rows_of(what.band)) as i:
        row = builder.add(first, i)
        to = e.offset(
            frame, element, builder.add(builder.mul(i, index(down)), index(what.columns.before * across))
        )
        source = e.offset(image, element, builder.mul(row, index(size)))
        with builder.if_else(builder.icmp_unsigned("<", row, index(what.rows.extent))) as (inside, beyond):
            with inside:
                copy_row(e, to, source, size, what.dtype)
            with beyond:
                fill_zero(e, to, size, what.dtype)


def _correlate(e: Emitter, what: ConvolutionShape, places: Places, ending: Ending[ir.Value]) -> None:
    """Images, filter, result, and a frame."""
    images, filters, result, frame = places
    correlate = _correlation(e, what, ending)
    for source, i, band in _bands(e, what, images, frame):
        correlate(source, filters, result, i, band)


def _correlation(
    e: Emitter, what: ConvolutionShape, ending: Ending[ir.Value]
) -> Callable[[ir.Value, ir.Value, ir.Value, ir.Value, ir.Value], None]:
    """Emits one band, and all that its ending says, when called: on what it lies, filter, result, numbers."""
    epilogue, sums, builder = ending.epilogue, ending.sums, e.builder
    product = contraction(e, replace(what.forward(), epilogue=epilogue))
    windows = what.band * what.columns.count
    if sums is not None:
        sums.clear(e, ending.summed[0])

    def correlate(source: ir.Value, filters: ir.Value, result: ir.Value, i: ir.Value, band: ir.Value) -> None:
        number = builder.mul(index(what.rows.count // what.band), i)
        first = builder.mul(builder.add(number, band), index(windows))

        def there(pointer: ir.Value) -> ir.Value:
            return _image(e, what, pointer, first, what.outputs)

        more = []
        if epilogue is not None:
            spreads = zip(ending.operands, epilogue.spreads, strict=True)
            elements = (there(p) if spread is Spread.ELEMENT else p for p, spread in spreads)
            more = [index(1), *elements]
        builder.call(product, [source, filters, there(result), index(0), *more])
        if sums is not None:
            running, *others = ending.summed
            sums.absorb(e, there(result), first, windows, running, others)

    return correlate


def _backprop_filter(e: Emitter, what: ConvolutionShape, places: Places, ending: Ending[ir.Value]) -> None:
    """Images, gradient of the output, gradient of the filter, and a frame."""
    images, gradient, result, frame = places
    product = contraction(e, what.filter_gradient())
    for source, i, band in _bands(e, what, images, frame):
        flow = _band_of_result(e, what, _image(e, what, gradient, i, what.result_size), band)
        e.builder.call(product, [source, flow, result, e.builder.or_(i, band)])


def _band_of_result(e: Emitter, what: ConvolutionShape, image: ir.Value, band: ir.Value) -> ir.Value:
    return _image(e, what, image, band, what.band * what.columns.count * what.outputs)


def _backprop_input(e: Emitter, what: ConvolutionShape, places: Places, ending: Ending[ir.Value]) -> None:
    """Filter, gradient of the output, gradient of the images, the transposed filter, and a frame."""
    filters, gradient, result, turned, frame = places
    _turn(e, what, filters, turned)
    if not what.adds_taps:
        _correlate(e, what.reversed(), (gradient, turned, result, frame), ending)
        return
    product = contraction(e, what.tap_by_tap())
    with e.loop(what.batch) as i:
        image = _image(e, what, result, i, what.image_size)
        target = frame if what.is_framed else image
        height = what.height if what.is_framed else what.rows.extent
        fill_zero(e, target, height * what.width * what.channels, what.dtype)
        flow = _image(e, what, gradient, i, what.result_size)
        e.builder.call(product, [flow, turned, target, index(1)])
        if what.is_framed:
            _copy_image(e, what, image, frame)


def _copy_image(e: Emitter, what: ConvolutionShape, image: ir.Value, frame: ir.Value) -> None:
    """The image in the middle of a frame."""
    down, across = what.steps(what.channels)
    first = what.rows.before * down + what.columns.before * across
    size = what.columns.extent * what.channels
    middle = e.offset(frame, type_of(what.dtype), first)
    copy_rows(e, image, middle, what.rows.extent, size, (size, down), what.dtype)


@dataclass(frozen=True)
class ConvolutionGradients:
    """Both gradients of a convolution of stride 1, image by image, of a flow that is made for one at a time.

    The image's flow, and the image itself, stay in the second cache for both. images, filters: their shapes.
    """

    images: tuple[int, ...]
    filters: tuple[int, ...]
    attrs: tuple[tuple[str, object], ...]
    dtype: DType

    @property
    def _what(self) -> ConvolutionShape:
        return ConvolutionShape.of(self.images, self.filters, dict(self.attrs), self.dtype)

    @property
    def takes(self) -> bool:
        """Whether the images' gradient is made window by window."""
        return not self._what.adds_taps

    @property
    def windows(self) -> int:
        """Rows of the flow of one image."""
        return self._what.rows.count * self._what.columns.count

    def scratch(self) -> list[TensorSpec]:
        """One image's flow, the turned filter, the frames of images and of flows."""
        what = self._what
        flow = TensorSpec((self.windows, what.outputs), what.dtype)
        turned = TensorSpec((what.taps, what.outputs, what.channels), what.dtype)
        return [flow, turned, what.band_spec(), what.reversed().band_spec()]

    def write(
        self,
        e: Emitter,
        make: Callable[[ir.Value, ir.Value], None],
        inputs: Sequence[Ref],
        outputs: Sequence[Ref],
        scratch: Sequence[Ref],
        ending: Ending[Ref],
    ) -> None:
        """make(number, place): emits the flow of an image. inputs: images, filter; outputs: the gradients of
        the filter and of the images, the latter with its ending."""
        what = self._what
        back = what.reversed()
        images, filters, to_filter, to_images = (e.address(ref) for ref in (*inputs, *outputs))
        flow, turned, frame, flow_frame = (e.address(ref) for ref in scratch)
        _turn(e, what, filters, turned)
        _clear(e, what, frame)
        _clear(e, back, flow_frame)
        product = contraction(e, what.filter_gradient())
        correlate = _correlation(e, back, ending.at([e.address(ref) for ref in ending.places]))
        with e.loop(what.batch) as i:
            make(i, flow)
            for source, band in _bands_of(e, what, _image(e, what, images, i, what.image_size), frame):
                part = _band_of_result(e, what, flow, band)
                e.builder.call(product, [source, part, to_filter, e.builder.or_(i, band)])
            for source, band in _bands_of(e, back, flow, flow_frame):
                correlate(source, turned, to_images, i, band)


def _turn(e: Emitter, what: ConvolutionShape, filters: ir.Value, turned: ir.Value) -> None:
    """[taps, channels, outputs] to [taps, outputs, channels]; the last tap first for a correlation."""
    size = what.channels * what.outputs
    with e.loop(what.taps) as tap:
        to = tap if what.adds_taps else e.builder.sub(index(what.taps - 1), tap)
        transpose(
            e,
            _image(e, what, turned, to, size),
            _image(e, what, filters, tap, size),
            what.channels,
            what.outputs,
            what.dtype,
        )


def _takes(node: NodeSpec, target: Target) -> bool:
    return node.outputs[0].dtype in FLOATING and all(
        0 not in spec.extents for spec in (*node.inputs, *node.outputs)
    )


def _conv2d_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    images, filters = node.inputs
    return [ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype).band_spec()]


def _backprop_filter_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    images, filters = node.inputs[0], node.outputs[0]
    return [ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype).band_spec()]


def _backprop_input_scratch(node: NodeSpec, target: Target) -> list[TensorSpec]:
    filters = node.inputs[1]
    what = ConvolutionShape.of(node.outputs[0].extents, filters.extents, node.attrs, filters.dtype)
    frame = what.image_spec() if what.adds_taps else what.reversed().band_spec()
    return [TensorSpec((what.taps, what.outputs, what.channels), what.dtype), frame]


def _makes_images_at_once(node: NodeSpec) -> bool:
    """Whether each element of the images' gradient is the result of one sum."""
    return not _images_gradient(node).adds_taps


def _images_gradient(node: NodeSpec) -> ConvolutionShape:
    shapes = node.outputs[0].extents, node.inputs[1].extents
    return ConvolutionShape.of(*shapes, node.attrs, node.outputs[0].dtype)


def _rows_of_images(node: NodeSpec) -> int:
    """Of the images' gradient, as a matrix, that are made one after the other."""
    what = _images_gradient(node)
    return 0 if what.adds_taps else _windows_of_band(what.reversed())


def _rows_of_result(node: NodeSpec) -> int:
    images, filters = node.inputs
    return _windows_of_band(ConvolutionShape.of(images.extents, filters.extents, node.attrs, images.dtype))


def _windows_of_band(what: ConvolutionShape) -> int:
    return what.band * what.columns.count


lower_contraction(
    Conv2D,
    _writer(_correlate, lambda inputs, output: (inputs[0].shape, inputs[1].shape)),
    _takes,
    _conv2d_scratch,
    lambda node: True,
    _rows_of_result,
)
lower_contraction(
    Conv2DBackpropFilter,
    _writer(_backprop_filter, lambda inputs, output: (inputs[0].shape, output.shape)),
    _takes,
    _backprop_filter_scratch,
)
lower_contraction(
    Conv2DBackpropInput,
    _writer(_backprop_input, lambda inputs, output: (output.shape, inputs[1].shape)),
    _takes,
    _backprop_input_scratch,
    _makes_images_at_once,
    _rows_of_images,
)
