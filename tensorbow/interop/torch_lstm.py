"""Weights of `torch.nn.LSTM` in variables of LSTM cells, and back.

PyTorch has gates i, f, g, o, two matrices `[4 units, in]`, `[4 units, units]` and two biases for each layer.
A cell here has gates i, j, f, o, one kernel `[in + units, 4 units]`, one bias, and a forget bias that is no
variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from tensorbow.variables import Variable

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_ENTRY = re.compile(
    r"(?P<prefix>(?:.*\.)?)(?P<part>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l(?P<layer>\d+)(?P<end>_reverse)?"
)
_ORDER = (0, 2, 1, 3)  # of the gates: its own inverse


@dataclass(frozen=True)
class LstmCell:
    """Variables of an LSTM cell. forget_bias: None for cells with peepholes or a projection."""

    kernel: Variable
    bias: Variable
    features: int
    units: int
    forget_bias: float | None

    @property
    def path(self) -> tuple[str, int]:
        """PyTorch's name of the cell, ending with a dot if there is one, and its layer."""
        scope = self.kernel.op.name.split("/")[:-1]
        if len(scope) > 1 and (layer := re.fullmatch(r"cell_(\d+)", scope[-2])):
            return "".join(f"{name}." for name in scope[:-2]), int(layer[1])
        return "".join(f"{name}." for name in scope), 0

    def fits(self, state: Mapping[str, Array], prefix: str, layer: int) -> bool:
        """True if the layer has the cell's shapes."""
        rows = 4 * self.units
        shapes = dict(zip(PARTS, ((rows, self.features), (rows, self.units), (rows,), (rows,)), strict=True))
        found = {part: state.get(f"{prefix}{part}_l{layer}") for part in PARTS}
        return all(
            array.shape == shapes[part] if array is not None else part.startswith("bias")
            for part, array in found.items()
        )

    def to_here(self, state: Mapping[str, Array], prefix: str, layer: int) -> tuple[Array, Array]:
        """Kernel and bias, from a layer that fits."""
        w, r, *biases = (state.get(f"{prefix}{part}_l{layer}") for part in PARTS)
        bias = np.sum([b for b in biases if b is not None], 0) + np.zeros(4 * self.units)
        kernel = _turned(np.concatenate([np.asarray(w), np.asarray(r)], 1))
        return kernel.T, _turned(bias) - self._forgotten()

    def to_torch(self, kernel: Array, bias: Array, prefix: str, layer: int) -> dict[str, Array]:
        """The layer's entries. The bias of the recurrent part is 0, as one sum is known."""
        both = _turned(kernel.T)
        own = _turned(bias + self._forgotten()).astype(bias.dtype)
        arrays = (both[:, : self.features], both[:, self.features :], own, np.zeros_like(own))
        return {
            f"{prefix}{part}_l{layer}": np.ascontiguousarray(array)
            for part, array in zip(PARTS, arrays, strict=True)
        }

    def _forgotten(self) -> Array:
        """The forget bias, in the order of gates here."""
        if self.forget_bias is None:
            raise InvalidArgumentError(
                f"{self.kernel.op.name.rpartition('/')[0]}: torch.nn.LSTM has no peepholes, and "
                "projections are not converted; expected a cell without them"
            )
        return np.repeat([0.0, 0.0, self.forget_bias, 0.0], self.units)


def _turned(array: Array) -> Array:
    """Gates on axis 0, from one order to the other."""
    turned: Array = array.reshape(4, -1, *array.shape[1:])[list(_ORDER)].reshape(array.shape)
    return turned


def lstm_cells(variables: Sequence[Variable]) -> list[LstmCell]:
    """LSTM cells of which kernel and bias are among the variables, in their order."""
    if not variables:
        return []
    by_tensor = {variable.op.outputs[0]: variable for variable in variables}
    readers: dict[Tensor, list[Operation]] = {}
    for op in variables[0].graph.get_operations():
        for tensor in op.inputs:
            readers.setdefault(tensor, []).append(op)
    cells: dict[Variable, LstmCell] = {}
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
        cells[own] = LstmCell(own, vector, int(features), units, forget_bias)
    return [cells[variable] for variable in variables if variable in cells]


def layer_named(entry: str) -> tuple[str, int] | None:
    """(prefix, layer) of the entry of a recurrent network."""
    match = _ENTRY.fullmatch(entry)
    return None if match is None else (match["prefix"], int(match["layer"]))


def require_convertible(state: Mapping[str, Array]) -> None:
    """Raises InvalidArgumentError for layers that no cell here computes as PyTorch does."""
    for entry, array in state.items():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            continue
        problem = None
        if match["end"]:
            problem = "of a bidirectional network; cells have one direction"
        elif match["part"] == "weight_hr":
            problem = "of an LSTM with a projection (proj_size), which is not converted"
        elif match["part"] == "weight_hh" and array.ndim == 2 and array.shape[0] == 3 * array.shape[1]:
            problem = (
                "of torch.nn.GRU, which resets the state after its product with the weights, GRUCell before"
            )
        if problem is not None:
            raise InvalidArgumentError(
                f"load_weights: {entry} {list(array.shape)} is {problem}. An ONNX file takes it "
                "(tb.interop.onnx.load); strict=False leaves it out"
            )


def _layers_of(state: Mapping[str, Array]) -> list[tuple[str, int]]:
    """(prefix, layer) of the recurrent layers of a state, in its order."""
    found = dict.fromkeys(layer for layer in map(layer_named, state) if layer is not None)
    prefixes = list(dict.fromkeys(prefix for prefix, _ in found))
    return sorted(found, key=lambda item: (prefixes.index(item[0]), item[1]))


def layers_of_cells(
    cells: Sequence[LstmCell],
    state: Mapping[str, Array],
    names: Mapping[str, str],
    ordered: bool,
) -> dict[int, tuple[str, int]]:
    """(prefix, layer) for each cell, by its number, as far as one fits.

    Of each LSTM of PyTorch the layers come in order; names: `weight_ih` of a layer by a kernel's name. Raises
    InvalidArgumentError where layers of several fit and nothing tells which.
    """
    free = _layers_of(state if ordered else dict(sorted(state.items())))
    found: dict[int, tuple[str, int]] = {}
    for number, cell in enumerate(cells):
        layer = layer_named(names.get(cell.kernel.op.name, ""))
        if layer is not None and cell.fits(state, *layer):
            found[number] = layer
            free = [item for item in free if item != layer]
    for number, cell in enumerate(cells):
        lowest = dict(reversed(free))
        near = [item for item in free if lowest[item[0]] == item[1] and cell.fits(state, *item)]
        path = cell.kernel.op.name.split("/")
        alike = [item for item in near if item[0].rstrip(".").rpartition(".")[2] in path]
        near = alike if len(alike) == 1 else near
        if number in found or not near or cell.kernel.op.name in names:
            continue
        if len(near) > 1 and not ordered:
            entries = ", ".join(f"{prefix}weight_ih_l{layer}" for prefix, layer in near[:4])
            raise InvalidArgumentError(
                f"load_weights: variable {cell.kernel.op.name}: {entries} fit; give names={{variable: entry}}"
            )
        found[number] = near[0]
        free.remove(near[0])
    return found
