"""A model that the trainer trains, made of an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.interop.onnx.imported_model import load
from tensorbow.kinds import AsPath, Names, checked
from tensorbow.models import ModelOutputs
from tensorbow.ops.elementwise import equal, square, subtract
from tensorbow.ops.losses import sparse_softmax_cross_entropy_with_logits
from tensorbow.ops.reductions import argmax, reduce_mean
from tensorbow.ops.selection import cast
from tensorbow.specs import compatible, float32


class OnnxClassifier:
    """Model `(inputs, labels, training)` of an ONNX file: a classifier for integer labels, else a regression.

    `tensorbow train m.onnx` trains it; in a program: `tb.TrainingConfig(model=OnnxClassifier("m.onnx"))`.
    """

    @checked
    def __init__(self, file: AsPath, frozen: Names = ()):
        """file, frozen: see `load`. Images have their channels last in calls, in the file first or last."""
        self.model = load(file, frozen=frozen)
        self._channels_first = load(file, data_format="NHWC", frozen=frozen)

    def __call__(self, inputs: Any, labels: Any, training: bool) -> ModelOutputs:
        """Cross-entropy and accuracy of logits `[batch, classes]`, or the mean squared error of float labels.

        inputs: a tensor, or several in a tuple or by name. Raises InvalidArgumentError for an output that
        does not fit the labels, and the errors of `OnnxModel`.
        """
        parts = (
            inputs if isinstance(inputs, (list, tuple)) else () if isinstance(inputs, Mapping) else [inputs]
        )
        named = inputs if isinstance(inputs, Mapping) else {}
        given = {**dict(zip(self.model.inputs, parts, strict=False)), **named}
        as_in_file = all(
            compatible(tensor.spec.shape, self.model.inputs[name].shape)
            for name, tensor in given.items()
            if name in self.model.inputs
        )
        model = self.model if as_in_file else self._channels_first
        outputs = model(*parts, training=training, **named)
        first = next(iter(outputs.values())) if isinstance(outputs, Mapping) else outputs
        if not isinstance(labels, Tensor):
            raise InvalidArgumentError(
                f"{self.model.name}: expected labels to be one tensor, got {labels!r:.60}"
            )
        if labels.dtype.is_floating:
            return ModelOutputs(reduce_mean(square(subtract(first, labels))), first)
        if first.shape.ndims != 2:
            raise InvalidArgumentError(
                f"{self.model.name}: expected the output {self.model.outputs[0]} to be [batch, classes] for "
                f"integer labels, got {first.spec}"
            )
        loss = reduce_mean(sparse_softmax_cross_entropy_with_logits(labels=labels, logits=first))
        right = equal(argmax(first, 1, output_type=labels.dtype), labels)
        return ModelOutputs(loss, first, {"accuracy": reduce_mean(cast(right, float32))})
