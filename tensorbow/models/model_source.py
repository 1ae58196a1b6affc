"""Models by name: of the zoo, of a user's file or module, or given as an object."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.files import read_file
from tensorbow.graph import Graph
from tensorbow.kinds import shown
from tensorbow.models.model import Defaults, Model, rate_factor
from tensorbow.models.model_options import ModelOption, options_of_call, read_model_options
from tensorbow.models.model_outputs import ModelOutputs, outputs_of
from tensorbow.models.registry import MODELS, factory_of
from tensorbow.user_code import (
    called_by_name,
    errors_of_user,
    find_object,
    is_object_name,
    is_of_torch,
    name_of_object,
)

ONNX_MODEL = "tensorbow.interop.onnx:OnnxClassifier"  # of an upper layer
_LARGEST_FILE = 1 << 24  # bytes of a user's Python file
OWN_DEFAULTS = Defaults(learning_rate=0.01)  # of models that have none


class ModelSource:
    """A model before it is made: its name, its options, and what makes it.

    name: as on the command line. options: by name, the arguments of its constructor, or those of a function
    beside the ones that the trainer gives. file: the user's file, None for a model of the zoo.
    """

    def __init__(self, name: str, target: Any, file: Path | None, *, is_ours: bool = False):
        """target: class, function or instance."""
        if is_of_torch(target):
            raise InvalidArgumentError(
                f"model {name} is a module of PyTorch; export it (torch.onnx.export) and give the .onnx "
                "file, or write it as model(inputs, labels, training) with tb.layers (docs/how_to/onnx.md, "
                "docs/tutorials/from_pytorch.md)"
            )
        if not callable(target):
            raise InvalidArgumentError(
                f"model {name}: expected a class or function (inputs, labels, training), got {shown(target)}"
            )
        self.name, self.file, self._target, self._is_ours = name, file, target, is_ours
        self._makes = inspect.isclass(target) or is_ours
        is_function = inspect.isroutine(target) or isinstance(target, partial)
        self.options: dict[str, ModelOption] = options_of_call(target) if self._makes or is_function else {}

    def read_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the model, of their types. Raises InvalidArgumentError, see `read_model_options`."""
        return read_model_options(self.options, given, self.name)

    def make(self, options: Mapping[str, Any]) -> Callable[..., Any]:
        """The model, with these options. Raises InvalidArgumentError with the user's line."""
        if not self._makes:
            return partial(self._target, **options) if options else self._target
        with self._blaming_user():
            model: Callable[..., Any] = self._target(**options)
        if not callable(model):
            raise InvalidArgumentError(
                f"model {self.name}: expected a class with __call__(self, inputs, labels, training), "
                f"got {shown(model)}"
            )
        return model

    def build(
        self,
        options: Mapping[str, Any],
        inputs: Any,
        labels: Any,
        training: bool,
        *,
        classes: int | None = None,
        label_scale: Any = None,
        **options_of_step: Any,
    ) -> ModelOutputs:
        """Makes the model and builds it in the default graph, see `outputs_of`."""
        model = self.make(options)
        with self._blaming_user():
            return outputs_of(
                model,
                inputs,
                labels,
                training,
                classes=classes,
                label_scale=label_scale,
                name=f"model {self.name}",
                **options_of_step,
            )

    def _blaming_user(self) -> Any:
        return errors_of_user(f"model {self.name}", self.file)

    @property
    def defaults(self) -> Defaults:
        """Default options of its runs: its attribute `defaults`, or `OWN_DEFAULTS`."""
        target = self._target.func if isinstance(self._target, partial) else self._target
        found = getattr(target, "defaults", OWN_DEFAULTS)
        return found if isinstance(found, Defaults) else OWN_DEFAULTS

    def default_learning_rate(
        self,
        options: Mapping[str, Any],
        replicas: int,
        dataset: str | None = None,
        batch_size: int | None = None,
        of_numbers: bool = False,
    ) -> float:
        """Default learning rate of each of so many averaged replicas, on a data set.

        of_numbers: whether the labels are numbers to predict. The model's own
        `default_learning_rate(replicas)`, which may also have arguments `dataset`, `batch_size` and
        `of_numbers`, or else `defaults.learning_rate * sqrt(replicas)`, times `rate_factor`.
        """
        with Graph().as_default():  # a constructor may create variables
            own = getattr(self.make(options), "default_learning_rate", None)
        if callable(own):
            of_data = {"dataset": dataset, "batch_size": batch_size, "of_numbers": of_numbers}
            return float(called_by_name(own, replicas, **of_data))
        return float(self.defaults.learning_rate * replicas**0.5 * rate_factor(self.defaults, batch_size))

    @property
    def code(self) -> bytes | None:
        """Content of the user's file; None for a model of the zoo, and if there is no file."""
        with suppress(TensorBowError):
            return None if self.file is None else read_file(self.file, _LARGEST_FILE)
        return None

    @property
    def takes_raw(self) -> bool:
        """True for a model that normalises its inputs itself: its attribute `takes_raw`, by default False.

        It gets pictures as uint8, and columns of tables as they are.
        """
        return bool(getattr(self._target, "takes_raw", False))

    @property
    def is_ours(self) -> bool:
        """True for the zoo's models, which are found by their names."""
        return self._is_ours

    @property
    def label(self) -> str:
        """Short name, for folders and tables: of `my_model.py:MyModel` the last part."""
        return self.name.rpartition(":")[2]


def find_model(model: str | Callable[..., Any] | ModelSource) -> ModelSource:
    """Finds a model by its name on the command line, or takes a class, function or instance.

    Names: those of the zoo (`get_model`), FILE.py:NAME, PACKAGE.MODULE:NAME, and FILE.onnx. Raises
    InvalidArgumentError for another name, and as `tensorbow.user_code.find_object` and
    `tb.interop.onnx.load`.
    """
    if isinstance(model, ModelSource):
        return model
    if not isinstance(model, str):
        return _of_object(model)
    if model.endswith(".onnx"):
        return ModelSource(model, find_object(ONNX_MODEL, "model").value(model), None)
    if is_object_name(model):
        found = find_object(model, "model")
        return ModelSource(model, found.value, found.file)
    if model.endswith(".py"):
        raise InvalidArgumentError(
            f"model: expected FILE.py:NAME, {_names_in(Path(model))}, got {model!r:.200}"
        )
    return ModelSource(model, factory_of(model), None, is_ours=True)


def _names_in(file: Path) -> str:
    """Classes and functions of a Python file, as names of models. The file is not run."""
    try:
        parts = ast.parse(read_file(file, _LARGEST_FILE)).body
    except (TensorBowError, SyntaxError, ValueError):
        return f"as {file}:MyModel"
    names = [part.name for part in parts if isinstance(part, (ast.ClassDef, ast.FunctionDef))]
    public = [f"{file}:{name}" for name in names if not name.startswith("_")]
    return f"such as {' or '.join(public[:4])}" if public else "which defines a class or a function"


def _of_object(model: Any) -> ModelSource:
    if isinstance(model, Model) and type(model).__module__.startswith("tensorbow.models."):
        name = getattr(model, "name", "")
        if name in MODELS or name.startswith("resnet"):
            return ModelSource(name, lambda: model, None, is_ours=True)
    code = model if inspect.isclass(model) or inspect.isroutine(model) else type(model)
    code = getattr(code, "func", code)
    try:
        file = inspect.getsourcefile(code)
    except TypeError:
        file = None
    return ModelSource(name_of_object(model), model, None if file is None else Path(file))
