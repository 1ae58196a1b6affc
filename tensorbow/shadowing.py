"""Import of this distribution's packages, whose names, such as `scheduler`, users' files may have too."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tensorbow.errors import NotFoundError

_ROOT = Path(__file__).parent.parent


def import_ours(name: str) -> ModuleType:
    """Imports one of this distribution's packages; does not run a foreign file of that name.

    Raises NotFoundError, naming the file and the remedy, if a foreign file is found in the package's place.
    """
    require_ours(name)
    return import_module(name)


def require_ours(name: str) -> None:
    """Raises NotFoundError if an import of that package would load a foreign file, as `import_ours`."""
    ours = _ROOT.joinpath(*name.split("."), "__init__.py")
    found = _place(name)
    if ours.is_file() and found is not None and not (Path(found).is_file() and ours.samefile(found)):
        raise NotFoundError(
            f"package '{name}': {found} shadows {ours}; rename or move it, or start from another folder "
            "(a folder on PYTHONPATH counts, too)"
        )


def _place(name: str) -> str | None:
    """File or folder that an import of `name` would load; None if unknown."""
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return file if isinstance(file, str) else next(iter(getattr(module, "__path__", ())), None)
    spec = find_spec(name)
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)
