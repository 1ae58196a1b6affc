"""Placeholders of a data set's examples, and the model that is built on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tensorbow.data import ImageDataset, TrainingData
from tensorbow.graph import Graph, Tensor
from tensorbow.models import ModelOutputs, ModelSource, ModelSummary, summarize
from tensorbow.nest import flatten, map_leaves
from tensorbow.ops.control import placeholder
from tensorbow.ops.elementwise import clip_by_value
from tensorbow.ops.elementwise import round as rounded
from tensorbow.ops.selection import cast
from tensorbow.specs import TensorSpec, uint8


class ModelInputs(NamedTuple):
    """Placeholders in nests like a data set's inputs and labels; `placeholders` has them in its order."""

    inputs: Any
    labels: Any
    placeholders: tuple[Tensor, ...]


def inputs_for(data: TrainingData) -> ModelInputs:
    """Placeholders, in the default graph, of a batch of any number of examples."""
    inputs, labels = data.specs
    return inputs_of_specs(inputs, labels, pictures=isinstance(data, ImageDataset))


def inputs_of_specs(inputs: Any, labels: Any, pictures: bool = False) -> ModelInputs:
    """Placeholders of these specs. labels: None if there are none."""

    def made(path: str, spec: Any) -> Tensor:
        return placeholder(spec.dtype, spec.shape, name=name_of_path(path))

    fed = map_leaves(made, inputs, "images" if pictures else "inputs")
    targets = None if labels is None else map_leaves(made, labels, "labels")
    leaves = [*flatten(fed), *([] if targets is None else flatten(targets))]
    return ModelInputs(fed, targets, tuple(leaves))


def name_of_path(path: str) -> str:
    """Name of a leaf: `inputs['age']` becomes inputs_age."""
    return re.sub(r"\W+", "_", path).strip("_")


def build_model(
    source: ModelSource,
    options: Mapping[str, Any],
    data: TrainingData,
    given: ModelInputs,
    training: bool,
    **more: Any,
) -> ModelOutputs:
    """Builds a model on a batch of a data set. more: see `outputs_of`."""
    if not source.takes_raw:
        inputs = data.prepared(given.inputs)
    elif isinstance(data, ImageDataset):  # pixels as floats, see `ImageDataset.with_pixels`
        inputs = cast(rounded(clip_by_value(given.inputs, 0.0, 255.0)), uint8)
    else:
        inputs = given.inputs
    of_data: dict[str, Any] = {"classes": data.classes, "label_scale": data.label_scale}
    return source.build(options, inputs, given.labels, training, **of_data, **more)


def summary_of(source: ModelSource, options: Mapping[str, Any], data: TrainingData) -> ModelSummary:
    """Layers of a model, with shapes and operations for one example of a data set."""

    def single(spec: TensorSpec) -> TensorSpec:
        return TensorSpec((1, *(spec.shape or ())[1:]), spec.dtype)

    inputs, labels = data.specs
    graph = Graph()
    with graph.as_default():
        one = map_leaves(lambda _, spec: single(spec), inputs, "inputs")
        target = None if labels is None else map_leaves(lambda _, spec: single(spec), labels, "labels")
        given = inputs_of_specs(one, target, pictures=isinstance(data, ImageDataset))
        return summarize([build_model(source, options, data, given, training=False).loss])
