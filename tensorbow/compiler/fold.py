"""Fold: infer every shape from the feeds, evaluate constant expressions at compile time, and unroll loops.

A loop whose condition is constant in every iteration, once the feeds' shapes are known, becomes the nodes of
its iterations; so do branches of a constant condition. What a gradient takes back from a loop's stack is then
the value itself. Other loops and conds become one node each, see `blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tensorbow.compiler.constant_results import FoldedBytes, changes_nothing, constant_results
from tensorbow.compiler.dynamic_mode import DEAD, NeedsDynamicModeError, dynamic
from tensorbow.compiler.elements import ArrayElements, StepArrays
from tensorbow.compiler.known_specs import attrs_in_step, known_specs
from tensorbow.compiler.levels import Kept, Key, Levels
from tensorbow.compiler.loop_limits import limit_of
from tensorbow.compiler.whole_conds import CondMaker
from tensorbow.compiler.whole_loops import LoopMaker
from tensorbow.compiler.wholes import Item, WholeCond, WholeLoop, in_order, wholes_in
from tensorbow.control_flow.contexts import LoopContext
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.function_calls import Call
from tensorbow.graph import Attrs, OpDef, Operation, Tensor, add_iteration, blame
from tensorbow.ops.arrays import Transpose
from tensorbow.ops.axis_order import TransposeBy, permutation_of
from tensorbow.ops.constant import Const
from tensorbow.ops.control import (
    AtMost,
    NoOp,
    Placeholder,
    PlaceholderWithDefault,
    StepScalar,
)
from tensorbow.ops.control_flow import StackPop, StackPush
from tensorbow.ops.elementwise_table import Minimum
from tensorbow.ops.selection import Select
from tensorbow.ops.state import VariableReference
from tensorbow.ops.tensor_arrays import TENSOR_ARRAY_OPS
from tensorbow.program.nodes import Node, Program, Value
from tensorbow.specs import Array, TensorSpec, as_dtype

MOST_UNROLLED = 4096  # nodes of a step's loops
MOST_ITERATIONS = 20_000  # of all loops of a step, also of those that fold to constants


def fold(
    ops: Sequence[Operation],
    fed: Mapping[Tensor, TensorSpec],
    fetched: Sequence[Tensor],
    targets: Collection[Operation] = (),
    devices: Mapping[Operation, str] | None = None,
    replicas: int = 1,
    compiles_loops: bool = True,
    runs_blocks: bool = False,
    selects: bool = False,
) -> Program:
    """Turns pruned operations into a program with fully known shapes.

    targets: operations that run even if nothing reads their results.
    devices: the device of each operation, for a step over several devices.
    replicas: how many take part in exchanges.
    compiles_loops: loops and conds may be in the plan.
    runs_blocks: the device runs While and Cond; then a loop or cond that depends on data may be one node.
    selects: both branches of a cond that depends on data are computed, where that has no effects.

    Raises InvalidArgumentError for a placeholder that is not fed, NeedsDynamicModeError for what depends on
    data: a shape, or a loop or cond that cannot be compiled.
    """
    text = next((tensor for tensor in fed if tensor.dtype.is_string), None)
    if text is not None:
        raise dynamic(text.op)
    wholes = wholes_in(ops) if compiles_loops else {}
    fixed = [*targets, *(t.op for t in (*fed, *fetched))]
    for op in fixed:
        chain = op.context.chain() if wholes and op.context is not None else ()
        if any(isinstance(each, LoopContext) and each in wholes for each in chain):
            raise NeedsDynamicModeError(f"{op.name} is in a loop", f"{op.name} is in a loop")
    folder = _Folder(ops, fixed, fed, devices, replicas, compiles_loops, selects)
    folder.runs_blocks = runs_blocks and devices is None
    for item in in_order(ops, wholes):
        folder.add(item)
    wanted = {*targets, *(control for op in ops for control in op.control_inputs)}
    for node, op in folder.made:
        node.is_target = op in wanted
    values = folder.values
    feeds = {tensor.name: values[tensor] for tensor, spec in fed.items() if spec.value is None}
    return Program(folder.nodes, [folder.result(t) for t in fetched], feeds, folder.notes)


def _has_effect(op: Operation) -> bool:
    return bool(op.definition.stateful and op.definition.kernels)


@dataclass(frozen=True)
class _State:
    """State of a folding: counts of what was made, what is kept for gradients, and the TensorArrays."""

    made: int
    notes: int
    tags: int
    iterations: int
    folded: int
    kept: dict[Key, Kept]
    arrays: list[ArrayElements]


class _Folder:
    """The values and nodes of a program under construction."""

    def __init__(
        self,
        ops: Sequence[Operation],
        fixed: Sequence[Operation],
        fed: Mapping[Tensor, TensorSpec],
        devices: Mapping[Operation, str] | None,
        replicas: int,
        compiles_loops: bool,
        selects: bool,
    ):
        """fixed: ops that are fed, fetched or run for themselves. Other arguments: as of `fold`."""
        self._compiles_loops = compiles_loops
        self._selects = selects
        self.runs_blocks = False
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
        self._folded = FoldedBytes()
        self._dead: set[Operation] = set()
        self._tags: list[int] = []  # number of the iteration of each loop around
        self._calls: list[Operation] = []  # of functions, the outermost first
        self._iterations = 0
        self.arrays = StepArrays(self.values, self.new_node, _constant)
        self.constant = _constant
        self.levels = Levels(self, ops, fixed)
        self._loops, self._conds = LoopMaker(self, self.levels), CondMaker(self, self.levels)

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

    def add(self, item: Item) -> None:
        """Adds the nodes of an op, or of a loop or cond."""
        if isinstance(item, WholeLoop):
            self._add_loop(item)
            return
        if isinstance(item, WholeCond):
            self._add_cond(item)
            return
        made = len(self.made)
        if item.outputs and all(t in self.values for t in item.outputs) and not _has_effect(item):
            pass  # it is fed, and occurs here as a target or a control input
        elif item.definition.flow:
            self.pass_on(item)
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

    def pass_on(self, op: Operation) -> None:
        """An op of control flow outside loops: only where its condition is constant."""
        flow, values = op.definition.flow, self.values
        if flow == "switch" and not self._is_dead(op):
            pred = values[op.inputs[1]].constant
            if pred is None:
                raise dynamic(op)
            taken = int(bool(pred))
            values[op.outputs[taken]], values[op.outputs[1 - taken]] = values[op.inputs[0]], DEAD
        elif flow == "merge":
            # The NextIteration of a loop in a dead branch comes later.
            alive = [value for t in op.inputs if (value := values.get(t, DEAD)) is not DEAD]
            if alive:
                values[op.outputs[0]] = alive[0]
            else:
                self._kill(op)
        elif self._is_dead(op):
            self._kill(op)
        else:
            raise dynamic(op)

    def _add_loop(self, loop: WholeLoop) -> None:
        """Adds a loop, unrolled or as one node; raises NeedsDynamicModeError."""
        if any(self._is_dead(op) for op in loop.enters):
            for op in loop.ops:
                self._kill(op)
            return
        count = limit_of(loop, {})
        most = math.inf if loop.context.unrolls_fully and not self.runs_blocks else MOST_UNROLLED
        state = self._state()
        try:
            if count is not None and count > most:
                raise _too_long(loop)
            self._unroll(loop, count or 0, most)
        except NeedsDynamicModeError as error:
            if not self.runs_blocks:
                raise
            self._restore(state)
            self._loops.add(loop, error)

    def _state(self) -> _State:
        level = self.levels.now
        counts = (len(self.made), len(self.notes), len(self._tags), self._iterations, self._folded.nbytes)
        return _State(*counts, dict(level.kept), self.arrays.saved())

    def _restore(self, state: _State) -> None:
        """Takes back what was added since."""
        del self.made[state.made :], self.notes[state.notes :], self._tags[state.tags :]
        self._iterations, self._folded.nbytes = state.iterations, state.folded
        self.levels.now.kept = state.kept
        self.arrays.restore(state.arrays)

    def _add_cond(self, cond: WholeCond) -> None:
        """Adds a cond: the branch that is taken, or one node; raises NeedsDynamicModeError."""
        pred = self.values.get(cond.whole.branches[0].pred)
        depends = pred is not None and pred is not DEAD and pred.constant is None
        if pred is not None and depends and self.runs_blocks:
            self._conds.add(cond, pred)
        elif pred is not None and depends and self._selects:
            self._select(cond, pred)
        else:
            for item in (*cond.items[0], *cond.items[1], *cond.merges):
                self.add(item)

    def _select(self, cond: WholeCond, pred: Value) -> None:
        """Adds both branches, and the choice between their results."""
        values, made = self.values, len(self.made)
        source = cond.merges[0] if cond.merges else cond.ops[0]
        self.levels.refuse_fixed(set(cond.ops).difference(cond.merges), source)
        for items in cond.items:
            for item in items:
                switches = isinstance(item, Operation) and item.definition.flow == "switch"
                if isinstance(item, Operation) and switches and item.inputs[1] is cond.whole.branches[0].pred:
                    values.update(dict.fromkeys(item.outputs, values[item.inputs[0]]))
                else:
                    self.add(item)
        for node, _ in self.made[made:]:
            if _has_effects(node):
                raise dynamic(source, f"{node.name} in a branch has an effect, which no choice undoes")
        for op in cond.merges:
            false, true = (values[t] for t in op.inputs)
            if DEAD in (false, true) or false.spec.shape != true.spec.shape:
                raise dynamic(op, "its branches differ in shape")
            values[op.outputs[0]] = self.new_node(op, "chosen", Select, {}, [pred, true, false])[0]
        self.notes.append(f"cond {cond.name}: both branches are computed, and one result is chosen")

    def _unroll(self, loop: WholeLoop, expected: int, most: float) -> None:
        """Adds the nodes of a loop's iterations. Raises NeedsDynamicModeError if the number is not known.

        expected: iterations, where known beforehand. most: nodes; above it the loop is too long.
        """
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
            begun = len(self.made)
            self.forget(loop.ops)
            values.update(entered)
            values.update({m.outputs[0]: v for m, v in zip(loop.merges, following, strict=True)})
            self._add_iteration(loop)
            made = len(self.made) - before
            if self._tags[-1] == 1 and expected:  # the second iteration is like all others
                made = max(made, (len(self.made) - begun) * (expected - 1))
            if made > most or self._iterations > MOST_ITERATIONS:
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
                if not isinstance(item, Operation) or not item.definition.flow:
                    self.add(item)
                else:
                    self._flow(item, loop)
        except NeedsDynamicModeError:
            raise
        except TensorBowError as error:
            add_iteration(error, loop.name, self._tags[-1])
            raise

    def forget(self, ops: Sequence[Operation]) -> None:
        """Drops the values of some ops."""
        for op in ops:
            for tensor in op.outputs:
                self.values.pop(tensor, None)
            self._dead.discard(op)

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
    def tag(self) -> str:
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
                    op,
                )
            values[op.outputs[0]] = values[op.inputs[0]]
        elif flow in ("exit", "next_iteration"):
            values[op.outputs[0]] = values[op.inputs[0]]
            if values[op.inputs[0]] is DEAD:
                self._dead.add(op)
        else:
            self.pass_on(op)
        if self._devices is not None:
            self._set_order(op, [node for node, _ in self.made[made:]], self._devices[op])

    def new_node(
        self, op: Operation, part: str, definition: OpDef, attrs: Attrs, inputs: list[Value]
    ) -> list[Value]:
        """The values of a node that the user's graph does not have."""
        try:
            specs = definition.infer([value.spec for value in inputs], attrs)
        except TensorBowError as error:
            raise type(error)(blame(op.type, op.name, error, op.source)) from None
        node = Node(f"{op.name}/{part}{self.tag}", definition, attrs, inputs, op.id, op.source)
        node.outputs = [Value(f"{node.name}:{i}", spec, node, i) for i, spec in enumerate(specs)]
        self.made.append((node, op))
        return node.outputs

    # Ops --------------------------------------------------------------------------------------

    def _convert(self, op: Operation) -> None:
        definition, values = op.definition, self.values
        if definition is NoOp:
            return
        if definition in (StackPush, StackPop) and self._compiles_loops:
            self.levels.keep(op) if definition is StackPush else self.levels.take(op)
            return
        if definition is Call:
            self._call(op)
            return
        if definition in TENSOR_ARRAY_OPS and self._compiles_loops:
            self.arrays.convert(op, self.levels.in_block)
            return
        if op.is_dynamic:
            raise dynamic(op)
        if definition is AtMost and values[op.inputs[0]].constant is None:
            given = [values[t] for t in op.inputs]
            found = self.new_node(op, "least", Minimum, {}, given)[0] if self.runs_blocks else given[1]
            values[op.outputs[0]] = found
            return
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
        attrs = attrs_in_step(op, self._replicas, self._tags)
        scope, tag = self._scope, self.tag
        specs = known_specs(op, attrs, inputs)
        results = constant_results(op, inputs, specs, self._folded)
        if results is not None:
            self._folded.nbytes += sum(result.nbytes for result in results)
            for tensor, result in zip(op.outputs, results, strict=True):
                values.setdefault(tensor, _constant(f"{scope}{tensor.name}{tag}", result))
            self.notes.append(f"{op.name}: folded to a constant")
            return
        if changes_nothing(op, inputs, specs):
            values.setdefault(op.outputs[0], inputs[0])
            self.notes.append(f"{op.name}: dropped, its result equals {inputs[0].name}")
            return
        if definition is TransposeBy and inputs[1].constant is not None:
            attrs = {"perm": permutation_of(inputs[1].constant, inputs[0].spec)}
            definition, inputs = Transpose, inputs[:1]
        outer = self._calls[0] if self._calls else op
        node = Node(f"{scope}{op.name}{tag}", definition, attrs, inputs, outer.id, op.source)
        node.swaps = op.context is not None and op.context.swap_memory
        node.outputs = [
            Value(f"{scope}{tensor.name}{tag}", spec, node, index)
            for index, (tensor, spec) in enumerate(zip(op.outputs, specs, strict=True))
        ]
        for tensor, value in zip(op.outputs, node.outputs, strict=True):
            values.setdefault(tensor, value)  # a fed output keeps the fed value
        if definition.random and self.levels.in_block:
            self.levels.set_state(node, outer)
        self.made.append((node, outer))


def _has_effects(node: Node) -> bool:
    definition = node.definition
    return bool(definition.stateful or definition.exchange or definition.writes or definition.sets_status)


def _too_long(loop: WholeLoop) -> NeedsDynamicModeError:
    reason = (
        f"loop {loop.name} is too long to unroll: over {MOST_UNROLLED} ops or {MOST_ITERATIONS} iterations"
    )
    return NeedsDynamicModeError(f"{reason} (made at {loop.condition.source})", reason, loop.condition)


def _constant(name: str, array: Array) -> Value:
    return Value(name, TensorSpec(array.shape, as_dtype(array.dtype), array), constant=array)
