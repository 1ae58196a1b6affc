"""`tb.interop.onnx`: ONNX files as trainable models, and inference graphs as ONNX files."""

from tensorbow.interop.onnx.export_graph import export
from tensorbow.interop.onnx.imported_model import OnnxModel, load
from tensorbow.interop.onnx.onnx_classifier import OnnxClassifier

__all__ = ["OnnxClassifier", "OnnxModel", "export", "load"]
