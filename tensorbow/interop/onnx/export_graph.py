"""Graphs, saved models and runs as ONNX files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import numpy as np

from scheduler.training.models.trained_model import TrainedModel
from tensorbow.compiler.prune import prune
from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.files import write_file
from tensorbow.graph import Graph, Tensor
from tensorbow.interop.onnx import op_writers, quantized_writers  # noqa: F401 - register what they write
from tensorbow.interop.onnx.graph_writer import GraphWriter
from tensorbow.interop.onnx.model_file import STANDARDISES, import_onnx
from tensorbow.kinds import PATH, TEXT, AsPath, checked, instance, sequence, whole
from tensorbow.nest import flatten
from tensorbow.ops.state import VariableReference
from tensorbow.runtime import Session
from tensorbow.specs import Array
from tensorbow.training import SavedModel
from tensorbow.training.graph_files import GRAPH, TENSORS, Tensors

Opset: TypeAlias = Annotated[int, whole(18, 24)]
ExportSource: TypeAlias = Annotated[
    Any,
    instance(Graph, SavedModel, expected="a tb.Graph, a tb.train.SavedModel, the folder of one or of a run")
    | PATH,
]
Wanted: TypeAlias = Annotated[
    Any,
    TENSORS | sequence(TEXT, "names of outputs"),
]
VariableValues: TypeAlias = Annotated[
    Any, instance(Session, Mapping, expected="a session, or a dictionary of arrays by variables' names")
]
IR_VERSION = 10  # of opset 20 to 22; readable by all versions of onnxruntime since 1.18


@checked
def export(
    source: ExportSource,
    file: AsPath,
    *,
    inputs: Tensors | None = None,
    outputs: Wanted | None = None,
    values: VariableValues | None = None,
    opset: Opset = 20,
) -> str:
    """Writes an inference graph with its weights as an ONNX file; returns the path.

    source: the folder of a run or of a saved model, a `tb.train.SavedModel`, or a `tb.Graph`, for which
        `inputs` and `outputs` are dictionaries of tensors by name, and `values` is the session, or arrays by
        the names of the variables.
    outputs: of a saved model, the names of those wanted; by default all that do not need labels.

    Inputs and outputs have the layout of the graph; an axis 0 of unknown extent becomes the symbol `batch`.
    Raises UnimplementedError that lists all operations without a counterpart, the errors of loading
    `source`, and FailedPreconditionError without the package onnx.
    """
    if isinstance(source, Graph):
        if inputs is None or not isinstance(outputs, Mapping) or not outputs or values is None:
            raise InvalidArgumentError(
                "onnx.export: a graph needs inputs={name: tensor}, outputs={name: tensor} and values=session"
            )
        return _write(source, inputs, outputs, values, Path(file), opset)
    if isinstance(source, SavedModel):
        return _of_saved(source, outputs, Path(file), opset)
    path = Path(source)
    if (path / GRAPH).exists():
        with SavedModel(path) as saved:
            return _of_saved(saved, outputs, Path(file), opset)
    with tempfile.TemporaryDirectory() as folder:
        with TrainedModel(path) as trained:
            trained.export(folder)
        with SavedModel(folder) as saved:
            return _of_saved(saved, outputs, Path(file), opset)


def _of_saved(saved: SavedModel, wanted: Any, file: Path, opset: int) -> str:
    given = set(saved.inputs.values())
    signature = saved.about.get("signature") or {"labels": "labels"}
    names, nest = signature.get("labels"), signature.get("inputs")
    labels = {saved.inputs[name] for name in flatten(names) if name in saved.inputs}
    chosen: dict[str, Tensor] = {}
    for name, tensor in saved.outputs.items():
        needed = prune([tensor.op], given)
        of_labels = any(labels.intersection(op.inputs) for op in needed)
        if name in wanted if wanted is not None else not of_labels:
            chosen[name] = tensor
    missing = [name for name in wanted or () if name not in saved.outputs]
    if missing or not chosen:
        raise InvalidArgumentError(
            f"onnx.export: expected outputs among {', '.join(saved.outputs)}, "
            f"got {', '.join(missing) or 'none'}"
        )
    # Of several inputs each has its own name, `user` and not inputs_user, where nothing else has it.
    found = nest if isinstance(nest, Mapping) else {}
    own = {name: key for key, name in found.items() if isinstance(name, str)}
    taken = {*saved.inputs, *chosen}
    given_names = {name: own[name] for name in own if name in saved.inputs and own[name] not in taken}
    inputs = {given_names.get(name, name): tensor for name, tensor in saved.inputs.items()}
    facts = {STANDARDISES: "columns"} if saved.about.get("standardisation") else {}
    return _write(saved.graph, inputs, chosen, saved.session, file, opset, facts)


def _write(
    graph: Graph,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    values: Any,
    file: Path,
    opset: int,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Writes a file. facts: its metadata."""
    onnx = import_onnx()
    given = {name: _tensor(graph, tensor) for name, tensor in inputs.items()}
    wanted = {name: _tensor(graph, tensor) for name, tensor in outputs.items()}
    operations = prune([tensor.op for tensor in wanted.values()], set(given.values()))
    read = {tensor for op in operations for tensor in op.inputs} | set(wanted.values())
    given = {name: tensor for name, tensor in given.items() if tensor in read}
    variables = [op.outputs[0] for op in operations if op.definition is VariableReference]
    writer = GraphWriter(_values(values, variables), operations)
    for name in wanted:
        writer.unique(name)
    writer.write({tensor: name for name, tensor in given.items()})
    helper = onnx.helper
    for name, tensor in wanted.items():
        writer.nodes.append(
            helper.make_node("Identity", [writer.name(tensor)], [name], name=f"output {name}")
        )
    needed = {name for node in writer.nodes for name in node.input}  # onnxruntime warns of other weights
    stored = [(name, array) for name, array in writer.arrays.items() if name in needed]
    described = helper.make_graph(
        writer.nodes,
        "tensorbow",
        [_signature(helper, name, tensor) for name, tensor in given.items()],
        [_signature(helper, name, tensor) for name, tensor in wanted.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored],
    )
    model = helper.make_model(
        described, opset_imports=[helper.make_opsetid("", opset)], producer_name="tensorbow"
    )
    helper.set_model_props(model, dict(facts))
    model.ir_version = min(model.ir_version, IR_VERSION)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise InternalError(f"onnx.export made an invalid model: {error}") from None
    write_file(file, model.SerializeToString())
    return str(file)


def _tensor(graph: Graph, value: Any) -> Tensor:
    tensor = graph.as_graph_element(value)
    if not isinstance(tensor, Tensor):
        raise InvalidArgumentError(f"onnx.export: expected a tensor of the graph, got {value!r:.60}")
    return tensor


def _values(values: Any, variables: list[Tensor]) -> dict[str, Array]:
    names = [tensor.op.name for tensor in variables]
    if isinstance(values, Mapping):
        return {name: np.asarray(values[name]) for name in names if name in values}
    return dict(zip(names, values.run(variables), strict=True)) if names else {}


def _signature(helper: Any, name: str, tensor: Tensor) -> Any:
    spec = tensor.spec
    kind = helper.np_dtype_to_tensor_dtype(spec.dtype.as_numpy_dtype)
    symbols = (f"{name}_{axis}" if axis else "batch" for axis in range(len(spec.shape or ())))
    dims = [symbol if d is None else d for symbol, d in zip(symbols, spec.shape or (), strict=True)]
    return helper.make_tensor_value_info(name, kind, None if spec.shape is None else dims)
