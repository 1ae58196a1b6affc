"""Loops that a plan has as one node While."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorbow.compiler.capture import Capture, check_node
from tensorbow.compiler.dynamic_mode import DEAD, NeedsDynamicModeError
from tensorbow.compiler.elements import arrays_written
from tensorbow.compiler.levels import BlockLevel, Folding, Key, Levels, Stacked, value_in, with_value
from tensorbow.compiler.loop_limits import UNKNOWN, limit_of
from tensorbow.compiler.wholes import Item, WholeLoop
from tensorbow.graph import ControlFlowContext, Operation
from tensorbow.ops.control import Copy
from tensorbow.program.blocks import ALIGNMENT, StackFrame
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.program.while_op import LoopProgram, specs_of_loop, while_form
from tensorbow.specs import TensorSpec

MOST_PLANNED_NBYTES = 64 << 20  # of a stack in the slab: a loop may end long before its bound


class LoopMaker:
    """Makes While nodes of a step."""

    def __init__(self, folding: Folding, levels: Levels):
        self._folding = folding
        self._levels = levels
        self._bounds: dict[ControlFlowContext | None, int] = {}  # most iterations of loops that have a bound

    def add(self, loop: WholeLoop, why: NeedsDynamicModeError) -> None:
        """Adds a loop as one node While. Raises `why` where shapes change, NeedsDynamicModeError for ops that
        no block may have.
        """
        self._levels.refuse_fixed(set(loop.ops).difference(loop.exits), loop.condition)
        arrays = self._folding.arrays
        saved, kept = arrays.saved(), dict(self._levels.now.kept)
        learned = self._try_loop(loop, why)
        if learned:
            made = self._folding.made
            arrays.restore(saved)
            self._levels.now.kept = kept
            for number, spec in learned.items():
                arrays.arrays[number].learned = spec
            before = len(made)
            if self._try_loop(loop, why):
                del made[before:]
                raise why

    def _try_loop(self, loop: WholeLoop, why: NeedsDynamicModeError) -> dict[int, TensorSpec]:
        """Adds the node; or returns specs of elements of arrays, by handle, that it had to learn first."""
        folding, values = self._folding, self._folding.values
        folding.forget(loop.ops)
        entered = {op.outputs[0]: values[op.inputs[0]] for op in loop.enters}
        around, counted = self._levels.now, limit_of(loop, values)
        bound, most = counted, None
        if counted == UNKNOWN:  # the loop of a gradient: as many iterations as its forward loop
            bound = self._bounds.get(loop.context.forward, UNKNOWN)
        if bound is not None and bound != UNKNOWN:
            self._bounds[loop.context] = max(bound, self._bounds.get(loop.context, 0))
            most = None if around.most is None else bound * around.most
        draft = _LoopDraft(loop, BlockLevel(around, around.loops + 1, is_loop=True, most=most))
        draft.ends = counted is not None
        for join in loop.merges:
            start = entered[join.inputs[0]]
            spec = TensorSpec(start.spec.shape, join.outputs[0].dtype)
            draft.add_variable(start, Value(join.outputs[0].name, spec))
            values[join.outputs[0]] = draft.variables[-1]
        values.update(entered)
        written = arrays_written(
            loop.ops, (loop.context, loop.context.forward), folding.values, folding.arrays
        )
        waiting = [n for n in written if not folding.arrays.as_rows(written[n], n)]
        held: list[tuple[int, str]] = []  # arrays, and their fields, that are variables of the loop
        for number in written:
            array = folding.arrays.arrays[number]
            if number in waiting:
                array.waits = True
                continue
            array.owned = True
            for name in ("rows", "written"):
                start = getattr(array, name)
                if start is not None:
                    held.append((number, name))
                    spec = TensorSpec(start.spec.shape, start.spec.dtype)
                    draft.add_variable(start, Value(f"{loop.name}/{name}{number}", spec))
                    setattr(array, name, draft.variables[-1])
        with self._levels.inside(draft.level):
            for item in loop.items:
                self._add_in_loop(item, loop)
        if waiting:
            found = {number: folding.arrays.arrays[number].learned for number in waiting}
            if None in found.values():
                raise why
            return found  # type: ignore[return-value]
        results = [values[join.inputs[1]] for join in loop.merges]
        results += [getattr(folding.arrays.arrays[number], name) for number, name in held]
        holds = values[loop.condition.outputs[0]]
        pairs = [*zip(results, draft.variables, strict=True)]
        if DEAD in results or any(
            a.spec.shape != b.spec.shape or a.spec.dtype != b.spec.dtype for a, b in pairs
        ):
            raise why
        outputs = self._finish_loop(draft, holds, results)
        made_by = dict(zip((join.outputs[0] for join in loop.merges), outputs, strict=False))
        for op in loop.exits:
            values[op.outputs[0]] = made_by[op.inputs[0].op.inputs[0]]
        for (number, name), output in zip(held, outputs[len(loop.merges) :], strict=True):
            array = folding.arrays.arrays[number]
            setattr(array, name, output)
            array.owned = self._levels.in_block
        folding.notes.append(f"loop {loop.name}: compiled as one call; {why.why}")
        return {}

    def _add_in_loop(self, item: Item, loop: WholeLoop) -> None:
        folding, values = self._folding, self._folding.values
        if not isinstance(item, Operation) or not item.definition.flow:
            folding.add(item)
        elif item.definition.flow == "switch" and item.inputs[1].op is loop.condition:
            values.update(dict.fromkeys(item.outputs, values[item.inputs[0]]))
        elif item.definition.flow in ("switch", "merge"):
            folding.pass_on(item)
        else:
            values[item.outputs[0]] = values[item.inputs[0]]

    def _finish_loop(self, draft: _LoopDraft, holds: Value, results: Sequence[Value]) -> list[Value]:
        """Makes the node While of what was added to a loop's level; returns the variables' last values."""
        loop, level = draft.loop, draft.level
        late = {
            node
            for node, op in level.made
            if any(each in loop.after_condition for each in self._levels.ops_of.get(node, (op,)))
        }
        ordered = [node for node, _ in level.made if node not in late]
        condition = set(ordered)
        ordered += [node for node, _ in level.made if node in late]
        for node in ordered:
            check_node(node)
        capture = Capture([*draft.variables, *(v for frame in level.taken for v in frame.offsets)])
        inside = set(loop.ops)
        keys = [key for key in level.kept if self._levels.is_taken_outside(key, inside)]
        fetches = [holds, *results, *(value_in(level.kept[key]) for key in keys)]
        program = capture.program(ordered, fetches)
        holds, *rest = program.fetches
        results, kept = rest[: len(results)], rest[len(results) :]
        body = [node for node in program.nodes if not _belongs(node, condition)]
        variables, initial, constants = draft.without_constants(results, holds, program.nodes)
        body, own = self._keep_in_frames(draft, keys, kept, body, capture)
        handles = [*level.handles, *([] if own is None else [own.handle])]
        if self._levels.now.loops:
            self._levels.now.handles += handles
            handles = []
        frames = [*level.taken, *([] if own is None else [own])]
        reads = [v for f in frames for v in (f.handle, f.begin, f.number) if v is not None]
        nodes = [*(node for node in program.nodes if _belongs(node, condition)), *body]
        open_results = [r for n, r in enumerate(results) if n not in constants]
        begin = [] if own is None else [own.begin]
        outer = [v for v in (*reads, *handles, self._levels.stop) if v not in begin]
        captured = capture.captured(nodes, [holds, *open_results], outer)
        whole = LoopProgram(
            variables,
            captured,
            [node for node in nodes if _belongs(node, condition)],
            holds,
            body,
            open_results,
            self._levels.stop,
            own,
            [capture.frame(frame) for frame in level.taken],
            handles,
            draft.ends,
            loop.name,
        )
        node = Node(
            loop.name + self._folding.tag,
            while_form(whole),
            {"loop": whole},
            [*initial, *map(capture.outside, captured)],
            loop.condition.id,
            loop.condition.source,
        )
        specs = specs_of_loop(whole)
        node.outputs = [Value(f"{loop.name}/exit{n}", spec, node, n) for n, spec in enumerate(specs)]
        if own is not None and level.most and own.nbytes * level.most <= MOST_PLANNED_NBYTES:
            own.handle.stack_nbytes = own.nbytes * level.most
        node.note = _loop_note(whole)
        self._folding.made.append((node, loop.condition))
        self._levels.ops_of[node] = loop.ops
        if own is not None:
            self._keep_outside(draft, node.outputs[-1], own, keys)
        made = iter(node.outputs)
        return [constants[n] if n in constants else next(made) for n in range(len(results))]

    def _keep_in_frames(
        self,
        draft: _LoopDraft,
        keys: Sequence[Key],
        kept: Sequence[Value],
        body: list[Node],
        capture: Capture,
    ) -> tuple[list[Node], StackFrame | None]:
        """The body with what it keeps in frames, and these; what does not change goes to the level around."""
        own: StackFrame | None = None
        in_body = set(body)
        written = {storage_of(node.inputs[i]) for node in body for i in node.definition.writes}
        draft.places = {}
        copies: dict[Value, Value] = {}
        for key, value in zip(keys, kept, strict=True):
            outside = None
            if storage_of(value) not in written:
                outside = self._outer_form(value, capture, draft.loop.condition)
            if outside is not None:
                self._levels.now.kept[key] = with_value(draft.level.kept[key], outside)
                continue
            if own is None:
                own = self._levels.new_frame(draft.loop.name)
            if storage_of(value).node not in in_body:
                if value not in copies:
                    copies[value] = _insert_copy(body, value)
                value = copies[value]
            root = storage_of(value)
            if root not in own.offsets:
                own.offsets[root] = own.nbytes
                own.nbytes += -(-max(1, root.spec.nbytes) // ALIGNMENT) * ALIGNMENT
            draft.places[key] = (own.offsets[root], TensorSpec(value.spec.shape, value.spec.dtype))
            own.zeroed = own.zeroed or key[0] in self._levels.zeroed
        return body, own

    def _outer_form(self, value: Value, capture: Capture, op: Operation) -> Value | None:
        """The value as it is outside the block, if it is made there; views of such values are made again."""
        if capture.is_outer(value):
            return capture.outside(value)
        node = value.node
        if node is None or not node.definition.is_view:
            return None
        sources = [self._outer_form(each, capture, op) for each in node.inputs]
        if None in sources:
            return None
        inputs = [each for each in sources if each is not None]
        view = Node(f"{node.name}/outside", node.definition, node.attrs, inputs, node.position, node.source)
        view.outputs = [Value(value.name, value.spec, view)]
        self._folding.made.append((view, op))
        return view.outputs[0]

    def _keep_outside(self, draft: _LoopDraft, begin: Value, own: StackFrame, keys: Sequence[Key]) -> None:
        """Tells the level around where the loop keeps what."""
        for key in keys:
            if key not in draft.places:
                continue
            offset, spec = draft.places[key]
            entry = Stacked(own.handle, begin, self._levels.now.loops, own.nbytes, offset, spec)
            self._levels.now.kept[key] = with_value(draft.level.kept[key], entry)


@dataclass(eq=False)
class _LoopDraft:
    """A loop under construction.

    places: what it keeps in its frames: offset and spec. ends: it counts to a limit.
    """

    loop: WholeLoop
    level: BlockLevel
    variables: list[Value] = field(default_factory=list)
    initial: list[Value] = field(default_factory=list)
    places: dict[Key, tuple[int, TensorSpec]] = field(default_factory=dict)
    ends: bool = False

    def add_variable(self, start: Value, variable: Value) -> None:
        """A loop variable, and its first value."""
        self.variables.append(variable)
        self.initial.append(start)

    def without_constants(
        self, results: Sequence[Value], holds: Value, nodes: Sequence[Node]
    ) -> tuple[list[Value], list[Value], dict[int, Value]]:
        """The variables and their first values, and by number those that always have the same constant.

        Such are the flows of TensorArrays.
        """
        read = {storage_of(v) for node in nodes for v in node.inputs} | {
            storage_of(r) for r in (holds, *results)
        }
        constants = {
            number: start
            for number, (start, result) in enumerate(zip(self.initial, results, strict=True))
            if start.constant is not None
            and result.constant is not None
            and np.array_equal(start.constant, result.constant)
            and self.variables[number] not in read
        }
        left = [number for number in range(len(results)) if number not in constants]
        return [self.variables[n] for n in left], [self.initial[n] for n in left], constants


def _belongs(node: Node, condition: set[Node]) -> bool:
    """True if a node belongs to the condition; a copy belongs to what it copies."""
    while node not in condition and node.definition is Copy and node.inputs[0].node is not None:
        node = node.inputs[0].node
    return node in condition


def _insert_copy(body: list[Node], value: Value) -> Value:
    """Adds a copy of a value to a body: behind the node that makes it, or where the body begins."""
    copy = Node(f"{value.name}/kept", Copy, {}, [value], 0)
    copy.outputs = [Value(value.name, TensorSpec(value.spec.shape, value.spec.dtype), copy)]
    body.insert(body.index(value.node) + 1 if value.node in body else 0, copy)
    return copy.outputs[0]


def _loop_note(loop: LoopProgram) -> str:
    counts = f"{len(loop.condition.nodes)} nodes of its condition, {len(loop.body.nodes)} of its body"
    if loop.own is None:
        return f"a loop in one call: {counts}"
    planned = loop.own.handle.stack_nbytes
    where = f"in {planned:,} bytes of the slab" if planned else "in memory of its own, which grows"
    return (
        f"a loop in one call: {counts}; keeps {loop.own.nbytes:,} bytes of each iteration for the gradient, "
        f"{where}"
    )
