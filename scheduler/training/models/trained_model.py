"""Use of trained models: predict, evaluate, export."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.training.folders.run_models import (
    StoredModel,
    average_model,
    best_model,
    central_model,
    replica_model,
    replica_models,
)
from scheduler.training.models.evaluation import ACCURACY, BATCH, Evaluation
from scheduler.training.models.inference_graph import (
    OLD_SIGNATURE,
    InferenceGraph,
    build_inference,
    load_inference,
    names_in,
    nest_of,
    predicted,
    require_description,
)
from tensorbow.array_likes import as_array
from tensorbow.data import ArrayDataset, TrainingData
from tensorbow.devices import get_device, usable_cores
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.files import shown
from tensorbow.graph import Graph, Tensor
from tensorbow.kinds import AsPath, Count, Flag, checked
from tensorbow.models import ModelSource
from tensorbow.nest import flatten, leaves_like
from tensorbow.runtime import Session
from tensorbow.specs import Array, TensorSpec, float32, int64, uint8
from tensorbow.torch_weights import names_described, remember_names
from tensorbow.training import SavedModel, save_model
from tensorbow.training.graph_files import GRAPH, require_fitting
from tensorbow.training.quantization import quantize_model

THREADS = 4  # most batches computed in parallel
OLD_METRIC = "correct"  # output of exports of older versions: the number of correct predictions


class TrainedModel:
    """Trained model, loaded from a run's folder, its model file, or a folder written by `export`.

    It takes raw examples, as pictures uint8: their normalisation is part of the graph. Use it with `with`, or
    close it.

        with tb.train.load_model("runs/demo") as model:
            predictions = model.predict(inputs)
    """

    @checked
    def __init__(
        self,
        path: AsPath,
        *,
        device: str = "/cpu:0",
        replica: Count | None = None,
        ema: Flag = False,
        best: Flag = False,
    ):
        """Loads z, or with sync `none` replica 0.

        replica: loads this replica's own values instead, of a run's folder; ema: the moving average of z;
        best: z of the best evaluation, by the run's `best_metric`.
        Raises NotFoundError, DataLossError or InvalidArgumentError if `path` has no usable model.
        """
        path = self.path = Path(path)
        self._values: dict[str, Array] | None = None  # None: an exported model, which has its own files
        given = {f"replica {replica}": replica is not None, "ema": ema, "best": best}
        chosen = [name for name, is_given in given.items() if is_given]
        if len(chosen) > 1:
            raise InvalidArgumentError(
                f"TrainedModel: expected one of replica, ema and best, got {' and '.join(chosen)}"
            )
        if replica is not None:
            self._begin(replica_model(path, replica), device)
        elif ema:
            self._begin(average_model(path), device)
        elif best:
            self._begin(best_model(path), device)
        elif (path / GRAPH).exists():
            saved = SavedModel(path, device=device)
            self._session = saved.session
            self.about = saved.about
            remember_names(saved.graph, names_described(saved.about))
            try:
                require_description(path, self.about)
                signature = saved.about.get("signature") or OLD_SIGNATURE
                self._graph = InferenceGraph(dict(saved.inputs), dict(saved.outputs), signature)
                self._check_signature(path)
            except BaseException:
                saved.close()
                raise
        else:
            self._begin(central_model(path), device)

    @classmethod
    def members(cls, path: Path, device: str) -> list[TrainedModel]:
        """A model for each replica of a run's folder. Raises as the constructor."""
        found: list[TrainedModel] = []
        try:
            for stored in replica_models(path, "ensemble"):
                member = cls.__new__(cls)
                member.path = path
                member._begin(stored, device)
                found.append(member)
        except BaseException:
            for member in found:
                member.close()
            raise
        return found

    @classmethod
    def in_memory(
        cls, values: Mapping[str, Array], about: Mapping[str, Any], source: ModelSource, device: str
    ) -> TrainedModel:
        """A model that no file holds. about: of `description_of`. source: the model."""
        model = cls.__new__(cls)
        model.path = Path("the trained model")
        described = json.loads(json.dumps(dict(about)))
        model._begin(StoredModel(model.path, dict(values), described), device, source)
        return model

    def _begin(self, stored: StoredModel, device: str, source: ModelSource | None = None) -> None:
        """Opens a session with the model's inference graph. source: the model, if no file holds its graph."""
        file, self.about = stored.file, stored.about
        self._values = stored.values
        require_description(file, self.about)
        graph = Graph()
        try:
            with graph.as_default():
                if source is None:
                    self._graph = load_inference(self.about, file.parent)
                else:
                    self._graph = build_inference(self.about, source)
        except TensorBowError as error:
            raise type(error)(f"{file}: {error}") from None
        try:
            require_fitting(graph, stored.values)
        except TensorBowError as error:
            raise type(error)(f"{file} does not fit model {self.about['model']}: {error}") from None
        self._session = Session(graph=graph, device=get_device(device))
        try:
            self._session.load_variables(stored.values)
        except TensorBowError as error:
            self._session.close()
            raise type(error)(f"{file}: {error}") from None
        remember_names(graph, names_described(self.about))

    def __repr__(self) -> str:
        what = "probabilities" if self.classes is not None else "outputs"
        return f"<TrainedModel {shown(self.path)}: {what} of {self._shown_inputs()}>"

    @property
    def is_exported(self) -> bool:
        """True for a model that was loaded from a folder written by `export`."""
        return self._values is None

    @property
    def session(self) -> Session:
        """Session of the inference graph, with the weights: `tb.interop.torch.save_weights` takes it."""
        return self._session

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the model's pictures. Raises InvalidArgumentError for other inputs."""
        if "image_shape" not in self.about:
            raise InvalidArgumentError(f"{self.path} takes no pictures, but {self._shown_inputs()}")
        height, width, channels = self.about["image_shape"]
        return height, width, channels

    @property
    def classes(self) -> int | None:
        """Number of classes that the model predicts; None if it predicts something else."""
        return int(self.about["classes"]) if "probabilities" in self._graph.outputs else None

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; empty if they have none."""
        return list(self.about.get("class_names", ()))

    @property
    def input_specs(self) -> Any:
        """Specs of the inputs, `[None, ...]`, in the nest of the training data."""
        names = self._graph.signature["inputs"]
        return nest_of(names, {name: self._graph.inputs[name].spec for name in names_in(names)})

    def predict(self, inputs: Any) -> Any:
        """Outputs of the model, arrays `[examples, ...]` in the nest that it returns, for raw inputs.

        inputs: an array `[examples, ...]`, or a nest of them, as the training data had. Raises
        InvalidArgumentError for inputs of another shape, dtype or structure, and for a model without outputs.
        """
        names = self._graph.signature["outputs"]
        wanted = [*names_in(names)]
        if not wanted:
            raise InvalidArgumentError(f"{self.path} has no outputs: its model returned a loss alone")
        return nest_of(names, dict(zip(wanted, self._computed(wanted, inputs), strict=True)))

    def probabilities(self, images: Any) -> NDArray[np.float32]:
        """Class probabilities, float32 [n, classes], of raw inputs, such as pictures uint8 [n, ...].

        Raises InvalidArgumentError for inputs of another shape or dtype, and a model that predicts no
        classes.
        """
        if self.classes is None:
            raise InvalidArgumentError(f"{self.path} predicts no classes; predict gives its outputs")
        found: NDArray[np.float32] = self._computed(["probabilities"], images)[0]
        return found

    def _computed(self, outputs: list[str], inputs: Any) -> list[Array]:
        """Outputs for raw inputs, batch by batch."""
        arrays = self._read_inputs(inputs)
        count = len(next(iter(arrays.values())))

        def batch(start: int) -> list[Array]:
            return self._run(outputs, {name: each[start : start + BATCH] for name, each in arrays.items()})

        with ThreadPoolExecutor(_threads(), "tensorbow-prediction") as pool:
            parts = list(pool.map(batch, range(0, count, BATCH)))
        if not parts:
            specs = [self._graph.outputs[name].spec for name in outputs]
            return [np.empty((0, *spec.dims[1:]), spec.dtype.as_numpy_dtype) for spec in specs]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _read_inputs(self, inputs: Any) -> dict[str, Array]:
        """Arrays of raw inputs, by name."""
        expected = f"expected {self._shown_inputs()}"
        names, found = self._graph.signature["inputs"], {}
        try:
            nest = leaves_like(nest_of(names, None), inputs, "inputs", "the training data")
            leaves = [as_array(leaf) for _, leaf in nest]
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{expected}: {error}") from None
        for name, array in zip(names_in(names), leaves, strict=True):
            spec = self._graph.inputs[name].spec
            dtype = np.dtype(spec.dtype.as_numpy_dtype)
            is_number = array.dtype.kind in "biuf" and dtype.kind == "f"
            is_whole = array.dtype.kind in "iu" and dtype == np.int64
            if array.shape[1:] != spec.dims[1:] or not (array.dtype == dtype or is_number or is_whole):
                got = f"{expected}, got {array.dtype} {list(array.shape)}"
                raise InvalidArgumentError(f"{got}{_hint(array, spec)}")
            found[name] = array.astype(dtype, copy=False)
        if len({len(array) for array in found.values()}) != 1:
            raise InvalidArgumentError(f"{expected} with the same number of examples")
        return found

    def _shown_inputs(self) -> str:
        names = [*names_in(self._graph.signature["inputs"])]
        if "image_shape" in self.about:
            return f"pictures uint8 [n, {', '.join(map(str, self.about['image_shape']))}]"
        specs = [f"{name} {self._graph.inputs[name].spec}" for name in names]
        return " and ".join(specs)

    def evaluate(self, dataset: TrainingData) -> Evaluation:
        """Loss and metrics on a data set, normalised as in the model's training.

        Raises InvalidArgumentError if the data set's examples or number of classes differ.
        """
        return self._evaluated(dataset, {})

    def evaluate_predictions(self, dataset: TrainingData, predictions: Any) -> Evaluation:
        """Loss and metrics on a data set of other predictions than the model's own, as the mean of several's.

        predictions: as `predict` returns them. Raises as `evaluate`, and UnimplementedError for a loss or
        metric that is not made of the outputs alone.
        """
        leaves = dict(zip(names_in(self._graph.signature["outputs"]), flatten(predictions), strict=True))
        found = predicted(self._graph)
        return self._evaluated(dataset, {found[name]: leaf for name, leaf in leaves.items()})

    def _evaluated(self, dataset: TrainingData, replaced: Mapping[Tensor, Array]) -> Evaluation:
        require_examples_of(self, dataset)
        signature, metrics = self._graph.signature, self._metrics
        names = [*names_in(signature["inputs"]), *names_in(signature["labels"])]

        def batch(start: int) -> tuple[int, list[float]]:
            rows = slice(start, start + BATCH)
            feeds = {name: array[rows] for name, array in zip(names, dataset.arrays, strict=True)}
            count = min(BATCH, len(dataset) - start)
            instead = {tensor: array[rows] for tensor, array in replaced.items()}
            values = [float(value) for value in self._run(["loss", *metrics.values()], feeds, instead)]
            if OLD_METRIC in metrics.values():
                values[1] /= count
            return count, values

        with ThreadPoolExecutor(_threads(), "tensorbow-evaluation") as pool:
            parts = list(pool.map(batch, range(0, len(dataset), BATCH)))
        return Evaluation.of_batches(parts, [*metrics]).with_derived(dataset)

    @property
    def _metrics(self) -> dict[str, str]:
        """Outputs that are metrics, by name of the metric."""
        found = self._graph.signature["metrics"]
        return {ACCURACY: OLD_METRIC} if found is None else {name: name for name in found}

    def _run(
        self,
        outputs: list[str],
        inputs: Mapping[str, Any],
        instead: Mapping[Tensor, Any] = MappingProxyType({}),
    ) -> list[Any]:
        """Outputs by name. instead: values of tensors of the graph that are not computed."""
        feeds = {self._graph.inputs[name]: value for name, value in inputs.items()} | dict(instead)
        results: list[Any] = self._session.run([self._graph.outputs[name] for name in outputs], feeds)
        return results

    def _check_signature(self, path: Path) -> None:
        """Raises InvalidArgumentError unless an export has the inputs and outputs that it describes."""
        signature, graph = self._graph.signature, self._graph
        names = [*names_in(signature["inputs"]), *names_in(signature["labels"])]
        wanted = ["loss", *self._metrics.values(), *names_in(signature["outputs"])]
        missing = [name for name in names if name not in graph.inputs]
        missing += [name for name in wanted if name not in graph.outputs]
        if missing:
            raise InvalidArgumentError(f"{path} is no trained model: it has no {', '.join(missing)}")
        expected: dict[str, TensorSpec] = {
            name: TensorSpec((), float32) for name in ("loss", *self._metrics.values())
        }
        if "image_shape" in self.about:
            logits = TensorSpec((None, self.about["classes"]), float32)
            expected["images"] = TensorSpec((None, *self.image_shape), uint8)
            expected["labels"] = TensorSpec((None,), int64)
            expected |= {name: logits for name in ("logits", "probabilities") if name in graph.outputs}
        for name, spec in expected.items():
            found = {**graph.inputs, **graph.outputs}[name].spec
            if (found.shape, found.dtype) != (spec.shape, spec.dtype):
                raise InvalidArgumentError(
                    f"{path} is no trained model: its {name} is {found}, expected {spec}"
                )

    def export(self, folder: str | os.PathLike[str], quantized_on: Any = None) -> str:
        """Writes graph and variables for inference, to be used without the model's code; returns the folder.

        quantized_on: raw inputs, such as some training examples: convolutions and matrix products are then of
        8-bit integers, for ranges observed on them (`tb.quantization.quantize_model`). Raises
        InvalidArgumentError for a model that was loaded from an export, and other inputs than the model's.
        """
        if self._values is None:
            raise InvalidArgumentError(
                f"{self.path} is an exported model already; give the folder of a run, or have an ONNX file "
                "made of it (--format onnx)"
            )
        graph = self._graph
        about = {
            **{name: v for name, v in self.about.items() if name != "graph"},
            "signature": graph.signature,
        }
        if quantized_on is None:
            return save_model(folder, graph.inputs, graph.outputs, self._values, about)
        examples = self._read_inputs(quantized_on)
        with TemporaryDirectory() as temporary:
            save_model(temporary, graph.inputs, graph.outputs, self._values, about)
            return quantize_model(temporary, folder, examples)

    def close(self) -> None:
        """Closes the session; idempotent."""
        self._session.close()

    def __enter__(self) -> TrainedModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@checked
def load_model(
    path: AsPath,
    *,
    device: str = "/cpu:0",
    replica: Count | None = None,
    ema: Flag = False,
    best: Flag = False,
) -> TrainedModel:
    """Loads a trained model from the folder of a run, its model file, or a folder that `export` wrote.

    The model of a run is z, or with sync `none` replica 0. replica: loads this replica's own values instead;
    ema: the moving average of z; best: z of the best evaluation. It computes on `device`, is used without
    the model's code, and raises as `TrainedModel`.
    """
    return TrainedModel(path, device=device, replica=replica, ema=ema, best=best)


def raw_inputs(dataset: TrainingData) -> Any:
    """Inputs of a data set as they were given, for `TrainedModel.predict`."""
    return dataset.inputs if isinstance(dataset, ArrayDataset) else dataset.images


def require_examples_of(model: TrainedModel, dataset: TrainingData) -> None:
    """Raises InvalidArgumentError if a data set has other examples or classes than a model."""
    about = dict(_as_json(dataset.about()))
    of_model, found = model.about.get("classes"), dataset.classes
    if "inputs" in about and of_model is not None and found is not None and found < of_model:
        about["classes"] = of_model  # the last classes do not occur in these examples
    mine, theirs = _shown_examples(model.about), _shown_examples(about)
    if mine != theirs:
        raise InvalidArgumentError(f"the model is for {mine}; {dataset.name} has {theirs}")


def _shown_examples(about: Mapping[str, Any]) -> str:
    """Examples of a description, in words."""
    if "image_shape" in about:
        return f"pictures {about['image_shape']} of {about['classes']} classes"
    labels = "" if about.get("labels") is None else f" with labels {about['labels']}"
    classes = "" if about.get("classes") is None else f" of {about['classes']} classes"
    return f"inputs {about.get('inputs')}{labels}{classes}"


def _hint(array: Array, spec: TensorSpec) -> str:
    """Remedy for inputs of another shape or dtype, as the end of a message; empty if none is known."""
    wanted = spec.dims[1:]
    if array.shape == wanted:
        return "; give a batch, of one example x[None]"
    if array.ndim == 4 and array.shape[2:] + array.shape[1:2] == wanted:
        return "; channels are last, as by numpy.transpose(x, (0, 2, 3, 1))"
    if array.shape[1:] == wanted and spec.dtype is uint8 and array.dtype.kind == "f":
        return "; give raw pixels: the model normalises them itself"
    return ""


def _as_json(nest: Any) -> Any:
    """A nest as JSON gives it back: with lists instead of tuples."""
    if isinstance(nest, (list, tuple)):
        return [_as_json(each) for each in nest]
    return {name: _as_json(each) for name, each in nest.items()} if isinstance(nest, dict) else nest


def _threads() -> int:
    return max(1, min(THREADS, usable_cores()))
