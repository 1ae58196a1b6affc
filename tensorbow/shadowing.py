"""Importing packages of ours whose names, such as `scheduler`, are those of other people's files, too."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tensorbow.errors import NotFoundError

_ROOT = Path(__file__).parent.parent


def import_ours(name: str) -> ModuleType:
    """One of this distribution's packages. A foreign file of its name is not even run.

    Raises NotFoundError, naming that file and the remedy, when it is found in our package's place.
    """
    ours = _ROOT.joinpath(*name.split("."), "__init__.py")
    found = _place(name)
    if ours.is_file() and found is not None and not (Path(found).is_file() and ours.samefile(found)):
        raise NotFoundError(
            f"package '{name}': {found} shadows {ours}; rename or move it, or start from another folder "
            "(a folder on PYTHONPATH counts, too)"
        )
    return import_module(name)


def _place(name: str) -> str | None:
    """The file or folder that an import of `name` takes; None where nothing says so."""
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return file if isinstance(file, str) else next(iter(getattr(module, "__path__", ())), None)
    spec = find_spec(name)
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)
