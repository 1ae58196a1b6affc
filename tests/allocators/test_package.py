import ast
import sys
from pathlib import Path

import allocators

FOLDER = Path(allocators.__file__).parent


def test_public_is_what_is_exported() -> None:
    assert len(set(allocators.__all__)) == len(allocators.__all__)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse((FOLDER / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(allocators.__all__) == imported
    assert all(getattr(allocators, name).__doc__ for name in allocators.__all__ if name != "GRANULE_NBYTES")


def test_the_standard_library_is_enough() -> None:
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file.name} imports relatively"
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                assert top == "allocators" or top in sys.stdlib_module_names, f"{file.name} imports {name}"
