"""Data sets of the lines and records of files (TensorFlow 1's `tf.data.TextLineDataset` and so on)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeAlias

from tensorbow.array_likes import string_array
from tensorbow.data.element_functions import source_texts
from tensorbow.data.pipeline import Dataset, Key
from tensorbow.input_ops.records import TFRecordCompressionType
from tensorbow.kinds import Count, Positive, checked, one_of
from tensorbow.readers.record_sources import FixedLengthSource, LineSource, RecordFileSource, RecordSource

Compression: TypeAlias = Annotated[str, one_of("", "ZLIB", "GZIP")]
_COMPRESSIONS = {
    "": TFRecordCompressionType.NONE,
    "ZLIB": TFRecordCompressionType.ZLIB,
    "GZIP": TFRecordCompressionType.GZIP,
}


class TextLineDataset(Dataset):
    """The lines of text files, as bytes without line ends, one file after the other."""

    @checked
    def __init__(self, filenames: Any):
        """filenames: a path, a list or array of them, a tensor of strings, or a data set of paths.

        The iteration raises NotFoundError for a missing file.
        """
        super().__init__(_records("TextLineDataset", filenames, lambda path: LineSource(path, 0)), None)


class TFRecordDataset(Dataset):
    """The records of TensorFlow's files of records, as bytes, one file after the other."""

    @checked
    def __init__(
        self,
        filenames: Any,
        compression_type: Compression | None = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ):
        """filenames: as of `TextLineDataset`. buffer_size, num_parallel_reads: TensorFlow's; have no effect.

        The iteration raises NotFoundError for a missing file, DataLossError for a damaged one.
        """
        compression = _COMPRESSIONS[compression_type or ""]
        items = _records("TFRecordDataset", filenames, lambda path: RecordFileSource(path, compression))
        super().__init__(items, None)


class FixedLengthRecordDataset(Dataset):
    """Records of equal length, as bytes, between a header and a footer of each file."""

    @checked
    def __init__(
        self,
        filenames: Any,
        record_bytes: Positive,
        header_bytes: Count = 0,
        footer_bytes: Count = 0,
        buffer_size: Any = None,
    ):
        """filenames: as of `TextLineDataset`. buffer_size: TensorFlow's; has no effect.

        The iteration raises NotFoundError for a missing file, DataLossError for one of another length.
        """

        def source(path: bytes) -> RecordSource:
            return FixedLengthSource(path, header_bytes, record_bytes, footer_bytes, record_bytes)

        super().__init__(_records("FixedLengthRecordDataset", filenames, source), None)


def _records(
    op: str, filenames: Any, source: Callable[[bytes], RecordSource]
) -> Callable[[Key], Iterator[Any]]:
    """Iterations over the records of files."""
    paths = filenames
    if not isinstance(filenames, Dataset):
        paths = Dataset.from_tensor_slices(string_array(source_texts(op, "filenames", filenames)))

    def items(key: Key) -> Iterator[bytes]:
        for path in paths._elements(key):  # shuffled anew in each repetition
            (name,) = string_array(path).ravel()
            records = source(name)
            try:
                while (found := records.next()) is not None:
                    yield found[1]
            finally:
                records.close()

    return items
