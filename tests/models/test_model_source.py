"""Models by name: of the zoo, of a user's file or module, objects; their options, and what they return."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.models import ModelOutputs, find_model
from tensorbow.models.model_outputs import outputs_of
from tensorbow.user_code import errors_of_user

FILE = """
from __future__ import annotations
import tensorbow as tb
from typing import Literal

class Net:
    def __init__(self, width: int = 8, rate: float = 0.5, kind: Literal["a", "b"] = "a",
                 sizes: tuple[int, ...] = (), name: str | None = None, plain=3, deep: bool = False):
        self.given = (width, rate, kind, sizes, name, plain, deep)

    def __call__(self, inputs, labels, training):
        return tb.reduce_mean(inputs), inputs

def function(inputs, labels, training, classes, width: int = 4):
    return tb.reduce_mean(inputs) * width * classes

def broken(inputs, labels, training):
    hidden = inputs
    return hiden

def outside(inputs, labels, training):
    return tb.matmul(inputs, inputs, transpose_a=True), tb.matmul(inputs, tb.zeros([7, 7]))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(FILE)
    return tmp_path / "my_model.py"


READ: list[tuple[str, Any, Any]] = [
    ("width", "12", 12),
    ("width", 12, 12),
    ("rate", "1e-3", 0.001),
    ("rate", 2, 2.0),
    ("kind", "b", "b"),
    ("sizes", "3, 4", (3, 4)),
    ("sizes", [5], (5,)),
    ("name", "none", None),
    ("name", "x", "x"),
    ("plain", "7", 7),
    ("deep", "yes", True),
]


@pytest.mark.parametrize(("name", "given", "expected"), READ)
def test_options_are_read_by_their_types(file: Path, name: str, given: Any, expected: Any) -> None:
    read = find_model(f"{file}:Net").read_options({name: given})
    assert read == {name: expected}
    assert type(read[name]) is type(expected)


WRONG: list[tuple[str, Any, str]] = [
    ("width", "1.5", r"model\.width: expected a whole number for .*my_model.py:Net, got str '1.5'"),
    ("width", True, "expected a whole number"),
    ("rate", "nan", "expected a number"),
    ("kind", "c", "expected one of a, b"),
    ("sizes", "3,x", "expected values separated by commas of int"),
    ("deep", "perhaps", "expected true or false"),
    ("widht", 3, r"no such option, it has width, rate, .*; did you mean model\.width\?"),
]


@pytest.mark.parametrize(("name", "given", "words"), WRONG)
def test_options_that_are_refused(file: Path, name: str, given: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        find_model(f"{file}:Net").read_options({name: given})


def test_an_option_without_a_default_must_be_given() -> None:
    class Needy:
        def __init__(self, width: int, kind: Literal["a"] = "a"):
            self.width, self.kind = width, kind

        def __call__(self, inputs: Any, labels: Any, training: bool) -> Any:
            return tb.reduce_mean(inputs)

    with pytest.raises(InvalidArgumentError, match=r"needs it; give --model\.width N"):
        find_model(Needy).read_options({})


def test_names_that_lead_nowhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (
        (f"{file}:Nett", r"has no 'Nett', it has Net, function, broken, outside; did you mean .*:Net\?"),
        (f"{file.parent}/none.py:Net", "there is no file .*none.py"),
        ("no_such_package.models:Net", "there is no module 'no_such_package'"),
    ):
        with pytest.raises(NotFoundError, match=words):
            find_model(name)
    with pytest.raises(
        InvalidArgumentError, match=r"expected one of .* as my_model.py:MyModel.* mean lenet\?"
    ):
        find_model("lent")
    (file.parent / "syntax.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(InvalidArgumentError, match=r"syntax\.py:2: SyntaxError"):
        find_model(f"{file.parent}/syntax.py:f")
    (file.parent / "fails.py").write_text("\n\nraise RuntimeError('broken')\n")
    with pytest.raises(InvalidArgumentError, match=r"fails\.py:3 in <module>: RuntimeError: broken"):
        find_model(f"{file.parent}/fails.py:f")
    monkeypatch.chdir(file.parent)
    assert find_model("my_model:Net").file == file
    monkeypatch.delitem(sys.modules, "my_model")


def built(model: Any, classes: int | None = None, **options: Any) -> ModelOutputs:
    source = find_model(model)
    with tb.Graph().as_default():
        return source.build(
            source.read_options(options), tb.placeholder(tb.float32, [None, 3]), None, True, classes=classes
        )


def test_errors_of_a_model_name_the_users_line(file: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"my_model\.py:19 in broken: NameError: name 'hiden'"):
        built(f"{file}:broken")
    with pytest.raises(InvalidArgumentError, match=r"MatMul.*my_model\.py:22 in outside"):
        built(f"{file}:outside")
    with pytest.raises(InvalidArgumentError, match=r"argument classes .* no labels.*\.py:14 in function"):
        built(f"{file}:function")
    several = {"words": tb.placeholder(tb.float32, [None, 3]), "length": tb.placeholder(tb.float32, [None])}
    with pytest.raises(
        InvalidArgumentError,
        match=r"matmul: .*several, \{'words': float32\[\?, 3\], 'length': float32\[\?\]\}: choose one, as "
        r"\['words'\] \(.*my_model\.py:22 in outside\)",
    ):
        find_model(f"{file}:outside").build({}, several, None, True)


def test_a_function_has_the_options_that_are_its_own(file: Path) -> None:
    source = find_model(f"{file}:function")
    assert [*source.options] == ["width"]
    assert built(f"{file}:function", classes=2, width="5").outputs is None


def test_a_changed_file_is_run_again(file: Path) -> None:
    assert "new" not in find_model(f"{file}:Net").options
    file.write_text(FILE.replace("width: int", "new: int"))
    assert "new" in find_model(f"{file}:Net").options


FORMS: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda x: tb.reduce_mean(x), None),
    (lambda x: (tb.reduce_mean(x), {"a": x}), None),
    (lambda x: {"loss": tb.reduce_mean(x), "metrics": {"top": tb.reduce_max(tb.cast(x, tb.float64))}}, "top"),
    (lambda x: ModelOutputs(tb.reduce_mean(x), x, {"r2": tb.reduce_mean(x)}), "r2"),
]


@pytest.mark.parametrize(("form", "metric"), FORMS)
def test_forms_of_what_a_model_returns(form: Callable[[Any], Any], metric: str | None) -> None:
    found = built(lambda inputs, labels, training: form(inputs))
    assert [*found.metrics] == ([] if metric is None else [metric])
    assert all(each.dtype == tb.float32 for each in found.metrics.values())


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x, "expected the loss to be a scalar, .*reduce it by tb.reduce_mean"),
    (lambda x: (3.0, x), "expected the loss to be a floating tensor, got float 3.0"),
    (lambda x: None, r"expected the model to return \(loss, outputs, metrics\)"),
    (lambda x: (tb.reduce_mean(x), x, {"all": x}), "expected metric all to be a scalar"),
    (lambda x: (tb.reduce_mean(x), x, {"loss": tb.reduce_mean(x)}), "not 'loss'"),
    (lambda x: (tb.reduce_mean(x), "x"), "expected outputs to be tensors"),
]


@pytest.mark.parametrize(("form", "words"), REFUSED)
def test_what_a_model_must_not_return(form: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        built(lambda inputs, labels, training: form(inputs))


def test_weights_of_classes_are_for_models_that_take_them() -> None:
    x, labels = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.int64, [None])
    weights = tb.constant(np.array([1.0, 3.0], np.float32))
    lenient = outputs_of(tb.models.LogisticRegression(), x, labels, True, classes=2, class_weights=weights)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        found = session.run(lenient.loss, {x: np.ones((2, 3), np.float32), labels: [0, 1]})
    assert found == pytest.approx(np.log(2) * 2, rel=1e-5)  # the mean of log 2 and 3 log 2
    with pytest.raises(InvalidArgumentError, match=r"^class_weights: .* add class_weights=None .* float32"):
        outputs_of(lambda inputs, labels, training: x, x, labels, True, class_weights=weights)


def test_an_error_of_the_zoo_names_no_line_of_the_library() -> None:
    x, labels = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.int64, [None])
    for name in ("lenet", "resnet18", "vit-tiny", "mobilenet"):
        with pytest.raises(InvalidArgumentError, match=rf"^model {name}: images must be .*float32\[\?, 3\]$"):
            find_model(name).build({}, x, labels, True, classes=2)


def test_metrics_that_are_a_tensor_or_a_list_are_refused() -> None:
    x, labels = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.int64, [None])
    for metrics in (tb.constant(1.0), [], 0.5):
        with pytest.raises(
            InvalidArgumentError, match=r"expected metrics by name, as \{'accuracy': accuracy\}"
        ):
            outputs_of(lambda *_, given=metrics: (tb.reduce_mean(x), x, given), x, labels, True)


def test_modules_of_pytorch_get_a_hint() -> None:
    def linear(*_: Any) -> None:
        raise TypeError("linear(): argument 'input' (position 1) must be Tensor, not Tensor")

    with (
        pytest.raises(
            InvalidArgumentError, match=r"not Tensor; modules of PyTorch do not .* with tb\.layers"
        ),
        errors_of_user("model net.py:net"),
    ):
        linear()


@pytest.mark.parametrize("many", [False, True])
def test_outputs_and_labels_that_broadcast_to_all_pairs_are_refused(many: bool) -> None:
    x, labels = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.float32, [None])

    def network(inputs: Any, labels: Any, training: bool) -> Any:
        outputs = tb.layers.dense(inputs, 1)
        alike = outputs if many else outputs[:, 0]
        return tb.reduce_mean(tb.square(labels - alike)), {"price": alike}

    if many:
        with pytest.raises(InvalidArgumentError, match=r"Sub broadcasts .* as outputs\[:, 0\] \(made at "):
            outputs_of(network, x, labels, True)
    else:
        assert outputs_of(network, x, labels, True).loss.shape == ()


def test_modules_of_pytorch_files_without_a_name_and_other_arguments_are_refused(file: Path) -> None:
    module = type("Module", (), {"__module__": "torch.nn.modules.module", "__call__": lambda self, x: x})
    net = type("MyNet", (module,), {})
    for model in (net, net()):
        with pytest.raises(
            InvalidArgumentError, match=r"MyNet is a module of PyTorch; export it \(torch\.onnx"
        ):
            find_model(model)
    with pytest.raises(
        InvalidArgumentError, match=r"such as \S*my_model\.py:Net or \S*my_model\.py:function"
    ):
        find_model(str(file))
    x, labels = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.int64, [None])

    def short(inputs: Any, labels: Any) -> Any:
        return tb.reduce_mean(inputs)

    with pytest.raises(InvalidArgumentError, match=r"short: expected model\(inputs, labels, training\), got"):
        find_model(short).build({}, x, labels, True)
