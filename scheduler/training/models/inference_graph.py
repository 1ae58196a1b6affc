"""Inference graph of a trained model, and the description by which a file of its variables is used again."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.folders.run_data import data_options
from scheduler.training.folders.run_folder import GRAPH_FILE, MODEL
from scheduler.training.models.model_inputs import inputs_of_specs, name_of_path
from tensorbow.compiler.prune import prune
from tensorbow.data import TrainingData
from tensorbow.data.array_dataset import spec_of_text, standardised
from tensorbow.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    TensorBowError,
    UnimplementedError,
)
from tensorbow.files import read_file
from tensorbow.graph import Graph, GraphDef, Tensor, name_scope
from tensorbow.models import ModelSource, find_model
from tensorbow.nest import map_leaves
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import multiply, subtract
from tensorbow.ops.importing import import_graph_def
from tensorbow.ops.nn import softmax
from tensorbow.ops.selection import cast
from tensorbow.ops.state import VariableReference
from tensorbow.specs import TensorSpec, float32, int64, uint8

_LIMIT = 1 << 30
DEEPEST = 32  # nest of inputs or outputs in a description
LARGEST_SCALE = 1e6  # largest plausible mean, standard deviation, and inverse of it, of pixels
# Signature of exports of older versions: classifiers of pictures.
OLD_SIGNATURE = {"inputs": "images", "labels": "labels", "outputs": "logits", "metrics": None}


@dataclass(frozen=True)
class InferenceGraph:
    """Tensors of a trained model by name, and the nests in which users see them.

    inputs: of raw examples and labels. outputs: `loss`, the metrics, the predictions, and with classes
    `probabilities`. signature: nests of names `inputs`, `labels` and `outputs`, and the list `metrics`.
    """

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    signature: dict[str, Any]


def description_of(config: TrainingConfig, data: TrainingData, data_name: str) -> dict[str, Any]:
    """Model, data and their options of a run, as JSON values; see `build_inference`.

    data_name: not the config's if a program gave the data, so that options do not find it again.
    """
    values = config.to_dict()
    return {
        "model": values["model"],
        "model_options": values["model_options"],
        "dataset": data_name,
        "data": data_options(config) if data_name == config.data_name else None,
        **data.about(),
    }


def build_inference(about: Mapping[str, Any], source: ModelSource | None = None) -> InferenceGraph:
    """Builds the inference graph of a description in the default graph. Computes the same as `Evaluator`.

    source: the model, by default found by its name. It takes raw examples: their normalisation is part of the
    graph.
    """
    source = find_model(about["model"]) if source is None else source
    classes, is_pictures = about.get("classes"), "image_shape" in about
    if is_pictures:
        specs: tuple[Any, Any] = TensorSpec((None, *about["image_shape"]), uint8), TensorSpec((None,), int64)
    else:
        specs = _specs_in(about["inputs"]), None if about["labels"] is None else _specs_in(about["labels"])
    given = inputs_of_specs(*specs, pictures=is_pictures)
    with name_scope("normalize"):
        inputs = given.inputs
        if source.takes_raw:
            pass
        elif is_pictures:
            scale, shift = np.float32(1 / (255 * about["std"])), np.float32(about["mean"] / about["std"])
            inputs = subtract(multiply(cast(inputs, float32), scale), shift)
        elif (found := about.get("standardisation")) is not None:
            inputs = standardised(inputs, (np.array(found["mean"]), np.array(found["std"])))
    scale = about.get("label_scale")
    built = source.build(
        about.get("model_options", {}),
        inputs,
        given.labels,
        False,
        classes=classes,
        label_scale=None if scale is None else (np.array(scale["mean"]), np.array(scale["std"])),
    )
    outputs = {"loss": identity(built.loss, name="loss")}
    outputs |= {name: identity(metric, name=name) for name, metric in built.metrics.items()}
    predictions, is_of_classes = built.outputs, False
    if isinstance(predictions, Tensor):
        dims = predictions.spec.shape
        is_of_classes = classes is not None and dims is not None and len(dims) == 2 and dims[1] == classes
    root = "logits" if is_of_classes else "outputs"

    def named(path: str, tensor: Tensor) -> str:
        name = name_of_path(path)
        name = f"{name}_output" if name in outputs else name
        outputs[name] = identity(tensor, name=name)
        return name

    structure = None if predictions is None else map_leaves(named, predictions, root)
    if is_of_classes:
        outputs["probabilities"] = softmax(outputs["logits"], name="probabilities")
    names = {tensor: tensor.op.name for tensor in given.placeholders}
    signature = {
        "inputs": map_leaves(lambda _, tensor: names[tensor], given.inputs, ""),
        "labels": None
        if given.labels is None
        else map_leaves(lambda _, tensor: names[tensor], given.labels, ""),
        "outputs": structure,
        "metrics": [*built.metrics],
    }
    return InferenceGraph({name: tensor for tensor, name in names.items()}, outputs, signature)


def stored_inference(described: Mapping[str, Any], config: TrainingConfig) -> tuple[dict[str, Any], bytes]:
    """The description of a model with its inference graph, and the graph's file: for models of users, whose
    code need not be there when they are used.

    Raises InvalidArgumentError for a graph that cannot be saved, as one with a function of Python.
    """
    graph = Graph()
    with graph.as_default():
        found = build_inference(described, config.source)
    tensors = [*found.inputs.values(), *found.outputs.values()]
    try:
        text = graph.as_graph_def().extract(tensor.name for tensor in tensors).to_json().encode()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            "a model's graph for evaluation is saved with its run, so that the model works without its code; "
            f"this one cannot be: {error}; use such an op where `training` is true alone, or tb.define_op"
        ) from error
    stored = {
        "crc32": zlib.crc32(text),
        "inputs": {name: tensor.name for name, tensor in found.inputs.items()},
        "outputs": {name: tensor.name for name, tensor in found.outputs.items()},
        "signature": found.signature,
    }
    return {**described, "graph": stored}, text


def load_inference(about: Mapping[str, Any], folder: Path) -> InferenceGraph:
    """The inference graph of a description, in the default graph: stored in the run's folder, or built anew.

    Raises NotFoundError, DataLossError for a graph that is missing or of another model.
    """
    stored = about.get("graph")
    if stored is None:
        return build_inference(about)
    path = folder / GRAPH_FILE
    text = read_file(path, _LIMIT)
    if zlib.crc32(text) != stored.get("crc32"):
        raise DataLossError(f"{path} is damaged, or of another model; train the model again, or copy it anew")
    return read_inference(about, text)


def read_inference(about: Mapping[str, Any], text: bytes) -> InferenceGraph:
    """The stored inference graph of a description, in the default graph. Raises as `load_inference`."""
    stored = about["graph"]
    named = {**stored["inputs"], **stored["outputs"]}
    elements: Any = import_graph_def(_read(text, about), name="", return_elements=[*named.values()])
    tensors = iter(elements)
    inputs = {name: next(tensors) for name in stored["inputs"]}
    return InferenceGraph(inputs, {name: next(tensors) for name in stored["outputs"]}, stored["signature"])


def _read(text: bytes, about: Mapping[str, Any]) -> GraphDef:
    """A stored graph; loads the user's file if the graph has ops that are defined there."""
    try:
        return GraphDef.from_json(text)
    except NotFoundError:
        with suppress(TensorBowError):
            find_model(about["model"])
        return GraphDef.from_json(text)


def _specs_in(nest: Any) -> Any:
    """Specs of a description's texts; lists become tuples."""
    if isinstance(nest, (list, tuple)):
        return tuple(_specs_in(each) for each in nest)
    if isinstance(nest, dict):
        return {name: _specs_in(each) for name, each in nest.items()}
    return spec_of_text(nest)


def predicted(graph: InferenceGraph) -> dict[str, Tensor]:
    """The predictions of a model, by name, as its loss and metrics read them: instead of each the mean of
    several models' may be fed, for their loss.

    Raises UnimplementedError for a loss or metric that also reads variables otherwise, and for predictions
    that are no real numbers.
    """
    names = [*names_in(graph.signature["outputs"])]
    found = {name: graph.outputs[name].op.inputs[0] for name in names}
    for name, tensor in found.items():
        if not tensor.dtype.is_floating:
            raise UnimplementedError(f"ensemble: output {name} is {tensor.dtype}; expected floats to average")
    for name in ("loss", *(graph.signature["metrics"] or ())):
        ancestors = prune([graph.outputs[name].op], {*found.values()})
        variables = [op.name for op in ancestors if op.type == VariableReference.name]
        if variables or not names:
            got = f"variable {variables[0]} read beside them" if variables else "no outputs"
            raise UnimplementedError(
                f"ensemble: expected a {name} that is made of the model's outputs, to know it of their mean, "
                f"got {got}; return from the model what its {name} is made of"
            )
    return found


def names_in(nest: Any) -> Iterator[str]:
    """Names in a nest of a signature, in order."""
    if isinstance(nest, str):
        yield nest
    elif nest is not None:
        for each in nest.values() if isinstance(nest, dict) else nest:
            yield from names_in(each)


def nest_of(nest: Any, values: Mapping[str, Any] | None) -> Any:
    """A signature's nest with values for its names, or None for each; lists become tuples."""
    if isinstance(nest, str):
        return None if values is None else values[nest]
    if isinstance(nest, dict):
        return {name: nest_of(each, values) for name, each in nest.items()}
    return tuple(nest_of(each, values) for each in nest)


def require_description(path: Path, about: Mapping[str, Any]) -> None:
    """Raises DataLossError for an intact file that does not describe a trained model."""
    if isinstance(about.get("config"), dict):
        raise DataLossError(
            f"{path} is a checkpoint to go on from, no trained model; give {path.with_name(MODEL)}, "
            "which a run writes when it ends"
        )
    is_sound = isinstance(about.get("model"), str) and isinstance(about.get("model_options", {}), dict)
    if not (is_sound and (_is_of_pictures(about) or _is_of_arrays(about))):
        raise DataLossError(f"{path} is no trained model: it does not say model, classes and examples")
    named = ("class_names", "feature_names")
    names = [about[part] for part in named if part in about]
    if not (all(map(_are_names, names)) and _is_graph(about.get("graph"))):
        raise DataLossError(f"{path} is no trained model: its names or its graph are not described as such")


def _is_of_pictures(about: Mapping[str, Any]) -> bool:
    shape, classes = about.get("image_shape"), about.get("classes")
    return (
        isinstance(shape, list)
        and len(shape) == 3
        and all(type(extent) is int and 1 <= extent <= 1 << 16 for extent in shape)
        and math.prod(shape) < 1 << 31
        and type(classes) is int
        and 1 <= classes <= 1 << 20
        and _is_scale(about.get("mean"))
        and _is_scale(about.get("std"))
        and float(about["std"]) >= 1 / LARGEST_SCALE
    )


def _is_of_arrays(about: Mapping[str, Any]) -> bool:
    classes, labels, scales = about.get("classes"), about.get("labels", 0), about.get("standardisation")
    of_labels = about.get("label_scale")
    nests = _is_nest(about.get("inputs"), _is_spec) and (labels is None or _is_nest(labels, _is_spec))
    return (
        nests
        and (classes is None or (type(classes) is int and 1 <= classes <= 1 << 20))
        and (scales is None or _are_scales(scales))
        and (of_labels is None or _are_scales(_as_columns(of_labels)))
    )


def _is_nest(nest: Any, is_leaf: Callable[[str], bool], depth: int = DEEPEST) -> bool:
    """True for a text that is a leaf, and for a list or dictionary of such nests that is not too deep."""
    if isinstance(nest, str):
        return is_leaf(nest)
    inner = [*nest.values()] if isinstance(nest, dict) else nest
    return isinstance(inner, list) and depth > 0 and all(_is_nest(each, is_leaf, depth - 1) for each in inner)


def _is_spec(text: str) -> bool:
    try:
        spec = spec_of_text(text)
    except (ValueError, TensorBowError):
        return False
    return all(extent is not None and extent >= 0 for extent in spec.dims[1:])


def _as_columns(found: Any) -> Any:
    """A mean and a standard deviation, where they are numbers, as those of one column."""
    if isinstance(found, dict) and not any(isinstance(each, list) for each in found.values()):
        return {key: [each] for key, each in found.items()}
    return found


def _are_scales(found: Any) -> bool:
    """True for a mean and a standard deviation of each column."""
    if not isinstance(found, dict) or not all(isinstance(found.get(key), list) for key in ("mean", "std")):
        return False
    mean, std = found["mean"], found["std"]
    numbers = all(isinstance(each, (int, float)) and math.isfinite(each) for each in (*mean, *std))
    return len(mean) == len(std) and numbers and 0 not in std


def _are_names(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(name, str) for name in found)


def _is_graph(found: Any) -> bool:
    """True for the description of a stored inference graph, and for None."""
    if found is None:
        return True
    if not isinstance(found, dict) or not isinstance(signature := found.get("signature"), dict):
        return False
    inputs, outputs = found.get("inputs"), found.get("outputs")
    if not isinstance(inputs, dict) or not isinstance(outputs, dict):
        return False
    if not _are_names([*inputs.values(), *outputs.values()]):
        return False
    places = {"inputs": inputs, "labels": inputs, "outputs": outputs}
    nests = [(signature.get(part, 0), names) for part, names in places.items()]
    return (
        all(nest is None or _is_nest(nest, names.__contains__) for nest, names in nests)
        and _are_names(signature.get("metrics"))
        and {"loss", *signature["metrics"]} <= outputs.keys()
    )


def _is_scale(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= LARGEST_SCALE  # False for NaN
