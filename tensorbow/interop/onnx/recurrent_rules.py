"""Rules for ONNX's LSTM, GRU and RNN, unrolled over the steps of sequences of a known length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Tensor
from tensorbow.interop.onnx.graph_builder import GraphBuilder, rule
from tensorbow.interop.onnx.held_values import Held
from tensorbow.interop.onnx.model_file import OnnxNode
from tensorbow.ops.arrays import reshape, stack
from tensorbow.ops.elementwise import add, multiply, relu, sigmoid, subtract, tanh
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add
from tensorbow.ops.shaping import split, unstack
from tensorbow.ops.slicing import strided_slice

DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"Sigmoid": sigmoid, "Tanh": tanh, "Relu": relu}
State: TypeAlias = "list[Tensor | None]"  # None: zeros
CellStep: TypeAlias = "Callable[[Tensor, State], State]"  # (projected inputs [batch, gates * hidden], state)


@rule("LSTM", "GRU", "RNN")
def _recurrent(b: GraphBuilder, node: OnnxNode, x: Held, w: Held, r: Held, *more: Held | None) -> list[Held]:
    bias, lengths, *states = (*more, *[None] * 5)[:5]
    peepholes = states[2] if node.op == "LSTM" else None
    _require_usual(node, lengths, peepholes, x)
    batch_first = bool(node.attrs.get("layout"))
    steps = x.dims[1 if batch_first else 0]
    inputs = b.tensor(x, (1, 0, 2) if batch_first else None)
    weights = [unstack(b.tensor(held), w.dims[0]) for held in (w, r)]
    biases = [None] * len(weights[0]) if bias is None else unstack(b.tensor(bias), w.dims[0])
    count = 2 if node.op == "LSTM" else 1
    first = [_initial(b, held, batch_first, len(weights[0])) for held in states[:count]]
    names = node.attrs.get("activations") or DEFAULTS[node.op] * len(weights[0])
    sequences, ends = [], []
    for i, direction in enumerate(zip(*weights, biases, strict=True)):
        own = names[i * len(DEFAULTS[node.op]) : (i + 1) * len(DEFAULTS[node.op])]
        step, projected = _cell(node, own, inputs, *direction)
        state: State = [initial[i] for initial in first]
        backwards = i == 1 or node.attrs.get("direction") == "reverse"
        parts = unstack(projected, steps)
        made = []
        for part in reversed(parts) if backwards else parts:
            state = step(part, state)
            made.append(state[0])
        sequences.append(stack(made[::-1] if backwards else made))  # [steps, batch, hidden]
        ends.append(state)
    results = [Held(None, stack(sequences, 1))]
    results += [Held(None, stack([end[k] for end in ends])) for k in range(count)]
    if not batch_first:
        return results
    # [steps, directions, batch, hidden] stands for [batch, steps, directions, hidden]
    orders = [(1, 2, 0, 3), *[(1, 0, 2)] * count]
    return [Held(None, held.tensor, order) for held, order in zip(results, orders, strict=True)]


def _require_usual(node: OnnxNode, lengths: Held | None, peepholes: Held | None, x: Held) -> None:
    """Raises UnimplementedError for what cells here cannot do."""
    names = node.attrs.get("activations", ())
    steps = x.dims[1 if node.attrs.get("layout") else 0]
    if steps is None:
        raise UnimplementedError(
            f"the length of the sequences must be known, got {list(x.dims)}; give inputs of a known length"
        )
    if lengths is not None and not (lengths.known is not None and (lengths.known == steps).all()):
        raise UnimplementedError("sequences of different lengths are not supported; pad and mask them")
    if peepholes is not None or node.attrs.get("clip") or node.attrs.get("input_forget"):
        raise UnimplementedError("peepholes, clip and input_forget are not supported; export without them")
    odd = [name for name in names if name not in FUNCTIONS]
    if odd:
        raise UnimplementedError(f"activation {odd[0]} is not supported, expected {', '.join(FUNCTIONS)}")


def _initial(
    b: GraphBuilder, held: Held | None, batch_first: bool, directions: int
) -> Sequence[Tensor | None]:
    """The initial state of each direction, [batch, hidden]; None if it is zero."""
    if held is None or (held.known is not None and held.known.dtype != object and not held.known.any()):
        return [None] * directions
    return unstack(b.tensor(held, (1, 0, 2) if batch_first else None), directions)


def _cell(
    node: OnnxNode, names: Sequence[str], inputs: Tensor, w: Tensor, r: Tensor, bias: Tensor | None
) -> tuple[CellStep, Tensor]:
    """One direction's step, and the inputs [steps, batch, features] times the weights of all its gates."""
    rows = r.spec.dims[0]
    projected = matmul(inputs, w, transpose_b=True)
    own = recurrent = None
    if bias is not None:
        own, recurrent = split(bias, 2)
    later = node.op == "GRU" and bool(node.attrs.get("linear_before_reset"))
    if own is not None and recurrent is not None:
        if not later:
            own = add(own, recurrent)
            recurrent = None
        projected = bias_add(projected, own)
    functions = [FUNCTIONS[name] for name in names]
    if node.op == "LSTM":
        return _lstm(r, functions), projected
    if node.op == "RNN":
        return _plain(r, functions), projected
    assert rows is not None
    return _gru(r, functions, rows // 3, recurrent, later), projected


def _plus(x: Tensor, hidden: Tensor | None, r: Tensor) -> Tensor:
    return x if hidden is None else add(x, matmul(hidden, r, transpose_b=True))


def _plain(r: Tensor, functions: Sequence[Callable[[Tensor], Tensor]]) -> CellStep:
    return lambda x, state: [functions[0](_plus(x, state[0], r))]


def _lstm(r: Tensor, functions: Sequence[Callable[[Tensor], Tensor]]) -> CellStep:
    """Gates in ONNX's order: input, output, forget, cell."""
    gate, squash, last = functions

    def step(x: Tensor, state: State) -> State:
        hidden, cell = state
        i, o, f, c = split(_plus(x, hidden, r), 4, 1)
        fresh = multiply(gate(i), squash(c))
        cell = fresh if cell is None else add(multiply(gate(f), cell), fresh)
        return [multiply(gate(o), last(cell)), cell]

    return step


def _gru(
    r: Tensor, functions: Sequence[Callable[[Tensor], Tensor]], units: int, bias: Tensor | None, later: bool
) -> CellStep:
    """Gates in ONNX's order: update, reset, candidate. `later`: the reset gate comes after the product."""
    gate, squash = functions
    outer, inner = strided_slice(r, slice(0, 2 * units)), strided_slice(r, slice(2 * units, None))

    def step(x: Tensor, state: State) -> State:
        (hidden,) = state
        if later:
            shares = None if hidden is None else matmul(hidden, r, transpose_b=True)
            if bias is not None:
                shares = reshape(bias, [1, -1]) if shares is None else bias_add(shares, bias)
            zx, rx, cx = split(x, 3, 1)
            if shares is None:
                update, fresh = gate(zx), squash(cx)
            else:
                zh, rh, ch = split(shares, 3, 1)
                update = gate(add(zx, zh))
                fresh = squash(add(cx, multiply(gate(add(rx, rh)), ch)))
        else:
            gates, cx = split(x, [2 * units, units], 1)
            update, reset = split(gate(_plus(gates, hidden, outer)), 2, 1)
            fresh = squash(cx if hidden is None else _plus(cx, multiply(reset, hidden), inner))
        kept = subtract(1.0, update)
        new = multiply(kept, fresh)
        return [new if hidden is None else add(new, multiply(update, hidden))]

    return step
