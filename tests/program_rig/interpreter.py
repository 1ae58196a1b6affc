"""Random small programs, built as graphs and, beside that, run by a naive interpreter in NumPy.

The interpreter keeps every value in an array of its own and runs what is needed in the order of the
program: that is what a session's result must equal, whatever the compiler does. Values are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel

SHAPES = ((2, 3), (3, 2), (6,), ())
VARIABLES = ((2, 3), (6,), ())
UNARY = {
    "negative": (tb.negative, np.negative),
    "relu": (tb.relu, lambda x: np.maximum(x, 0)),
    "halve": (lambda x: tb.multiply(x, 0.5), lambda x: x * 0.5),
    "identity": (tb.identity, lambda x: x),
    "sum": (tb.reduce_sum, np.sum),
    "transpose": (tb.transpose, np.transpose),
}
BINARY = {
    "add": (tb.add, np.add),
    "subtract": (tb.subtract, np.subtract),
    "maximum": (tb.maximum, np.maximum),
}


def _split(call: Any) -> None:
    (x,), (positive, negative) = call.inputs, call.outputs
    np.maximum(x, 0, out=positive)
    np.minimum(x, 0, out=negative)


Split = tb.define_op(
    "ProgramRigSplit",
    spec=lambda inputs, attrs: (inputs[0], inputs[0]),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("x",),
    kernel=Kernel(run=_split, inplace=((1, 0),)),
    replace=True,
)


@dataclass
class Instruction:
    """What makes one or two values: `operands` are numbers of values, `after` of instructions."""

    kind: str
    operands: tuple[int, ...] = ()
    argument: Any = None
    after: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    first: int = 0  # number of its first value


@dataclass
class RandomProgram:
    """Instructions, and what is fetched (numbers of values, or variables) and fed."""

    instructions: list[Instruction] = field(default_factory=list)
    fetches: list[int] = field(default_factory=list)
    fetched_variables: list[int] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)

    def shape_of(self, value: int) -> tuple[int, ...]:
        return self.shapes[value]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [shape for instruction in self.instructions for shape in instruction.shapes]

    @property
    def owners(self) -> list[int]:
        """The instruction that makes each value."""
        return [n for n, instruction in enumerate(self.instructions) for _ in instruction.shapes]

    def feed_value(self, value: int) -> np.ndarray:
        return np.arange(np.prod(self.shape_of(value), dtype=int)).reshape(self.shape_of(value)) * 3.0 - value

    def needed(self) -> set[int]:
        """The instructions that the fetches need."""
        owners, needed = self.owners, set()
        pending = [owners[v] for v in self.fetches if v not in self.fed]
        while pending:
            number = pending.pop()
            if number in needed:
                continue
            needed.add(number)
            instruction = self.instructions[number]
            pending += [owners[v] for v in instruction.operands if v not in self.fed]
            producers = {
                owners[v] for v in instruction.operands
            }  # as in TensorFlow: no control edge from them
            pending += [n for n in instruction.after if n not in producers]
        return needed

    def interpret(self, variables: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Fetched values and the variables afterwards."""
        state = [v.copy() for v in variables]
        values = {v: self.feed_value(v) for v in self.fed}
        needed = self.needed()
        for number, instruction in enumerate(self.instructions):
            if number not in needed:
                continue
            inputs = [values[v] for v in instruction.operands]
            for place, result in enumerate(_compute(instruction, inputs, state)):
                values.setdefault(instruction.first + place, np.array(result))
        return [values[v] for v in self.fetches] + [state[v] for v in self.fetched_variables], state

    def build(self) -> tuple[list[Any], dict[Any, np.ndarray], list[Any]]:
        """Fetches, feeds and variables in the default graph."""
        variables = [tb.Variable(np.zeros(shape), name=f"v{i}") for i, shape in enumerate(VARIABLES)]
        tensors: list[Any] = []
        for instruction in self.instructions:
            after = [tensors[self.instructions[n].first].op for n in instruction.after]
            with tb.control_dependencies(after):
                tensors += _build(instruction, [tensors[v] for v in instruction.operands], variables)
        fetches = [tensors[v] for v in self.fetches] + [variables[v] for v in self.fetched_variables]
        return fetches, {tensors[v]: self.feed_value(v) for v in self.fed}, variables


def _compute(instruction: Instruction, inputs: list[np.ndarray], state: list[np.ndarray]) -> list[Any]:
    kind, argument = instruction.kind, instruction.argument
    if kind == "constant":
        return [argument]
    if kind == "unary":
        return [UNARY[argument][1](*inputs)]
    if kind == "binary":
        return [BINARY[argument][1](*inputs)]
    if kind == "reshape":
        return [inputs[0].reshape(argument)]
    if kind == "split":
        return [np.maximum(inputs[0], 0), np.minimum(inputs[0], 0)]
    if kind == "read":
        return [state[argument]]
    if kind == "assign":
        state[argument] = inputs[0].copy()
    elif kind == "assign_add":
        state[argument] = state[argument] + inputs[0]
    else:
        state[argument] = state[argument] - inputs[0]
    return [state[argument]]


def _build(instruction: Instruction, inputs: list[Any], variables: list[Any]) -> list[Any]:
    kind, argument = instruction.kind, instruction.argument
    if kind == "constant":
        return [tb.constant(argument)]
    if kind == "unary":
        return [UNARY[argument][0](*inputs)]
    if kind == "binary":
        return [BINARY[argument][0](*inputs)]
    if kind == "reshape":
        return [tb.reshape(inputs[0], argument)]
    if kind == "split":
        return list(Split(*inputs))
    if kind == "read":
        return [variables[argument].read_value()]
    return [getattr(variables[argument], kind)(inputs[0])]


@st.composite
def programs(draw: st.DrawFn, max_instructions: int = 14) -> RandomProgram:
    """Programs with reads and writes of variables, views, ops of two outputs, fed edges."""
    program = RandomProgram()

    def add(
        kind: str, shapes: list[tuple[int, ...]], operands: tuple[int, ...] = (), argument: Any = None
    ) -> None:
        after: tuple[int, ...] = ()
        if program.instructions and draw(st.integers(0, 3)) == 0:
            after = (draw(st.integers(0, len(program.instructions) - 1)),)
        instruction = Instruction(kind, operands, argument, after, tuple(shapes), len(program.shapes))
        program.instructions.append(instruction)

    for shape in SHAPES:
        add("constant", [shape], argument=np.full(shape, draw(st.integers(-3, 3)), np.float64))
    for variable, shape in enumerate(VARIABLES):
        add("read", [shape], argument=variable)
    for _ in range(draw(st.integers(1, max_instructions))):
        kind = draw(
            st.sampled_from(
                ("unary", "binary", "reshape", "split", "read", "assign", "assign_add", "assign_sub")
            )
        )
        shapes = program.shapes
        value = draw(st.integers(0, len(shapes) - 1))
        shape = shapes[value]
        if kind == "unary":
            name = draw(st.sampled_from(sorted(UNARY)))
            add(kind, [np.shape(UNARY[name][1](np.zeros(shape)))], (value,), name)
        elif kind == "binary":
            others = [v for v, s in enumerate(shapes) if s in (shape, ())]
            other = draw(st.sampled_from(others))
            operands = draw(st.sampled_from(((value, other), (other, value))))
            add(kind, [shape], operands, draw(st.sampled_from(sorted(BINARY))))
        elif kind == "reshape":
            sizes = [s for s in SHAPES if np.prod(s, dtype=int) == np.prod(shape, dtype=int)]
            target = draw(st.sampled_from(sizes))
            add(kind, [target], (value,), target)
        elif kind == "split":
            add(kind, [shape, shape], (value,))
        elif kind == "read":
            variable = draw(st.integers(0, len(VARIABLES) - 1))
            add(kind, [VARIABLES[variable]], argument=variable)
        else:
            variable = draw(st.integers(0, len(VARIABLES) - 1))
            operand = draw(st.sampled_from([v for v, s in enumerate(shapes) if s == VARIABLES[variable]]))
            add(kind, [VARIABLES[variable]], (operand,), variable)
    count = len(program.shapes)
    program.fetches = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8))
    program.fetched_variables = draw(st.lists(st.integers(0, len(VARIABLES) - 1), max_size=2))
    inputs = draw(st.sets(st.integers(0, len(SHAPES) - 1))) ^ set(range(len(SHAPES)))  # most of them
    program.fed = sorted(inputs | draw(st.sets(st.integers(0, count - 1), max_size=2)))
    return program
