"""Layers as objects, under TensorFlow 1's names.

Each is a function of this package with its arguments kept: `tb.layers.Dense(8)(x)` is
`tb.layers.dense(x, 8)`, and another call shares the variables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from tensorbow.layers.building import entered_for_function
from tensorbow.layers.convolution import (
    average_pooling1d,
    average_pooling2d,
    conv1d,
    conv2d,
    conv2d_transpose,
    max_pooling1d,
    max_pooling2d,
    separable_conv2d,
)
from tensorbow.layers.core import dense, dropout, flatten
from tensorbow.layers.layer import Layer
from tensorbow.layers.normalization import batch_normalization
from tensorbow.layers.separable_convolution import separable_conv1d
from tensorbow.layers.volumes import average_pooling3d, conv3d, conv3d_transpose, max_pooling3d
from tensorbow.variable_scope import get_variable_scope
from tensorbow.variables import Variable

__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "BatchNormalization",
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "Dropout",
    "Flatten",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "SeparableConv1D",
    "SeparableConv2D",
]


class _FunctionLayer(Layer):
    """A layer that calls a function of this package.

    Arguments are those of the function, without `inputs`; those of a call, such as `training`, come with the
    call. After it `kernel`, `bias`, `gamma`, `beta`, `moving_mean`, `moving_variance` are attributes.
    """

    _function: ClassVar[Callable[..., Any]]

    def __init__(self, *args: Any, **kwargs: Any):
        """Raises TypeError for arguments that the function does not take."""
        takes = inspect.signature(type(self)._function)
        given = [key for key in ("name", "activity_regularizer") if key in kwargs]
        own: dict[str, Any] = {key: kwargs.pop(key) for key in given}
        if "trainable" in kwargs and "trainable" in takes.parameters:
            own["trainable"] = kwargs["trainable"]
        super().__init__(**own, _reuse=kwargs.pop("reuse", None))
        self._args, self._kwargs = args, kwargs
        self._learns = "trainable" in takes.parameters
        takes.bind(None, *args, **kwargs)

    def _as_tensors(self, inputs: Any) -> Any:
        return inputs

    def _build(self, inputs: Any) -> None:
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The function's result for these inputs. Raises what the function raises."""
        arguments = {**self._kwargs, **kwargs}
        if self._learns:
            arguments["trainable"] = self.trainable
        with entered_for_function(get_variable_scope()):
            return type(self)._function(inputs, *self._args, *args, **arguments)

    def __getattr__(self, name: str) -> Variable:
        """A variable by its name in the layer, such as `kernel`."""
        if not name.startswith("_"):
            for variable in self.variables:
                if variable.op.name.rpartition("/")[2] == name:
                    return variable
        raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")


def _layer(name: str, function: Callable[..., Any]) -> type[Layer]:
    doc = f"`tb.layers.{function.__name__}` as an object, with its arguments; calls share variables."
    fields = {"_function": staticmethod(function), "__doc__": doc, "__module__": __name__}
    return type(name, (_FunctionLayer,), fields)


AveragePooling1D = _layer("AveragePooling1D", average_pooling1d)
AveragePooling2D = _layer("AveragePooling2D", average_pooling2d)
AveragePooling3D = _layer("AveragePooling3D", average_pooling3d)
BatchNormalization = _layer("BatchNormalization", batch_normalization)
Conv1D = _layer("Conv1D", conv1d)
Conv2D = _layer("Conv2D", conv2d)
Conv2DTranspose = _layer("Conv2DTranspose", conv2d_transpose)
Conv3D = _layer("Conv3D", conv3d)
Conv3DTranspose = _layer("Conv3DTranspose", conv3d_transpose)
Dense = _layer("Dense", dense)
Dropout = _layer("Dropout", dropout)
Flatten = _layer("Flatten", flatten)
MaxPooling1D = _layer("MaxPooling1D", max_pooling1d)
MaxPooling2D = _layer("MaxPooling2D", max_pooling2d)
MaxPooling3D = _layer("MaxPooling3D", max_pooling3d)
SeparableConv1D = _layer("SeparableConv1D", separable_conv1d)
SeparableConv2D = _layer("SeparableConv2D", separable_conv2d)
