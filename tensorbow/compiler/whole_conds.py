"""Conds that a plan has as one node Cond."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tensorbow.compiler.capture import Capture, check_node
from tensorbow.compiler.dynamic_mode import DEAD, dynamic
from tensorbow.compiler.elements import ArrayElements, arrays_written
from tensorbow.compiler.levels import BlockLevel, Folding, Kept, Key, Levels, value_in, with_value
from tensorbow.compiler.wholes import Item, WholeCond
from tensorbow.graph import Operation, Tensor
from tensorbow.program.blocks import Block
from tensorbow.program.cond_op import BranchProgram, cond_form
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.specs import TensorSpec


class CondMaker:
    """Makes Cond nodes of a step."""

    def __init__(self, folding: Folding, levels: Levels):
        self._folding = folding
        self._levels = levels

    def add(self, cond: WholeCond, pred: Value) -> None:
        """Adds a cond as one node. Raises NeedsDynamicModeError for ops that no block may have."""
        source = cond.merges[0] if cond.merges else cond.ops[0]
        self._levels.refuse_fixed(set(cond.ops).difference(cond.merges), source)
        folding, values = self._folding, self._folding.values
        arrays = folding.arrays
        branches = cond.whole.branches
        contexts = (*branches, *(each.forward for each in branches if each.forward is not None))
        written = arrays_written(cond.ops, contexts, values, arrays)
        for number, op in written.items():
            if not arrays.arrays[number].waits and not arrays.as_rows(op, number):
                raise dynamic(op, f"the shape of the elements that {op.name} writes is not known")
        before = arrays.saved()
        levels, after = [], []
        for number, items in enumerate(cond.items):
            if number:
                after.append(arrays.saved())
                arrays.restore([*before, *arrays.saved()[len(before) :]])
            level = BlockLevel(self._levels.now, self._levels.now.loops, most=self._levels.now.most)
            with self._levels.inside(level):
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
        self._add_arrays(draft, before, after, written)
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

    def _add_escapes(self, draft: _CondDraft, branch: int, ops: Sequence[Operation], cond: WholeCond) -> None:
        """Values of a branch that the same branch of another cond reads, as that of its gradient does."""
        values, inside = self._folding.values, set(cond.ops)
        for op in ops:
            for tensor in op.outputs:
                if (
                    tensor in values
                    and values[tensor] is not DEAD
                    and any(r in self._levels.needed and r not in inside for r in tensor.consumers())
                ):
                    draft.add_to(branch, values[tensor], _setting(values, tensor))
        for key, kept in draft.levels[branch].kept.items():
            if not self._levels.is_taken_outside(key, inside):
                continue

            def lifted(value: Value, key: Key = key, kept: Kept = kept) -> None:
                self._levels.now.kept[key] = with_value(kept, value)

            draft.add_to(branch, value_in(kept), lifted)
        self._levels.now.handles += draft.levels[branch].handles

    def _add_arrays(
        self,
        draft: _CondDraft,
        before: Sequence[ArrayElements],
        after: Sequence[Sequence[ArrayElements]],
        written: Collection[int],
    ) -> None:
        """Adds what branches write to arrays from outside; what they only read is as before."""
        arrays = self._folding.arrays
        for number, array in enumerate(before):
            if number not in written:
                arrays.arrays[number] = array.copied()
                continue
            pair = [each[number] for each in after]
            for name in ("rows", "written"):
                false, true = (getattr(each, name) for each in pair)
                if false is None or true is None or false is true:
                    continue
                target = arrays.arrays[number]
                target.owned = self._levels.in_block
                draft.add(false, true, _setting_field(target, name), owned=array.owned)

    def _finish_cond(self, draft: _CondDraft, cond: WholeCond, pred: Value, source: Operation) -> None:
        folding = self._folding
        inner = [tensor for op in cond.ops if op not in cond.merges for tensor in op.outputs]
        capture = Capture([])
        blocks: list[Block] = []
        roots: list[list[Value | None]] = []
        for branch, level in enumerate(draft.levels):
            nodes = [node for node, _ in level.made]
            for node in nodes:
                check_node(node)
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
        self._levels.ops_of[node] = cond.ops
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

    def __init__(self, levels: Sequence[BlockLevel]):
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
