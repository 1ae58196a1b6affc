"""No class name twice: a name in a message or a review means one thing in the whole project."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocators", "tensorbow", "scheduler", "replicator")


def defined_names(tree: ast.Module) -> list[str]:
    """The public classes of a file, and what it declares as a type alias."""
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            names.append(ast.unparse(node.target))
    return [name for name in names if not name.startswith("_")]


def test_no_name_is_that_of_a_class_and_of_something_else():
    places: dict[str, list[str]] = defaultdict(list)
    classes: set[str] = set()
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
            for name in defined_names(tree):
                places[name].append(file.relative_to(ROOT).as_posix())
    assert len(places) > 100
    twice = {name: files for name, files in places.items() if name in classes and len(files) > 1}
    assert not twice, f"names defined twice: {twice}"
