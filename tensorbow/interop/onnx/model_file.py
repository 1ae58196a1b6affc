"""ONNX files: nodes, weights and signatures, without the protocol buffers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from tensorbow.specs import DTYPES, Array, TensorSpec, as_dtype

NEWEST_OPSET, OLDEST_OPSET = 24, 9
STANDARDISES = "tensorbow.standardises"  # metadata of an export that takes columns of a table as they are
LARGEST = 1e30  # a weight is smaller; masks of attention are not
# Names that exporters give to what they compute at export: constants as well as rearranged weights.
_GENERATED = re.compile(r"(val_\d+|\d+|onnx::.*|.*[Cc]onst.*|/.*)", re.DOTALL)
# Inputs of nodes that are weights whatever their names, by position.
_WEIGHTS: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (1, 2, 3, 4),
    "Conv": (1, 2),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
}
# Inputs of nodes that are settings of the op, by position.
_SETTINGS: dict[str, tuple[int, ...]] = {
    "Clip": (1, 2),
    "Dropout": (1,),
    "OneHot": (2,),
    "Pad": (2,),
    "Range": (0, 1, 2),
}


@dataclass(frozen=True)
class OnnxNode:
    """One node: `inputs` and `outputs` are names of values, "" for one that is left out."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    proto: Any = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.op} node {self.name!r}" if self.name else f"{self.op} node of {self.outputs[0]!r}"


@dataclass(frozen=True)
class Weight:
    """A stored tensor that becomes a variable.

    Args:
        variable: the variable's name in the model's scope.
        value: initial value, its axes in the order of the file.
        axes: the variable's axis i is the file's axis axes[i]; None: the same order.
        role: `weight`, `factor` (trained without weight decay), `statistic` of a batch normalisation.
        trainable: whether optimisers change it.
    """

    variable: str
    value: Array
    axes: tuple[int, ...] | None
    role: str
    trainable: bool


@dataclass(frozen=True)
class ModelFile:
    """Content of an ONNX file."""

    path: Path
    opset: int
    nodes: tuple[OnnxNode, ...]
    inputs: dict[str, TensorSpec]  # as stored: images have their channels second
    outputs: tuple[str, ...]
    constants: dict[str, Array]
    weights: dict[str, Weight]  # by the name of the value
    standardises: bool = False  # its inputs are columns of a table as they are


def import_onnx() -> Any:
    """The package `onnx`. Raises FailedPreconditionError if it is not installed."""
    try:
        import onnx
    except ImportError:
        raise FailedPreconditionError(
            "ONNX files need the package onnx: pip install 'tensorbow[onnx]'"
        ) from None
    return onnx


def read_model_file(path: Path, known_ops: Mapping[str, object], frozen: Sequence[str]) -> ModelFile:
    """Reads and checks a file.

    known_ops: the ops that can be built; frozen: patterns of names of weights that are not trained.
    Raises NotFoundError, DataLossError, InvalidArgumentError, and UnimplementedError listing every node
    that cannot be built.
    """
    onnx = import_onnx()
    from onnx import inliner

    try:
        proto = onnx.load(path)
        onnx.checker.check_model(proto)
    except FileNotFoundError:
        raise NotFoundError(f"ONNX model: there is no file {path}") from None
    except Exception as error:  # of protobuf, of the checker, or of the system
        raise DataLossError(
            f"ONNX model {path} cannot be read: {' '.join(str(error).split()):.300}"
        ) from None
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), NEWEST_OPSET)
    nodes = tuple(_node(onnx, item) for item in proto.graph.node)
    _require_known(path, opset, nodes, known_ops)
    stored = {item.name: _array(onnx, path, item) for item in proto.graph.initializer}
    copies = _copies(nodes, stored)
    nodes = tuple(node for node in nodes if node.outputs[0] not in copies)
    nodes, separate = _separated(nodes, stored)
    stored = {**stored, **copies, **separate}
    weights = _weights(nodes, stored, frozen)
    _require_used(path, frozen, stored)
    given = [item for item in proto.graph.input if item.name not in stored]
    return ModelFile(
        path,
        opset,
        nodes,
        {item.name: _spec(onnx, path, item) for item in given},
        tuple(item.name for item in proto.graph.output),
        {name: array for name, array in stored.items() if name not in weights},
        weights,
        any(item.key == STANDARDISES for item in proto.metadata_props),
    )


def _node(onnx: Any, proto: Any) -> OnnxNode:
    attrs = {item.name: _attribute(onnx, item) for item in proto.attribute}
    known = proto.domain in ("", "ai.onnx")
    return OnnxNode(
        proto.op_type if known else f"{proto.domain}.{proto.op_type}",
        proto.name,
        tuple(proto.input),
        tuple(proto.output),
        attrs,
        proto,
    )


def _attribute(onnx: Any, item: Any) -> Any:
    value = onnx.helper.get_attribute_value(item)
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(part.decode() if isinstance(part, bytes) else part for part in value)
    return value


def _array(onnx: Any, path: Path, item: Any) -> Array:
    array = np.asarray(onnx.numpy_helper.to_array(item))
    if array.dtype.name not in DTYPES:
        raise UnimplementedError(
            f"ONNX model {path}: expected tensors of {', '.join(DTYPES)}, got {item.name!r} of "
            f"{array.dtype.name}; export the model in float32"
        )
    return array


def _spec(onnx: Any, path: Path, item: Any) -> TensorSpec:
    kind = item.type.tensor_type
    name = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).name) if kind.elem_type else "?"
    if name not in DTYPES:
        raise UnimplementedError(
            f"ONNX model {path}: input {item.name!r} is {name}, expected {', '.join(DTYPES)}"
        )
    if not kind.HasField("shape"):
        return TensorSpec(None, as_dtype(name))
    dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
    return TensorSpec(tuple(dims), as_dtype(name))


def _require_known(
    path: Path, opset: int, nodes: Sequence[OnnxNode], known_ops: Mapping[str, object]
) -> None:
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise UnimplementedError(
            f"ONNX model {path} has opset {opset}, expected {OLDEST_OPSET} to {NEWEST_OPSET}; export it anew"
        )
    unknown = Counter(node.op for node in nodes if node.op not in known_ops)
    if not unknown:
        return
    lines = []
    for op, count in unknown.items():
        first = next(node for node in nodes if node.op == op)
        lines.append(f"{op} ({count}: {first.name or first.outputs[0]:.60}{', ...' if count > 1 else ''})")
    raise UnimplementedError(
        f"ONNX model {path}, opset {opset}: these nodes are not supported: {'; '.join(lines)}. "
        f"Supported: {', '.join(sorted(known_ops))}"
    )


def _copies(nodes: Sequence[OnnxNode], stored: Mapping[str, Array]) -> dict[str, Array]:
    """Stored tensors under the names that Identity nodes give them.

    PyTorch stores equal parameters once, and the others as Identity of it: they are parameters of their own.
    """
    copies: dict[str, Array] = {}
    for node in nodes:
        source = node.inputs[0] if node.op == "Identity" else ""
        if source in stored or source in copies:
            copies[node.outputs[0]] = stored[source] if source in stored else copies[source]
    return copies


def _separated(
    nodes: Sequence[OnnxNode], stored: Mapping[str, Array]
) -> tuple[tuple[OnnxNode, ...], dict[str, Array]]:
    """Gives each normalisation and bias its own vector where several share one of equal elements.

    Exporters store equal vectors once; those that are all 0 or all 1 belong to several layers of a new model.
    """
    seen: set[str] = set()
    separate: dict[str, Array] = {}
    result = []
    for node in nodes:
        inputs = list(node.inputs)
        for index in _WEIGHTS.get(node.op, ()):
            name = inputs[index] if index < len(inputs) else ""
            array = stored.get(name)
            if array is None or array.ndim != 1 or array.dtype.kind != "f" or not _is_filled(array):
                continue
            if name in seen:
                inputs[index] = own = f"{name}_{len(separate) + 1}"
                separate[own] = array
            seen.add(name)
        result.append(OnnxNode(node.op, node.name, tuple(inputs), node.outputs, node.attrs, node.proto))
    return tuple(result), separate


def _is_filled(array: Array) -> bool:
    return array.size > 0 and bool((array == array.flat[0]).all())


def _weights(
    nodes: Sequence[OnnxNode], stored: Mapping[str, Array], frozen: Sequence[str]
) -> dict[str, Weight]:
    """The stored tensors that become variables."""
    weighty: set[str] = set()
    kernels: set[str] = set()
    factors: set[str] = set()
    statistics: set[str] = set()
    used = {name for node in nodes for name in node.inputs}
    used -= {node.inputs[i] for node in nodes for i in _SETTINGS.get(node.op, ()) if i < len(node.inputs)}
    for node in nodes:
        own = [node.inputs[i] for i in _WEIGHTS.get(node.op, ()) if i < len(node.inputs)]
        weighty.update(own)
        if node.op == "Conv":
            kernels.add(node.inputs[1])
        elif node.op.endswith("Normalization"):
            factors.update(own[:2])
            statistics.update(own[2:])
    weights: dict[str, Weight] = {}
    taken: Counter[str] = Counter()
    for name, array in stored.items():
        if name not in used or array.dtype.kind != "f" or not array.size or not _is_plausible(array):
            continue
        if _GENERATED.fullmatch(name) and name not in weighty:
            continue
        variable = re.sub(r"[^A-Za-z0-9_./>-]+", "_", name).strip("/_") or "weight"
        taken[variable.lower()] += 1
        if taken[variable.lower()] > 1:
            variable = f"{variable}_{taken[variable.lower()] - 1}"
        role = "statistic" if name in statistics else "factor" if name in factors else "weight"
        kept = any(fnmatchcase(name, pattern) for pattern in frozen)
        axes = (*range(2, array.ndim), 1, 0) if name in kernels else None
        weights[name] = Weight(variable, array, axes, role, role != "statistic" and not kept)
    return weights


def _is_plausible(array: Array) -> bool:
    return bool((np.abs(array) < LARGEST).all())  # False for NaN and infinity


def _require_used(path: Path, frozen: Sequence[str], stored: Mapping[str, Array]) -> None:
    for pattern in frozen:
        if not any(fnmatchcase(name, pattern) for name in stored):
            raise InvalidArgumentError(
                f"onnx.load: frozen: no weight of {path} fits {pattern!r}; it has {', '.join(stored):.300}"
            )
