"""Summaries of sounds, and of tensors as they are, for TensorBoard and its plug-ins."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, Operation, Tensor
from tensorbow.graph.protobuf.values import serialized_tensor
from tensorbow.kinds import Name, Names, Positive, Text, checked, refuse
from tensorbow.ops.summaries import add_summary, event_protocol, summary_message, summary_op, summary_spec
from tensorbow.specs import Array, TensorSpec, float32

__all__ = ["audio", "tensor_summary"]

FULL_SCALE = 1 << 15  # of a sample of 1.0, in 16 bits


def _audio_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    sound, rate = inputs
    if sound.dtype != float32 or (sound.shape is not None and len(sound.shape) not in (2, 3)):
        raise InvalidArgumentError(
            "summary.audio: expected tensor to be float32 [batch, frames, channels] or [batch, frames], got "
            f"{sound}; use tb.cast"
        )
    if rate.shape not in ((), None):
        raise InvalidArgumentError(f"summary.audio: expected sample_rate to be a scalar, got {rate}")
    return summary_spec(inputs, attrs)


def _wav(samples: Array, rate: int) -> bytes:
    """Samples [frames, channels] between -1 and 1 as WAV of 16 bits; others are clipped."""
    codes = np.clip(np.rint(samples * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
    blob = io.BytesIO()
    with wave.open(blob, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(codes.tobytes())
    return blob.getvalue()


def _audio_value(op: Operation, values: Sequence[Any]) -> bytes:
    protocol, _ = event_protocol()
    (sounds, rate), tag, most = values, op.attrs["tag"], op.attrs["max_outputs"]
    if not np.isfinite(rate) or round(float(rate)) < 1 or not np.isfinite(sounds).all():
        raise InvalidArgumentError(
            f"summary.audio {tag}: expected finite samples and a rate of at least 1 Hz, got a rate of {rate} "
            f"(made at {op.source})"
        )
    entries = []
    for index, sound in enumerate(sounds[:most]):
        samples = sound.reshape(len(sound), -1) if sound.size else np.zeros((len(sound), 1), np.float32)
        entries.append(
            protocol.Summary.Value(
                tag=f"{tag}/audio" if most == 1 else f"{tag}/audio/{index}",
                audio=protocol.Summary.Audio(
                    sample_rate=float(rate),
                    num_channels=samples.shape[1],
                    length_frames=len(samples),
                    encoded_audio_string=_wav(samples, round(float(rate))),
                    content_type="audio/wav",
                ),
            )
        )
    blob: bytes = protocol.Summary(value=entries).SerializeToString()
    return blob


def _tensor_value(op: Operation, values: Sequence[Any]) -> bytes:
    protocol, _ = event_protocol()
    from tensorboardX.proto.tensor_pb2 import TensorProto

    (value,), attrs = values, op.attrs
    array = np.asarray(value, object) if op.inputs[0].dtype.is_string else np.asarray(value)
    metadata = protocol.SummaryMetadata(
        display_name=attrs["display_name"], summary_description=attrs["summary_description"]
    )
    metadata.MergeFromString(bytes.fromhex(attrs["summary_metadata"]))
    return summary_message(
        attrs["tag"], metadata=metadata, tensor=TensorProto.FromString(serialized_tensor(array))
    )


AudioSummary = summary_op("AudioSummary", _audio_spec, _audio_value, ["input", "sample_rate"], max_outputs=3)
TensorSummary = summary_op(
    "TensorSummary",
    summary_spec,
    _tensor_value,
    ["input"],
    strings=True,
    display_name="",
    summary_description="",
    summary_metadata="",  # a message, in hexadecimal digits
)


@checked
def audio(
    name: Text,
    tensor: Any,
    sample_rate: Any,
    max_outputs: Positive = 3,
    collections: Names | None = None,
    family: Name = None,
) -> Tensor:
    """A summary with the first sounds of a batch, as WAV of 16 bits.

    tensor: float32 [batch, frames, channels] or [batch, frames], from -1 to 1; what is beyond is clipped.
    sample_rate: samples a second, a number or a scalar tensor. Raises what `scalar` raises; when fetched,
    InvalidArgumentError for samples that are not finite, and for a rate below 1.
    """
    return add_summary(
        AudioSummary, [tensor, sample_rate], name, collections, family, max_outputs=max_outputs
    )


@checked
def tensor_summary(
    name: Text,
    tensor: Any,
    summary_description: Name = None,
    collections: Names | None = None,
    summary_metadata: Any = None,
    family: Name = None,
    display_name: Name = None,
) -> Tensor:
    """A summary with a tensor of any dtype and shape, for TensorBoard's plug-ins.

    summary_description, display_name: texts that TensorBoard shows. summary_metadata: a message
    `SummaryMetadata` of tensorboardX, which names the plug-in. Strings make a step run in the dynamic mode.
    """
    digits = "" if summary_metadata is None else _digits(summary_metadata)
    return add_summary(
        TensorSummary,
        [tensor],
        name,
        collections,
        family,
        display_name=display_name or "",
        summary_description=summary_description or "",
        summary_metadata=digits,
    )


def _digits(metadata: Any) -> str:
    protocol, _ = event_protocol()
    if not isinstance(metadata, protocol.SummaryMetadata):
        raise refuse("tensor_summary", "summary_metadata", "a SummaryMetadata of tensorboardX", metadata)
    digits: str = metadata.SerializeToString().hex()
    return digits
