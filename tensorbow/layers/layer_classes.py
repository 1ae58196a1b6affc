"""Layers as objects, under TensorFlow 1's names: they make their variables when they are first called.

Each is a function of this package with its arguments kept: `tb.layers.Dense(8)(x)` is
`tb.layers.dense(x, 8)`, and another call shares the variables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from tensorbow.errors import FailedPreconditionError
from tensorbow.graph import Graph, GraphKeys, graph_of
from tensorbow.layers.building import layer_scope
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
from tensorbow.layers.normalization import batch_normalization
from tensorbow.layers.volumes import average_pooling3d, conv3d, conv3d_transpose, max_pooling3d
from tensorbow.variable_scope import AUTO_REUSE, VariableScope, get_variable_scope, variable_scope
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
    "SeparableConv2D",
]


class LayerObject:
    """A layer with its arguments: calls of it share the variables that the first one makes.

    Arguments are those of the layer's function, without `inputs`; those of a call, such as `training`, come
    with the call. The variables belong to the scope of the first call, under the layer's name, by default a
    unique one. After it `kernel`, `bias`, `gamma`, `beta`, `moving_mean`, `moving_variance` are attributes.
    """

    _function: ClassVar[Callable[..., Any]]
    _default_name: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any):
        """Raises TypeError for arguments that the function does not take."""
        self._name: str | None = kwargs.pop("name", None)
        self._args, self._kwargs = args, kwargs
        self._reuse: Any = kwargs.pop("reuse", None)  # of the first call in a graph
        self._graph: Graph | None = None  # of the variables
        self._made = False  # they are made
        self._around: VariableScope | None = None  # of the first call
        self._scope: VariableScope | None = None
        inspect.signature(type(self)._function).bind(None, *args, **kwargs)

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        """The result for these inputs. Raises what the layer's function raises."""
        function = type(self)._function
        takes = inspect.signature(function).parameters
        more = {**self._kwargs, **kwargs}
        if "reuse" not in takes:
            named = {"name": self._name} if "name" in takes else {}
            return function(inputs, *self._args, **more, **named)
        graph = graph_of([inputs])
        with graph.as_default():
            if self._around is None or self._scope is None or self._graph is not graph:
                self._graph, self._around, self._made = graph, get_variable_scope(), False
                with layer_scope(self._name, self._default_name, None) as self._scope:
                    pass
            name = self._scope.name.removeprefix(f"{self._around.name}/" if self._around.name else "")
            with variable_scope(self._around):
                reuse = AUTO_REUSE if self._made else self._reuse
                result = function(inputs, *self._args, **more, name=name, reuse=reuse)
        self._made = True
        return result

    apply = __call__

    @property
    def name(self) -> str:
        """The layer's name. Raises FailedPreconditionError before the first call, which chooses one."""
        if self._name is not None:
            return self._name
        return self._built("name").name.rpartition("/")[2]

    @property
    def built(self) -> bool:
        """True once it was called."""
        return self._scope is not None

    @property
    def scope_name(self) -> str:
        """The name of the scope of its variables."""
        return self._built("scope_name").name

    @property
    def variables(self) -> list[Variable]:
        """Its variables, in the order in which they were made; none before the first call."""
        return self._of(GraphKeys.GLOBAL_VARIABLES)

    weights = variables

    @property
    def trainable_variables(self) -> list[Variable]:
        """Variables of the layer that are trained."""
        return self._of(GraphKeys.TRAINABLE_VARIABLES)

    trainable_weights = trainable_variables

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """Variables of the layer that are not trained, as moving statistics."""
        trained = self.trainable_variables
        return [each for each in self.variables if each not in trained]

    non_trainable_weights = non_trainable_variables

    def _built(self, what: str) -> VariableScope:
        if self._scope is None:
            raise FailedPreconditionError(f"{type(self).__name__}.{what}: call the layer before")
        return self._scope

    def _of(self, collection: str) -> list[Variable]:
        if self._scope is None or self._graph is None:
            return []
        found = self._graph.get_collection(collection)
        return [each for each in found if each.op.name.startswith(f"{self._scope.name}/")]

    def __getattr__(self, name: str) -> Variable:
        """A variable by its name in the layer, such as `kernel`."""
        if not name.startswith("_"):
            for variable in self.variables:
                if variable.op.name.rpartition("/")[2] == name:
                    return variable
        raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")


def _layer(name: str, function: Callable[..., Any]) -> type[LayerObject]:
    doc = f"`tb.layers.{function.__name__}` as an object, with its arguments; calls share variables."
    fields = {"_function": staticmethod(function), "_default_name": function.__name__, "__doc__": doc}
    return type(name, (LayerObject,), {**fields, "__module__": __name__})


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
SeparableConv2D = _layer("SeparableConv2D", separable_conv2d)
