"""`tb.interop`: models and weights of other frameworks.

`onnx` writes inference graphs as ONNX files and reads ONNX files as trainable models; `torch` exchanges weights
with PyTorch's safetensors layout. Neither `onnx` nor `torch` is imported before it is needed.
"""
