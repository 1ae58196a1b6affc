"""Loops and conds that a plan has as one node: their ops become the nodes of blocks (see `program.blocks`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from tensorbow.compiler.dynamic_mode import DEAD, NeedsDynamicModeError, dynamic
from tensorbow.compiler.elements import Elements, StepArrays, array_source, writes_of
from tensorbow.compiler.loop_limits import limit_of
from tensorbow.compiler.merge import merge
from tensorbow.compiler.protect import protect
from tensorbow.compiler.prune import drop_unused
from tensorbow.compiler.wholes import Item, WholeCond, WholeLoop
from tensorbow.graph import Operation, Tensor
from tensorbow.ops.control import Copy
from tensorbow.ops.control_flow import StackPop
from tensorbow.ops.tensor_arrays import TensorArrayNew
from tensorbow.program.blocks import ALIGNMENT, Block, Frame
from tensorbow.program.cond_op import BranchProgram, cond_form
from tensorbow.program.control_forms import Cond, While
from tensorbow.program.nodes import Node, Program, Value, storage_of
from tensorbow.program.plan import Ref, Region
from tensorbow.program.stacks import ALIGNMENT as HANDLE_NBYTES
from tensorbow.program.stacks import STOP_OFFSET, HandleWord
from tensorbow.program.while_op import LoopProgram, specs_of_loop, while_form
from tensorbow.specs import Array, TensorSpec, int64

Made: TypeAlias = "list[tuple[Node, Operation]]"
Key: TypeAlias = "tuple[str, tuple[int | None, ...]]"
"""A push, and the numbers of the iterations around it: None for those of compiled loops."""


@dataclass(frozen=True)
class Stacked:
    """A value that the iterations of a compiled loop keep in the frames of a stack.

    begin: position of the first frame of the loop's run, which a loop around may keep in turn. depth: how many
    compiled loops are around that loop.
    """

    handle: Value
    begin: Kept
    depth: int
    nbytes: int  # of a frame
    offset: int
    spec: TensorSpec


Kept: TypeAlias = "Value | Stacked"


@dataclass(eq=False)
class Level:
    """The step, or a block of it that is being made. loops: how many compiled loops are around its nodes."""

    outer: Level | None = None
    loops: int = 0
    is_loop: bool = False
    made: Made = field(default_factory=list)
    kept: dict[Key, Kept] = field(default_factory=dict)  # for gradients
    taken: list[Frame] = field(default_factory=list)  # frames of earlier loops that this loop reads
    handles: list[Value] = field(default_factory=list)  # of stacks of the loops in it


class Folding(Protocol):
    """What a step's folding gives to the making of blocks."""

    values: dict[Tensor, Value]
    made: Made
    notes: list[str]
    arrays: StepArrays

    def add(self, item: Item) -> None:
        """Adds the nodes of an op, or of a loop or cond."""

    def pass_on(self, op: Operation) -> None:
        """An op of control flow whose condition is constant."""

    def forget(self, ops: Sequence[Operation]) -> None:
        """Drops the values of some ops."""

    @property
    def tag(self) -> str:
        """End of the names of nodes in unrolled loops."""

    def constant(self, name: str, array: Array) -> Value:
        """A constant."""


class BlockMaker:
    """Makes While and Cond nodes of a step."""

    def __init__(self, folding: Folding, ops: Sequence[Operation], fixed: Collection[Operation]):
        """ops: of the step. fixed: those that are fed, fetched or run for themselves."""
        self._folding = folding
        self._needed = set(ops)
        self._fixed = set(fixed)
        pops = [op for op in ops if op.definition is StackPop]
        self._zeroed = {op.attrs["push"] for op in pops if op.attrs["or_zeros"]}
        self._pops: dict[str, list[Operation]] = {}  # by push
        for op in pops:
            self._pops.setdefault(op.attrs["push"], []).append(op)
        self._ops_of: dict[Node, Sequence[Operation]] = {}  # of the nodes While and Cond
        self.level = Level()
        self._stop = _control_value("stop", STOP_OFFSET, ())
        self._stacks = 0

    @property
    def in_block(self) -> bool:
        """True while the nodes of a block are made."""
        return self.level.outer is not None

    @contextmanager
    def _inside(self, level: Level) -> Iterator[None]:
        folding, outer, made = self._folding, self.level, self._folding.made
        self.level, folding.made = level, level.made
        try:
            yield
        finally:
            self.level, folding.made = outer, made

    def _is_taken_outside(self, key: Key, inside: Collection[Operation]) -> bool:
        """True if something outside of a loop or cond takes back what is kept."""
        return any(op not in inside for op in self._pops.get(key[0], ()))

    def refuse_fixed(self, ops: Collection[Operation], source: Operation) -> None:
        """Raises NeedsDynamicModeError if something in a loop or cond is fed or fetched."""
        for op in self._fixed.intersection(ops):
            raise dynamic(source, f"{op.name} is in it, and fed or fetched")

    # Values for gradients ---------------------------------------------------------------------

    def keep(self, op: Operation) -> None:
        """StackPush."""
        values = self._folding.values
        key = (op.name, tuple(_number(values[t]) for t in op.inputs[1:]))
        self.level.kept[key] = values[op.inputs[0]]

    def take(self, op: Operation) -> None:
        """StackPop."""
        values = self._folding.values
        or_zeros = op.attrs["or_zeros"]
        numbers = [values[t] for t in op.inputs[1 if or_zeros else 0 :]]
        key = (op.attrs["push"], tuple(map(_number, numbers)))
        level: Level | None = self.level
        while level is not None and key not in level.kept:
            level = level.outer
        if level is None:
            if not or_zeros:
                raise dynamic(op, f"{op.attrs['push']} keeps no value where it is taken back")
            spec = values[op.inputs[0]].spec  # of a branch that was not taken
            zeros = np.zeros(spec.extents, spec.dtype.as_numpy_dtype)
            values[op.outputs[0]] = self._folding.constant(op.outputs[0].name, zeros)
            return
        open_numbers = [each for each in numbers if each.constant is None]
        values[op.outputs[0]] = self._taken(level.kept[key], open_numbers, op)

    def _taken(self, kept: Kept, numbers: Sequence[Value], op: Operation) -> Value:
        if isinstance(kept, Value):
            return kept
        loop: Level | None = self.level
        between: list[Level] = []
        while loop is not None and not loop.is_loop:
            between.append(loop)
            loop = loop.outer
        if loop is None or kept.depth >= len(numbers):
            raise dynamic(op, "a value that a compiled loop keeps is taken back outside of loops")
        begin = self._taken(kept.begin, numbers, op)
        number = numbers[kept.depth]
        for value in (begin, number):
            node = storage_of(value).node
            if node is not None and any(node is each for lv in (loop, *between) for each, _ in lv.made):
                raise dynamic(op, "a value of an iteration is taken back whose number is computed in the loop")
        for frame in loop.taken:
            if (frame.handle, frame.begin, frame.number) == (kept.handle, begin, number):
                break
        else:
            frame = Frame(kept.handle, begin, number, kept.nbytes)
            loop.taken.append(frame)
        for value, offset in frame.offsets.items():
            if offset == kept.offset and value.spec == kept.spec:
                return value
        value = Value(op.outputs[0].name, kept.spec)
        frame.offsets[value] = kept.offset
        return value

    # Loops ------------------------------------------------------------------------------------

    def add_loop(self, loop: WholeLoop, why: NeedsDynamicModeError) -> None:
        """Adds a loop as one node While. Raises `why` where shapes change, NeedsDynamicModeError for ops that
        no block may have.
        """
        self.refuse_fixed(set(loop.ops).difference(loop.exits), loop.condition)
        arrays = self._folding.arrays
        saved, kept = arrays.saved(), dict(self.level.kept)
        learned = self._try_loop(loop, why)
        if learned:
            made = self._folding.made
            arrays.restore(saved)
            self.level.kept = kept
            for number, spec in learned.items():
                arrays.arrays[number].learned = spec
            before = len(made)
            if self._try_loop(loop, why):
                del made[before:]
                raise why

    def _try_loop(self, loop: WholeLoop, why: NeedsDynamicModeError) -> dict[int, TensorSpec]:
        """Adds the node; instead returns the specs of elements of arrays that it has learned, if there are."""
        folding, values = self._folding, self._folding.values
        folding.forget(loop.ops)
        entered = {op.outputs[0]: values[op.inputs[0]] for op in loop.enters}
        draft = _LoopDraft(loop, Level(self.level, self.level.loops + 1, is_loop=True))
        for join in loop.merges:
            start = entered[join.inputs[0]]
            spec = TensorSpec(start.spec.shape, join.outputs[0].dtype)
            draft.add_variable(start, Value(join.outputs[0].name, spec))
            values[join.outputs[0]] = draft.variables[-1]
        values.update(entered)
        written = self._arrays_written(loop)
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
        with self._inside(draft.level):
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
            array.owned = self.in_block
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

    def _arrays_written(self, loop: WholeLoop) -> dict[int, Operation]:
        """The arrays from outside to which a loop writes, each with an op that does."""
        found: dict[int, Operation] = {}
        for op in writes_of(loop.ops):
            number = self._handle_of(op.inputs[0], loop)
            if number is not None:
                found.setdefault(number, op)
        return found

    def _handle_of(self, tensor: Tensor, loop: WholeLoop) -> int | None:
        """The handle of an array from outside a loop; that of its gradients is made if there is none.

        An array that each iteration of the forward loop makes has gradients in each of this one.
        """
        source = array_source(tensor)
        if source is None:
            return None
        if source.definition is TensorArrayNew:
            chain = () if source.context is None else tuple(source.context.chain())
            if loop.context in chain or (loop.context.forward is not None and loop.context.forward in chain):
                return None
            value = self._folding.values[source.outputs[0]].constant
            return None if value is None else int(value)
        of = self._handle_of(source.inputs[0], loop)
        return None if of is None else self._folding.arrays.new(source, of)

    def _finish_loop(self, draft: _LoopDraft, holds: Value, results: Sequence[Value]) -> list[Value]:
        """Makes the node While of what was added to a loop's level; returns the variables' last values."""
        loop, level = draft.loop, draft.level
        late = {
            node
            for node, op in level.made
            if any(each in loop.after_condition for each in self._ops_of.get(node, (op,)))
        }
        ordered = [node for node, _ in level.made if node not in late]
        condition = set(ordered)
        ordered += [node for node, _ in level.made if node in late]
        for node in ordered:
            _check_node(node)
        capture = _Capture([*draft.variables, *(v for frame in level.taken for v in frame.offsets)])
        inside = set(loop.ops)
        keys = [key for key in level.kept if self._is_taken_outside(key, inside)]
        fetches = [holds, *results, *(_value_in(level.kept[key]) for key in keys)]
        program = capture.program(ordered, fetches)
        holds, *rest = program.fetches
        results, kept = rest[: len(results)], rest[len(results) :]
        body = [node for node in program.nodes if not _belongs(node, condition)]
        variables, initial, constants = draft.without_constants(results, holds, program.nodes)
        body, own = self._keep_in_frames(draft, keys, kept, body, capture)
        handles = [*level.handles, *([] if own is None else [own.handle])]
        if self.level.loops:
            self.level.handles += handles
            handles = []
        frames = [*level.taken, *([] if own is None else [own])]
        reads = [v for f in frames for v in (f.handle, f.begin, f.number) if v is not None]
        nodes = [*(node for node in program.nodes if _belongs(node, condition)), *body]
        open_results = [r for n, r in enumerate(results) if n not in constants]
        begin = [] if own is None else [own.begin]
        outer = [v for v in (*reads, *handles, self._stop) if v not in begin]
        captured = capture.captured(nodes, [holds, *open_results], outer)
        whole = LoopProgram(
            variables,
            captured,
            [node for node in nodes if _belongs(node, condition)],
            holds,
            body,
            open_results,
            self._stop,
            own,
            [capture.frame(frame) for frame in level.taken],
            handles,
            limit_of(loop) is not None,
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
        node.note = _loop_note(whole)
        self._folding.made.append((node, loop.condition))
        self._ops_of[node] = loop.ops
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
        capture: _Capture,
    ) -> tuple[list[Node], Frame | None]:
        """The body with what it keeps in frames, and these; what does not change goes to the level around."""
        own: Frame | None = None
        in_body = set(body)
        written = {storage_of(node.inputs[i]) for node in body for i in node.definition.writes}
        draft.places = {}
        copies: dict[Value, Value] = {}
        for key, value in zip(keys, kept, strict=True):
            outside = None
            if storage_of(value) not in written:
                outside = self._outer_form(value, capture, draft.loop.condition)
            if outside is not None:
                self.level.kept[key] = _with_value(draft.level.kept[key], outside)
                continue
            if own is None:
                own = self._new_frame(draft.loop)
            if storage_of(value).node not in in_body:
                if value not in copies:
                    copies[value] = _insert_copy(body, value)
                value = copies[value]
            root = storage_of(value)
            if root not in own.offsets:
                own.offsets[root] = own.nbytes
                own.nbytes += -(-max(1, root.spec.nbytes) // ALIGNMENT) * ALIGNMENT
            draft.places[key] = (own.offsets[root], TensorSpec(value.spec.shape, value.spec.dtype))
            own.zeroed = own.zeroed or key[0] in self._zeroed
        return body, own

    def _new_frame(self, loop: WholeLoop) -> Frame:
        self._stacks += 1
        handle = _control_value(
            f"{loop.name}/stack", self._stacks * HANDLE_NBYTES, (int(HandleWord.WORDS),)
        )
        return Frame(handle, Value(f"{loop.name}/begin", TensorSpec((), int64)), None, 0)

    def _outer_form(self, value: Value, capture: _Capture, op: Operation) -> Value | None:
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

    def _keep_outside(self, draft: _LoopDraft, begin: Value, own: Frame, keys: Sequence[Key]) -> None:
        """Tells the level around where the loop keeps what."""
        for key in keys:
            if key not in draft.places:
                continue
            offset, spec = draft.places[key]
            entry = Stacked(own.handle, begin, self.level.loops, own.nbytes, offset, spec)
            self.level.kept[key] = _with_value(draft.level.kept[key], entry)

    # Conds ------------------------------------------------------------------------------------

    def add_cond(self, cond: WholeCond, pred: Value) -> None:
        """Adds a cond as one node. Raises NeedsDynamicModeError for ops that no block may have."""
        source = cond.merges[0] if cond.merges else cond.ops[0]
        self.refuse_fixed(set(cond.ops).difference(cond.merges), source)
        folding, values = self._folding, self._folding.values
        arrays = folding.arrays
        before = arrays.saved()
        levels, after = [], []
        for number, items in enumerate(cond.items):
            if number:
                after.append(arrays.saved())
                arrays.restore([*before, *arrays.saved()[len(before) :]])
            level = Level(self.level, self.level.loops)
            with self._inside(level):
                for item in items:
                    self._add_in_branch(item, cond)
            levels.append(level)
        after.append(arrays.saved())
        draft = _CondDraft(levels)
        for merge_op in cond.merges:
            pair = [values[t] for t in merge_op.inputs]
            if DEAD in pair:
                raise dynamic(merge_op)
            if pair[0].spec.shape != pair[1].spec.shape:
                shapes = " and ".join(str(each.spec) for each in pair)
                raise dynamic(merge_op, f"its branches give {shapes}, which differ in shape")
            draft.add(pair[0], pair[1], _setting(values, merge_op.outputs[0]))
        for branch, items_ops in enumerate(self._branch_ops(cond)):
            self._add_escapes(draft, branch, items_ops, cond)
        self._add_arrays(draft, before, after, source)
        self._finish_cond(draft, cond, pred, source)

    def _add_in_branch(self, item: Item, cond: WholeCond) -> None:
        values = self._folding.values
        pred = cond.whole.branches[0].pred
        if isinstance(item, Operation) and item.definition.flow == "switch" and item.inputs[1] is pred:
            values.update(dict.fromkeys(item.outputs, values[item.inputs[0]]))
        else:
            self._folding.add(item)

    def _branch_ops(self, cond: WholeCond) -> tuple[list[Operation], list[Operation]]:
        found: tuple[list[Operation], list[Operation]] = ([], [])
        for branch, items in enumerate(cond.items):
            for item in items:
                found[branch].extend([item] if isinstance(item, Operation) else item.ops)
        return found

    def _add_escapes(
        self, draft: _CondDraft, branch: int, ops: Sequence[Operation], cond: WholeCond
    ) -> None:
        """Values of a branch that the same branch of another cond reads, as that of its gradient does."""
        values, inside = self._folding.values, set(cond.ops)
        for op in ops:
            for tensor in op.outputs:
                if tensor in values and values[tensor] is not DEAD and any(r in self._needed and r not in inside for r in tensor.consumers()):
                    draft.add_to(branch, values[tensor], _setting(values, tensor))
        for key, kept in draft.levels[branch].kept.items():
            if not self._is_taken_outside(key, inside):
                continue

            def lifted(value: Value, key: Key = key, kept: Kept = kept) -> None:
                self.level.kept[key] = _with_value(kept, value)

            draft.add_to(branch, _value_in(kept), lifted)
        self.level.handles += draft.levels[branch].handles

    def _add_arrays(
        self,
        draft: _CondDraft,
        before: Sequence[Elements],
        after: Sequence[Sequence[Elements]],
        source: Operation,
    ) -> None:
        arrays = self._folding.arrays
        for number, array in enumerate(before):
            pair = [each[number] for each in after]
            if any((a.rows is None) != (array.rows is None) or a.elements != array.elements for a in pair):
                raise dynamic(source, "a branch writes to a TensorArray whose elements are no rows")
            for name in ("rows", "written"):
                false, true = (getattr(each, name) for each in pair)
                if false is None or true is None or false is true:
                    continue
                target = arrays.arrays[number]
                target.owned = self.in_block
                draft.add(false, true, _setting_field(target, name), owned=array.owned)

    def _finish_cond(self, draft: _CondDraft, cond: WholeCond, pred: Value, source: Operation) -> None:
        folding = self._folding
        inner = [tensor for op in cond.ops if op not in cond.merges for tensor in op.outputs]
        capture = _Capture([])
        blocks: list[Block] = []
        roots: list[list[Value | None]] = []
        for branch, level in enumerate(draft.levels):
            nodes = [node for node, _ in level.made]
            for node in nodes:
                _check_node(node)
            wanted = [r[branch] for r in draft.results]
            program = capture.program(nodes, [v for v in wanted if v is not None])
            found = iter(program.fetches)
            results = [None if v is None else next(found) for v in wanted]
            blocks.append(Block(program.nodes, results))
            roots.append(results)
        captured = capture.captured(
            [node for block in blocks for node in block.nodes],
            [value for results in roots for value in results if value is not None],
        )
        in_place = {}
        for number, (false, true) in enumerate(zip(*roots, strict=True)):
            if draft.owned[number] and false is not None and true is not None:
                root = storage_of(false)
                if root is storage_of(true) and root in captured:
                    in_place[number] = captured.index(root)
        whole = BranchProgram(captured, blocks, in_place)
        node = Node(
            cond.name + folding.tag,
            cond_form(whole),
            {"branches": whole},
            [pred, *map(capture.outside, captured)],
            source.id,
            source.source,
        )
        node.outputs = [
            Value(f"{cond.name}:{n}", TensorSpec(r.spec.shape, r.spec.dtype), node, n)
            for n, pair in enumerate(draft.results)
            for r in [next(v for v in pair if v is not None)]
        ]
        counts = " and ".join(str(len(block.nodes)) for block in reversed(blocks))
        node.note = f"a cond in one call: {counts} nodes of its branches for true and false"
        folding.made.append((node, source))
        self._ops_of[node] = cond.ops
        for tensor in inner:
            folding.values.pop(tensor, None)
        for tell, value in draft.told:
            tell(value)
        for output, tell in zip(node.outputs, draft.tell, strict=True):
            tell(output)
        folding.notes.append(f"cond {cond.name}: compiled as one call; its condition depends on data")


def _setting(values: dict[Tensor, Value], tensor: Tensor) -> Callable[[Value], None]:
    """Sets the value of a tensor."""
    return lambda value: values.__setitem__(tensor, value)


def _setting_field(target: object, name: str) -> Callable[[Value], None]:
    """Sets an attribute to a value."""
    return lambda value: setattr(target, name, value)


class _CondDraft:
    """Results of a cond under construction: pairs of values of [false, true], None where there is none.

    tell: what each result is told to once it is an output of the node. told: values from outside that need
    no output.
    """

    def __init__(self, levels: Sequence[Level]):
        self.levels = levels
        self.results: list[tuple[Value | None, Value | None]] = []
        self.owned: list[bool] = []
        self.tell: list[Callable[[Value], None]] = []
        self.told: list[tuple[Callable[[Value], None], Value]] = []
        self._inside = {value for level in levels for node, _ in level.made for value in node.outputs}

    def add(self, false: Value, true: Value, tell: Callable[[Value], None], *, owned: bool = False) -> None:
        """A result of both branches."""
        if false is true and false not in self._inside:
            self.told.append((tell, false))
            return
        self.results.append((false, true))
        self.owned.append(owned)
        self.tell.append(tell)

    def add_to(self, branch: int, value: Value, tell: Callable[[Value], None]) -> None:
        """A result of one branch."""
        if value not in self._inside:
            self.told.append((tell, value))
            return
        self.results.append((None, value) if branch else (value, None))
        self.owned.append(False)
        self.tell.append(tell)


@dataclass(eq=False)
class _LoopDraft:
    """A loop under construction. places: what it keeps in its frames: offset and spec."""

    loop: WholeLoop
    level: Level
    variables: list[Value] = field(default_factory=list)
    initial: list[Value] = field(default_factory=list)
    places: dict[Key, tuple[int, TensorSpec]] = field(default_factory=dict)

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
        read = {storage_of(v) for node in nodes for v in node.inputs} | {storage_of(r) for r in (holds, *results)}
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


class _Capture:
    """What a block reads from outside. Values that nodes outside make have stand-ins inside."""

    def __init__(self, own: Sequence[Value]):
        """own: values of the block that no node makes."""
        self._own = set(own)
        self._inside: dict[Value, Value] = {}  # by value outside
        self._outside: dict[Value, Value] = {}

    def _of(self, value: Value) -> Value:
        """An outer value as it is inside."""
        if value.node is None:
            return value
        if value not in self._inside:
            stand_in = Value(value.name, TensorSpec(value.spec.shape, value.spec.dtype))
            self._inside[value], self._outside[stand_in] = stand_in, value
        return self._inside[value]

    def program(self, nodes: Sequence[Node], fetches: Sequence[Value]) -> Program:
        """The nodes, cleaned; fetches: what they are for."""
        made = {value for node in nodes for value in node.outputs}

        def inside(value: Value) -> Value:
            return value if value in made or value in self._own else self._of(value)

        for node in nodes:
            node.inputs = [inside(value) for value in node.inputs]
        program = Program(list(nodes), [inside(value) for value in fetches], {})
        return protect(drop_unused(merge(program)), "cpu")

    def is_outer(self, value: Value) -> bool:
        """True if a value inside is one from outside."""
        return value.node is None and value not in self._own

    def outside(self, value: Value) -> Value:
        """The outer value of one inside."""
        return self._outside.get(value, value)

    def captured(
        self, nodes: Sequence[Node], results: Sequence[Value], outer: Sequence[Value] = ()
    ) -> list[Value]:
        """All outer values that nodes and results read, and those of `outer`, as they are inside."""
        read = [*(v for node in nodes for v in node.inputs), *results]
        read += [v if v in self._own else self._of(v) for v in outer]
        made = {value for node in nodes for value in node.outputs}
        return [v for v in dict.fromkeys(map(storage_of, read)) if v not in made and v not in self._own]

    def frame(self, frame: Frame) -> Frame:
        """A frame whose parts are named as they are inside."""

        def inside(value: Value) -> Value:
            return value if value in self._own else self._of(value)

        number = None if frame.number is None else inside(frame.number)
        return Frame(inside(frame.handle), inside(frame.begin), number, frame.nbytes, frame.offsets)


def _control_value(name: str, offset: int, shape: tuple[int, ...]) -> Value:
    return Value(name, TensorSpec(shape, int64), ref=Ref(Region.CONTROL, offset, shape, int64))


def _number(value: Value) -> int | None:
    return None if value.constant is None else int(value.constant)


def _value_in(kept: Kept) -> Value:
    """The value of the level in what is kept: itself, or the position where its frames begin."""
    while isinstance(kept, Stacked):
        kept = kept.begin
    return kept


def _with_value(kept: Kept, value: Kept) -> Kept:
    """What is kept, with another value in the place of `_value_in`."""
    if isinstance(kept, Stacked):
        begin = _with_value(kept.begin, value)
        return Stacked(kept.handle, begin, kept.depth, kept.nbytes, kept.offset, kept.spec)
    return value


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
    kept = "" if loop.own is None else f"; keeps {loop.own.nbytes:,} bytes of each iteration for the gradient"
    return f"a loop in one call: {counts}{kept}"


def _check_node(node: Node) -> None:
    """Raises NeedsDynamicModeError for a node that no block may have."""
    definition = node.definition
    if definition.form_of is not None or definition in (While, Cond):
        return
    reason = ""
    if definition.exchange:
        reason = "replicas meet in it"
    elif definition.random or definition.state:
        reason = "it reads random or other state of the step"
    elif not definition.kernels and not definition.is_view:
        reason = "it has no kernel"
    elif definition.stateful and not definition.writes:
        reason = "it has an effect"
    if reason:
        message = f"{definition.name} {node.name} is in a loop or cond that depends on data, and {reason}"
        raise NeedsDynamicModeError(f"{message} (made at {node.source})", message)
