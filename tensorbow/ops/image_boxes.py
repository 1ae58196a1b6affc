"""Boxes in images: crops, outlines, and random boxes.

A box is [top, left, bottom, right] in shares of the image: 0 is the first row or column, 1 the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import (
    Count,
    Flag,
    Fraction,
    Name,
    Number,
    Seed,
    checked,
    number,
    one_of,
    optional,
    sequence,
    whole,
)
from tensorbow.ops.arrays import expand_dims, reshape
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import (
    add,
    clip_by_value,
    floor,
    greater_equal,
    less_equal,
    logical_and,
    multiply,
    subtract,
)
from tensorbow.ops.extents import Extent, extents_of, times
from tensorbow.ops.indexing import gather
from tensorbow.ops.philox import stream_key
from tensorbow.ops.random import SEEDS, get_seed
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, Array, TensorSpec, compatible, float32, int32, int64

__all__ = [
    "crop_and_resize",
    "draw_bounding_boxes",
    "sample_distorted_bounding_box",
]

CropSize = Annotated[Any, sequence(whole(1), "[height, width]")]
Method = Annotated[str, one_of("bilinear", "nearest")]
LeastAndMost = Annotated[Any, optional(sequence(number(0, above=True), "[least, most]"))]
COLORS = (  # red, green, blue, opacity
    *((1, 1, 0, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 0, 1), (0.5, 0, 0.5, 1), (0.5, 0.5, 0, 1)),
    *((0.5, 0, 0, 1), (0, 0, 0.5, 1), (0, 1, 1, 1), (1, 0, 1, 1)),
)


# Crops ----------------------------------------------------------------------------------------------------


@checked
def crop_and_resize(
    image: Any,
    boxes: Any,
    box_ind: Any,
    crop_size: CropSize,
    method: Method = "bilinear",
    extrapolation_value: Number = 0.0,
    name: Name = None,
) -> Tensor:
    """Boxes cut out of images and resized to one size: [boxes, crop height, crop width, channels], float32.

    image: [batch, height, width, channels]; boxes: float32 [boxes, 4], which may reach
    beyond the image, where `extrapolation_value` stands, and may be turned; box_ind: integers
    [boxes], the example of each. The gradient reaches images and boxes.
    """
    with graph_of([image, boxes, box_ind]).as_default(), name_scope(name or "CropAndResize"):
        x, box, example = cast(as_tensor(image), float32), as_tensor(boxes), as_tensor(box_ind)
        require_dtype("crop_and_resize", box.spec, (float32,), "boxes")
        require_dtype("crop_and_resize", example.spec, (int32, int64), "box_ind")
        if len(crop_size) != 2:
            raise InvalidArgumentError(
                f"crop_and_resize: crop_size is {list(crop_size)}, expected two numbers"
            )
        if not compatible((None, 4), box.spec.shape) or not compatible((None,), example.spec.shape):
            raise InvalidArgumentError(
                f"crop_and_resize: boxes {box.spec} and box_ind {example.spec}; expected [n, 4] and [n]"
            )
        _, height, width, channels = extents_of("crop_and_resize", x, 4)
        rows, row_inside = _places(box, 0, 2, height, crop_size[0])
        columns, column_inside = _places(box, 1, 3, width, crop_size[1])
        flat = reshape(x, [-1, channels])
        first = reshape(multiply(cast(example, int32), times(height, width)), [-1, 1, 1])

        def pixels(at_rows: Tensor, at_columns: Tensor) -> Tensor:
            places = add(multiply(expand_dims(at_rows, 2), width), expand_dims(at_columns, 1))
            return gather(flat, add(places, first))

        if method == "nearest":
            near = [floor(add(each, 0.5)) for each in (rows, columns)]
            result = pixels(_position(near[0], height), _position(near[1], width))
        else:
            top, left = _position(floor(rows), height), _position(floor(columns), width)
            bottom, right = (
                _position(add(floor(rows), 1.0), height),
                _position(add(floor(columns), 1.0), width),
            )
            down = expand_dims(expand_dims(subtract(rows, floor(rows)), 2), 3)
            across = expand_dims(expand_dims(subtract(columns, floor(columns)), 1), 3)
            upper = _between(pixels(top, left), pixels(top, right), across)
            result = _between(upper, _between(pixels(bottom, left), pixels(bottom, right), across), down)
        inside = logical_and(expand_dims(row_inside, 2), expand_dims(column_inside, 1))
        result = select(expand_dims(inside, 3), result, extrapolation_value)
        number = None if box.spec.shape is None else box.spec.shape[0]
        result.set_shape([number, *crop_size, channels if isinstance(channels, int) else None])
        return result


def _last(extent: Extent) -> Any:
    """The greatest coordinate along an axis."""
    return float(extent - 1) if isinstance(extent, int) else cast(subtract(extent, 1), float32)


def _places(boxes: Tensor, low: int, high: int, extent: Extent, count: int) -> tuple[Tensor, Tensor]:
    """Coordinates along an axis [boxes, count], and whether they are in the image."""
    last = _last(extent)
    start, end = (expand_dims(strided_slice(boxes, (slice(None), i)), 1) for i in (low, high))
    if count > 1:
        share = constant(np.linspace(0, 1, count, dtype=np.float32))
        places = add(
            multiply(start, last),
            multiply(multiply(subtract(end, start), last), share),
        )
    else:
        places = multiply(add(start, end), multiply(last, 0.5) if isinstance(last, Tensor) else 0.5 * last)
    inside = logical_and(greater_equal(places, 0.0), less_equal(places, last))
    return places, inside


def _position(places: Tensor, extent: Extent) -> Tensor:
    return cast(clip_by_value(places, 0.0, _last(extent)), int32)


def _between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return add(first, multiply(subtract(second, first), share))


# Outlines -------------------------------------------------------------------------------------------------


def _drawn_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    images, boxes = inputs
    dtype = require_same_dtype("draw_bounding_boxes", inputs)
    require_dtype("draw_bounding_boxes", images, FLOATING, "images")
    batch = None if images.shape is None else images.shape[0] if images.shape else None
    if not compatible((None,) * 4, images.shape) or not compatible((batch, None, 4), boxes.shape):
        raise InvalidArgumentError(
            f"draw_bounding_boxes: images {images} and boxes {boxes}; expected "
            "[batch, height, width, channels] and [batch, boxes, 4]"
        )
    return TensorSpec(images.shape, dtype)


def _draw(call: KernelCall) -> None:
    (images, boxes), (out,) = call.inputs, call.outputs
    np.copyto(out, images)
    _, height, width, channels = out.shape
    for picture, rows in zip(out, boxes, strict=True):
        for index, box in enumerate(rows):
            if not np.isfinite(box).all():
                continue
            color = np.resize(np.array(COLORS[index % len(COLORS)], out.dtype), channels)
            if channels == 1:
                color[:] = 1
            scaled = np.clip(box, -1e6, 1e6) * np.array([height - 1, width - 1] * 2, box.dtype)
            top, left, bottom, right = (int(each) for each in scaled)
            if top > bottom or left > right or bottom < 0 or right < 0 or top >= height or left >= width:
                continue
            across = slice(max(left, 0), min(right, width - 1) + 1)
            down = slice(max(top, 0), min(bottom, height - 1) + 1)
            for row in (top, bottom):
                if 0 <= row < height:
                    picture[row, across] = color
            for column in (left, right):
                if 0 <= column < width:
                    picture[down, column] = color


DrawBoundingBoxes = define_op(
    "DrawBoundingBoxes",
    spec=_drawn_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=_draw,
    inputs=("images", "boxes"),
    uniform_dtype=True,
    why_cpu="NumPy draws the boxes",
)


@checked
def draw_bounding_boxes(images: Any, boxes: Any, name: Name = None) -> Tensor:
    """Images [batch, height, width, channels] with the outlines of `boxes` [batch, boxes, 4], on a CPU.

    float32 or float64 in [0, 1]. The boxes of an example have colours in turn; those outside are left out.
    """
    return DrawBoundingBoxes.tensor(images, boxes, name=name)


# Random boxes ---------------------------------------------------------------------------------------------


def _sampled_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    size, boxes = inputs
    require_dtype("sample_distorted_bounding_box", size, (int32, int64), "image_size")
    require_dtype("sample_distorted_bounding_box", boxes, (float32,), "bounding_boxes")
    if not compatible((3,), size.shape) or not compatible((None, None, 4), boxes.shape):
        raise InvalidArgumentError(
            f"sample_distorted_bounding_box: image_size {size} and bounding_boxes {boxes}; expected [height, "
            "width, channels] and [1, boxes, 4]"
        )
    return [TensorSpec((3,), size.dtype), TensorSpec((3,), size.dtype), TensorSpec((1, 1, 4), float32)]


def _prepare_sample(call: KernelCall) -> Callable[[], None]:
    (size, boxes), (begin, extent, box), attrs, state = call.inputs, call.outputs, call.attrs, call.state

    def step() -> None:
        key = stream_key(int(attrs["seed"]), int(attrs["seed2"]), int(state["random_stream"]))
        words = np.array([key[0] | key[1] << 32, 0], np.uint64)
        counter = np.array([0, 0, int(state["counter"]), 0], np.uint64)
        generator = np.random.Generator(np.random.Philox(counter=counter, key=words))
        height, width = int(size[0]), int(size[1])
        top, left, rows, columns = _sampled(generator, height, width, boxes.reshape(-1, 4), attrs)
        begin[...] = top, left, 0
        extent[...] = rows, columns, -1
        whole = max(height, 1), max(width, 1)
        box[0, 0] = top / whole[0], left / whole[1], (top + rows) / whole[0], (left + columns) / whole[1]

    return step


def _sampled(
    generator: np.random.Generator, height: int, width: int, boxes: Array, attrs: Attrs
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a box in pixels; the whole image if no attempt succeeds."""
    scale = np.array([height, width, height, width])
    if height < 0 or width < 0:
        raise InvalidArgumentError(
            f"sample_distorted_bounding_box: image_size begins with [{height}, {width}], expected numbers of "
            "at least 0"
        )
    if not len(boxes) and not attrs["use_image_if_no_bounding_boxes"]:
        raise InvalidArgumentError(
            "sample_distorted_bounding_box: no bounding_boxes; give one, or "
            "use_image_if_no_bounding_boxes=True"
        )
    objects = (boxes if len(boxes) else np.array([[0, 0, 1, 1]])) * scale
    shapes, areas = attrs["aspect_ratio_range"], attrs["area_range"]
    for _ in range(attrs["max_attempts"]):
        ratio = generator.uniform(*shapes)
        area = generator.uniform(*areas) * height * width
        rows, columns = round(float(np.sqrt(area / ratio))), round(float(np.sqrt(area * ratio)))
        if not (0 < rows <= height and 0 < columns <= width):
            continue
        top = int(generator.integers(0, height - rows + 1))
        left = int(generator.integers(0, width - columns + 1))
        low = np.maximum(objects[:, :2], [top, left])
        high = np.minimum(objects[:, 2:], [top + rows, left + columns])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        covered = common / np.maximum(np.prod(objects[:, 2:] - objects[:, :2], axis=1), 1e-12)
        if (covered >= attrs["min_object_covered"]).any():
            return top, left, rows, columns
    return 0, 0, height, width


SampleDistortedBoundingBox = define_op(
    "SampleDistortedBoundingBoxV2",
    spec=_sampled_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_prepare_sample),
    inputs=("image_size", "bounding_boxes"),
    attrs={
        "min_object_covered": 0.1,
        "aspect_ratio_range": (0.75, 1.33),
        "area_range": (0.05, 1.0),
        "max_attempts": 100,
        "use_image_if_no_bounding_boxes": False,
        **SEEDS,
    },
    random=True,
    why_cpu="NumPy draws the boxes",
)


@checked
def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: Seed = None,
    seed2: Seed = None,
    min_object_covered: Fraction | None = 0.1,
    aspect_ratio_range: LeastAndMost = None,
    area_range: LeastAndMost = None,
    max_attempts: Count = 100,
    use_image_if_no_bounding_boxes: Flag = False,
    name: Name = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A random box of an image: its begin and size for `tb.slice`, and the box, float32 [1, 1, 4].

    image_size: [height, width, channels]; bounding_boxes: float32 [1, boxes, 4], of which the box covers at
    least a share of `min_object_covered` of one. aspect_ratio_range: of width / height, by default
    [0.75, 1.33]; area_range: shares of the image, by default [0.05, 1]. After `max_attempts` it is the whole
    image. Without bounding boxes the image counts as one, if `use_image_if_no_bounding_boxes`. `seed2` is
    TensorFlow's second seed. On a CPU.
    """
    for what, given in (("aspect_ratio_range", aspect_ratio_range), ("area_range", area_range)):
        if given is not None and (len(given) != 2 or given[0] > given[1]):
            raise InvalidArgumentError(
                f"sample_distorted_bounding_box: {what} is {list(given)}, expected [least, most]"
            )
    if area_range is not None and area_range[1] > 1:
        raise InvalidArgumentError(
            f"sample_distorted_bounding_box: area_range is {list(area_range)}, expected at most 1, the image"
        )
    first = seed2 if seed in (None, 0) and seed2 else seed
    with graph_of([image_size, bounding_boxes]).as_default():
        seeds = dict(zip(SEEDS, get_seed(first or None), strict=True))
        begin, size, box = SampleDistortedBoundingBox(
            image_size,
            bounding_boxes,
            min_object_covered=0.1 if min_object_covered is None else float(min_object_covered),
            aspect_ratio_range=tuple(map(float, aspect_ratio_range or (0.75, 1.33))),
            area_range=tuple(map(float, area_range or (0.05, 1.0))),
            max_attempts=max_attempts,
            use_image_if_no_bounding_boxes=use_image_if_no_bounding_boxes,
            name=name,
            **seeds,
        )
    return begin, size, box
