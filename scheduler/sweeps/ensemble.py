"""Export of several members as one model, whose probabilities, or other outputs, are the mean of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from scheduler.training.folders.run_models import without_accuracy
from scheduler.training.models.evaluation import ACCURACY
from scheduler.training.models.inference_graph import names_in, predicted, read_inference
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, GraphDef, Tensor
from tensorbow.ops.control import identity, placeholder
from tensorbow.ops.elementwise import add, equal, log, maximum, multiply
from tensorbow.ops.importing import import_graph_def
from tensorbow.ops.losses import sparse_softmax_cross_entropy_with_logits
from tensorbow.ops.reductions import argmax, reduce_mean
from tensorbow.ops.selection import cast
from tensorbow.specs import Array, float32, int64
from tensorbow.torch_weights import TORCH_NAMES
from tensorbow.training import save_model

PROBABILITIES, LEAST = "probabilities", 1.2e-38  # the smallest normal float32, as log(0) is no number


def require_ensemble(stored: tuple[Mapping[str, Any], bytes], members: int) -> None:
    """Raises InvalidArgumentError for fewer than two members, and as `predicted` for other than classifiers.

    stored: of a member, the description with its inference graph, and that graph.
    """
    about, text = stored
    if members < 2:
        raise InvalidArgumentError(
            f"ensemble: expected at least two members that trained to their end, got {members}"
        )
    if PROBABILITIES not in about["graph"]["outputs"]:
        with Graph().as_default():
            predicted(read_inference(about, text))


def export_ensemble(
    folder: Path,
    stored: Sequence[tuple[Mapping[str, Any], bytes]],
    values: Sequence[Mapping[str, Array]],
) -> str:
    """Writes a folder as `export` does; returns its path.

    stored: of each member the description with its inference graph, and that graph. The logits are the
    logarithms of the mean probabilities. Raises as `require_ensemble`.
    """
    require_ensemble(stored[0], len(stored))
    about, described = stored[0][0], stored[0][0]["graph"]
    of_classes = PROBABILITIES in described["outputs"]
    names = [PROBABILITIES] if of_classes else [*names_in(described["signature"]["outputs"])]
    variables: dict[str, Array] = {}
    with Graph().as_default():
        inputs = _inputs_like(GraphDef.from_json(stored[0][1]), described["inputs"])
        each: list[list[Tensor]] = []
        for number, ((own, text), weights) in enumerate(zip(stored, values, strict=True)):
            scope, fed = f"member{number}", own["graph"]["inputs"].items()
            found: Any = import_graph_def(
                GraphDef.from_json(text),
                input_map={tensor: inputs[name] for name, tensor in fed},
                return_elements=[own["graph"]["outputs"][name] for name in names],
                name=scope,
            )
            each.append(found)
            variables |= {f"{scope}/{name}": value for name, value in weights.items()}
        columns = zip(names, zip(*each, strict=True), strict=True)
        means = {
            name: identity(multiply(reduce(add, column), 1 / len(stored)), name=name)
            for name, column in columns
        }
        signature = described["signature"]
        if of_classes:
            outputs = _outputs_of(means[PROBABILITIES], inputs[signature["labels"]])
            signature = {**signature, "outputs": "logits", "metrics": [ACCURACY]}
        else:
            outputs = {**means, **_measured(stored[0], means, inputs)}
        of_one = ("graph", TORCH_NAMES)
        kept = {name: value for name, value in without_accuracy(about).items() if name not in of_one}
        about = {**kept, "members": len(stored), "signature": signature}
        return save_model(folder, inputs, outputs, variables, about)


def _inputs_like(graph_def: GraphDef, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Placeholders like those of a graph, by their names in the description."""
    with Graph().as_default():
        elements: Any = import_graph_def(graph_def, name="", return_elements=[*names.values()])
        specs = [tensor.spec for tensor in elements]
    pairs = zip(names, specs, strict=True)
    return {name: placeholder(spec.dtype, spec.shape, name=name) for name, spec in pairs}


def _measured(
    stored: tuple[Mapping[str, Any], bytes], means: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Loss and metrics of the mean outputs, by the part of a member's graph that makes them of its own."""
    described, graph_def = stored[0]["graph"], GraphDef.from_json(stored[1])
    with Graph().as_default():
        replaced = {tensor.name: means[name] for name, tensor in predicted(read_inference(*stored)).items()}
    fed = {tensor: inputs[name] for name, tensor in described["inputs"].items()}
    names = ["loss", *described["signature"]["metrics"]]
    found: Any = import_graph_def(
        graph_def,
        input_map={**fed, **replaced},
        return_elements=[described["outputs"][name] for name in names],
        name="measured",
    )
    return {name: identity(tensor, name=name) for name, tensor in zip(names, found, strict=True)}


def _outputs_of(mean: Tensor, labels: Tensor) -> dict[str, Tensor]:
    logits = log(maximum(mean, LEAST), name="logits")
    losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    right = cast(equal(argmax(mean, 1, output_type=int64), labels), float32)
    return {
        "loss": reduce_mean(losses, name="loss"),
        ACCURACY: reduce_mean(right, name=ACCURACY),
        "logits": logits,
        PROBABILITIES: mean,
    }
