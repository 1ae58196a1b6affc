"""`tb.layers.Layer`: the base of layers as objects, also of a program's own, under TensorFlow 1's names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from tensorbow.graph import (
    Graph,
    GraphKeys,
    Operation,
    Tensor,
    convert_to_tensor,
    get_default_graph,
    graph_of,
)
from tensorbow.kinds import AsDType, AsShape, Flag, Function, Kind, Name, RefusedError, Text, checked
from tensorbow.layers.building import layer_scope
from tensorbow.nest import flatten, map_leaves
from tensorbow.ops.variable_aggregation import (
    AsAggregation,
    AsSynchronization,
    VariableAggregation,
    VariableSynchronization,
)
from tensorbow.partitioned_variables import Partitioner
from tensorbow.specs import DType, float32
from tensorbow.variable_scope import Reuse, Start, VariableScope, get_variable, variable_scope
from tensorbow.variables import Variable

__all__ = ["Layer"]

_GATHERED = (GraphKeys.REGULARIZATION_LOSSES, GraphKeys.UPDATE_OPS)


def _read_elements(value: Any) -> list[Any]:
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(item is None or isinstance(item, (Tensor, Operation)) for item in items):
        raise RefusedError
    return [item for item in items if item is not None]


LossesOrUpdates: TypeAlias = Annotated[Any, Kind("a tensor or operation, or a list of them", _read_elements)]


@dataclass
class LayerPlace:
    """A layer's part of one graph: its scope, and what its calls have added to collections."""

    graph: Graph
    scope: VariableScope
    gathered: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in _GATHERED})


class Layer:
    """A layer that makes its variables when it is first called, and shares them with later calls.

    A layer of one's own defines `build` and `call`:

        class Scaled(tb.layers.Layer):
            def build(self, input_shape):
                self.scale = self.add_weight("scale", [input_shape[-1].value], initializer="ones")

            def call(self, inputs):
                return inputs * self.scale

    `call` may make variables, too, by `get_variable`, functions of `tb.layers` or other layers. All lie in a
    variable scope of the layer's name, below the scope of the first call. In another graph the layer is built
    again. Each call checks its inputs by the attribute `input_spec`, a `tb.layers.InputSpec` or a list of
    them, which `__init__` or `build` may set.
    """

    built: bool = False
    trainable: bool = True
    dtype: DType | None = None
    activity_regularizer: Any = None
    input_spec: Any = None  # an `InputSpec`, or a list of one for each input
    _name: str | None = None
    _reuse: Any = None
    _latest: LayerPlace | None = None  # of the last call
    _active: LayerPlace | None = None  # during a call
    _floats: DType = float32  # dtype of the inputs, if it is a floating one

    @checked
    def __init__(
        self,
        trainable: Flag = True,
        name: Name = None,
        dtype: AsDType | None = None,
        *,
        activity_regularizer: Function | None = None,
        _reuse: Reuse | None = None,
    ):
        """trainable: False for variables that are not trained. name: by default the class's with underscores,
        `my_layer` for `MyLayer`, with a number where a scope has it. dtype: of variables, by default that of
        floating inputs, else float32. activity_regularizer: a function of each output that gives a loss.
        _reuse: of the first call, as `reuse` of a layer's function.
        """
        self.trainable, self.dtype, self.activity_regularizer = trainable, dtype, activity_regularizer
        self._name, self._reuse = name, _reuse

    def build(self, input_shape: Any) -> None:
        """Makes variables for inputs of this shape, or nest of shapes; by default none."""

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs, in the scope of its variables. Raises UnimplementedError for a layer without one."""
        raise UnimplementedError(
            f"{type(self).__name__}: expected a method call(self, inputs) that returns the outputs; define it"
        )

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs of `call` for a tensor or nest of tensors, and further arguments of `call`.

        Builds the layer first, if this is its first call in a graph. Raises what `build` and `call` raise.
        """
        graph = graph_of([*flatten(inputs), *args])
        with graph.as_default():
            tensors = self._as_tensors(inputs)
            with self._entered(graph) as place:
                before = {key: len(graph.get_collection(key)) for key in _GATHERED}
                if self._latest is None or self._latest.graph is not graph:
                    self.built = False
                self._check_inputs(tensors)
                if not self.built:
                    self._build(tensors)
                    self._check_inputs(tensors)
                outputs = self.call(tensors, *args, **kwargs)
                if self.activity_regularizer is not None:
                    self.add_loss([self.activity_regularizer(each) for each in flatten(outputs)])
                for key, count in before.items():
                    place.gathered[key] += graph.get_collection(key)[count:]
            self._latest = place
        return outputs

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The same as a call of the layer."""
        return self(inputs, *args, **kwargs)

    def _check_inputs(self, inputs: Any) -> None:
        """Raises InvalidArgumentError for inputs that do not fit the `input_spec`."""
        if self.input_spec is None:
            return
        listed = isinstance(self.input_spec, (list, tuple))
        specs, found = list(self.input_spec) if listed else [self.input_spec], flatten(inputs)
        if len(specs) != len(found):
            raise InvalidArgumentError(f"{self.name}: expected {len(specs)} inputs, got {len(found)}")
        for spec, tensor in zip(specs, found, strict=True):
            spec.check(tensor, self.name)

    def _as_tensors(self, inputs: Any) -> Any:
        """The inputs with tensors in the place of arrays, numbers and variables."""

        def converted(path: str, leaf: Any) -> Any:
            converts = isinstance(leaf, (np.ndarray, np.generic, int, float, Variable))
            return convert_to_tensor(leaf) if converts else leaf

        return map_leaves(converted, inputs, "inputs")

    def _build(self, inputs: Any) -> None:
        dtypes = [getattr(leaf, "dtype", None) for leaf in flatten(inputs)]
        self._floats = next((each for each in dtypes if each is not None and each.is_floating), float32)
        self.build(map_leaves(lambda path, leaf: leaf.get_shape(), inputs, "inputs"))
        self.built = True

    @contextmanager
    def _entered(self, graph: Graph) -> Iterator[LayerPlace]:
        """The scope of its variables, which is made in the first call in a graph, and reused in others."""
        places: WeakKeyDictionary[Layer, LayerPlace] = (
            graph.layer_places
        )  # which it keeps, as they refer to it
        place, outer = places.get(self), self._active
        if place is None:
            entered = layer_scope(self._name, self._default_name(), self._reuse)
        else:
            entered = variable_scope(place.scope, reuse=True)
        with entered as scope:
            self._active = place or LayerPlace(graph, scope)
            try:
                yield self._active
                places[self] = self._active
            finally:
                self._active = outer

    @classmethod
    def _default_name(cls) -> str:
        words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", cls.__name__)
        return re.sub("([a-z])([A-Z])", r"\1_\2", words).lower().strip("_")

    @checked
    def add_weight(
        self,
        name: Text,
        shape: AsShape = (),
        dtype: AsDType | None = None,
        initializer: Start | None = None,
        regularizer: Function | None = None,
        trainable: Flag = True,
        *,
        partitioner: Partitioner = None,
        synchronization: AsSynchronization = VariableSynchronization.AUTO,
        aggregation: AsAggregation = VariableAggregation.NONE,
        use_resource: Flag | None = None,
    ) -> Any:
        """A variable of the layer, see `tb.get_variable`; in `build`, `call`, or after a call.

        use_resource: TensorFlow's; has no effect. Raises FailedPreconditionError before the first call.
        """
        arguments: dict[str, Any] = {
            "shape": shape,
            "dtype": dtype or self.dtype or self._floats,
            "initializer": initializer,
            "regularizer": regularizer,
            "trainable": trainable and self.trainable,
            "partitioner": partitioner,
            "synchronization": synchronization,
            "aggregation": aggregation,
        }
        if self._active is not None:
            return get_variable(name, **arguments)
        place = self._placed("add_weight")
        with place.graph.as_default(), variable_scope(place.scope, reuse=False):
            return get_variable(name, **arguments)

    add_variable = add_weight

    @checked
    def add_loss(self, losses: LossesOrUpdates, inputs: Any = None) -> None:
        """Adds scalar losses to those of the layer and to the collection REGULARIZATION_LOSSES.

        inputs: TensorFlow's; has no effect. Raises FailedPreconditionError before the first call.
        """
        self._add(GraphKeys.REGULARIZATION_LOSSES, losses, "add_loss")

    @checked
    def add_update(self, updates: LossesOrUpdates, inputs: Any = None) -> None:
        """Adds operations to those that run with a training step, in the collection UPDATE_OPS.

        inputs: TensorFlow's; has no effect. Raises FailedPreconditionError before the first call.
        """
        self._add(GraphKeys.UPDATE_OPS, updates, "add_update")

    def _add(self, key: str, elements: Sequence[Any], what: str) -> None:
        place = self._placed(what)
        for element in elements:
            place.graph.add_to_collection(key, element)
        if self._active is None:  # a call finds them in the collection
            place.gathered[key] += elements

    def _placed(self, what: str) -> LayerPlace:
        place = self._active or self._latest
        if place is None:
            raise FailedPreconditionError(f"{type(self).__name__}.{what}: call the layer before")
        return place

    @property
    def name(self) -> str:
        """The layer's name. Raises FailedPreconditionError before the first call, which chooses one."""
        return self._name or self._placed("name").scope.name.rpartition("/")[2]

    @property
    def scope_name(self) -> str:
        """The name of the scope of its variables. Raises FailedPreconditionError before the first call."""
        return self._placed("scope_name").scope.name

    @property
    def graph(self) -> Graph:
        """The graph of the last call, before it the default graph."""
        place = self._active or self._latest
        return get_default_graph() if place is None else place.graph

    @property
    def variables(self) -> list[Variable]:
        """Its variables, in the order in which they were made; none before the first call."""
        return self._of(GraphKeys.GLOBAL_VARIABLES)

    @property
    def trainable_variables(self) -> list[Variable]:
        """Variables of the layer that are trained; none of a layer whose `trainable` is False."""
        return self._of(GraphKeys.TRAINABLE_VARIABLES) if self.trainable else []

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """Variables of the layer that are not trained, as moving statistics."""
        trained = self.trainable_variables
        return [each for each in self.variables if each not in trained]

    @property
    def weights(self) -> list[Variable]:
        """The same as `variables`."""
        return self.variables

    @property
    def trainable_weights(self) -> list[Variable]:
        """The same as `trainable_variables`."""
        return self.trainable_variables

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The same as `non_trainable_variables`."""
        return self.non_trainable_variables

    @property
    def losses(self) -> list[Any]:
        """Losses that calls of the layer have added, of regularizers, of `add_loss` and of layers within."""
        return self._gathered(GraphKeys.REGULARIZATION_LOSSES)

    @property
    def updates(self) -> list[Any]:
        """Operations that calls of the layer have added to UPDATE_OPS, as of moving statistics."""
        return self._gathered(GraphKeys.UPDATE_OPS)

    def count_params(self) -> int:
        """The number of elements of its variables. Raises FailedPreconditionError before the first call."""
        variables = self.variables
        if not variables:
            self._placed("count_params")
        return sum(math.prod(variable.op.outputs[0].spec.extents) for variable in variables)

    def _gathered(self, key: str) -> list[Any]:
        place = self._active or self._latest
        return [] if place is None else list(place.gathered[key])

    def _of(self, collection: str) -> list[Variable]:
        place = self._active or self._latest
        if place is None:
            return []
        inside = f"{place.scope.name}/"
        return [each for each in place.graph.get_collection(collection) if each.op.name.startswith(inside)]
