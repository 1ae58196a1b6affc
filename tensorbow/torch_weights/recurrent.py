"""Weights of `torch.nn.LSTM` and `torch.nn.GRU` in variables of cells, and back.

PyTorch has two matrices `[gates * units, in]`, `[gates * units, units]` and two biases for each layer and
direction. An LSTM has gates i, f, g, o there; a cell here has gates i, j, f, o, one kernel
`[in + units, 4 units]`, one bias, and a forget bias that is no variable. A GRU has gates r, z, n there; a
cell here that resets after the product has one kernel and bias of r and z, and two of n, see `GRUCell`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor
from tensorbow.ops.arrays import ConcatV2
from tensorbow.ops.constant import Const
from tensorbow.ops.matmul import MatMul
from tensorbow.ops.nn import BiasAdd
from tensorbow.ops.shaping import Split
from tensorbow.ops.state import ReadVariable
from tensorbow.specs import Array
from tensorbow.torch_weights.weight import GraphWeight

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_ENTRY = re.compile(
    r"(?P<prefix>(?:.*\.)?)(?P<part>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l(?P<layer>\d+(?:_reverse)?)"
)
_OF_GRU = ("gates", "candidate/input_projection", "candidate/hidden_projection")
_OF_CLASSES = re.compile(r"(basic_lstm_cell|lstm_cell|gru_cell|multi_rnn_cell)(_\d+)?")  # default scopes
_ORDER = (0, 2, 1, 3)  # of the gates: its own inverse


LayerPath: TypeAlias = tuple[str, str]
"""PyTorch's name of a network, ending with a dot if there is one, and its layer, as 0 or 0_reverse."""


class TorchCell(ABC):
    """Variables of a cell that PyTorch has too. gates: their number. entries: the part for each variable."""

    gates: int
    entries: tuple[str, ...]
    variables: tuple[GraphWeight, ...]
    features: int
    units: int

    @property
    @abstractmethod
    def scope(self) -> str:
        """Scope of the cell's variables."""

    @abstractmethod
    def to_here(self, state: Mapping[str, Array], layer: LayerPath) -> list[Array]:
        """Values of the variables, from a layer that fits."""

    @abstractmethod
    def parts(self, values: Sequence[Array]) -> Sequence[Array]:
        """Arrays of `PARTS` from values of the variables."""

    @property
    def path(self) -> LayerPath:
        """PyTorch's name of the network and its layer, by the cell's scope without names of classes."""
        prefix, layer = self.full_path
        scope = prefix.split(".")[:-1]
        while len(scope) > 1 and _OF_CLASSES.fullmatch(scope[-1]):
            scope.pop()
        return "".join(f"{name}." for name in scope), layer

    @property
    def full_path(self) -> LayerPath:
        """PyTorch's name of the cell and its layer, by its whole scope."""
        scope, layer, end = self.scope.split("/"), "0", ""
        if len(scope) > 1 and (number := re.fullmatch(r"cell_(\d+)", scope[-2])):
            scope, layer = scope[:-2], number[1]
        for direction in {"fw", "bw"} & {*scope}:
            scope.remove(direction)
            end = "_reverse" if direction == "bw" else ""
        return "".join(f"{name}." for name in scope), f"{layer}{end}"

    def to_torch(self, values: Sequence[Array], layer: LayerPath) -> dict[str, Array]:
        """The layer's entries."""
        prefix, number = layer
        return {
            f"{prefix}{part}_l{number}": np.ascontiguousarray(array)
            for part, array in zip(PARTS, self.parts(values), strict=True)
        }

    def fits(self, state: Mapping[str, Array], layer: LayerPath) -> bool:
        """True if the layer has the cell's shapes."""
        rows = self.gates * self.units
        shapes = dict(zip(PARTS, ((rows, self.features), (rows, self.units), (rows,), (rows,)), strict=True))
        found = {part: state.get(f"{layer[0]}{part}_l{layer[1]}") for part in PARTS}
        return all(
            array.shape == shapes[part] if array is not None else part.startswith("bias")
            for part, array in found.items()
        )

    def _of(self, state: Mapping[str, Array], layer: LayerPath) -> tuple[Array, Array, Array, Array]:
        """Arrays of `PARTS` of a layer that fits; biases that it lacks are 0."""
        found = (state.get(f"{layer[0]}{part}_l{layer[1]}") for part in PARTS)
        nothing = np.zeros(self.gates * self.units)
        w, r, b, c = (nothing if array is None else np.asarray(array) for array in found)
        return w, r, b, c


@dataclass(frozen=True)
class LstmCell(TorchCell):
    """Kernel and bias of an LSTM cell. forget_bias: None for cells with peepholes or a projection."""

    variables: tuple[GraphWeight, ...]
    features: int
    units: int
    forget_bias: float | None
    gates = 4
    entries = ("weight_ih", "bias_ih")

    @property
    def scope(self) -> str:
        """Scope of the cell's variables."""
        return self.variables[0].op.name.rpartition("/")[0]

    def to_here(self, state: Mapping[str, Array], layer: LayerPath) -> list[Array]:
        """Values of the variables, from a layer that fits."""
        w, r, b, c = self._of(state, layer)
        return [_turned(np.concatenate([w, r], 1)).T, _turned(b + c) - self._forgotten()]

    def parts(self, values: Sequence[Array]) -> Sequence[Array]:
        """The bias of the recurrent part is 0, as one sum is known."""
        kernel, bias = values
        both = _turned(kernel.T)
        own = _turned(bias + self._forgotten()).astype(bias.dtype)
        return both[:, : self.features], both[:, self.features :], own, np.zeros_like(own)

    def _forgotten(self) -> Array:
        """The forget bias, in the order of gates here."""
        if self.forget_bias is None:
            raise InvalidArgumentError(
                f"{self.scope}: torch.nn.LSTM has no peepholes, and "
                "projections are not converted; expected a cell without them"
            )
        return np.repeat([0.0, 0.0, self.forget_bias, 0.0], self.units)


@dataclass(frozen=True)
class GruCell(TorchCell):
    """Variables of a GRU cell that resets after the product: of its gates, its inputs, and its state."""

    variables: tuple[GraphWeight, ...]
    gates = 3
    entries = ("weight_ih", "bias_ih", "weight_ih", "bias_ih", "weight_hh", "bias_hh")

    @property
    def scope(self) -> str:
        """Scope of the cell's variables."""
        return self.variables[0].op.name.removesuffix("/gates/kernel")

    @property
    def features(self) -> int:  # type: ignore[override]
        """Width of the inputs."""
        return int(self.variables[2].shape.as_list()[0] or 0)

    @property
    def units(self) -> int:  # type: ignore[override]
        """Width of the state."""
        return int(self.variables[2].shape.as_list()[1] or 0)

    def to_here(self, state: Mapping[str, Array], layer: LayerPath) -> list[Array]:
        """Values of the variables, from a layer that fits."""
        w, r, b, c = self._of(state, layer)
        both = slice(2 * self.units)  # r and z
        new = slice(2 * self.units, None)
        gates = np.concatenate([w[both], r[both]], 1).T
        return [gates, b[both] + c[both], w[new].T, b[new], r[new].T, c[new]]

    def parts(self, values: Sequence[Array]) -> Sequence[Array]:
        """The recurrent part's bias of r and z is 0, as one sum is known."""
        gates, bias, w, b, r, c = values
        weights_ih = np.concatenate([gates[: self.features].T, w.T])
        weights_hh = np.concatenate([gates[self.features :].T, r.T])
        return weights_ih, weights_hh, np.concatenate([bias, b]), np.concatenate([np.zeros_like(bias), c])


def torch_cells(variables: Sequence[GraphWeight]) -> list[TorchCell]:
    """Cells that PyTorch has too, of which all variables are given, in their order."""
    cells: list[TorchCell] = [*_lstm_cells(variables), *_gru_cells(variables)]
    places = {variable: place for place, variable in enumerate(variables)}
    return sorted(cells, key=lambda cell: places[cell.variables[0]])


def _gru_cells(variables: Sequence[GraphWeight]) -> list[GruCell]:
    by_name = {variable.op.name: variable for variable in variables}
    parts = [f"{part}/{own}" for part in _OF_GRU for own in ("kernel", "bias")]
    scopes = [name.removesuffix(parts[0]) for name in by_name if name.endswith(f"/{parts[0]}")]
    names = [[f"{scope}{part}" for part in parts] for scope in scopes]
    return [GruCell(tuple(by_name[name] for name in own)) for own in names if by_name.keys() >= {*own}]


def _turned(array: Array) -> Array:
    """Gates on axis 0, from one order to the other."""
    turned: Array = array.reshape(4, -1, *array.shape[1:])[list(_ORDER)].reshape(array.shape)
    return turned


def _lstm_cells(variables: Sequence[GraphWeight]) -> list[LstmCell]:
    """LSTM cells of which kernel and bias are among the variables."""
    if not variables:
        return []
    by_tensor = {variable.op.outputs[0]: variable for variable in variables}
    readers: dict[Tensor, list[Operation]] = {}
    for op in variables[0].graph.get_operations():
        for tensor in op.inputs:
            readers.setdefault(tensor, []).append(op)
    cells: dict[GraphWeight, LstmCell] = {}
    for op in variables[0].graph.get_operations():
        if (
            op.definition is not Split
            or op.attrs["num_split"] != 4
            or op.inputs[0].op.definition is not BiasAdd
        ):
            continue
        product, bias = (tensor.op for tensor in op.inputs[0].op.inputs)
        if product.definition is not MatMul or product.inputs[0].op.definition is not ConcatV2:
            continue
        kernel = product.inputs[1].op
        sources = [
            by_tensor.get(o.inputs[0]) if o.definition is ReadVariable else None for o in (kernel, bias)
        ]
        own, vector = sources
        features = product.inputs[0].op.inputs[0].spec.dims[-1]
        if own is None or vector is None or features is None or own in cells:
            continue
        adds = [add for add in readers.get(op.outputs[2], []) if add.type == "Add"]
        constants = [x.op for add in adds for x in add.inputs if x.op.definition is Const]
        units = int(vector.shape.as_list()[0] or 0) // 4
        plain = bool(constants) and own.shape.as_list()[0] == features + units
        if plain and any(
            v.op.name == f"{own.op.name.rpartition('/')[0]}/projection/kernel" for v in variables
        ):
            plain = False
        forget_bias = float(constants[0].attrs["value"]) if plain else None
        cells[own] = LstmCell((own, vector), int(features), units, forget_bias)
    return [*cells.values()]


def layer_named(entry: str) -> LayerPath | None:
    """Layer of the entry of a recurrent network."""
    match = _ENTRY.fullmatch(entry)
    return None if match is None else (match["prefix"], match["layer"])


def require_convertible(state: Mapping[str, Array], cells: Sequence[TorchCell], leave_out: str) -> None:
    """Raises InvalidArgumentError for layers that none of the cells computes as PyTorch does.

    leave_out: what leaves an entry out, for the error.
    """
    backwards = any(cell.path[1].endswith("_reverse") for cell in cells)
    resets_after = any(isinstance(cell, GruCell) for cell in cells)
    for entry, array in state.items():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            continue
        problem = None
        if match["layer"].endswith("_reverse") and not backwards:
            problem = (
                "of a bidirectional network; expected two cells, as tb.nn.bidirectional_dynamic_rnn has them"
            )
        elif match["part"] == "weight_hr":
            problem = "of an LSTM with a projection (proj_size), which is not converted"
        elif match["part"] == "weight_hh" and not resets_after and _is_of_gru(array):
            problem = (
                "of torch.nn.GRU, which resets the state after its product with the weights; expected "
                "tb.nn.rnn_cell.GRUCell(units, reset_after=True)"
            )
        if problem is not None:
            raise InvalidArgumentError(
                f"{entry} {list(array.shape)} is {problem}. An ONNX file takes it "
                f"(tb.interop.onnx.load); {leave_out} leaves it out"
            )


def _is_of_gru(array: Array) -> bool:
    return array.ndim == 2 and array.shape[0] == 3 * array.shape[1]


def _layers_of(state: Mapping[str, Array]) -> list[LayerPath]:
    """Recurrent layers of a state, in its order."""
    found = dict.fromkeys(layer for layer in map(layer_named, state) if layer is not None)
    prefixes = list(dict.fromkeys(prefix for prefix, _ in found))
    number = {layer: int(layer[1].removesuffix("_reverse")) for layer in found}
    return sorted(found, key=lambda item: (prefixes.index(item[0]), number[item], item[1]))


def layers_of_cells(
    cells: Sequence[TorchCell],
    state: Mapping[str, Array],
    names: Mapping[str, str],
    ordered: bool,
) -> dict[int, LayerPath]:
    """Layer for each cell, by its number, as far as one fits.

    Of each network of PyTorch the layers come in order; names: `weight_ih` of a layer by a kernel's name.
    Raises InvalidArgumentError where layers of several fit and nothing tells which.
    """
    free = _layers_of(state if ordered else dict(sorted(state.items())))
    found: dict[int, LayerPath] = {}
    for number, cell in enumerate(cells):
        layer = layer_named(names.get(cell.variables[0].op.name, ""))
        if layer is not None and cell.fits(state, layer):
            found[number] = layer
            free = [item for item in free if item != layer]
    for number, cell in enumerate(cells):
        lowest = dict(reversed(free))
        near = [item for item in free if lowest[item[0]] == item[1] and cell.fits(state, item)]
        kernel = cell.variables[0].op.name
        path = kernel.split("/")
        alike = [item for item in near if item[0].rstrip(".").rpartition(".")[2] in path]
        near = alike if len(alike) == 1 else near
        if number in found or not near or kernel in names:
            continue
        if len(near) > 1 and not ordered:
            entries = ", ".join(f"{prefix}weight_ih_l{layer}" for prefix, layer in near[:4])
            raise InvalidArgumentError(f"variable {kernel}: {entries} fit; give names of variables' entries")
        found[number] = near[0]
        free.remove(near[0])
    return found
