"""Random programs of mixed kinds of ops, with control flow and variables, and their values in NumPy.

A program is a list of steps, each with a function of tensors and one of arrays. Its values are computed while
it is made: a step whose values are not finite, are large, or lie beside a jump or kink is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

import tensorbow as tb

SHAPES = ((2, 3), (3, 2), (4,), (), (2, 3, 4), (3, 1), (1, 5), (1, 6, 5, 2), (0, 3), (0,), (1, 1), (9, 17))
VARIABLES = ((2, 3), (4,), ())
BOUND, BESIDE = 60.0, 2e-3  # of values, and of distances from jumps


class UnfitStepError(Exception):
    """A step does not go with the values that there are."""


def need(condition: Any) -> None:
    """Leaves the step out unless the condition holds."""
    if not condition:
        raise UnfitStepError


def apart(x: np.ndarray, from_: Any = 0.0) -> bool:
    """True if no element lies beside a number."""
    return bool((np.abs(x - from_) > BESIDE).all())


@dataclass
class Step:
    """One op, or cond or loop of several, of one value. graph, array: of the variables and the operands."""

    operands: tuple[int, ...]
    graph: Callable[..., Any]
    array: Callable[..., np.ndarray]
    writes: bool = False


UNARY: dict[str, tuple[Any, Any]] = {
    "tanh": (tb.tanh, np.tanh),
    "sigmoid": (tb.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "relu": (tb.nn.relu, lambda x: np.maximum(x, 0)),
    "abs": (tb.abs, np.abs),
    "exp": (tb.exp, np.exp),
    "sin": (tb.sin, np.sin),
    "softplus": (tb.nn.softplus, lambda x: np.logaddexp(x, 0)),
    "rsqrt": (lambda x: tb.rsqrt(x * x + 1.0), lambda x: 1 / np.sqrt(x * x + 1)),
    "shared": (lambda x: tb.cos(x) + tb.cos(x) * x, lambda x: np.cos(x) + np.cos(x) * x),
    "cube": (lambda x: 2.0 - tb.pow(x, 3.0), lambda x: 2 - x**3),
    "ones": (lambda x: tb.ones_like(x) * 0.5, lambda x: np.full_like(x, 0.5)),
    "sum": (tb.reduce_sum, np.sum),
}
BINARY: dict[str, tuple[Any, Any]] = {
    "add": (tb.add, np.add),
    "multiply": (tb.multiply, np.multiply),
    "maximum": (tb.maximum, np.maximum),
    "quotient": (lambda x, y: x / (y * y + 1.0), lambda x, y: x / (y * y + 1)),
    "chosen": (lambda x, y: tb.where_v2(x < y, x, y * 0.5), lambda x, y: np.where(x < y, x, y * 0.5)),
}
REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (tb.reduce_sum, np.sum),
    "mean": (tb.reduce_mean, np.mean),
    "max": (tb.reduce_max, np.max),
}


@dataclass
class MixedProgram:
    """Program of a seed. Its first values are fed, known or read from variables."""

    seed: int
    size: int = 20
    dtype: str = "float64"
    writes: bool = True  # has assignments to variables
    depth: int = 0
    values: list[np.ndarray] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    fed: dict[int, np.ndarray] = field(default_factory=dict)
    state: list[np.ndarray] = field(default_factory=list)  # of the variables after all steps

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        draw = np.random.default_rng(self.seed)
        if not self.depth:
            self.start = [draw.uniform(-1, 1, shape).astype(self.dtype) for shape in VARIABLES]
            self.state = [value.copy() for value in self.start]
            for shape in self.random.sample(SHAPES, 5):
                value = draw.uniform(-1.5, 1.5, shape).astype(self.dtype)
                if self.random.randrange(3):
                    self.fed[len(self.values)] = value
                self.add((), lambda v, value=value: tb.constant(value), lambda v, x=value: x)
            for number in range(len(VARIABLES)):
                self._read(number)
        for _ in range(12 * self.size):
            if len(self.steps) >= self.size:
                break
            kind = self.random.choice(KINDS if self.depth < 2 else KINDS[:-CONTROL])
            if self.writes or kind is not written:
                self._try(kind)

    def _try(self, kind: Callable[[MixedProgram], None]) -> None:
        made, values, state = len(self.steps), len(self.values), [value.copy() for value in self.state]
        try:
            kind(self)
        except UnfitStepError:
            del self.steps[made:], self.values[values:]
            self.state = state

    def add(self, operands: Sequence[int], graph: Any, array: Any, writes: bool = False) -> None:
        """Adds a step. graph, array: functions of the variables and the operands."""
        with np.errstate(all="ignore"):
            value = np.asarray(array(self.state, *(self.values[i] for i in operands)))
        need(value.ndim <= 4 and value.size <= 2000 and np.isfinite(value).all())
        need(value.size == 0 or np.abs(value).max() < BOUND)
        self.steps.append(Step((*operands,), graph, array, writes))
        self.values.append(value)

    def of(self, operands: Sequence[int], graph: Any, array: Any) -> None:
        """Adds a step without variables, computed in the dtype of the program or in whole numbers."""

        def narrow(_: Any, *x: np.ndarray) -> np.ndarray:
            found = np.asarray(array(*x))
            return found.astype(self.dtype) if found.dtype.kind == "f" else found

        self.add(operands, lambda v, *x: graph(*x), narrow)

    def pick(self, fits: Callable[[np.ndarray], Any] = lambda x: True, kind: str = "f") -> int:
        """Number of a value of floats, or another kind, rather of a late one."""
        found = [n for n, x in enumerate(self.values) if x.dtype.kind == kind and fits(x)]
        need(found)
        return max(self.random.choice(found), self.random.choice(found))

    def _read(self, number: int) -> None:
        self.add((), lambda v: v[number].read_value(), lambda v: v[number].copy())

    # What is computed ------------------------------------------------------------------------------

    def expected(
        self, fetches: Sequence[int], state: list[np.ndarray], fed: dict[int, np.ndarray]
    ) -> list[np.ndarray]:
        """Values of the fetches; writes to `state` what the steps that they need write."""
        needed, pending = set[int](), [*fetches]
        while pending:
            number = pending.pop()
            if number not in needed and number not in fed:
                needed.add(number)
                pending += self.steps[number].operands
        values = dict(fed)
        for number in sorted(needed):
            step = self.steps[number]
            values[number] = np.asarray(step.array(state, *(values[i] for i in step.operands)))
        return [values[n] for n in fetches]

    def build(self, hand_on: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """Tensors of all values, and the variables. hand_on: is given each tensor, gives the one to use."""
        variables = [tb.Variable(value, name=f"v{n}") for n, value in enumerate(self.start)]
        tensors: list[Any] = []
        for number, step in enumerate(self.steps):
            if number in self.fed:
                dims = [None if self.random.randrange(3) == 0 else n for n in self.fed[number].shape]
                tensors.append(tb.placeholder(self.dtype, dims))
            else:
                tensors.append(hand_on(step.graph(variables, *(tensors[i] for i in step.operands))))
        return tensors, variables

    # Bodies ----------------------------------------------------------------------------------------

    def body(self, given: Sequence[np.ndarray], size: int) -> MixedProgram:
        """Steps on given values and the variables, for a branch or a loop."""
        state = [value.copy() for value in self.state]
        seed = self.random.randrange(1 << 30)
        return MixedProgram(seed, size, self.dtype, self.writes, self.depth + 1, [*given], state=state)

    def like(self, value: np.ndarray) -> int:
        """Number of the last value of a body that has the shape of another."""
        found = [n for n, x in enumerate(self.values) if x.shape == value.shape and x.dtype == value.dtype]
        need(found)
        return found[-1]

    def arrays(self, state: Any, given: Sequence[Any], number: int) -> Any:
        """A value of a body, in NumPy."""
        values = [*given]
        for step in self.steps:
            values.append(step.array(state, *(values[i] for i in step.operands)))
        return np.tanh(values[number])

    def tensors(self, variables: Any, given: Sequence[Any], number: int) -> Any:
        """A value of a body, in a graph, which needs all that is given and all that the body writes."""
        values, written = [*given], []
        for step in self.steps:
            values.append(step.graph(variables, *(values[i] for i in step.operands)))
            written += [values[-1].op] if step.writes else []
        with tb.control_dependencies(written):
            return tb.tanh(values[number]) + tb.add_n([tb.reduce_sum(x) * 0.0 for x in given])


# Kinds of steps ---------------------------------------------------------------------------------------


def unary(p: MixedProgram) -> None:
    name = p.random.choice(sorted(UNARY))
    p.of((p.pick(apart),), *UNARY[name])


def binary(p: MixedProgram) -> None:
    one = p.pick()
    shape = p.values[one].shape

    def fits(x: np.ndarray) -> bool:
        try:
            return bool(np.prod(np.broadcast_shapes(x.shape, shape)) < 600)
        except ValueError:
            return False

    pair = [one, p.pick(fits)]
    p.random.shuffle(pair)
    name = p.random.choice(sorted(BINARY))
    need(apart(p.values[pair[0]] - p.values[pair[1]]) or name not in ("maximum", "chosen"))
    p.of(pair, *BINARY[name])


def reduction(p: MixedProgram) -> None:
    name = p.random.choice(sorted(REDUCTIONS))
    one = p.pick(lambda x: x.size and np.unique(x.round(2)).size == x.size)
    axes = tuple(axis for axis in range(p.values[one].ndim) if p.random.randrange(2))
    keep, (of_tensor, of_array) = bool(p.random.randrange(2)), REDUCTIONS[name]
    p.of(
        (one,),
        lambda x: of_tensor(x, axes, keepdims=keep),
        lambda x: of_array(x, axis=axes, keepdims=keep),
    )


def moved(p: MixedProgram) -> None:
    one = p.pick(lambda x: x.ndim)
    shape = p.values[one].shape
    axis = p.random.randrange(len(shape))
    cut, order = p.random.randrange(shape[axis] + 1), p.random.sample(range(len(shape)), len(shape))
    p.of((one,), *p.random.choice(moves(shape, axis, cut, order)))


def moves(shape: Sequence[int], axis: int, cut: int, order: Sequence[int]) -> list[tuple[Any, Any]]:
    """Ops that move elements."""
    lead = (slice(None),) * axis
    rest, back = (*lead, slice(cut, None)), (*lead, slice(None, None, -2))
    flat = (-1, shape[-1]) if shape[-1] and len(shape) > 1 else shape
    pads = [(0, 2) if n == axis else (1, 0) for n in range(len(shape))]
    return [
        (lambda x: tb.transpose(x, order), lambda x: x.transpose(order)),
        (lambda x: tb.reshape(x, flat), lambda x: x.reshape(flat)),
        (lambda x: x[back], lambda x: x[back]),
        (lambda x: tb.pad(x, pads), lambda x: np.pad(x, pads)),
        (lambda x: tb.concat([x, x * 0.5], axis), lambda x: np.concatenate([x, x * 0.5], axis)),
        (lambda x: tb.stack([x, -x], axis), lambda x: np.stack([x, -x], axis)),
        (lambda x: tb.cumsum(x, axis), lambda x: x.cumsum(axis)),
        (lambda x: tb.split(x, [cut, -1], axis)[1], lambda x: x[rest]),
    ]


def places(p: MixedProgram) -> None:
    one = p.pick(lambda x: x.ndim and x.size and apart(np.diff(np.sort(x, -1))))
    p.of((one,), lambda x: tb.argmax(x, -1), lambda x: np.asarray(x.argmax(-1)))


def gathered(p: MixedProgram) -> None:
    rows, where = p.pick(lambda x: x.ndim and x.shape[0]), p.pick(lambda x: x.ndim < 2, "i")
    extent = p.values[rows].shape[0]
    p.of((rows, where), lambda x, i: tb.gather(x, i % extent), lambda x, i: x[i % extent])


def product(p: MixedProgram) -> None:
    one = p.pick(lambda x: x.ndim == 2)
    other = p.pick(lambda x: x.ndim == 2 and x.shape[1] == p.values[one].shape[1])
    p.of((one, other), lambda x, y: tb.matmul(x, y, transpose_b=True), lambda x, y: x @ y.T)


def layer(p: MixedProgram) -> None:
    one = p.pick(lambda x: x.ndim == 4 and x.size and min(x.shape[1:3]) > 1)
    weights = np.linspace(-0.5, 0.5, 12 * p.values[one].shape[3]).reshape(2, 2, -1, 3).astype(p.dtype)

    def convolved(x: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 2))
        return np.einsum("nhwcpq,pqco->nhwo", windows, weights)

    p.of((one,), lambda x: tb.nn.conv2d(x, weights, 1, "VALID"), convolved)


def normalised(p: MixedProgram) -> None:
    one = p.pick(lambda x: x.ndim and x.size)

    def softmax(x: np.ndarray) -> np.ndarray:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    p.of((one,), tb.nn.softmax, softmax)


def written(p: MixedProgram) -> None:
    number, adds = p.random.randrange(len(VARIABLES)), p.random.randrange(2)

    def array(state: Any, x: np.ndarray) -> np.ndarray:
        state[number] = np.asarray(state[number] + np.tanh(x) if adds else np.tanh(x))
        return state[number]

    def graph(variables: Any, x: Any) -> Any:
        return getattr(variables[number], "assign_add" if adds else "assign")(tb.tanh(x))

    one = p.pick(lambda x: x.shape == VARIABLES[number])
    p.add((one,), graph, array, writes=True)
    if not p.depth:
        p._read(number)


def cond(p: MixedProgram) -> None:
    chooser, one = p.pick(lambda x: x.size and apart(x.sum(), 0.2)), p.pick()
    given = [p.values[one]]
    branches = [p.body(given, p.random.randint(1, 3)) for _ in range(2)]
    numbers = [branch.like(given[0]) for branch in branches]

    def graph(variables: Any, pred: Any, x: Any) -> Any:
        first, second = (lambda n=n: branches[n].tensors(variables, [x], numbers[n]) for n in (0, 1))
        return tb.cond(tb.reduce_sum(pred) > 0.2, first, second)

    def array(state: Any, pred: np.ndarray, x: np.ndarray) -> np.ndarray:
        which = 0 if pred.sum() > 0.2 else 1
        return branches[which].arrays(state, [x], numbers[which])

    p.add((chooser, one), graph, array, writes=any(s.writes for b in branches for s in b.steps))


def loop(p: MixedProgram) -> None:
    one, other = p.pick(), p.pick()
    given = [p.values[one], p.values[other]]
    body = p.body(given, p.random.randint(1, 3))
    number, most, depends = body.like(given[0]), p.random.randint(0, 4), p.random.randrange(2)
    need(given[1].size and apart(given[1].sum(), 0.2))

    def graph(variables: Any, x: Any, y: Any) -> Any:
        count = most - tb.cast(tb.reduce_sum(y) > 0.2, tb.int32) if depends else most
        step = lambda i, x: [i + 1, body.tensors(variables, [x, y], number) + x * 0.5]  # noqa: E731
        return tb.while_loop(lambda i, x: i < count, step, [0, x])[1]

    def array(state: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        for _ in range(most - (1 if depends and y.sum() > 0.2 else 0)):
            x = body.arrays(state, [x, y], number) + x * np.asarray(0.5, p.dtype)
        return x

    p.add((one, other), graph, array, writes=any(step.writes for step in body.steps))


def mapped(p: MixedProgram) -> None:
    one = p.pick(lambda x: x.ndim and 0 < x.shape[0] < 7)
    body = p.body([p.values[one][0]], p.random.randint(1, 3))
    number = body.like(p.values[one][0])
    need(not any(step.writes for step in body.steps))
    p.add(
        (one,),
        lambda v, x: tb.map_fn(lambda row: body.tensors(v, [row], number), x),
        lambda v, x: np.stack([body.arrays(v, [row], number) for row in x]),
    )


CONTROL = 3
KINDS: list[Callable[[MixedProgram], None]] = [
    *([unary] * 4 + [binary] * 5 + [moved] * 5 + [reduction] * 2),
    *(places, gathered, product, product, layer, normalised, written, cond, loop, mapped),
]
