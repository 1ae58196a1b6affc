"""A model that the trainer trains, made of an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.interop.onnx.imported_model import load
from tensorbow.kinds import AsPath, Names, checked
from tensorbow.models.model_outputs import ModelOutputs, outputs_in_own_unit, outputs_of_logits
from tensorbow.ops.arrays import squeeze
from tensorbow.specs import compatible, uint8


class OnnxClassifier:
    """Model `(inputs, labels, training)` of an ONNX file: a classifier for integer labels, else a regression.

    `tensorbow train m.onnx` trains it; in a program: `tb.TrainingConfig(model=OnnxClassifier("m.onnx"))`.
    """

    takes_raw: bool
    """True for a file that an export of a run made, which normalises pictures uint8, or columns of a table,
    itself; the trainer gives it the data as they are."""

    @checked
    def __init__(self, file: AsPath, frozen: Names = ()):
        """file, frozen: see `load`. Images have their channels last in calls, in the file first or last."""
        self.model = load(file, frozen=frozen)
        self._channels_first = load(file, data_format="NHWC", frozen=frozen)
        pictures = (spec.dtype == uint8 and spec.rank == 4 for spec in self.model.inputs.values())
        self.takes_raw = self.model.standardises or any(pictures)

    def __call__(
        self,
        inputs: Any,
        labels: Any,
        training: bool,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
        mixed_labels: tuple[Tensor, Tensor] | None = None,
        label_scale: Any = None,
    ) -> ModelOutputs:
        """Cross-entropy and accuracy of logits `[..., classes]`, or the squared error of float labels.

        inputs: a tensor, or several in a tuple or by name. class_weights, label_smoothing, mixed_labels: of
        cross-entropy. label_scale: of float labels, whose loss is in units of their variance.
        Raises InvalidArgumentError for an output that does not fit the labels, and the errors of `OnnxModel`.
        """
        named = inputs if isinstance(inputs, Mapping) else {}
        parts = inputs if isinstance(inputs, (list, tuple)) else [] if named else [inputs]
        given = {**dict(zip(self.model.inputs, parts, strict=False)), **named}
        for name, tensor in given.items():
            if name in self.model.inputs and self.model.inputs[name].dtype == uint8 != tensor.dtype:
                raise InvalidArgumentError(
                    f"{self.model.name}: expected input {name} to be raw pictures uint8, which the file "
                    f"normalises itself, as an export of a run does, got {tensor.spec}, normalised; go "
                    "on with that run by --resume and more epochs, train the file by its name, or call "
                    "onnx.load(file) on uint8 tensors"
                )
        as_in_file = all(
            compatible(tensor.spec.shape, self.model.inputs[name].shape)
            for name, tensor in given.items()
            if name in self.model.inputs
        )
        model = self.model if as_in_file else self._channels_first
        outputs = model(*parts, training=training, **named)
        first = next(iter(outputs.values())) if isinstance(outputs, Mapping) else outputs
        if not isinstance(labels, Tensor):
            raise InvalidArgumentError(f"{model.name}: expected labels to be one tensor, got {labels!r:.60}")
        rank, dims = labels.shape.ndims, first.shape.as_list()
        if labels.dtype.is_floating:
            if rank == len(dims) - 1 and dims[-1] == 1:
                first = squeeze(first, [-1])
            return outputs_in_own_unit(first, labels, None if label_scale is None else label_scale[1])
        classes = dims[-1] if dims else None
        if classes is None or rank != len(dims) - 1:
            raise InvalidArgumentError(
                f"{model.name}: expected the output {model.outputs[0]} to be [..., classes] for integer "
                f"labels {labels.spec}, got {first.spec}"
            )
        return outputs_of_logits(first, labels, classes, class_weights, label_smoothing, mixed_labels)
