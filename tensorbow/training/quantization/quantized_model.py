"""Saved models with products of 8-bit integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from tensorbow.array_likes import as_array
from tensorbow.compiler.prune import prune
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Tensor
from tensorbow.kinds import PATH, AsPath, Mapped, checked, instance
from tensorbow.ops.state import VariableReference
from tensorbow.specs import Array
from tensorbow.training.graph_files import SavedModel, save_model
from tensorbow.training.quantization.calibration import observe
from tensorbow.training.quantization.products import find_products, known_values
from tensorbow.training.quantization.rewriting import Plan, Rewriter

QUANTIZED = "quantized"  # key of a model's description
Source: TypeAlias = Annotated[
    Any, instance(SavedModel, expected="a tb.train.SavedModel, or the folder of one") | PATH
]


@checked
def quantize_model(source: Source, folder: AsPath, inputs: Mapped) -> str:
    """Writes a saved model whose convolutions and matrix products are of 8-bit integers; returns the folder.

    source: a `tb.train.SavedModel`, or its folder; it stays as it is. inputs: some examples by name of input,
    arrays [examples, ...] as the model takes them, on which the range of each product's operand is observed.
    Inputs of which the products do not depend, such as labels, may be left out.

    Products of float32 whose weights are constants of the model take part, with the batch normalisation, bias
    and ReLU that follow. Weights are int8 with a scale for each output channel and a zero point of 0,
    activations uint8 with one scale for a tensor, sums int32 (Jacob et al., 2018). The rest stays float32.

    Raises InvalidArgumentError for a model without such products or one quantised already, unknown or missing
    inputs, and activations that are not finite; and what loading and writing raise.
    """
    if isinstance(source, SavedModel):
        return _quantized(source, folder, inputs)
    with SavedModel(source) as saved:
        return _quantized(saved, folder, inputs)


def _quantized(saved: SavedModel, folder: Any, inputs: Mapping[str, Any]) -> str:
    if QUANTIZED in saved.about:
        raise InvalidArgumentError("quantize_model: the model is quantised already; give the original one")
    given = {name: as_array(value) for name, value in inputs.items()}
    unknown = [name for name in given if name not in saved.inputs]
    if unknown:
        raise InvalidArgumentError(
            f"quantize_model: there is no input {unknown[0]!r:.60}, only {', '.join(saved.inputs)}"
        )
    outputs = list(saved.outputs.values())
    operations = prune([tensor.op for tensor in outputs], set())
    variables = [op.outputs[0] for op in operations if op.definition is VariableReference]
    arrays = saved.session.run(variables) if variables else []
    values = {tensor.op.name: value for tensor, value in zip(variables, arrays, strict=True)}
    products = find_products(operations, known_values(operations, values), set(outputs))
    if not products:
        raise InvalidArgumentError(
            "quantize_model: the model has no convolution or matrix product of float32 with constant weights"
        )
    plan = Plan.of(operations, products)
    observed = plan.observed(products)
    feeds = _feeds(saved, observed, given)
    rewriter = Rewriter(Graph(), plan, observe(saved.session, observed, feeds), dict(values))
    rewriter.build(operations, products)
    needed = {name: tensor for name, tensor in saved.inputs.items() if tensor.op in operations}
    new_inputs, new_outputs = (
        {name: rewriter.floating(tensor) for name, tensor in ends.items()} for ends in (needed, saved.outputs)
    )
    examples = len(next(iter(feeds.values())))
    about = {**saved.about, QUANTIZED: {"dtype": "int8", "products": len(products), "examples": examples}}
    return save_model(folder, new_inputs, new_outputs, rewriter.values, about)


def _feeds(saved: SavedModel, observed: list[Tensor], given: Mapping[str, Array]) -> dict[Tensor, Array]:
    """The inputs that the observed tensors depend on. Raises InvalidArgumentError for a missing one."""
    needed = set(prune([tensor.op for tensor in observed], set()))
    wanted = [name for name, tensor in saved.inputs.items() if tensor.op in needed]
    missing = [name for name in wanted if name not in given]
    if missing:
        raise InvalidArgumentError(
            f"quantize_model: expected inputs to hold examples of {', '.join(missing)}, got none"
        )
    return {saved.inputs[name]: given[name] for name in wanted}
