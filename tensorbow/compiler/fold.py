"""Fold: infer every shape from the feeds, evaluate constant expressions at compile time, and unroll loops.

A loop whose condition is constant in every iteration, once the feeds' shapes are known, becomes the nodes of
its iterations; so do branches of a constant condition. What a gradient takes back from a loop's stack is then
the value itself.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorbow.compiler.loops import WholeLoop, in_order, limit_of, loops_in
from tensorbow.compiler.merge import merge
from tensorbow.compiler.prune import drop_unused
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.function_calls import Call
from tensorbow.graph import Attrs, Kernel, NodeSpec, OpDef, Operation, Tensor, add_iteration, blame
from tensorbow.ops.arrays import ConcatV2, ExpandDims, Reshape
from tensorbow.ops.broadcasting import BroadcastTo, SumTo
from tensorbow.ops.constant import Const
from tensorbow.ops.control import (
    Identity,
    NoOp,
    Placeholder,
    PlaceholderWithDefault,
    StepScalar,
    StopGradient,
)
from tensorbow.ops.control_flow import StackPop, StackPush
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.elementwise_table import Add
from tensorbow.ops.selection import Cast
from tensorbow.ops.slicing import StridedSlice
from tensorbow.ops.state import VariableReference
from tensorbow.ops.tensor_arrays import (
    NO_FLOW,
    TENSOR_ARRAY_OPS,
    TensorArrayConcat,
    TensorArrayGather,
    TensorArrayGrad,
    TensorArrayNew,
    TensorArrayRead,
    TensorArraySize,
    TensorArraySplit,
    TensorArrayWrite,
    pieces,
    require_lengths,
)
from tensorbow.program.nodes import Node, Program, Value, storage_of
from tensorbow.program.while_op import LoopProgram, While
from tensorbow.specs import Array, Dims, TensorSpec, as_dtype, bool_, compatible, render_dims

LARGEST_EXTENTS = 1 << 60  # product of nonzero extents: byte counts then fit a signed 64-bit integer
LARGEST_FOLDED = 1 << 20  # bytes: larger results are cheaper to compute than to keep
MOST_FOLDED = 64 << 20  # bytes of all folded results, or of one op's scratch; beyond it only small ones fold
SMALL_FOLDED = 1 << 10  # bytes: always folded, since shapes may depend on it
DROPPED = (SumTo, BroadcastTo, Cast, Reshape, Identity, StopGradient)  # removed where they change nothing


def fold(
    ops: Sequence[Operation],
    fed: Mapping[Tensor, TensorSpec],
    fetched: Sequence[Tensor],
    targets: Collection[Operation] = (),
    devices: Mapping[Operation, str] | None = None,
    replicas: int = 1,
    compiles_loops: bool = True,
    runs_loops: bool = False,
) -> Program:
    """Turns pruned operations into a program with fully known shapes.

    targets: operations that run even if nothing reads their results.
    devices: the device of each operation, for a step over several devices.
    replicas: how many take part in exchanges.
    compiles_loops: unrolls loops of a known number of iterations.
    runs_loops: the device runs While; then a loop that only counts to a limit may be one node.

    Raises InvalidArgumentError for a placeholder that is not fed, NeedsDynamicModeError for what depends on
    data: a shape, or the number of a loop's iterations.
    """
    folder = _Folder(fed, devices, replicas, runs_loops and devices is None, compiles_loops)
    loops = loops_in(ops) if compiles_loops else {}
    for op in (*targets, *(t.op for t in (*fed, *fetched))):
        if loops and op.context is not None and any(each in loops for each in op.context.chain()):
            raise NeedsDynamicModeError(f"{op.name} is in a loop", f"{op.name} is in a loop")
    for item in in_order(ops, loops):
        folder.add(item)
    wanted = {*targets, *(control for op in ops for control in op.control_inputs)}
    for node, op in folder.made:
        node.is_target = op in wanted
    values = folder.values
    feeds = {tensor.name: values[tensor] for tensor, spec in fed.items() if spec.value is None}
    return Program(folder.nodes, [folder.result(t) for t in fetched], feeds, folder.notes)


def _has_effect(op: Operation) -> bool:
    return bool(op.definition.stateful and op.definition.kernels)


class NeedsDynamicModeError(InvalidArgumentError):
    """Raised for a step that cannot be planned; the dynamic mode of a session may run it. why: in short."""

    def __init__(self, message: str, why: str = ""):
        super().__init__(message)
        self.why = why


@dataclass
class _Folded:
    """Count of the bytes of a program's folded results."""

    nbytes: int = 0

    def leaves_room(self, nbytes: int) -> bool:
        """True if results of this size may still be folded."""
        return nbytes <= SMALL_FOLDED or (nbytes <= LARGEST_FOLDED and self.nbytes + nbytes <= MOST_FOLDED)


DEAD = Value("dead", TensorSpec((), bool_))  # of a tensor in a branch that is not taken
MOST_UNROLLED = 4096  # nodes of a step's loops
MOST_ITERATIONS = 20_000  # of all loops of a step, also of those that fold to constants


@dataclass
class _Elements:
    """The elements of a TensorArray in a plan; `of`: the array whose gradients they are."""

    elements: list[Value | None]
    grows: bool
    shape: Dims | None
    of: _Elements | None = None
    gradients: dict[str, int] = field(default_factory=dict)  # handles, by call of `gradients`


class _Folder:
    """The values and nodes of a program under construction."""

    def __init__(
        self,
        fed: Mapping[Tensor, TensorSpec],
        devices: Mapping[Operation, str] | None,
        replicas: int,
        runs_loops: bool = False,
        compiles_loops: bool = True,
    ):
        self._compiles_loops = compiles_loops
        self._runs_loops = runs_loops
        self.values: dict[Tensor, Value] = {
            tensor: Value(tensor.name, spec, feed=tensor.name)
            if spec.value is None
            else _constant(tensor.name, spec.value)
            for tensor, spec in fed.items()
        }
        self.made: list[tuple[Node, Operation]] = []
        self.notes: list[str] = []
        self._devices = devices
        self._replicas = replicas
        self._ends: dict[Operation, tuple[Node, ...]] = {}  # of the last nodes of each op
        self._folded = _Folded()
        self._dead: set[Operation] = set()
        self._tags: list[int] = []  # number of the iteration of each loop around
        self._calls: list[Operation] = []  # of functions, the outermost first
        self._stacks: dict[tuple[str, tuple[int, ...]], Value] = {}  # values kept for gradients
        self._iterations = 0
        self._arrays: list[_Elements] = []  # of the step's TensorArrays, by handle

    @property
    def nodes(self) -> list[Node]:
        """The nodes in execution order."""
        return [node for node, _ in self.made]

    def result(self, tensor: Tensor) -> Value:
        """The value of a fetched tensor. Raises NeedsDynamicModeError for one that is dead."""
        value = self.values[tensor]
        if value is DEAD:  # the dynamic mode raises the error of the fetch
            raise NeedsDynamicModeError(f"{tensor.name} is dead", f"{tensor.name} is in a branch not taken")
        return value

    def add(self, item: Operation | WholeLoop) -> None:
        """Adds the nodes of an op, or of all iterations of a loop."""
        if isinstance(item, WholeLoop):
            self._add_loop(item)
            return
        made = len(self.made)
        if item.outputs and all(t in self.values for t in item.outputs) and not _has_effect(item):
            pass  # it is fed, and occurs here as a target or a control input
        elif item.definition.flow:
            self._pass_on(item)
        elif self._is_dead(item):
            self._kill(item)
        else:
            self._convert(item)
        if self._devices is not None:
            self._set_order(item, [node for node, _ in self.made[made:]], self._devices[item])

    def _set_order(self, op: Operation, made: Sequence[Node], device: str) -> None:
        """Records device and control dependencies; an op without a node passes its dependencies on."""
        ends = self._ends
        before = dict.fromkeys(node for other in op.control_inputs for node in ends.get(other, ()))
        if made:
            for node in made:  # several of an op of TensorArrays
                node.device, node.after = device, tuple(before)
            ends[op] = tuple(made)
        else:
            before.update(dict.fromkeys(node for t in op.inputs for node in ends.get(t.op, ())))
            ends[op] = tuple(before)

    # Control flow -----------------------------------------------------------------------------

    def _is_dead(self, op: Operation) -> bool:
        return any(self.values.get(t) is DEAD for t in op.inputs) or (
            bool(self._dead) and any(control in self._dead for control in op.control_inputs)
        )

    def _kill(self, op: Operation) -> None:
        self._dead.add(op)
        self.values.update(dict.fromkeys(op.outputs, DEAD))

    def _pass_on(self, op: Operation) -> None:
        """An op of control flow outside loops: only where its condition is constant."""
        flow, values = op.definition.flow, self.values
        if flow == "switch" and not self._is_dead(op):
            pred = values[op.inputs[1]].constant
            if pred is None:
                raise _dynamic(op)
            taken = int(bool(pred))
            values[op.outputs[taken]], values[op.outputs[1 - taken]] = values[op.inputs[0]], DEAD
        elif flow == "merge":
            alive = [values[t] for t in op.inputs if values[t] is not DEAD]
            if alive:
                values[op.outputs[0]] = alive[0]
            else:
                self._kill(op)
        elif self._is_dead(op):
            self._kill(op)
        else:
            raise _dynamic(op)

    def _add_loop(self, loop: WholeLoop) -> None:
        """Adds a loop, unrolled or as one node; raises NeedsDynamicModeError."""
        if any(self._is_dead(op) for op in loop.enters):
            for op in loop.ops:
                self._kill(op)
            return
        count = limit_of(loop)
        before = (len(self.made), len(self.notes), len(self._tags), self._folded.nbytes)
        try:
            if count is not None and count > MOST_UNROLLED:
                raise _too_long(loop)
            self._unroll(loop)
        except NeedsDynamicModeError as error:
            if not self._runs_loops or count is None:
                raise
            del self.made[before[0] :], self.notes[before[1] :], self._tags[before[2] :]
            self._folded.nbytes = before[3]
            self._keep_whole(loop, error)

    def _unroll(self, loop: WholeLoop) -> None:
        """Adds the nodes of a loop's iterations. Raises NeedsDynamicModeError if the number is not known."""
        values = self.values
        before, noted, quiet = len(self.made), len(self.notes), bool(self._tags)
        for op in loop.enters:
            values[op.outputs[0]] = values[op.inputs[0]]
            if self._devices is not None:
                self._set_order(op, (), self._devices[op])
        entered = {op.outputs[0]: values[op.outputs[0]] for op in loop.enters if op.attrs["is_constant"]}
        following = [values[merge.inputs[0]] for merge in loop.merges]
        self._tags.append(0)
        while True:
            self._iterations += 1
            self._forget(loop)
            values.update(entered)
            values.update({m.outputs[0]: v for m, v in zip(loop.merges, following, strict=True)})
            self._add_iteration(loop)
            if len(self.made) - before > MOST_UNROLLED or self._iterations > MOST_ITERATIONS:
                raise _too_long(loop)
            holds = values[loop.condition.outputs[0]].constant
            if holds is None or not holds:
                break
            following = [values[merge.inputs[1]] for merge in loop.merges]
            self._tags[-1] += 1
        count = self._tags.pop()
        del self.notes[noted:]
        if not quiet:
            self.notes.append(
                f"loop {loop.name}: unrolled, {count} iterations, {len(self.made) - before} ops"
            )

    def _add_iteration(self, loop: WholeLoop) -> None:
        try:
            for item in loop.items:
                if isinstance(item, WholeLoop) or not item.definition.flow:
                    self.add(item)
                else:
                    self._flow(item, loop)
        except NeedsDynamicModeError:
            raise
        except TensorBowError as error:
            add_iteration(error, loop.name, self._tags[-1])
            raise

    def _forget(self, loop: WholeLoop) -> None:
        for op in loop.ops:
            for tensor in op.outputs:
                self.values.pop(tensor, None)
            self._dead.discard(op)

    def _keep_whole(self, loop: WholeLoop, why: NeedsDynamicModeError) -> None:
        """Adds a loop as one node While. Raises `why` if it has effects, or shapes that change."""
        values, made, noted = self.values, len(self.made), len(self.notes)
        self._forget(loop)
        entered = {op.outputs[0]: values[op.inputs[0]] for op in loop.enters}
        inside = {t: _stand_in(v) if v.constant is None else v for t, v in entered.items()}
        initial, variables = [], []
        for join in loop.merges:
            initial.append(entered[join.inputs[0]])
            variables.append(
                Value(join.outputs[0].name, TensorSpec(initial[-1].spec.shape, join.outputs[0].dtype))
            )
            inside[join.outputs[0]] = variables[-1]
        values.update(inside)
        in_body = loop.after_condition
        for item in loop.items:
            if isinstance(item, WholeLoop) or not item.definition.flow:
                self.add(item)
            elif item.definition.flow == "switch" and item.inputs[1].op is loop.condition:
                values.update(dict.fromkeys(item.outputs, values[item.inputs[0]]))
            elif item.definition.flow in ("switch", "merge"):
                self._pass_on(item)
            else:
                values[item.outputs[0]] = values[item.inputs[0]]
        nodes = self.made[made:]
        del self.made[made:], self.notes[noted:]
        holds = values[loop.condition.outputs[0]]
        results = [values[join.inputs[1]] for join in loop.merges]
        fits = all(a.spec == b.spec for a, b in zip(results, variables, strict=True))
        if not fits or any(_has_effects(node) for node, _ in nodes):
            raise why
        program = drop_unused(merge(Program([node for node, _ in nodes], [holds, *results], {})))
        late = {node for node, op in nodes if op in in_body}
        condition = [node for node in program.nodes if node not in late]
        body = [node for node in program.nodes if node in late]
        holds, *results = program.fetches
        made_here = {value for node in program.nodes for value in node.outputs}
        read = dict.fromkeys(v for node in program.nodes for v in node.inputs)
        read.update(dict.fromkeys((holds, *results)))
        captured = [v for v in read if v not in made_here and v not in variables]
        outside = {each: value for t, value in entered.items() for each in (inside[t],)}
        whole = LoopProgram(variables, captured, condition, holds, body, results)
        node = Node(
            loop.name + self._tag,
            While,
            {"loop": whole},
            [*initial, *(outside.get(value, value) for value in captured)],
            loop.condition.id,
            loop.condition.source,
        )
        exits = loop.exits
        node.outputs = [
            Value(f"{variable.name}/exit", variable.spec, node, index)
            for index, variable in enumerate(variables)
        ]
        node.note = f"a loop in one call: {len(condition)} nodes of its condition, {len(body)} of its body"
        self.made.append((node, loop.condition))
        made_by = dict(zip((join.outputs[0] for join in loop.merges), node.outputs, strict=True))
        for op in exits:
            values[op.outputs[0]] = made_by[op.inputs[0].op.inputs[0]]
        self.notes.append(f"loop {loop.name}: compiled as one call; {why.why}")

    def _call(self, op: Operation) -> None:
        """Adds the operations of a function."""
        function, values = op.attrs["f"], self.values
        values.update(zip(function.inputs, [values[tensor] for tensor in op.inputs], strict=True))
        self._calls.append(op)
        for each in function.ops:
            if each.definition is not NoOp:
                self._convert(each)
        self._calls.pop()
        results = [values[tensor] for tensor in function.outputs]
        for tensor in (*function.inputs, *(t for each in function.ops for t in each.outputs)):
            values.pop(tensor, None)
        for tensor, value in zip(op.outputs, results, strict=True):
            values.setdefault(tensor, value)

    @property
    def _scope(self) -> str:
        return "".join(f"{op.name}/" for op in self._calls)

    @property
    def _tag(self) -> str:
        return f"[{','.join(map(str, self._tags))}]" if self._tags else ""

    def _flow(self, op: Operation, loop: WholeLoop) -> None:
        """An op of control flow in a loop."""
        values, flow = self.values, op.definition.flow
        made = len(self.made)
        if flow == "loop_condition":
            if values[op.inputs[0]].constant is None:
                raise NeedsDynamicModeError(
                    f"loop {loop.name}: the number of its iterations depends on data; steps of replicas, "
                    "workers and clusters need one that is known once the feeds' shapes are: give "
                    f"maximum_iterations and a condition that is constant, or mask by tb.where (made at "
                    f"{op.source})",
                    f"the number of iterations of loop {loop.name} depends on data",
                )
            values[op.outputs[0]] = values[op.inputs[0]]
        elif flow in ("exit", "next_iteration"):
            values[op.outputs[0]] = values[op.inputs[0]]
            if values[op.inputs[0]] is DEAD:
                self._dead.add(op)
        else:
            self._pass_on(op)
        if self._devices is not None:
            self._set_order(op, [node for node, _ in self.made[made:]], self._devices[op])

    def _keep(self, op: Operation) -> None:
        """A stack of a loop, for its gradient: the value itself is what is taken back."""
        first = 1 if op.definition is StackPush or op.attrs["or_zeros"] else 0
        where = [self.values[t].constant for t in op.inputs[first:]]
        if any(each is None for each in where):
            raise _dynamic(op)
        index = tuple(int(each) for each in where if each is not None)
        if op.definition is StackPush:
            self._stacks[(op.name, index)] = self.values[op.inputs[0]]
            return
        kept = self._stacks.get((op.attrs["push"], index))
        if kept is None:  # of a branch that was not taken
            spec = self.values[op.inputs[0]].spec
            kept = _constant(op.outputs[0].name, np.zeros(spec.extents, spec.dtype.as_numpy_dtype))
        self.values[op.outputs[0]] = kept

    # TensorArrays -----------------------------------------------------------------------------

    def _hand_on(self, op: Operation) -> None:
        """An op of a TensorArray: elements of known indices are values like others."""
        values = self.values
        where = op.inputs[2:3] if op.definition in (TensorArrayConcat, TensorArraySplit) else op.inputs[1:2]
        numbers = [values[t].constant for t in (op.inputs[0], *where)]
        if numbers[0] is None or (len(op.inputs) > 2 and numbers[1] is None):
            raise _dynamic(op)
        first = np.asarray(numbers[0])
        if op.definition in (TensorArrayNew, TensorArrayGrad):
            number = self._new_array(op, int(first))
            values[op.outputs[0]] = _constant(op.outputs[0].name, np.asarray(number))
            values[op.outputs[1]] = _constant(op.outputs[1].name, NO_FLOW)
            return
        array = self._arrays[int(first)]
        if op.definition is TensorArraySize:
            count = np.asarray(len(array.elements), np.int32)
            values[op.outputs[0]] = _constant(op.outputs[0].name, count)
            return
        if op.definition is TensorArrayConcat:
            most = len(array.elements) if len(numbers) == 1 else int(np.asarray(numbers[1]).size)
            self._join_elements(op, array, most)
            return
        indices = [int(each) for each in np.atleast_1d(np.asarray(numbers[1]))]
        if op.definition is TensorArrayRead:
            values[op.outputs[0]] = self._element(op, array, indices[0])
        elif op.definition is TensorArrayGather:
            rows = [self._element(op, array, index) for index in indices]
            values[op.outputs[0]] = self._joined(op, rows)
        else:
            if op.definition is TensorArraySplit:
                parts = self._pieces_of(op, values[op.inputs[1]], indices, array)
                indices = list(range(len(parts)))
            else:
                parts = [values[op.inputs[2]]]
                if op.definition is not TensorArrayWrite:
                    parts = self._rows_of(op, parts[0], len(indices))
            for index, value in zip(indices, parts, strict=True):
                self._set_element(op, array, index, value)
            values[op.outputs[0]] = _constant(op.outputs[0].name, NO_FLOW)

    def _new_array(self, op: Operation, size_or_handle: int) -> int:
        if op.definition is TensorArrayNew:
            if size_or_handle < 0:
                raise InvalidArgumentError(_refused(op, f"size is {size_or_handle}, expected at least 0"))
            grows, shape = op.attrs["dynamic_size"], op.attrs["shape"]
            self._arrays.append(_Elements([None] * size_or_handle, grows, shape))
            return len(self._arrays) - 1
        array = self._arrays[size_or_handle]
        if op.attrs["gradient_call"] not in array.gradients:
            array.gradients[op.attrs["gradient_call"]] = len(self._arrays)
            empty: list[Value | None] = [None] * len(array.elements)
            self._arrays.append(_Elements(empty, array.grows, array.shape, of=array))
        return array.gradients[op.attrs["gradient_call"]]

    def _element(self, op: Operation, array: _Elements, index: int) -> Value:
        element = array.elements[index] if 0 <= index < len(array.elements) else None
        if element is not None:
            return element
        if array.of is None:
            raise InvalidArgumentError(
                _refused(op, f"element {index} of {len(array.elements)} is read before it is written")
            )
        like = self._element(op, array.of, index).spec
        return _constant(f"{op.name}/zeros", np.zeros(like.extents, like.dtype.as_numpy_dtype))

    def _set_element(self, op: Operation, array: _Elements, index: int, value: Value) -> None:
        count = len(array.elements)
        if index < 0 or (index >= count and not array.grows):
            raise InvalidArgumentError(_refused(op, f"index {index} is not in [0, {count})"))
        array.elements.extend([None] * (index + 1 - count))
        before = array.elements[index]
        if before is not None and array.of is None:
            raise InvalidArgumentError(_refused(op, f"element {index} is written twice"))
        if array.shape is not None and not compatible(array.shape, value.spec.extents):
            raise InvalidArgumentError(
                _refused(op, f"element {index} is {value.spec}, expected {render_dims(array.shape)}")
            )
        if before is not None:
            (value,) = self._new_node(op, "sum", Add, {}, [before, value])
        array.elements[index] = value

    def _joined(self, op: Operation, rows: Sequence[Value]) -> Value:
        """Elements as rows of one value."""
        if not rows:
            spec = op.outputs[0].spec
            if not spec.shape or None in spec.shape[1:]:
                raise InvalidArgumentError(_refused(op, "no elements, of unknown shape; give element_shape"))
            extents = [extent or 0 for extent in spec.shape]
            return _constant(op.outputs[0].name, np.zeros(extents, spec.dtype.as_numpy_dtype))
        parts = [self._new_node(op, f"row{i}", ExpandDims, {"axis": 0}, [v])[0] for i, v in enumerate(rows)]
        return self._new_node(op, "rows", ConcatV2, {"axis": 0}, parts)[0] if len(parts) > 1 else parts[0]

    def _join_elements(self, op: Operation, array: _Elements, count: int) -> None:
        """The outputs of TensorArrayConcat."""
        elements = [self._element(op, array, index) for index in range(count)]
        if any(element.spec.rank == 0 for element in elements):
            raise InvalidArgumentError(_refused(op, "the elements are scalars; use stack"))
        if len(elements) > 1:
            (rows,) = self._new_node(op, "rows", ConcatV2, {"axis": 0}, elements)
        else:
            rows = elements[0] if elements else self._joined(op, ())
        lengths = np.array([element.spec.extents[0] for element in elements], np.int64)
        self.values[op.outputs[0]] = rows
        self.values[op.outputs[1]] = _constant(op.outputs[1].name, lengths)

    def _pieces_of(
        self, op: Operation, value: Value, lengths: Sequence[int], array: _Elements
    ) -> list[Value]:
        """Consecutive rows of a value, for TensorArraySplit."""
        if value.spec.rank == 0:
            raise InvalidArgumentError(_refused(op, "the value is a scalar, expected rows"))
        try:
            require_lengths(len(lengths), len(array.elements), array.grows)
            found = pieces(lengths, value.spec.extents[0])
        except InvalidArgumentError as error:
            raise InvalidArgumentError(_refused(op, str(error))) from None
        parts = []
        for number, (first, end) in enumerate(found):
            index = {"index": ((first, end, None),)}
            parts.append(self._new_node(op, f"piece{number}", StridedSlice, index, [value])[0])
        return parts

    def _rows_of(self, op: Operation, value: Value, count: int) -> list[Value]:
        if value.spec.rank == 0 or value.spec.extents[0] != count:
            raise InvalidArgumentError(
                _refused(op, f"{count} indices for {value.spec}; give one for each row")
            )
        sliced = range(count)
        return [self._new_node(op, f"row{i}", StridedSlice, {"index": (i,)}, [value])[0] for i in sliced]

    def _new_node(
        self, op: Operation, part: str, definition: OpDef, attrs: Attrs, inputs: list[Value]
    ) -> list[Value]:
        """The values of a node that the user's graph does not have."""
        try:
            specs = definition.infer([value.spec for value in inputs], attrs)
        except TensorBowError as error:
            raise type(error)(blame(op.type, op.name, error, op.source)) from None
        node = Node(f"{op.name}/{part}{self._tag}", definition, attrs, inputs, op.id, op.source)
        node.outputs = [Value(f"{node.name}:{i}", spec, node, i) for i, spec in enumerate(specs)]
        self.made.append((node, op))
        return node.outputs

    # Ops --------------------------------------------------------------------------------------

    def _convert(self, op: Operation) -> None:
        definition, values = op.definition, self.values
        if definition is NoOp:
            return
        if definition in (StackPush, StackPop):
            self._keep(op)
            return
        if definition is Call:
            self._call(op)
            return
        if definition in TENSOR_ARRAY_OPS and self._compiles_loops:
            self._hand_on(op)
            return
        if definition.is_dynamic:
            raise _dynamic(op)
        if definition is Placeholder:
            raise InvalidArgumentError(
                f"placeholder {op.name} ({op.outputs[0].spec}) is needed but not fed; "
                f"add it to feed_dict (made at {op.source})"
            )
        if definition is Const:
            array: Array = op.attrs["value"]
            values[op.outputs[0]] = _constant(op.outputs[0].name, array)
            return
        if definition is VariableReference:
            values[op.outputs[0]] = Value(op.outputs[0].name, op.outputs[0].spec, variable=op)
            return
        if definition is PlaceholderWithDefault:
            values[op.outputs[0]] = values[op.inputs[0]]
            return
        if definition is StepScalar:
            values[op.outputs[0]] = Value(op.outputs[0].name, op.outputs[0].spec, scalar=op)
            return
        inputs = [values[t] for t in op.inputs]
        attrs = _attrs_for(op, self._replicas, self._tags)
        scope, tag = self._scope, self._tag
        specs = _infer(op, attrs, inputs)
        results = _try_fold(op, inputs, specs, self._folded)
        if results is not None:
            self._folded.nbytes += sum(result.nbytes for result in results)
            for tensor, result in zip(op.outputs, results, strict=True):
                values.setdefault(tensor, _constant(f"{scope}{tensor.name}{tag}", result))
            self.notes.append(f"{op.name}: folded to a constant")
            return
        if _changes_nothing(op, inputs, specs):
            values.setdefault(op.outputs[0], inputs[0])
            self.notes.append(f"{op.name}: dropped, its result equals {inputs[0].name}")
            return
        outer = self._calls[0] if self._calls else op
        node = Node(f"{scope}{op.name}{tag}", definition, attrs, inputs, outer.id, op.source)
        node.outputs = [
            Value(f"{scope}{tensor.name}{tag}", spec, node, index)
            for index, (tensor, spec) in enumerate(zip(op.outputs, specs, strict=True))
        ]
        for tensor, value in zip(op.outputs, node.outputs, strict=True):
            values.setdefault(tensor, value)  # a fed output keeps the fed value
        self.made.append((node, outer))


def _refused(op: Operation, reason: str) -> str:
    return f"{op.type} {op.name}: {reason} (made at {op.source})"


def _stand_in(value: Value) -> Value:
    """A value from outside as it is read in a loop of one call."""
    return Value(value.name, TensorSpec(value.spec.shape, value.spec.dtype))


def _has_effects(node: Node) -> bool:
    definition = node.definition
    return bool(
        definition.stateful
        or definition.random
        or definition.state
        or definition.exchange
        or definition.writes
        or (not definition.kernels and not definition.is_view)
    )


def _too_long(loop: WholeLoop) -> NeedsDynamicModeError:
    reason = (
        f"loop {loop.name} is too long to unroll: over {MOST_UNROLLED} ops or {MOST_ITERATIONS} iterations"
    )
    return NeedsDynamicModeError(f"{reason} (made at {loop.condition.source})", reason)


def _dynamic(op: Operation) -> NeedsDynamicModeError:
    return NeedsDynamicModeError(
        f"{op.type} {op.name}: control flow and ops of the host run in the dynamic mode of tb.Session on "
        "one machine, not in steps of replicas, workers or clusters; unroll the loop in Python, use "
        f"tb.where for a condition, or fetch it by a session (made at {op.source})",
        f"{op.type} {op.name} is control flow or an op of the host (made at {op.source})",
    )


def _constant(name: str, array: Array) -> Value:
    return Value(name, TensorSpec(array.shape, as_dtype(array.dtype), array), constant=array)


def _attrs_for(op: Operation, replicas: int, iteration: Sequence[int] = ()) -> Attrs:
    """The attributes of an op in a step of so many replicas, and in an iteration of the loops around it."""
    if op.definition.random and iteration:  # another seed, for other numbers in every iteration
        numbered = f"{op.attrs['seed2']} {','.join(map(str, iteration))}"
        return {**op.attrs, "seed2": zlib.crc32(numbered.encode())}
    if not op.definition.exchange:
        return op.attrs
    if op.attrs.get("source", 0) >= replicas:
        raise InvalidArgumentError(
            f"{op.type} {op.name}: source {op.attrs['source']} is no replica: there are {replicas}, counted "
            f"from 0 (made at {op.source})"
        )
    return {**op.attrs, "replicas": replicas} if "replicas" in op.attrs else op.attrs


def _infer(op: Operation, attrs: Attrs, inputs: Sequence[Value]) -> tuple[TensorSpec, ...]:
    for index in op.definition.shape_inputs:
        if inputs[index].constant is None:
            raise NeedsDynamicModeError(
                f"{op.type} {op.name}: the shape argument {op.inputs[index].name} depends on data; planned "
                f"steps need it to be constant once the feeds' shapes are known (made at {op.source})",
                f"the shape argument {op.inputs[index].name} of {op.type} {op.name} depends on data",
            )
    try:
        specs = op.definition.infer([value.spec for value in inputs], attrs)
    except TensorBowError as error:
        raise type(error)(blame(op.type, op.name, error, op.source)) from None
    for tensor, spec in zip(op.outputs, specs, strict=True):
        if not spec.is_static:
            raise InvalidArgumentError(
                f"{op.type} {op.name}: the shape of {tensor.name} is {spec} even with all feeds known; "
                f"shapes that depend on data are not supported (made at {op.source})"
            )
        if math.prod(extent or 1 for extent in spec.extents) > LARGEST_EXTENTS:  # even if another extent is 0
            raise InvalidArgumentError(
                f"{op.type} {op.name}: {tensor.name} would be {spec}, whose elements cannot be numbered by "
                f"64 bits; use smaller extents (made at {op.source})"
            )
    _check_writes(op, inputs)
    return specs


def _check_writes(op: Operation, inputs: Sequence[Value]) -> None:
    """Raises InvalidArgumentError if an op writes one variable through two of its inputs."""
    written = [storage_of(inputs[index]).variable for index in op.definition.writes]
    for number, variable in enumerate(written):
        if variable is not None and variable in written[:number]:
            raise InvalidArgumentError(
                f"{op.type} {op.name}: writes the variable {variable.name} twice; expected a variable of its "
                f"own for each of the inputs {list(op.definition.writes)} (made at {op.source})"
            )


def _try_fold(
    op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec], folded: _Folded
) -> tuple[Array, ...] | None:
    definition = op.definition
    if definition.stateful or definition.random or definition.exchange or not specs:
        return None
    if all(spec.value is not None for spec in specs):  # the spec rule alone gives the values
        return tuple(spec.value for spec in specs if spec.value is not None)
    arrays = [value.constant for value in inputs]
    if any(array is None for array in arrays) or not folded.leaves_room(sum(s.nbytes for s in specs)):
        return None
    kernel = definition.kernels.get("cpu")
    if kernel is None and not definition.is_view:
        return None
    with np.errstate(all="ignore"):
        try:
            if kernel is not None and _scratch_nbytes(kernel, op, inputs, specs) > MOST_FOLDED:
                return None
            return run_reference_kernel(definition, arrays, op.attrs)
        except TensorBowError as error:
            raise type(error)(blame(op.type, op.name, error, op.source)) from None
        except Exception as error:  # a user's kernel may raise anything
            raise InvalidArgumentError(blame(op.type, op.name, error, op.source)) from error


def _scratch_nbytes(
    kernel: Kernel, op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec]
) -> int:
    node = NodeSpec(op.attrs, tuple(value.spec for value in inputs), tuple(specs))
    return sum(scratch.nbytes for scratch in kernel.scratch_specs(node))


def _changes_nothing(op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec]) -> bool:
    """True if the result equals the first input: a reduction or broadcast to the same shape, a cast to the
    same dtype, a view with the same shape. Reads of variables are kept: when they happen matters.
    """
    if op.definition not in DROPPED:
        return False
    source = inputs[0]
    return source.variable is None and source.spec == specs[0]
