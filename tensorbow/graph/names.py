"""TensorFlow's rules for names: legal names, and how a taken name is made unique."""

from __future__ import annotations

import re

from tensorbow.errors import InvalidArgumentError

_OP_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")
_NESTED_SCOPE = re.compile(r"[A-Za-z0-9_./>-]*")


def check_scope_name(name: str, nested: bool) -> None:
    """Raises InvalidArgumentError for a scope name that TensorFlow would refuse."""
    if not (_NESTED_SCOPE if nested else _OP_NAME).fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is not a valid scope name: use letters, digits, '.', '_', '-', '/', '>'"
            + ("" if nested else ", beginning with a letter, a digit or '.'")
        )


def check_op_name(name: str) -> None:
    """Raises InvalidArgumentError for an op name that TensorFlow would refuse."""
    if not _OP_NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is not a valid op name: use letters, digits, '.', '_', '-', '/', '>', "
            "beginning with a letter, a digit or '.'"
        )


class UniqueNames:
    """Used names, ignoring case; `claim("a")` gives a, a_1, a_2, ..."""

    def __init__(self) -> None:
        self._next_suffix: dict[str, int] = {}

    def claim(self, name: str) -> str:
        """Reserves and returns a unique form of `name`. Raises InvalidArgumentError."""
        unique, self._next_suffix[name.lower()] = self._unused(name)
        self._next_suffix.setdefault(unique.lower(), 1)
        return unique

    def mark(self, name: str) -> None:
        """Reserves a name as it is, even if it is in use."""
        self._next_suffix.setdefault(name.lower(), 1)

    def peek(self, name: str) -> str:
        """The name that `claim` would give, without reserving it."""
        return self._unused(name)[0]

    def _unused(self, name: str) -> tuple[str, int]:
        """A unique form of `name`, and the first suffix to try after it."""
        check_op_name(name)
        key = name.lower()
        suffix = self._next_suffix.get(key)
        if suffix is None:
            return name, 1
        while f"{key}_{suffix}" in self._next_suffix:
            suffix += 1
        return f"{name}_{suffix}", suffix + 1
