"""Entries of a PyTorch state for variables: by given names, by alike names, and by shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.missing_names import listed
from tensorbow.specs import Array
from tensorbow.torch_weights.alike_names import alike, is_numbered, numbered
from tensorbow.torch_weights.layouts import GIVE_FLATTENED, LAST_NAMES, Layouts
from tensorbow.torch_weights.recurrent import (
    PARTS,
    LayerPath,
    TorchCell,
    layers_of_cells,
    require_convertible,
    torch_cells,
)
from tensorbow.torch_weights.state_names import torch_name
from tensorbow.torch_weights.weight import GraphWeight

SHOWN = 6  # problems in an error
UNLIKE = 3  # names of a side in an error


class Wording(NamedTuple):
    """Words of errors: the call, and the remedies that it has.

    call: begins the error. remedies: the sentence at its end. leave_out: what leaves an entry out. pairing:
    the sentence instead of `remedies` where no name is like another. flattened: see `GIVE_FLATTENED`.
    """

    call: str
    remedies: str
    leave_out: str
    pairing: str
    flattened: str = GIVE_FLATTENED


class Fitted(NamedTuple):
    """Result of `fitted`.

    values: arrays by variables' names, in the variables' layouts and dtypes. entries: PyTorch's names by
    variables' names. skipped: names of variables that were left out. images: by names of
    dense kernels whose rows were put in order, (height, width, channels) of the images that they multiply.
    """

    values: dict[str, Array]
    entries: dict[str, str]
    skipped: list[str]
    images: dict[str, tuple[int, int, int]]


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
        self.alike = alike(others, self.arrays.keys() - {*self.names.values()})
        self.any_alike = bool(self.alike)  # also those that are left out
        self.any_unclear = False  # several entries fit a variable, in no order

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
        others = [v for v in self.variables if v.op.name not in values]
        layouts = Layouts(others, flattened, wording.flattened)
        found = self._found(layouts)
        if strict:
            left = [entry for entry in self.arrays if entry not in {*found.values(), *self._misfits(found)}]
            self.problems += [
                f"entry {entry} {list(self.arrays[entry].shape)}: no variable takes it" for entry in left
            ]
        if self.problems and self._is_of_another_model(found):
            raise InvalidArgumentError(f"{self._unlike(layouts, found)}. {wording.pairing}")
        if self.problems:
            shown, rest = self.problems[:SHOWN], self.problems[SHOWN:]
            shown += [f"and {len(rest)} more, the last: {rest[-1]}"] if rest else []
            raise InvalidArgumentError(f"{'; '.join(shown)}. {wording.remedies}")
        for variable, entry in found.items():
            here = layouts.of[variable].to_here(self.arrays[entry])
            values[variable.op.name] = np.ascontiguousarray(here, variable.dtype.as_numpy_dtype)
            entries[variable.op.name] = entry
        images = {v.op.name: size for v, size in layouts.images.items() if v.shape.ndims == 2}
        return Fitted(values, entries, skipped, images)

    def _is_of_another_model(self, found: Mapping[GraphWeight, str]) -> bool:
        """True if no name is like a variable's, and few entries fit by their shapes."""
        any_name = self.layers or self.names or self.any_alike
        return not any_name and not self.any_unclear and 2 * len(found) < len(self.variables)

    def _unlike(self, layouts: Layouts, found: Mapping[GraphWeight, str]) -> str:
        """A message with some of the names of both sides."""
        theirs = [f"{entry} {list(array.shape)}" for entry, array in self.arrays.items()]
        own = [f"{v.op.name} (there {torch_name(v.op.name)} {layouts.extents(v)})" for v in layouts.of]
        fit = f"{len(found)} of" if found else "none of"
        return (
            f"no name is like one of the model's, and {fit} its {len(own)} variables can be found by shape "
            f"and order: expected {listed(own, UNLIKE)}; got {listed(theirs, UNLIKE) or 'nothing'}"
        )

    def _take_cell(
        self, cell: TorchCell, layer: LayerPath, values: dict[str, Array], entries: dict[str, str]
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
                if len(near) == 1 or (near and (self.ordered or is_numbered(near))):
                    found[variable] = near[0]
                    taken.add(near[0])
                elif near:
                    self.any_unclear = True
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


def _entries_of(layer: LayerPath) -> list[str]:
    return [f"{layer[0]}{part}_l{layer[1]}" for part in PARTS]


def _same_kind(variable: GraphWeight, entry: str) -> bool:
    """True if both are weights, biases or the same statistic, as far as their names say."""
    last, other = variable.op.name.rpartition("/")[2], entry.rpartition(".")[2]
    known = [kind for kind, ours in LAST_NAMES.items() if last in ours]
    return not known or other not in LAST_NAMES or other in known
