"""Pairs of alike names of variables and entries, and orders of numbered names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tensorbow.torch_weights.state_names import torch_name
from tensorbow.torch_weights.weight import GraphWeight


def alike(variables: Sequence[GraphWeight], entries: Iterable[str]) -> dict[GraphWeight, str]:
    """Pairs of alike names: the longest common end, of two parts (`fc1.weight`) or a whole name.

    Only pairs of which neither has another partner as good; then the same of the rest.
    """
    parts = {variable: tuple(torch_name(variable.op.name).split(".")) for variable in variables}
    ends: dict[tuple[str, ...], set[GraphWeight]] = {}  # by the last part, and by the last two or a lone one
    for variable, own in parts.items():
        for end in (own[-1:], ("", *own[-2:])):
            ends.setdefault(end, set()).add(variable)
    found: dict[GraphWeight, str] = {}
    left = sorted(entries)
    while True:
        scores: dict[str, dict[GraphWeight, tuple[int, bool]]] = {}
        for entry in left:
            theirs = tuple(entry.split("."))
            keys = [("", *theirs[-2:]), ("", *theirs[-1:])] if len(theirs) > 1 else [theirs]
            near = {variable for key in keys for variable in ends.get(key, ())} - found.keys()
            rated = {variable: _likeness(parts[variable], theirs) for variable in near}
            scores[entry] = {variable: score for variable, score in rated.items() if score[0]}
        by_variable: dict[GraphWeight, dict[str, tuple[int, bool]]] = {}
        for entry, rated in scores.items():
            for variable, score in rated.items():
                by_variable.setdefault(variable, {})[entry] = score
        pairs = {
            variable: entry
            for variable, rated in by_variable.items()
            if (entry := _best(rated)) is not None and _best(scores[entry]) is variable
        }
        if not pairs:
            return found
        found |= pairs
        left = [entry for entry in left if entry not in pairs.values()]


def _best(rated: Mapping[Any, tuple[int, bool]]) -> Any:
    """The key with the highest score; None if there are several."""
    highest = max(rated.values(), default=(0, False))
    best = [key for key, score in rated.items() if score == highest]
    return best[0] if len(best) == 1 else None


def _likeness(own: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[int, bool]:
    """(number of equal parts at the end, whether all are equal); 0 parts if they are too few."""
    common = 0
    while common < min(len(own), len(theirs)) and own[-1 - common] == theirs[-1 - common]:
        common += 1
    is_whole = common == min(len(own), len(theirs))
    return (common if common > 1 or is_whole else 0), own == theirs


def numbered(entries: Sequence[str]) -> list[str]:
    """Names sorted so that numbers in them rise: `2.weight` before `10.weight`."""
    return sorted(entries, key=_tokens)


def is_numbered(entries: Sequence[str]) -> bool:
    """True for sorted names of which any two first differ in a number, as of layers in their order."""
    for tokens, more in pairwise(map(_tokens, entries)):
        place = next((i for i, (a, b) in enumerate(zip(tokens, more, strict=False)) if a != b), 0)
        if not place % 2:
            return False
    return True


def _tokens(name: str) -> list[str | int]:
    """Texts and, at odd places, numbers of a name."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name))]
