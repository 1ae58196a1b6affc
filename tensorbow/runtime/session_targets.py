"""Registry of session classes by target name, for `tb.Session(target=...)`."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import shown

_targets: dict[str, Callable[[], type[Any]]] = {}


def register_target(target: str, load: Callable[[], type[Any]]) -> None:
    """Registers a target; `load()` gives the subclass of Session that `tb.Session(target=...)` then makes.

    target: a name, or a scheme such as "tcp://" for all targets that begin with it.
    """
    _targets[target] = load


def session_class(target: str, call: str = "Session") -> type[Any]:
    """The class of a target. call: for messages. Raises InvalidArgumentError for an unknown target."""
    load = None
    if isinstance(target, str):
        scheme, separator, _ = target.partition("://")
        load = _targets.get(f"{scheme}://" if separator else target)
    if load is None:
        raise InvalidArgumentError(
            f"{call}: target {shown(target)} is unknown; leave it empty for this process"
            f"{''.join(f', or give {name!r}' for name in _targets if '://' not in name)}, or the target of a "
            "tb.train.Server, as 'tcp://host:port'"
        )
    return load()


def require_options_of(session: type[Any], options: Iterable[str]) -> None:
    """Raises InvalidArgumentError for an option that is not `session`'s, but one of an argument of it, as of
    `synchronisation`, or of another target's class."""
    own = inspect.signature(session.__init__).parameters
    for option in (name for name in options if name not in own):
        for argument, kind in typing.get_type_hints(session.__init__).items():
            for made in (kind, *typing.get_args(kind)):
                if dataclasses.is_dataclass(made) and option in {
                    field.name for field in dataclasses.fields(made)
                }:
                    raise InvalidArgumentError(
                        f"{session.__name__}: option {option} is one of {argument}, got it on its own; give "
                        f"{argument}=tb.{getattr(made, '__name__', argument)}({option}=...)"
                    )
        for target, load in _targets.items():
            if option in inspect.signature(load().__init__).parameters:
                raise InvalidArgumentError(
                    f"Session: option {option} is one of target {target!r}, got no target; "
                    f"give target={target!r} too"
                )
