"""Entries of a PyTorch state for variables: by given names, by alike names, and by shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array
from tensorbow.torch_weights.layouts import LAST_NAMES, Layouts
from tensorbow.torch_weights.recurrent import (
    PARTS,
    Layer,
    TorchCell,
    layers_of_cells,
    require_convertible,
    torch_cells,
)
from tensorbow.torch_weights.state_names import torch_name
from tensorbow.torch_weights.weight import GraphWeight

SHOWN = 6  # problems in an error


class Wording(NamedTuple):
    """Words of errors: the call, and the remedies that it has.

    call: begins the error. remedies: the sentence at its end. leave_out: what leaves an entry out.
    """

    call: str
    remedies: str
    leave_out: str


class Fitted(NamedTuple):
    """Result of `fitted`.

    values: arrays by variables' names, in the variables' layouts and dtypes. entries: PyTorch's names by
    variables' names. skipped: names of variables that were left out.
    """

    values: dict[str, Array]
    entries: dict[str, str]
    skipped: list[str]


def fitted(
    state: Mapping[str, Array],
    variables: Sequence[GraphWeight],
    wording: Wording,
    *,
    names: Mapping[str, str],
    flattened: Mapping[str, tuple[int, int, int]],
    skip: Sequence[str] = (),
    strict: bool = True,
    ordered: bool = True,
) -> Fitted:
    """The values of variables in a state.

    names: entries by variables' names, or modules by scopes. flattened: see `Layouts`. skip: patterns of
    variables and entries to leave out. strict: whether entries that no variable takes are an error. ordered:
    whether the entries are in the order of the layers.

    Raises InvalidArgumentError that lists everything that does not fit.
    """
    try:
        return _Match(state, variables, names, ordered).fitted(flattened, skip, strict, wording)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{wording.call}: {error}") from None


class _Match:
    """Entries and variables that are not matched yet, and those that are."""

    def __init__(
        self,
        state: Mapping[str, Array],
        variables: Sequence[GraphWeight],
        names: Mapping[str, str],
        ordered: bool,
    ):
        self.arrays, self.variables, self.ordered = dict(state), list(variables), ordered
        self.problems: list[str] = []
        self.cells = torch_cells(self.variables)
        self.names = self._by_variable(names)
        self.layers = {
            self.cells[number]: layer
            for number, layer in layers_of_cells(self.cells, self.arrays, self.names, ordered).items()
        }
        of_cells = {variable for cell in self.layers for variable in cell.variables}
        others = [v for v in self.variables if v not in of_cells and v.op.name not in self.names]
        self.alike = _alike(others, self.arrays.keys() - {*self.names.values()})

    def _by_variable(self, names: Mapping[str, str]) -> dict[str, str]:
        """Given names, with those of scopes as names of their variables."""
        own = {v.op.name for v in self.variables}
        cells = {v.op.name: cell for cell in self.cells for v in cell.variables}
        found: dict[str, str] = {}
        for name, entry in names.items():
            inside = [each for each in own if each.startswith(f"{name}/")]
            if name in own:
                found[name] = entry
            elif inside:
                for each in inside:
                    if each in cells:
                        found[cells[each].variables[0].op.name] = f"{entry}.weight_ih_l{cells[each].path[1]}"
                    else:
                        found[each] = f"{entry}.{torch_name(each.removeprefix(f'{name}/'))}"
            else:
                self.problems.append(
                    f"names gives {entry!r} for {name!r}: no variable or scope has this name"
                )
        for name, entry in found.items():
            if entry not in self.arrays:
                self.problems.append(f"names gives {entry!r} for {name!r}: there is no such entry")
        return found

    def fitted(
        self,
        flattened: Mapping[str, tuple[int, int, int]],
        skip: Sequence[str],
        strict: bool,
        wording: Wording,
    ) -> Fitted:
        """The result. Raises InvalidArgumentError."""
        skipped = self._skip(skip)
        if strict and (self.cells or any(v.op.name.endswith("/gates/kernel") for v in self.variables)):
            require_convertible(self.arrays, self.cells, wording.leave_out)
        values: dict[str, Array] = {}
        entries: dict[str, str] = {}
        for cell, layer in self.layers.items():
            self._take_cell(cell, layer, values, entries)
        layouts = Layouts([v for v in self.variables if v.op.name not in values], flattened)
        found = self._found(layouts)
        if strict:
            left = [entry for entry in self.arrays if entry not in {*found.values(), *self._misfits(found)}]
            self.problems += [
                f"entry {entry} {list(self.arrays[entry].shape)}: no variable takes it" for entry in left
            ]
        if self.problems:
            more = " ..." if len(self.problems) > SHOWN else ""
            raise InvalidArgumentError(f"{'; '.join(self.problems[:SHOWN])}{more}. {wording.remedies}")
        for variable, entry in found.items():
            here = layouts.of[variable].to_here(self.arrays[entry])
            values[variable.op.name] = np.ascontiguousarray(here, variable.dtype.as_numpy_dtype)
            entries[variable.op.name] = entry
        return Fitted(values, entries, skipped)

    def _take_cell(
        self, cell: TorchCell, layer: Layer, values: dict[str, Array], entries: dict[str, str]
    ) -> None:
        """Gives a cell the arrays of a layer."""
        arrays = cell.to_here(self.arrays, layer)
        for variable, part, array in zip(cell.variables, cell.entries, arrays, strict=True):
            values[variable.op.name] = np.ascontiguousarray(array, variable.dtype.as_numpy_dtype)
            entries[variable.op.name] = f"{layer[0]}{part}_l{layer[1]}"
        for entry in _entries_of(layer):
            self.arrays.pop(entry, None)

    def _skip(self, patterns: Sequence[str]) -> list[str]:
        """Leaves out what patterns name, and its counterpart by name; names of the variables."""
        pairs: list[tuple[Sequence[GraphWeight], Sequence[str]]] = [
            *((cell.variables, _entries_of(layer)) for cell, layer in self.layers.items()),
            *(([variable], [entry]) for variable, entry in self.alike.items()),
        ]
        paired = {v for variables, _ in pairs for v in variables}
        others = [v for v in self.variables if v.op.name in self.names and v not in paired]
        pairs += [([variable], [self.names[variable.op.name]]) for variable in others]
        paired |= {*others}
        taken = {entry for _, entries in pairs for entry in entries}
        pairs += [([variable], []) for variable in self.variables if variable not in paired]
        pairs += [([], [entry]) for entry in self.arrays if entry not in taken]
        skipped: list[str] = []
        unused = dict.fromkeys(patterns)
        for variables, entries in pairs:
            known = [*entries, *(v.op.name for v in variables), *(torch_name(v.op.name) for v in variables)]
            hits = [pattern for pattern in patterns if any(fnmatchcase(name, pattern) for name in known)]
            if not hits:
                continue
            for pattern in hits:
                unused.pop(pattern, None)
            skipped += [variable.op.name for variable in variables]
            for entry in entries:
                self.arrays.pop(entry, None)
        self.problems += [f"{pattern!r} is to be left out: nothing has such a name" for pattern in unused]
        gone = {*skipped}
        self.variables = [v for v in self.variables if v.op.name not in gone]
        self.layers = {c: layer for c, layer in self.layers.items() if c.variables[0].op.name not in gone}
        self.alike = {v: entry for v, entry in self.alike.items() if v.op.name not in gone}
        self.names = {name: entry for name, entry in self.names.items() if name not in gone}
        return skipped

    def _misfits(self, found: Mapping[GraphWeight, str]) -> list[str]:
        """Entries that are named as a variable of another shape, which has no other entry."""
        return [entry for variable, entry in self.alike.items() if variable not in found]

    def _found(self, layouts: Layouts) -> dict[GraphWeight, str]:
        """The entry for each variable; adds a problem for each that has none."""
        found: dict[GraphWeight, str] = {}
        for variable in layouts.of:
            entry = self.names.get(variable.op.name) or self.alike.get(variable)
            given = variable.op.name in self.names
            if entry in self.arrays and (given or layouts.fit(variable, self.arrays[entry])):
                found[variable] = entry
        self.problems += self._found_by_shape(layouts, found)
        for variable, entry in found.items():
            if not layouts.fit(variable, self.arrays[entry]):
                self.problems.append(self._misfit(layouts, variable, entry))
        return found

    def _misfit(self, layouts: Layouts, variable: GraphWeight, entry: str) -> str:
        return (
            f"variable {variable.op.name} {variable.shape}: expected {layouts.extents(variable)} in PyTorch, "
            f"got {entry} {list(self.arrays[entry].shape)}"
        )

    def _found_by_shape(self, layouts: Layouts, found: dict[GraphWeight, str]) -> list[str]:
        """Adds to `found` the entries that fit the remaining variables; a message for each of the others."""
        while True:
            before, taken = len(found), {*found.values()}
            problems = []
            for variable in (v for v in layouts.of if v not in found and v.op.name not in self.names):
                free = (entry for entry in self.arrays if entry not in taken)
                near = [e for e in free if _same_kind(variable, e) and layouts.fit(variable, self.arrays[e])]
                near = near if self.ordered else numbered(near)
                if len(near) == 1 or (near and (self.ordered or _is_numbered(near))):
                    found[variable] = near[0]
                    taken.add(near[0])
                elif near:
                    problems.append(
                        f"variable {variable.op.name} {variable.shape}: {', '.join(near[:4])} fit (files do "
                        "not keep the order of layers; a state dict does)"
                    )
                elif variable in self.alike:
                    problems.append(self._misfit(layouts, variable, self.alike[variable]))
                else:
                    problems.append(
                        f"variable {variable.op.name} {variable.shape}: no entry fits, expected "
                        f"{layouts.extents(variable)} in PyTorch"
                    )
            if len(found) == before:
                return problems


def _entries_of(layer: Layer) -> list[str]:
    return [f"{layer[0]}{part}_l{layer[1]}" for part in PARTS]


def _same_kind(variable: GraphWeight, entry: str) -> bool:
    """True if both are weights, biases or the same statistic, as far as their names say."""
    last, other = variable.op.name.rpartition("/")[2], entry.rpartition(".")[2]
    known = [kind for kind, ours in LAST_NAMES.items() if last in ours]
    return not known or other not in LAST_NAMES or other in known


# Names -------------------------------------------------------------------------------------------------


def _alike(variables: Sequence[GraphWeight], entries: Iterable[str]) -> dict[GraphWeight, str]:
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


def _is_numbered(entries: Sequence[str]) -> bool:
    """True for sorted names of which any two first differ in a number, as of layers in their order."""
    for tokens, more in pairwise(map(_tokens, entries)):
        place = next((i for i, (a, b) in enumerate(zip(tokens, more, strict=False)) if a != b), 0)
        if not place % 2:
            return False
    return True


def _tokens(name: str) -> list[str | int]:
    """Texts and, at odd places, numbers of a name."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name))]
