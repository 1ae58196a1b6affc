"""Graphs in files, and saved models for inference: folders with a graph and the values of its variables."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from tensorbow.array_likes import as_array
from tensorbow.checkpoint_files.arrays_file import load_arrays, save_arrays
from tensorbow.devices import AsDevice
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.files import read_file, write_file
from tensorbow.graph import Graph, GraphDef, Tensor
from tensorbow.graph.graph_def import MAXIMUM_CHARACTERS
from tensorbow.kinds import TEXT, AsPath, Flag, Kind, Mapped, Names, RefusedError, checked, instance
from tensorbow.missing_names import listed
from tensorbow.ops.host_variables import HostVariable
from tensorbow.ops.importing import import_graph_def
from tensorbow.ops.state import VariableReference
from tensorbow.runtime import Session
from tensorbow.specs import Array, render_dims
from tensorbow.training.checkpoints import make_folder

AnyGraph: TypeAlias = Annotated[
    Graph | GraphDef, instance(Graph, GraphDef, expected="a tb.Graph or a tb.GraphDef")
]


def _read_tensors(value: Any) -> dict[str, Tensor]:
    if not isinstance(value, Mapping) or not all(isinstance(tensor, Tensor) for tensor in value.values()):
        raise RefusedError
    return {TEXT.read(name): tensor for name, tensor in value.items()}


def _read_file_name(value: Any) -> str:
    text: str = TEXT.read(value)
    if text in ("", ".", "..") or "\0" in text:
        raise RefusedError
    return text


TENSORS = Kind("a dictionary of tensors by name", _read_tensors)
Tensors: TypeAlias = Annotated[dict[str, Tensor], TENSORS]
FileName: TypeAlias = Annotated[str, Kind("the name of a file", _read_file_name)]
GRAPH, VARIABLES = "graph.json", "variables.safetensors"


@checked
def write_graph(graph: AnyGraph, logdir: AsPath, name: FileName, as_text: Flag = True) -> str:
    """Writes a graph to `logdir/name`, atomically; returns the path.

    as_text: JSON; False: a protocol buffer, which TensorFlow's tools read (names end in ".pb").
    Raises InvalidArgumentError for an invalid graph or path, ResourceExhaustedError if the file cannot be
    written, FailedPreconditionError for a protocol buffer without protobuf.
    """
    graph_def = graph.as_graph_def() if isinstance(graph, Graph) else graph
    folder = Path(logdir)
    make_folder(folder)
    write_file(folder / name, graph_def.to_json().encode() if as_text else graph_def.SerializeToString())
    return str(folder / name)


@checked
def read_graph(path: AsPath) -> GraphDef:
    """Reads a graph of `write_graph`, of either form.

    Raises NotFoundError, DataLossError, InvalidArgumentError, FailedPreconditionError; all name the file.
    """
    blob = read_file(Path(path), MAXIMUM_CHARACTERS)
    try:
        return GraphDef.from_file_content(blob)
    except TensorBowError as error:
        raise type(error)(f"{path}: {error}") from None


@checked
def save_model(
    folder: AsPath,
    inputs: Tensors,
    outputs: Tensors,
    values: Mapped,
    metadata: Mapped | None = None,
) -> str:
    """Writes a folder from which `SavedModel` computes `outputs` from `inputs`; returns its path.

    values: arrays by name of variable; unneeded ones are left out. Equal models give equal bytes. Raises
    NotFoundError for a variable without a value, InvalidArgumentError for a value of another shape or dtype,
    and what writing a file raises.
    """
    if not outputs:
        raise InvalidArgumentError("save_model: expected outputs to be at least one")
    elements = [*inputs.values(), *outputs.values()]
    graph = elements[0].graph
    part = graph.as_graph_def().extract(tensor.name for tensor in elements)
    needed = [node.name for node in part.node if node.op == VariableReference.name]
    for node in part.node:
        if node.op == HostVariable.name:
            raise InvalidArgumentError(
                f"save_model: variable {node.name} is of strings, or its shape may change; freeze its value "
                "by tb.graph_util.convert_variables_to_constants"
            )
    missing = [name for name in needed if name not in values]
    if missing:
        raise NotFoundError(f"save_model: no value for {', '.join(missing)}")
    arrays = {name: as_array(values[name]) for name in needed}
    for name, array in arrays.items():
        spec = graph.get_operation_by_name(name).outputs[0].spec
        if array.shape != spec.extents or array.dtype != spec.dtype.as_numpy_dtype:
            raise InvalidArgumentError(
                f"save_model: variable {name}: expected {spec}, got {array.dtype}{render_dims(array.shape)}"
            )
    path = Path(folder)
    make_folder(path)
    text = part.to_json().encode()
    write_file(path / GRAPH, text)
    described = {
        "kind": "model",
        "graph_crc32": zlib.crc32(text),
        "inputs": {key: tensor.name for key, tensor in inputs.items()},
        "outputs": {key: tensor.name for key, tensor in outputs.items()},
        "about": dict(metadata or {}),
    }
    save_arrays(path / VARIABLES, arrays, described)
    return str(path)


def require_fitting(graph: Graph, arrays: Mapping[str, Array]) -> None:
    """Raises InvalidArgumentError unless there is exactly one array per variable, of its shape and dtype.

    A file may be of another model than it claims; this is checked before a session allocates memory.
    """
    variables = [op for op in graph.get_operations() if op.definition is VariableReference]
    missing = [op.name for op in variables if op.name not in arrays]
    if missing:
        raise InvalidArgumentError(f"variables without a value: {listed(missing, 5)}")
    for op in variables:
        spec, array = op.outputs[0].spec, arrays[op.name]
        if array.shape != spec.extents:
            raise InvalidArgumentError(
                f"variable {op.name}: expected shape {render_dims(spec.extents)}, "
                f"got {render_dims(array.shape)}"
            )
        if array.dtype != spec.dtype.as_numpy_dtype:
            raise InvalidArgumentError(f"variable {op.name}: expected {spec.dtype.name}, got {array.dtype}")
    unknown = sorted(set(arrays) - {op.name for op in variables})
    if unknown:
        raise InvalidArgumentError(f"no variable {unknown[0][:80]!r}")


class SavedModel:
    """Saved model, loaded into a session of its own. Use it with `with`, or close it."""

    @checked
    def __init__(self, folder: AsPath, *, device: AsDevice = "/cpu:0"):
        """Raises NotFoundError, DataLossError or InvalidArgumentError for a folder without a saved model."""
        path = Path(folder)
        arrays, described = load_arrays(path / VARIABLES, remedy="export the model again")
        text = read_file(path / GRAPH, MAXIMUM_CHARACTERS)
        names = [described.get("inputs"), described.get("outputs")]
        if described.get("kind") != "model" or not all(_is_names(item) for item in names):
            raise DataLossError(f"{path / VARIABLES} is not of a saved model")
        if described.get("graph_crc32") != zlib.crc32(text):
            raise DataLossError(f"{path / GRAPH} is damaged, or of another export than {VARIABLES}")
        self.about: dict[str, Any] = described["about"] if isinstance(described.get("about"), dict) else {}
        self.graph = Graph()
        try:
            with self.graph.as_default():
                import_graph_def(GraphDef.from_json(text), name="")
            self.inputs = self._tensors(described["inputs"])
            self.outputs = self._tensors(described["outputs"])
            require_fitting(self.graph, arrays)
            self.session = Session(graph=self.graph, device=device)
        except TensorBowError as error:
            raise type(error)(f"saved model {path}: {error}") from None
        try:
            self.session.load_variables(arrays)
        except TensorBowError as error:
            self.session.close()
            raise type(error)(f"saved model {path}: {error}") from None

    def _tensors(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        return {key: self.graph.get_tensor_by_name(name) for key, name in names.items()}

    @checked
    def run(self, outputs: Names, **inputs: Any) -> list[Any]:
        """Computes the named outputs. Raises InvalidArgumentError for unknown names or other shapes."""
        for name in (*outputs, *inputs):
            known = self.outputs if name in outputs else self.inputs
            if name not in known:
                raise InvalidArgumentError(
                    f"saved model: there is no {name!r:.60} among outputs and inputs, only {', '.join(known)}"
                )
        feeds = {self.inputs[name]: value for name, value in inputs.items()}
        results: list[Any] = self.session.run([self.outputs[name] for name in outputs], feeds)
        return results

    def close(self) -> None:
        """Closes the session; idempotent."""
        self.session.close()

    def __enter__(self) -> SavedModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _is_names(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value.values())
