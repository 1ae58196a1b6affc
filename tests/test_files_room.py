"""Files are opened, and JSON and YAML read, in the few modules made for it: found by reading the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocators", "tensorbow", "scheduler", "replicator")

# Of any object: what opens, reads or replaces a file by its path.
METHODS = {
    *("write_text", "write_bytes", "read_text", "read_bytes", "symlink_to", "hardlink_to"),
    *("tofile", "fromfile", "memmap", "savetxt", "savez", "savez_compressed", "loadtxt", "genfromtxt"),
    *("NamedTemporaryFile", "TemporaryFile", "mkstemp", "FileHandler"),
}
# Of a module, or built in.
FUNCTIONS = {
    *("open", "io.open", "os.open", "os.rename", "os.replace", "os.link", "os.symlink", "np.load", "np.save"),
    *("Image.open", "zipfile.ZipFile", "gzip.open", "json.load", "json.loads", "yaml.load", "yaml.safe_load"),
    *(
        "yaml.parse",
        "pickle.load",
        "pickle.loads",
        "figure.savefig",
        "plt.savefig",
        "shutil.move",
        "shutil.copy",
    ),
}
ROOMS = {
    "tensorbow/files.py": {"open", "os.open", "os.replace", "os.link"},
    "tensorbow/private_folder.py": {"open", "os.open", "os.replace", "os.link", "os.rename"},
    "tensorbow/strict_json.py": {"json.loads"},
    "scheduler/training/configuration/config_file.py": {"yaml.parse"},
}
# Of open files and memory, of the system's own files, and of the library's own source.
OTHERS = {
    ("tensorbow/cli/inference.py", "np.save"),
    ("tensorbow/cli/inference.py", "savez"),
    ("tensorbow/pictures.py", "figure.savefig"),
    ("tensorbow/cli/program.py", "os.open"),  # /dev/null, for what nobody reads
    ("tensorbow/launcher.py", "os.open"),  # the same
    ("tensorbow/worker_entry.py", "os.open"),  # the same
    ("scheduler/workers/memory_of_mpi.py", "os.open"),  # of the system, for a lock
    ("scheduler/workers/launching.py", "open"),  # of the system, about a process
    ("scheduler/workers/shared_memory.py", "read_text"),  # the same, about itself
    ("tensorbow/training/meta_graph_def.py", "json.loads"),  # of a graph that is there
    ("tensorbow/program_frame/local_files.py", "open"),  # of the user's program, as it asks
    ("tensorbow/program_frame/local_files.py", "os.replace"),
    ("tensorbow/checkpoint_files/shards.py", "os.replace"),  # of whole files that are written
    ("tensorbow/input_ops/records.py", "open"),  # grows from record to record
    ("tensorbow/data/digits.py", "gzip.open"),  # of an installed package
    ("tensorbow/data/cifar10.py", "fromfile"),
    ("tensorbow/data/numpy_files.py", "zipfile.ZipFile"),
    ("tensorbow/data/prediction_inputs.py", "Image.open"),
    ("tensorbow/devices/host_memory.py", "read_text"),
    ("tensorbow/kernels/native/codegen/plan_key.py", "read_bytes"),
    (
        "replicator/asynchronous/ray_actors.py",
        "pickle.loads",
    ),  # in memory, of the process that owns the worker
    ("scheduler/training/folders/run_folder.py", "os.open"),  # a folder, for its lock
    (
        "scheduler/training/running/callbacks.py",
        "json.loads",
    ),  # its own text, as a file would give it
    ("scheduler/training/models/trained_model.py", "json.loads"),  # the same
    ("scheduler/sweeps/folder.py", "json.loads"),  # the same
}


def called(source: str) -> Iterator[str]:
    """Calls in a source, and functions it passes on, of the functions and methods above."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            if node.attr in METHODS:
                yield node.attr
            elif isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in FUNCTIONS:
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield "open"
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in FUNCTIONS
            )


def test_files_are_opened_in_the_rooms_for_it() -> None:
    found = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            found |= {(name, call) for call in called(path.read_text()) if call not in ROOMS.get(name, ())}
    assert found == OTHERS, "read and write through tensorbow/files.py, tensorbow/strict_json.py and the like"


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("open(path, 'w')", ["open"]),
        ("Path(p).write_text('x')", ["write_text"]),
        ("np.save(path, x)", ["np.save"]),
        ("with os.open(p, 0) as f: pass", ["os.open"]),
        ("from json import loads", ["json.loads"]),
        ("write = path.write_bytes", ["write_bytes"]),
        ("session.open(); self._open()", []),
    ],
)
def test_this_test_finds_what_it_looks_for(source: str, calls: list[str]) -> None:
    assert list(called(source)) == calls
