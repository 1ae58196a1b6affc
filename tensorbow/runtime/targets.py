"""Kinds of session by name: what `tb.Session(target=...)` chooses from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorbow.errors import InvalidArgumentError

_targets: dict[str, Callable[[], type[Any]]] = {}


def register_target(target: str, load: Callable[[], type[Any]]) -> None:
    """Makes `tb.Session(target=...)` an instance of the subclass of Session that `load()` gives."""
    _targets[target] = load


def session_class(target: str) -> type[Any]:
    """The class of a target. Raises InvalidArgumentError for an unknown one."""
    load = _targets.get(target) if isinstance(target, str) else None
    if load is None:
        raise InvalidArgumentError(
            f"Session target {target!r} is unknown; leave it empty for this process"
            f"{''.join(f', or give {name!r}' for name in _targets)}"
        )
    return load()
