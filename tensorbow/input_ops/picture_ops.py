"""Ops that decode and encode pictures, by Pillow (extra `image`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    TensorBowError,
    UnimplementedError,
)
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    HostCall,
    OpDef,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.input_ops.file_ops import string_scalar
from tensorbow.input_ops.scalar_inputs import require_scalars
from tensorbow.kinds import AsDType, Flag, Kind, Name, RefusedError, checked, one_of, whole
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.broadcasting import as_shape_vector
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.image_geometry import crop_to_bounding_box
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec, compatible, string, uint8, uint16
from tensorbow.string_ops.elements import as_strings, scalar_of

__all__ = [
    "decode_and_crop_jpeg",
    "decode_bmp",
    "decode_gif",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "encode_jpeg",
    "encode_png",
]


def _one_of_numbers(*numbers: int) -> Kind:
    def read(value: Any) -> int:
        number: int = whole(min(numbers), max(numbers)).read(value)
        if number not in numbers:
            raise RefusedError
        return number

    return Kind(f"one of {', '.join(map(str, numbers))}", read)


ImageChannels: TypeAlias = Annotated[int, _one_of_numbers(0, 1, 3, 4)]
ColorChannels: TypeAlias = Annotated[int, _one_of_numbers(0, 1, 3)]
DctMethod: TypeAlias = Annotated[str, one_of("", "INTEGER_FAST", "INTEGER_ACCURATE")]
Ratio: TypeAlias = Annotated[int, _one_of_numbers(1, 2, 4, 8)]
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's names, by number of channels
_FORMATS = {"DecodePng": "PNG", "DecodeJpeg": "JPEG", "DecodeGif": "GIF", "DecodeBmp": "BMP"}


def _pillow() -> Any:
    """Pillow's module Image. Raises FailedPreconditionError where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise FailedPreconditionError(
            "pictures are decoded and encoded by Pillow; pip install 'tensorbow[image]'"
        ) from None
    return Image


def opened(op: str, contents: bytes, formats: Sequence[str]) -> Any:
    """A picture whose pixels are not decoded yet. Raises InvalidArgumentError for other content."""
    image = _pillow()
    try:
        return image.open(io.BytesIO(contents), formats=formats)
    except image.DecompressionBombError as error:
        raise ResourceExhaustedError(f"{op}: {error}") from None
    except Exception as error:  # UnidentifiedImageError, and what plug-ins raise for damaged headers
        raise InvalidArgumentError(
            f"{op}: the string of {len(contents):,} bytes is no {' or '.join(formats)}: "
            f"{type(error).__name__}"
        ) from None


def _decoding(op: str, work: Callable[[], Array]) -> Array:
    """The pixels that `work` decodes. Raises InvalidArgumentError for damaged data."""
    try:
        return work()
    except (TensorBowError, MemoryError):
        raise
    except Exception as error:  # OSError, SyntaxError, ValueError, struct.error, as the plug-ins raise them
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgumentError(f"{op}: the picture is truncated or damaged: {reason}") from None


def natural_channels(picture: Any) -> int:
    """Number of channels of the picture as it is stored."""
    if picture.mode in ("1", "L", "I;16", "I;16B", "I;16L", "I", "F"):
        return 2 if "transparency" in picture.info and picture.mode in ("1", "L") else 1
    if picture.mode == "LA":
        return 2
    if picture.mode in ("RGBA", "PA") or "transparency" in picture.info:
        return 4
    return 3


def _is_deep(picture: Any) -> bool:
    return bool(picture.mode.startswith("I"))


def _pixels(op: str, picture: Any, channels: int, deep: bool) -> Array:
    """Pixels [height, width, channels], uint8, or uint16 if `deep`."""
    count = channels or natural_channels(picture)
    if _is_deep(picture):
        gray = np.asarray(picture).astype(np.uint16)[:, :, None]
        if count not in (1, 3):
            raise UnimplementedError(f"{op}: a gray picture of 16 bits has no channel of transparency")
        gray = np.repeat(gray, count, axis=2)
        return gray if deep else (gray >> 8).astype(np.uint8)
    array = np.asarray(picture.convert(MODES[count]), np.uint8)
    array = array[:, :, None] if array.ndim == 2 else array
    return array.astype(np.uint16) * np.uint16(257) if deep else np.array(array)


# Decoding -----------------------------------------------------------------------------------------


def _decoded_spec(op: str, inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_scalars(op, inputs, ("contents",))
    dtype = attrs.get("dtype", uint8)
    if op == "DecodeImage":
        return TensorSpec(None, dtype)
    if op == "DecodeGif":
        return TensorSpec((None, None, None, 3), dtype)
    return TensorSpec((None, None, attrs["channels"] or None), dtype)


def _decode(op: str, call: HostCall) -> Array:
    contents, attrs = scalar_of(op, "contents", call.inputs[0]), call.attrs
    picture = opened(op, contents, [_FORMATS[op]])
    deep = attrs.get("dtype", uint8) == uint16
    if deep and contents[24:25] == b"\x10" and not _is_deep(picture):
        raise UnimplementedError(
            "DecodePng: Pillow reads colours of 16 bits as 8 bits; decode as uint8, or use a gray picture"
        )
    if op == "DecodeJpeg" and attrs["ratio"] > 1:
        # Pillow takes the largest ratio by which neither side gets smaller than asked.
        picture.draft(None, tuple(extent / attrs["ratio"] for extent in picture.size))
    return _decoding(op, lambda: _pixels(op, picture, attrs["channels"], deep))


def _frames(op: str, picture: Any) -> Array:
    frames = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        frames.append(np.asarray(picture.convert("RGB"), np.uint8))
    return np.stack(frames)


def _decode_gif(call: HostCall) -> Array:
    picture = opened("DecodeGif", scalar_of("DecodeGif", "contents", call.inputs[0]), ["GIF"])
    return _decoding("DecodeGif", lambda: _frames("DecodeGif", picture))


def _decode_any(call: HostCall) -> Array:
    contents = scalar_of("DecodeImage", "contents", call.inputs[0])
    picture = opened("DecodeImage", contents, [*_FORMATS.values()])
    channels = call.attrs["channels"]
    if picture.format == "GIF":
        if channels not in (0, 3):
            raise InvalidArgumentError(
                f"DecodeImage: a GIF has 3 channels, expected channels 0 or 3, got {channels}"
            )
        return _decoding("DecodeImage", lambda: _frames("DecodeImage", picture))
    return _decoding("DecodeImage", lambda: _pixels("DecodeImage", picture, channels, False))


def _define_decoding(
    name: str, attrs: dict[str, Any], host: Callable[[HostCall], Array] | None = None
) -> OpDef:
    return define_op(
        name,
        spec=lambda inputs, attrs: _decoded_spec(name, inputs, attrs),
        gradient=NOT_DIFFERENTIABLE,
        inputs=("contents",),
        attrs=attrs,
        host=host or (lambda call: _decode(name, call)),
        slow=True,
        strings=True,
        doc="The pixels of a picture.",
    )


DecodePng = _define_decoding("DecodePng", {"channels": 0, "dtype": uint8})
DecodeJpeg = _define_decoding("DecodeJpeg", {"channels": 0, "ratio": 1})
DecodeBmp = _define_decoding("DecodeBmp", {"channels": 0})
DecodeGif = _define_decoding("DecodeGif", {}, _decode_gif)
DecodeImage = _define_decoding("DecodeImage", {"channels": 0}, _decode_any)


@checked
def decode_png(
    contents: Any, channels: ImageChannels = 0, dtype: AsDType = uint8, name: Name = None
) -> Tensor:
    """The pixels [height, width, channels] of a PNG, a scalar string; uint8, or uint16 by `dtype`.

    channels: 1 gray, 3 RGB, 4 RGBA; 0: as in the file. Raises InvalidArgumentError for another dtype and,
    when it runs, for other bytes, UnimplementedError for colours of 16 bits as uint16.
    """
    if dtype not in (uint8, uint16):
        raise InvalidArgumentError(f"decode_png: expected dtype to be uint8 or uint16, got {dtype.name}")
    return DecodePng.tensor(as_strings(contents), channels=channels, dtype=dtype, name=name)


@checked
def decode_jpeg(
    contents: Any,
    channels: ColorChannels = 0,
    ratio: Ratio = 1,
    name: Name = None,
    *,
    dct_method: DctMethod = "",
) -> Tensor:
    """The pixels [height, width, channels] of a JPEG, a scalar string, uint8.

    channels: 1 gray, 3 RGB; 0: as in the file. ratio: decodes a picture smaller by 2, 4 or 8. dct_method:
    "INTEGER_FAST", "INTEGER_ACCURATE" or "", TensorFlow's; has no effect, as Pillow decodes accurately.
    Raises InvalidArgumentError, when it runs, for other bytes.
    """
    return DecodeJpeg.tensor(as_strings(contents), channels=channels, ratio=ratio, name=name)


@checked
def decode_and_crop_jpeg(
    contents: Any,
    crop_window: Extents,
    channels: ColorChannels = 0,
    ratio: Ratio = 1,
    name: Name = None,
    *,
    dct_method: DctMethod = "",
) -> Tensor:
    """A part of the pixels of a JPEG; see `decode_jpeg`.

    crop_window: [top, left, height, width], a list or int32 vector. Raises InvalidArgumentError, when it
    runs, for a window that is not inside the picture.
    """
    box = as_tensor(as_shape_vector(crop_window))
    if not compatible(box.spec.shape, (4,)):
        raise InvalidArgumentError(
            f"decode_and_crop_jpeg: expected crop_window to be [top, left, height, width], got {box.spec}"
        )
    with graph_of([as_strings(contents), box]).as_default(), name_scope(name or "DecodeAndCropJpeg"):
        pixels = decode_jpeg(contents, channels, ratio, dct_method=dct_method)
        known = box.spec.value
        window = [strided_slice(box, k) for k in range(4)] if known is None else known.tolist()
        return crop_to_bounding_box(pixels, *window)


@checked
def decode_bmp(contents: Any, channels: ImageChannels = 0, name: Name = None) -> Tensor:
    """The pixels [height, width, channels] of a BMP, uint8: see `decode_png`."""
    return DecodeBmp.tensor(as_strings(contents), channels=channels, name=name)


@checked
def decode_gif(contents: Any, name: Name = None) -> Tensor:
    """The pixels [frames, height, width, 3] of a GIF, uint8: see `decode_png`."""
    return DecodeGif.tensor(as_strings(contents), name=name)


@checked
def decode_image(contents: Any, channels: ImageChannels | None = None, name: Name = None) -> Tensor:
    """The pixels of a PNG, JPEG, BMP or GIF, uint8: [height, width, channels], a GIF's [frames, ...].

    The shape is unknown: use `set_shape` before you resize. See `decode_png`.
    """
    return DecodeImage.tensor(as_strings(contents), channels=channels or 0, name=name)


# Encoding -----------------------------------------------------------------------------------------


def _encoded_spec(op: str, inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (image,) = inputs
    allowed, counts = ((uint8, uint16), (1, 2, 3, 4)) if op == "EncodePng" else ((uint8,), (1, 3))
    require_dtype(op, image, allowed, "image")
    dims = image.shape
    if dims is not None and (len(dims) != 3 or dims[2] not in (*counts, None)):
        raise InvalidArgumentError(
            f"{op}: image is {image}, expected [height, width, channels], of "
            f"{' or '.join(map(str, counts))} channels"
        )
    if op == "EncodePng" and image.dtype == uint16 and dims is not None and dims[2] not in (1, None):
        raise InvalidArgumentError(f"EncodePng: image is {image}; of 16 bits only gray pictures are written")
    return TensorSpec((), string)


def _encode(op: str, call: HostCall) -> Array:
    (image,), attrs = call.inputs, call.attrs
    if image.ndim != 3 or 0 in image.shape or image.shape[2] not in MODES:
        raise InvalidArgumentError(f"{op}: image has shape {list(image.shape)}, which is no picture")
    pixels = image[:, :, 0] if image.shape[2] == 1 else image
    picture = _pillow().fromarray(np.ascontiguousarray(pixels))
    file = io.BytesIO()
    if op == "EncodePng":
        level = {} if attrs["compression"] < 0 else {"compress_level": attrs["compression"]}
        picture.save(file, "PNG", **level)
    else:
        wanted = {"": picture.mode, "grayscale": "L", "rgb": "RGB"}[attrs["format"]]
        if wanted != picture.mode:
            raise InvalidArgumentError(
                f"EncodeJpeg: image has {image.shape[2]} channels, not those of {attrs['format']!r}"
            )
        picture.save(
            file,
            "JPEG",
            quality=attrs["quality"],
            progressive=attrs["progressive"],
            optimize=attrs["optimize_size"],
            subsampling=2 if attrs["chroma_downsampling"] else 0,
        )
    return string_scalar(file.getvalue())


def _define_encoding(name: str, attrs: dict[str, Any]) -> OpDef:
    return define_op(
        name,
        spec=lambda inputs, attrs: _encoded_spec(name, inputs, attrs),
        gradient=NOT_DIFFERENTIABLE,
        inputs=("image",),
        attrs=attrs,
        host=lambda call: _encode(name, call),
        slow=True,
        strings=True,
        doc="A picture's file content.",
    )


EncodePng = _define_encoding("EncodePng", {"compression": -1})
EncodeJpeg = _define_encoding(
    "EncodeJpeg",
    {
        "format": "",
        "quality": 95,
        "progressive": False,
        "optimize_size": False,
        "chroma_downsampling": True,
    },
)


@checked
def encode_png(image: Any, compression: Annotated[int, whole(-1, 9)] = -1, name: Name = None) -> Tensor:
    """The PNG of a picture [height, width, channels], a scalar string.

    image: uint8 with 1 to 4 channels (gray, gray and alpha, RGB, RGBA), or uint16 with 1. compression: 0 to
    9, the smallest; -1: Pillow's choice. Raises InvalidArgumentError for other shapes and dtypes.
    """
    return EncodePng.tensor(as_tensor(image), compression=compression, name=name)


@checked
def encode_jpeg(
    image: Any,
    format: Annotated[str, one_of("", "grayscale", "rgb")] = "",
    quality: Annotated[int, whole(1, 100)] = 95,
    progressive: Flag = False,
    optimize_size: Flag = False,
    chroma_downsampling: Flag = True,
    name: Name = None,
) -> Tensor:
    """The JPEG of a picture [height, width, channels], uint8 with 1 or 3 channels, a scalar string.

    format: the expected channels, "" for those that are there. chroma_downsampling: stores colours in half
    the resolution. Raises InvalidArgumentError for other shapes and dtypes.
    """
    return EncodeJpeg.tensor(
        as_tensor(image),
        format=format,
        quality=quality,
        progressive=progressive,
        optimize_size=optimize_size,
        chroma_downsampling=chroma_downsampling,
        name=name,
    )
