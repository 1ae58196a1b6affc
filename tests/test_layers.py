"""The imports of every file, read with `ast`, go only down the list below.

Imports inside functions and under `TYPE_CHECKING` count like any other for the layers: a name of an
upper layer is one wherever it stands. For cycles those under `TYPE_CHECKING` do not count, as they never
run, and those inside functions do, but for the few that are listed here with their reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocators", "tensorbow", "scheduler", "replicator")

# From the top down. A row's members do not import one another, unless `SIDEWAYS` says so.
LAYERS = (
    ("tensorbow.cli",),
    ("tensorbow.interop",),
    ("replicator",),
    ("scheduler",),
    ("scheduler.sweeps",),
    ("scheduler.training.running",),
    ("scheduler.training.tuning",),
    ("scheduler.training.models",),
    ("scheduler.training.folders",),
    ("scheduler.training.configuration",),
    ("scheduler.training.measures",),
    ("scheduler.session",),
    ("scheduler.engine",),
    ("scheduler.batches",),
    ("scheduler.replicas",),
    ("scheduler.averaging",),
    ("scheduler.workers",),
    ("scheduler.decisions",),
    ("scheduler.options",),
    ("tensorbow.models", "tensorbow.data", "tensorbow.training", "tensorbow.testing"),
    ("tensorbow.cluster",),
    ("tensorbow.runtime",),
    ("tensorbow.executor",),
    ("tensorbow.compiler",),
    ("tensorbow.kernels",),
    ("tensorbow.kernels.backends",),
    ("tensorbow.kernels.native", "tensorbow.kernels.gpu"),
    ("tensorbow.kernels.native.rounds",),
    ("tensorbow.kernels.native.plan",),
    ("tensorbow.kernels.native.fusion", "tensorbow.kernels.gpu.fusion"),
    ("tensorbow.kernels.native.ops", "tensorbow.kernels.gpu.ops"),
    ("tensorbow.kernels.native.products", "tensorbow.kernels.gpu.source"),
    ("tensorbow.kernels.native.codegen", "tensorbow.kernels.gpu.runtime"),
    ("tensorbow.kernels.null",),
    ("tensorbow.kernels.reference",),
    ("tensorbow.kernels.averaged_updates",),
    ("tensorbow.kernels.merging", "tensorbow.kernels.scalars", "tensorbow.kernels.binary_cache"),
    ("tensorbow.kernels.rounded_products",),
    ("tensorbow.program",),
    ("tensorbow.optimizers", "tensorbow.layers", "tensorbow.functions", "tensorbow.feature_column"),
    ("tensorbow.variable_lists",),
    (
        "tensorbow.function_calls",
        "tensorbow.variable_scope",
        "tensorbow.metrics",
        "tensorbow.losses",
        "tensorbow.user_code",
    ),
    ("tensorbow.readers", "tensorbow.lookup"),
    (
        "tensorbow.partitioned_variables",
        "tensorbow.queues",
        "tensorbow.recomputed_gradients",
        "tensorbow.torch_weights",
    ),
    ("tensorbow.checkpoint_files",),
    ("tensorbow.input_ops",),
    ("tensorbow.string_ops",),
    ("tensorbow.variables", "tensorbow.gradients", "tensorbow.initializers", "tensorbow.custom_gradients"),
    ("tensorbow.control_flow",),
    ("tensorbow.ops",),
    ("tensorbow.graph",),
    ("tensorbow.devices", "tensorbow.shadowing"),
    ("tensorbow.timeline", "tensorbow.program_frame"),
    ("tensorbow.kinds", "tensorbow.nest"),
    ("tensorbow.call_errors",),
    ("tensorbow.array_likes",),
    (
        "tensorbow.specs",
        "tensorbow.errors",
        "tensorbow.missing_names",
        "tensorbow.tensorflow_names",
        "tensorbow.files",
        "tensorbow.pictures",
        "tensorbow.private_folder",
        "tensorbow.strict_json",
    ),
    ("allocators",),
)
SIDEWAYS = {
    ("tensorbow.specs", "tensorbow.errors"),
    ("tensorbow.files", "tensorbow.errors"),
    ("tensorbow.pictures", "tensorbow.errors"),
    ("tensorbow.pictures", "tensorbow.files"),
    ("tensorbow.missing_names", "tensorbow.tensorflow_names"),
    ("tensorbow.private_folder", "tensorbow.errors"),
    ("tensorbow.private_folder", "tensorbow.files"),
}
FACADES = {
    "tensorbow",
    "tensorbow.app",
    "tensorbow.bitwise",
    "tensorbow.debugging",
    "tensorbow.dtypes",
    "tensorbow.flags",
    "tensorbow.gfile",
    "tensorbow.graph_util",
    "tensorbow.image",
    "tensorbow.io",
    "tensorbow.io.gfile",
    "tensorbow.linalg",
    "tensorbow.logging",
    "tensorbow.manip",
    "tensorbow.math",
    "tensorbow.nn",
    "tensorbow.profiler",
    "tensorbow.python_io",
    "tensorbow.quantization",
    "tensorbow.random",
    "tensorbow.sets",
    "tensorbow.signal",
    "tensorbow.sparse",
    "tensorbow.spectral",
    "tensorbow.strings",
    "tensorbow.summary",
    "tensorbow.test",
    "tensorbow.train",
}
ENTRIES = {"tensorbow.__main__", "tensorbow.launcher", "tensorbow.worker_entry"}  # above everything
OF_LAUNCHER = {"__future__", "os", "sys", "signal"}  # what is imported before signals are handled

EXTERNAL = {
    "allocators": set(),
    "tensorbow.missing_names": set(),
    "tensorbow.tensorflow_names": set(),
    "tensorbow.errors": set(),
    "tensorbow.files": set(),
    "tensorbow.pictures": {"matplotlib"},
    "tensorbow.private_folder": set(),
    "tensorbow.strict_json": set(),
    "tensorbow.timeline": set(),
    "tensorbow.devices": {"numpy", "threadpoolctl", "pynvml", "cupy", "cuda", "nvidia"},
    "tensorbow.kernels": {"numpy", "cupy", "llvmlite"},
    "tensorbow.graph": {"numpy", "google"},
    "tensorbow.specs": {"numpy", "ml_dtypes"},
    "tensorbow.ops": {"numpy", "tensorboardX"},
    "tensorbow.input_ops": {"numpy", "PIL", "google_crc32c"},
    "tensorbow.data": {"numpy", "sklearn", "PIL"},
    "tensorbow.checkpoint_files": {"numpy", "safetensors"},
    "tensorbow.training": {"numpy", "rich", "tensorboardX"},
    "tensorbow.interop": {"numpy", "onnx"},
    "tensorbow.torch_weights": {"numpy", "safetensors", "ml_dtypes"},
    "tensorbow.cli": {"numpy", "typer", "click", "rich", "matplotlib"},
    "scheduler": {"numpy", "yaml", "tensorboardX"},
    "replicator": {"numpy", "ray"},
    "scheduler.workers": {"numpy", "mpi4py"},
    "scheduler.decisions": set(),
    "tensorbow": set(),  # the facade itself
}
ONLY_INSIDE_FUNCTIONS = {
    "PIL",
    "sklearn",
    "cupy",
    "cuda",
    "nvidia",
    "pynvml",
    "llvmlite",
    "matplotlib",
    "tensorboardX",
    "onnx",
    "google",
    "mpi4py",
}  # heavy, and not always installed
NATIVE = "tensorbow.kernels.native"  # needs llvmlite, and is itself imported inside functions only

# Imports inside functions that would close a cycle at import time, and why they may stay.
LAZY = {
    ("tensorbow.launcher", "tensorbow.cli"): "signals are handled before anything heavy is loaded",
}
BY_NAME = {
    "tensorbow.worker_entry": "the program of a worker",
    "tensorbow.user_code": "files and modules of users",
    "tensorbow.data.tables": "pyarrow, which has no types and need not be installed",
    "tensorbow.shadowing": "the facade's table of names of upper layers",
    "tensorbow.data.text": "Python's documentation, which need not be installed",
    "tensorbow.optimizers.scipy_interface": "SciPy, which need not be installed",
    "tensorbow.data.digits": "scikit-learn, which has no types and need not be installed",
    "tensorbow.devices.cupy_runtime": "CuPy, which need not be installed",
    "tensorbow.devices.cuda_libraries": "NVIDIA's packages, which need not be installed",
}


class Import(NamedTuple):
    """One imported module, as far as the statement names it."""

    target: str
    line: int
    in_function: bool
    for_types: bool


def files() -> list[Path]:
    return sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_of(path): path for path in files()}


@cache
def imports(module: str) -> tuple[Import, ...]:
    path = modules()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(walk(ast.parse(path.read_text()), package, False, False))


def walk(node: ast.AST, package: str, in_function: bool, for_types: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, in_function, for_types)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, base] if base else parents)
        for alias in node.names:
            name = f"{base}.{alias.name}"
            yield Import(name if name in modules() else base, node.lineno, in_function, for_types)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from walk(child, package, in_function, True)
        for child in node.orelse:
            yield from walk(child, package, in_function, for_types)
    else:
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, package, inside, for_types)


def unit_of(module: str) -> str | None:
    """The member of LAYERS a module belongs to."""
    names = [name for row in LAYERS for name in row if module == name or module.startswith(f"{name}.")]
    return max(names, key=len, default=None)


def parents(unit: str) -> Iterator[str]:
    """The unit and the packages around it, but for `tensorbow` around others."""
    yield unit
    while unit.count(".") > 1 or unit.startswith("scheduler."):
        unit = unit.rpartition(".")[0]
        yield unit


def rank(unit: str) -> int:
    return next(i for i, row in enumerate(LAYERS) if unit in row)


def is_own(target: str) -> bool:
    return target.partition(".")[0] in PACKAGES


def test_every_module_has_a_layer_or_is_a_facade():
    homeless = [m for m in modules() if unit_of(m) is None and m not in FACADES | ENTRIES]
    assert not homeless, f"add these to LAYERS: {homeless}"


def not_below(module: str) -> Iterator[str]:
    """A line for each import that is not of a layer below the module's own."""
    unit = unit_of(module)
    for item in imports(module) if unit is not None else ():
        target = unit_of(item.target)
        where = f"{module}, line {item.line}: {item.target}"
        if not is_own(item.target):
            continue
        if target is None:
            if unit != "tensorbow.cli":
                yield f"{where} is a facade, for users only"
        elif target != unit and rank(target) <= rank(str(unit)) and (unit, target) not in SIDEWAYS:
            yield f"{where} is not below {unit}"


def test_imports_go_only_down():
    assert [line for module in sorted(modules()) for line in not_below(module)] == []


def foreign(module: str) -> Iterator[str]:
    """A line for each import of a package that the module's layer may not import, or not there."""
    unit = unit_of(module) or "tensorbow"
    allowed = next((EXTERNAL[name] for name in parents(unit) if name in EXTERNAL), {"numpy"})
    for item in imports(module):
        top = item.target.partition(".")[0]
        where = f"{module}, line {item.line}: {item.target}"
        if item.target.startswith(NATIVE) and not module.startswith(NATIVE) and not item.in_function:
            yield f"{where} is imported where it is used"
        if is_own(item.target) or top in sys.stdlib_module_names:
            continue
        if top not in allowed:
            yield f"{where} is not a dependency of this package"
        inside = top in ONLY_INSIDE_FUNCTIONS and not (top == "llvmlite" and module.startswith(NATIVE))
        if inside and not item.in_function:
            yield f"{where} is imported where it is used"


def test_external_dependencies():
    assert [line for module in sorted(modules()) for line in foreign(module)] == []


def test_the_launcher_imports_next_to_nothing():
    items = imports("tensorbow.launcher")
    assert {i.target for i in items if not i.in_function and not i.for_types} == OF_LAUNCHER
    first = next(i for i in imports("tensorbow") if i.target != "__future__")
    assert first.target == "tensorbow.launcher", "signals are handled before anything else is imported"


def test_nothing_is_imported_by_its_name_in_a_string():
    """`ast` does not show imports by name."""
    found = {
        module
        for module, path in modules().items()
        if any(word in path.read_text() for word in ("import_module(", "__import__(", "exec(", "runpy"))
    }
    assert found == set(BY_NAME)


def test_decisions_have_no_threads_clocks_or_arrays():
    impure = {"threading", "queue", "time", "asyncio", "concurrent", "multiprocessing", "datetime", "random"}
    own = {"scheduler.decisions", "tensorbow.errors"}
    found = {
        (module, item.target)
        for module in modules()
        if module.startswith("scheduler.decisions")
        for item in imports(module)
        if item.target.partition(".")[0] in impure
        or (is_own(item.target) and unit_of(item.target) not in own)
    }
    assert not found


def rooms() -> list[str]:
    """Packages inside the scheduler and the backends."""
    return [name for name in inner_units() if modules()[name].name == "__init__.py"]


def inner_units() -> list[str]:
    return [name for row in LAYERS for name in row if name.startswith("scheduler.") or name.count(".") == 3]


def statement(room: str) -> str:
    """The part of a room's docstring that says what it imports, from its verb on."""
    text = ast.get_docstring(ast.parse(modules()[room].read_text())) or ""
    _, verb, after = text.partition("Imports ")
    return verb + after


def units_named(room: str) -> set[str]:
    """The units that a room's docstring names; a short name is one of the same package."""
    package = room.rpartition(".")[0]
    names = re.findall(r"`([\w.]+)`", statement(room))
    return {name if name in modules() else f"{package}.{name}" for name in names}


def units_imported(room: str) -> set[str]:
    """The units outside a room that its modules import."""
    own = [module for module in modules() if unit_of(module) == room]
    units = {unit_of(item.target) for module in own for item in imports(module) if is_own(item.target)}
    return {unit for unit in units if unit is not None} - {room}


def misstated(room: str) -> Iterator[str]:
    """A line if a room imports others than it says; only one that says so must name lower layers, too."""
    said, named, imported = statement(room), units_named(room), units_imported(room)
    if said.startswith("Imports all "):
        package = room.rpartition(".")[0]
        named = {name for name in rooms() if name.startswith(f"{package}.") and name != room}
        imported &= set(rooms())
    elif not said.startswith("Imports only "):
        imported &= set(inner_units())
    if not said or named != imported:
        yield f"{room} imports {sorted(imported)}, but its docstring says {said or 'nothing of it'!r}"


@pytest.mark.slow
def test_rooms_say_what_they_import():
    assert len(rooms()) > 10
    assert [line for room in rooms() for line in misstated(room)] == []


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected modules, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            first = stack.index(node)
            component = stack[first:]
            del stack[first:]
            if len(component) > 1 or node in edges[node]:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def test_modules_do_not_import_in_circles():
    edges = {
        module: {
            item.target
            for item in imports(module)
            if item.target in modules() and not item.for_types and (module, item.target) not in LAZY
        }
        for module in modules()
    }
    assert not cycles(edges)


def test_the_lazy_imports_that_are_listed_are_there():
    for module, target in LAZY:
        items = [item for item in imports(module) if item.target == target]
        assert items, f"{module} does not import {target} any more: take it off the list"
        assert all(item.in_function or item.for_types for item in items)


def test_this_test_finds_what_it_looks_for():
    source = """
from __future__ import annotations
import os.path
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from tensorbow.runtime import Session
else:
    import numpy
class A:
    def f(self):
        from .shared_lock import SharedLock
        from ..specs import DType
"""
    found = list(walk(ast.parse(source), "tensorbow.runtime", False, False))
    assert [(i.target, i.in_function, i.for_types) for i in found] == [
        ("__future__", False, False),
        ("os.path", False, False),
        ("typing", False, False),
        ("tensorbow.runtime", False, True),
        ("numpy", False, False),
        ("tensorbow.runtime.shared_lock", True, False),
        ("tensorbow.specs", True, False),
    ]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == [["b", "c"], ["d"]]
