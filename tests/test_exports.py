"""Public names are the re-exported ones, equal to `__all__`; importing the library stays light."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import allocators
import replicator
import scheduler
import tensorbow
from tensorbow.missing_names import INSTEAD
from tensorbow.tensorflow_names import TENSORFLOW_NAMES

BY_MODULE = (
    "tensorbow",
    "tensorbow.dtypes",
    "tensorbow.image",
    "tensorbow.nn",
    "tensorbow.ops",
    "tensorbow.signal",
)  # add the lists of other modules
ROOT = Path(tensorbow.__file__).resolve().parent.parent


def public_packages() -> list[str]:
    """Packages whose names users import, and the facades that are modules.

    Without the scheduler's rooms: `scheduler` exports their public names.
    """
    facades = (
        *(
            "app",
            "bitwise",
            "debugging",
            "dtypes",
            "flags",
            "gfile",
            "graph_util",
            "image",
            "io.gfile",
            "linalg",
            "logging",
            "lookup",
            "manip",
            "math",
            "nn",
            "profiler",
            "python_io",
            "quantization",
            "random",
            "sets",
            "signal",
            "sparse",
        ),
        *("spectral", "strings", "test", "train"),
    )
    names = ["tensorbow", *(f"tensorbow.{name}" for name in facades)]
    for package in (allocators, replicator, scheduler, tensorbow):
        names.append(package.__name__)
        found = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        if package is not scheduler:
            names += [module.name for module in found if module.ispkg]
    return sorted(set(names))


def is_private_or_module(module: ModuleType, name: str) -> bool:
    return name.startswith("_") or isinstance(getattr(module, name), ModuleType)


def from_here(module: ModuleType, name: str) -> bool:
    """True for a name defined by this project; typing's and NumPy's names are not."""
    value = getattr(module, name)
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in (
        "allocators",
        "replicator",
        "scheduler",
        "tensorbow",
    )


def rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by name: the order the linter keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("name", public_packages())
def test_all_agrees_with_what_is_there(name):
    module = importlib.import_module(name)
    public = module.__all__
    assert len(set(public)) == len(public), f"{name}.__all__ says something twice"
    if name not in BY_MODULE:
        assert list(public) == sorted(public, key=rank), f"{name}.__all__ is not sorted"
    missing = [entry for entry in public if not hasattr(module, entry)]
    assert not missing, f"{name}.__all__ names what is not there: {missing}"
    later = getattr(module, "_LATER", {})
    hidden = [
        entry
        for entry in vars(module)
        if entry not in public
        and entry not in later
        and not is_private_or_module(module, entry)
        and from_here(module, entry)
    ]
    assert not hidden, f"{name} has public names that are not in __all__: {hidden}"


def test_names_of_later_layers_are_listed():
    for module in (tensorbow, tensorbow.train):
        assert {*module._LATER} <= {*dir(module)}


def test_every_export_has_a_docstring():
    for name in public_packages():
        module = importlib.import_module(name)
        for entry in module.__all__:
            value = getattr(module, entry)
            if callable(value) and not isinstance(value, type(tensorbow.float32)):
                assert value.__doc__, f"{name}.{entry} has no docstring"


def test_names_of_upper_layers_load_on_first_use():
    for name in tensorbow._LATER:
        assert getattr(tensorbow, name) is not None
    with pytest.raises(
        AttributeError, match=r"module 'tensorbow' has no attribute 'Sesion'; did you mean tb.Session\?"
    ):
        tensorbow.Sesion  # noqa: B018


def test_who_looks_for_what_is_not_there_is_told_what_is():
    for path, instead in INSTEAD.items():
        *parts, name = path.split(".")
        module = functools.reduce(getattr, parts, tensorbow)
        with pytest.raises(AttributeError, match=f"has no attribute '{name}': "):
            getattr(module, name)
        for known in re.findall(r"tb\.([\w.]*\w)", instead):
            assert functools.reduce(getattr, known.split("."), tensorbow) is not None, (path, known)


def test_what_is_misspelt_has_a_hint_only_where_something_is_alike():
    for module, name, hint in (
        (tensorbow, "reduce_maen", "did you mean tb.reduce_mean?"),
        (tensorbow.train, "AdamOptimiser", "did you mean tb.train.AdamOptimizer?"),
        (tensorbow.nn, "relus", "did you mean tb.nn.relu?"),
        (tensorbow, "sigmoid_cross_entropy_with_logits", "write tb.nn.sigmoid_cross_entropy_with_logits"),
        (tensorbow.layers, "layer_norm", "did you mean tb.layers.layer_normalization?"),
    ):
        with pytest.raises(AttributeError, match=re.escape(hint)):
            getattr(module, name)
    assert "tanh" in str(tensorbow_error("tanhh"))
    assert "did you mean" not in str(tensorbow_error("sim"))  # one letter of three is not sin
    with pytest.raises(AttributeError, match=r"no attribute 'autocast'$"):
        tensorbow.autocast  # noqa: B018
    assert not hasattr(tensorbow, "__wrapped__")


def tensorbow_error(name: str) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        getattr(tensorbow, name)
    return caught.value


def test_a_name_of_tensorflow_is_never_taken_for_a_similar_one() -> None:
    """Whoever writes tf.cross does not mean cos."""
    missing = 0
    for path in sorted(TENSORFLOW_NAMES):
        *parts, name = path.split(".")
        module = functools.reduce(getattr, parts, tensorbow)
        if name in dir(module):
            continue
        missing += 1
        with pytest.raises(AttributeError) as caught:
            getattr(module, name)
        assert "did you mean" not in str(caught.value), path
    assert missing > 50


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are there after a statement in a new process."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


@pytest.mark.slow
def test_importing_the_library_loads_nothing_heavy():
    loaded = loaded_by("import tensorbow")
    heavy = {"cupy", "llvmlite", "sklearn", "scipy", "matplotlib", "typer", "rich", "scheduler", "onnx"}
    assert not loaded & heavy
    assert "email" not in loaded  # importlib.metadata imports it
    assert "numpy" in loaded


@pytest.mark.slow
def test_training_in_a_session_loads_nothing_heavy():
    loaded = loaded_by(
        "import tensorbow as tb\n"
        "with tb.Session() as session: session.run(tb.constant(1.0) + tb.random_uniform([2]))"
    )
    assert not loaded & {"cupy", "sklearn", "scipy", "matplotlib"}


def test_allocators_stand_alone():
    loaded = loaded_by("import allocators")
    assert not loaded & {"numpy", "tensorbow"}


@pytest.mark.parametrize("name", ["data", "initializers", "layers", "metrics", "models", "nn", "train"])
def test_dir_shows_the_public_names_alone(name):
    module = getattr(tensorbow, name)
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, public) for public in dir(module))
