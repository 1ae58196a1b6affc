"""The API reference and the command-line reference, written from the product when the pages are built."""

from __future__ import annotations

import importlib
import inspect
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from plain_docstrings import markup
from sphinx.application import Sphinx

import tensorbow
from tensorbow.cli.app import app as program

# Modules whose public names programs use, in the order of the pages.
MODULES = (
    "tensorbow",
    "tensorbow.nn",
    "tensorbow.layers",
    "tensorbow.layers.rnn_cells",
    "tensorbow.train",
    "tensorbow.losses",
    "tensorbow.metrics",
    "tensorbow.initializers",
    "tensorbow.data",
    "tensorbow.models",
    "tensorbow.interop",
    "tensorbow.interop.onnx",
    "tensorbow.interop.torch",
    "tensorbow.graph_util",
    "tensorbow.profiler",
    "tensorbow.python_io",
    "tensorbow.flags",
    "tensorbow.app",
    "tensorbow.gfile",
    "tensorbow.logging",
    "tensorbow.errors",
    "scheduler",
    "allocators",
)
# Headings of the page of `tensorbow`, with the rooms that define the names below them.
SUBJECTS = {
    "Replicas of a step": ("replicator",),
    "Training of replicas": ("scheduler",),
    "Graphs": ("tensorbow.graph", "tensorbow.gradients", "tensorbow.ops.importing"),
    "Sessions": ("tensorbow.runtime",),
    "Variables": ("tensorbow.variables", "tensorbow.ops.variable_aggregation", "tensorbow.variable_scope"),
    "Placeholders and control": ("tensorbow.ops.control", "tensorbow.ops.constant"),
    "Elementwise functions": ("tensorbow.ops.elementwise", "tensorbow.ops.sums"),
    "Reductions": ("tensorbow.ops.reductions", "tensorbow.ops.cumulative"),
    "Matrices": ("tensorbow.ops.matmul", "tensorbow.ops.einsum", "tensorbow.ops.linalg"),
    "Random numbers": ("tensorbow.ops.random",),
    "Collectives": ("tensorbow.ops.collectives",),
    "Own ops and kernels": ("tensorbow.ops.definition", "tensorbow.kernels"),
    "Shapes, selection and other ops": ("tensorbow.ops",),
    "Columns of tables": ("tensorbow.feature_column",),
    "Strings": ("tensorbow.string_ops", "tensorbow.lookup"),
    "Files and readers": ("tensorbow.input_ops", "tensorbow.readers"),
    "Gradients' norms": ("tensorbow.optimizers",),
    "Initial values": ("tensorbow.initializers",),
    "Devices": ("tensorbow.devices",),
    "Shapes and dtypes": ("tensorbow.specs",),
    "Other names": ("",),
}


def _subject(value: Any) -> str:
    home = getattr(value, "__module__", None) or ""
    fits = [
        (len(room), title)
        for title, rooms in SUBJECTS.items()
        for room in rooms
        if not room or home == room or home.startswith(f"{room}.")
    ]
    return max(fits)[1]


def _titled(title: str, line: str) -> list[str]:
    return [title, line * len(title), ""]


def _entry(module: ModuleType, name: str, seen: dict[Any, str]) -> list[str]:
    """Directive for a public name; for one of an earlier page (`seen`) a reference to its entry there."""
    value = getattr(module, name)
    path = f"{module.__name__}.{name}"
    if inspect.isclass(value) or inspect.isroutine(value):
        earlier = seen.setdefault(value, path)
        if earlier != path:
            return [f"- ``{name}``: :py:obj:`{earlier}`", ""]
    if inspect.isclass(value):
        members = [] if issubclass(value, Exception) else ["   :members:"]
        return [f".. autoclass:: {path}", *members, ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {path}", ""]
    return [f".. py:data:: {path}", "", f"   {markup(_value(value))}", ""]


def _value(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"`{text}`" if len(text) <= 200 else f"A {type(value).__name__}."


def _is_own(value: Any, module: ModuleType) -> bool:
    return inspect.isclass(value) and value.__module__ == module.__name__


def _module_page(module: ModuleType, seen: dict[Any, str]) -> str:
    """The page of a module: its docstring's first paragraph, then an entry for each public name."""
    name = module.__name__
    listed = getattr(module, "__all__", None) or [n for n, v in vars(module).items() if _is_own(v, module)]
    names = sorted({*listed, *getattr(module, "_LATER", ())}, key=str.casefold)
    submodules = [entry for entry in names if inspect.ismodule(getattr(module, entry))]
    entries = [entry for entry in names if entry not in submodules]
    summary = inspect.cleandoc(module.__doc__ or "").split("\n\n")[0]
    lines = [*_titled(name, "="), markup(" ".join(summary.split())), "", f".. py:currentmodule:: {name}", ""]
    if module is not tensorbow:
        return "\n".join([*lines, *(line for entry in entries for line in _entry(module, entry, seen))])
    for subject in SUBJECTS:
        of_subject = [entry for entry in entries if _subject(getattr(module, entry)) == subject]
        if of_subject:
            lines += _titled(subject, "-")
        for entry in of_subject:
            lines += _entry(module, entry, seen)
    return "\n".join(lines)


class PageFormatter(click.HelpFormatter):
    """Receives the help of a command as a terminal would, and keeps it as lines of reStructuredText."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Writes the usage as code."""
        self.lines += ["::", "", f"    {prog} {args}", ""]

    def write_heading(self, heading: str) -> None:
        """Writes the title of a group of options."""
        self.lines += _titled(heading, "~")

    def write_paragraph(self) -> None:
        """Ends a paragraph; `write_text` and the others do so themselves."""

    def write_text(self, text: str) -> None:
        """Writes paragraphs; those that click does not wrap, or that are indented, as code."""
        for paragraph in inspect.cleandoc(text).split("\n\n"):
            given = [line.rstrip() for line in paragraph.split("\n") if line.strip()]
            if given and (given[0].strip() == "\b" or any(line.startswith("  ") for line in given)):
                self.lines += ["::", "", *(f"    {line}" for line in given if line.strip() != "\b"), ""]
            else:
                self.lines += [markup(" ".join(given)), ""]

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Writes options, or examples, with their texts."""
        for name, text in rows:
            if text:
                self.lines += [f"``{' '.join(name.split())}``", f"    {markup(' '.join(text.split()))}", ""]


def _command_page() -> str:
    """The page of the command line: the help of each command."""
    lines = _titled("Command line", "=")
    lines += ["Each command has a page of help in the terminal too: ``tensorbow COMMAND --help``.", ""]
    for name, command in program.commands.items():
        formatter = PageFormatter()
        with click.Context(command, info_name=f"tensorbow {name}") as context:
            command.format_help(context, formatter)
        lines += [*_titled(f"tensorbow {name}", "-"), *formatter.lines]
    return "\n".join(lines)


def write_pages(app: Sphinx) -> None:
    """Writes `reference/api/*.rst` and `reference/command_line.rst` below the sources."""
    reference = Path(app.srcdir) / "reference"
    folder = reference / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seen: dict[Any, str] = {}
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        (folder / f"{name}.rst").write_text(_module_page(module, seen), encoding="utf-8")
    (reference / "command_line.rst").write_text(_command_page(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
