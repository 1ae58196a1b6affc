"""`tb.summary`: summaries for TensorBoard and their files, under TensorFlow's names."""

from typing import TYPE_CHECKING, Any

from tensorbow.missing_names import no_attribute as _no_attribute
from tensorbow.ops.audio_summaries import audio, tensor_summary
from tensorbow.ops.summaries import histogram, image, merge, merge_all, scalar, text

if TYPE_CHECKING:
    from tensorbow.training import FileWriter, FileWriterCache

_LATER = ("FileWriter", "FileWriterCache")


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        """Writers, from an upper layer that is imported on first use; messages of tensorboardX."""
        if name in ("Summary", "Event"):
            from tensorbow.ops.summaries import event_protocol

            summaries, events = event_protocol()
            return summaries.Summary if name == "Summary" else events.Event
        if name not in _LATER:
            raise _no_attribute(name, __all__, __name__)
        from tensorbow import training

        return getattr(training, name)


def __dir__() -> list[str]:
    """The public names, including those of the upper layer."""
    return sorted(__all__)


__all__ = [
    "FileWriter",
    "FileWriterCache",
    "audio",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]
