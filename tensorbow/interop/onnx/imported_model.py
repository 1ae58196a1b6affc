"""An ONNX file as a model: a function of tensors with variables of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

# The modules of rules register what they build.
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor, get_default_graph
from tensorbow.interop.onnx import (  # noqa: F401
    array_rules,
    attention_rules,
    elementwise_rules,
    recurrent_rules,
    window_rules,
)
from tensorbow.interop.onnx.graph_builder import RULES, Fact, GraphBuilder, probe
from tensorbow.interop.onnx.held_values import Held, channels_last
from tensorbow.interop.onnx.model_file import ModelFile, Weight, read_model_file
from tensorbow.kinds import AsPath, Flag, Name, Names, checked, one_of
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import multiply, subtract
from tensorbow.ops.selection import cast
from tensorbow.specs import Array, TensorSpec, compatible
from tensorbow.variable_scope import AUTO_REUSE, get_variable, variable_scope
from tensorbow.variables import Variable, global_variables

ImageLayout: TypeAlias = Annotated[str, one_of("NCHW", "NHWC", any_case=True)]


class OnnxModel:
    """A model read from an ONNX file; call it to build its graph with trainable variables.

    Attributes:
        name: scope of its variables and ops.
        inputs: dtype and shape of each input by its name; None for extents that the file leaves open.
        outputs: names of the outputs.
        standardises: whether it takes columns of a table as they are, as an export of a run does.
    """

    def __init__(self, file: ModelFile, name: str, layout: str):
        self._file, self.name, self._layout = file, name, layout
        self._facts: dict[Any, dict[str, Fact]] = {}
        self.outputs, self.standardises = file.outputs, file.standardises

    @cached_property
    def inputs(self) -> dict[str, TensorSpec]:
        """Dtype and shape of each input; images in the layout that `load` was asked for."""
        return {name: self._spec(spec) for name, spec in self._file.inputs.items()}

    def _spec(self, spec: TensorSpec) -> TensorSpec:
        if self._layout == "NCHW" or spec.shape is None or len(spec.shape) != 4:
            return spec
        return TensorSpec(tuple(spec.shape[axis] for axis in channels_last(4)), spec.dtype)

    @property
    def values(self) -> dict[str, Array]:
        """Initial values of the variables, by their names without the scope."""
        return {weight.variable: _initial(weight) for weight in self._file.weights.values()}

    @property
    def variables(self) -> dict[str, Variable]:
        """The variables that calls made in the default graph, by their names without the scope."""
        prefix = f"{self.name}/"
        known = {weight.variable for weight in self._file.weights.values()}
        found = {v.op.name.partition(prefix)[2]: v for v in global_variables() if prefix in f"/{v.op.name}"}
        return {name: variable for name, variable in found.items() if name in known}

    @checked
    def __call__(self, *inputs: Any, training: Flag = False, **named: Any) -> Any:
        """Builds the model in the default graph.

        inputs: in the order of `inputs`, or by name. Axis 0, the batch, may be unknown; other extents must be
            known.
        training: batch normalisation uses the batch's statistics and adds the updates of its moving averages
            to the collection UPDATE_OPS, and dropout is active.

        Returns the output, or a dictionary of several by name. All calls in a graph share their variables.
        Raises InvalidArgumentError for inputs that do not fit, UnimplementedError for what cannot be built.
        """
        given = self._given(inputs, named)
        held = {name: self._held(name, value) for name, value in given.items()}
        with self._naming_fixed_batch(given), variable_scope(self.name, reuse=AUTO_REUSE):
            facts = self._probed(held, training)
            made: dict[str, Variable] = {}

            def weight(item: Weight) -> Tensor:
                return made.setdefault(item.variable, _variable(item)).value()

            builder = GraphBuilder(self._file, weight, training, facts)
            results = builder.build(held)
            for item, value, share in builder.statistics:
                average = made.get(item.variable) or _variable(item)
                update = average.assign_sub(multiply(subtract(average.value(), value), 1.0 - share))
                get_default_graph().add_to_collection(GraphKeys.UPDATE_OPS, update)
            tensors = {
                name: identity(self._returned(builder, result))
                for name, result in zip(self.outputs, results, strict=True)
            }
        return next(iter(tensors.values())) if len(tensors) == 1 else tensors

    def _given(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Tensor]:
        names = list(self.inputs)
        given = {**dict(zip(names, inputs, strict=False)), **named}
        if len(inputs) > len(names) or set(given) != set(names) or len(given) != len(inputs) + len(named):
            raise InvalidArgumentError(
                f"{self.name}: expected the inputs {', '.join(names)}, got {len(inputs)} by position and "
                f"{', '.join(named) or 'none'} by name"
            )
        tensors = {}
        for name in names:
            spec = self.inputs[name]
            tensor = convert_to_tensor(given[name])
            if tensor.dtype.is_integer and spec.dtype.is_integer:
                tensor = cast(tensor, spec.dtype)
            tensors[name] = tensor
            rest = None if spec.shape is None else spec.shape[1:]
            own = tensor.spec.shape
            if tensor.dtype != spec.dtype or own is None or not compatible(rest, own[1:]) or None in own[1:]:
                raise InvalidArgumentError(
                    f"{self.name}: expected input {name} to be {spec}, all extents but the first known, got "
                    f"{tensor.spec}; use tb.cast, set_shape, or the layout {self._layout} of images"
                )
        return tensors

    @contextmanager
    def _naming_fixed_batch(self, given: Mapping[str, Tensor]) -> Iterator[None]:
        """Adds the remedy to an error of a file that was exported for another batch than is given."""
        batches = {name: spec.shape[0] for name, spec in self.inputs.items() if spec.shape}
        other = [name for name, b in batches.items() if b is not None and b != given[name].spec.dims[0]]
        try:
            yield
        except TensorBowError as error:
            if not other:
                raise
            file = f"ONNX model {self._file.path.name}"
            raise type(error)(
                f"{file} was exported for a batch of {batches[other[0]]}; export it with an open one "
                "(dynamic_shapes, or dynamic_axes of the older exporter): "
                f"{str(error).removeprefix(f'{file}, ')}"
            ) from None

    def _held(self, name: str, tensor: Tensor) -> Held:
        images = self._layout == "NHWC" and len(tensor.spec.dims) == 4
        return Held(None, tensor, channels_last(4) if images else None)

    def _probed(self, held: Mapping[str, Held], training: bool) -> dict[str, Fact] | None:
        if all(item.tensor.spec.is_static for item in held.values()):
            return None
        key = (training, *((name, item.tensor.spec.shape) for name, item in held.items()))
        if key not in self._facts:
            self._facts[key] = probe(self._file, held, training)
        return self._facts[key]

    def _returned(self, builder: GraphBuilder, result: Held) -> Tensor:
        images = self._layout == "NHWC" and result.rank == 4
        return builder.tensor(result, channels_last(4) if images else None)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {spec}" for name, spec in self.inputs.items())
        return f"<OnnxModel {self.name}({inputs}) -> {', '.join(self.outputs)}>"


def _initial(weight: Weight) -> Array:
    return weight.value if weight.axes is None else np.ascontiguousarray(weight.value.transpose(weight.axes))


def _variable(weight: Weight) -> Variable:
    made: Variable = get_variable(
        weight.variable,
        initializer=_initial(weight),
        trainable=weight.trainable,
        combine="mean" if weight.role == "statistic" else None,
        decayed=False if weight.role != "weight" else None,
    )
    return made


@checked
def load(
    file: AsPath, *, name: Name = None, data_format: ImageLayout = "NCHW", frozen: Names = ()
) -> OnnxModel:
    """Reads an ONNX file as a trainable model: its weights become variables.

    name: scope of its variables and ops; by default the file's name.
    data_format: layout of images, inputs and outputs of rank 4, in calls: the file's NCHW, or NHWC without a
        transpose.
    frozen: patterns such as "encoder.*" of names of weights that are not trained.

    Stored tensors of floating dtypes become variables; numbers and rearranged tensors with an exporter's own
    names only where they are weights of a layer.

    Raises NotFoundError, DataLossError, UnimplementedError that lists all unsupported nodes, and
    FailedPreconditionError without the package onnx.
    """
    path = Path(file)
    chosen = name or re.sub(r"[^A-Za-z0-9_.-]+", "_", path.stem).strip("_-") or "onnx"
    return OnnxModel(read_model_file(path, RULES, list(frozen)), chosen, data_format)
