"""`tb.python_io`: files of records (TFRecord) outside of graphs, under TensorFlow's names."""

from tensorbow.input_ops.records import (
    TFRecordCompressionType,
    TFRecordOptions,
    TFRecordWriter,
    tf_record_iterator,
)

__all__ = ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"]
