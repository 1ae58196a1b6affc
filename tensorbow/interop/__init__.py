"""`tb.interop`: models and weights of other frameworks.

`onnx` writes inference graphs as ONNX files and reads ONNX files as trainable models; `torch` exchanges
weights with files and state dicts of PyTorch. The package onnx is imported by functions that need it, PyTorch
never, and the modules here on first use.
"""

from types import ModuleType
from typing import TYPE_CHECKING

from tensorbow.missing_names import no_attribute as _no_attribute

if TYPE_CHECKING:
    from tensorbow.interop import onnx, torch

_LATER = ("onnx", "torch")


def __getattr__(name: str) -> ModuleType:
    if name == "onnx":
        import tensorbow.interop.onnx as onnx_files

        return onnx_files
    if name == "torch":
        import tensorbow.interop.torch as torch_weights

        return torch_weights
    raise _no_attribute(name, _LATER, __name__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(_LATER)


__all__ = ["onnx", "torch"]
