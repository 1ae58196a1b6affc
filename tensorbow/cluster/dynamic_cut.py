"""Parts of a dynamic step: its graph cut between tasks, with a Send and a Receive for what crosses.

Loops and branches may be on several tasks (white paper, section 4.4): each task of a loop has a control loop,
and what crosses within the loop is sent in each iteration. A branch that is not taken sends a mark in the
place of its values. Constants, fed placeholders and what enters a loop as it is are copied to the tasks that
read them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tensorbow.cluster.frames import StepFrames, data_inputs, is_constant_enter
from tensorbow.cluster.split_contexts import without_split_contexts
from tensorbow.cluster.task_step import task_of
from tensorbow.cluster.transfer_ops import NOTHING, Receive, Send
from tensorbow.errors import InvalidArgumentError
from tensorbow.executor import Frame
from tensorbow.graph import GraphDef, NodeDef, Operation
from tensorbow.graph.context_def import ContextDef, used_contexts
from tensorbow.graph.function_def import used_functions
from tensorbow.graph.graph_def import PUSH, operation_name
from tensorbow.ops.control_flow import StackPop
from tensorbow.specs import TensorSpec, float32

ARRAYS = (
    "TensorArrayV3",
    "TensorArrayGradV3",
)  # ops whose first output is a handle, as those with a shared_name


@dataclass
class PartOfTask:
    """A task's part: its graph, and by what names the session fetches there, with their places among all."""

    graph: GraphDef
    placeholders: list[str]
    fetches: list[tuple[int, str]] = field(default_factory=list)


class _Nodes:
    """The nodes of one task so far."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.nodes: list[NodeDef] = []
        self.copied: set[str] = set()


class StepCut:
    """Cuts a graph whose nodes have full device names."""

    def __init__(self, graph: GraphDef, frames: StepFrames, fed: Collection[str], lossy: bool = False):
        """fed: names of placeholders that are fed. lossy: float32 is sent as its upper 16 bits.

        Raises InvalidArgumentError for a gradient that takes back what is kept on another task.
        """
        self._fed, self._lossy = fed, lossy
        self._by_name = _with_loop_variables(graph.node)
        self._frames = frames
        self._tasks = self._tasks_of_frames()
        nodes = GraphDef(list(self._by_name.values()), context=graph.context, library=graph.library)
        self._graph = without_split_contexts(nodes, self._task_of)
        self._by_name = {node.name: node for node in self._graph.node}
        self._names = set(self._by_name)
        self._sends: dict[str, list[tuple[str, str, Frame]]] = {}  # by task: sources, names and frames
        self._bits, self._reach = self._reached()
        self._parts: dict[str, _Nodes] = {}
        self._received: dict[tuple[str, str], str] = {}  # by input and task: the input there
        self._controls: dict[tuple[Frame, str], str] = {}  # Merges of control loops, by loop and task
        for node in self._graph.node:
            if node.op == "Enter":
                self._begin(node)
            if not self._is_copied(node) and not is_constant_enter(node):
                self._add(node)

    def parts(self, fetched: Sequence[str], home: str) -> dict[str, PartOfTask]:
        """The parts by task. fetched: names of tensors. home: the task of fetched constants and feeds."""
        places: dict[str, list[tuple[int, str]]] = {}
        for index, item in enumerate(fetched):
            node = self._by_name[operation_name(item)]
            task = home if self._is_copied(node) else task_of(node.device)
            if task == home:
                self._copy(node, self._of(home))
            places.setdefault(task, []).append((index, item))
        found: dict[str, PartOfTask] = {}
        for task, part in self._parts.items():
            graph = GraphDef(
                part.nodes,
                context=used_contexts(self._contexts(task), part.nodes),
                library=used_functions(self._graph.library, part.nodes),
            )
            found[task] = PartOfTask(
                graph, [name for name in self._fed if name in part.copied], places.get(task, [])
            )
        return found

    def _contexts(self, task: str) -> list[ContextDef]:
        """The loops and conds, with a cond's predicate as a task has it."""
        found = []
        for context in self._graph.context:
            names = [self._received.get((item, task), item) for item in context.tensor.get("pred", ())]
            found.append(replace(context, tensor={**context.tensor, "pred": names}) if names else context)
        return found

    def _of(self, task: str) -> _Nodes:
        return self._parts.setdefault(task, _Nodes(task))

    def _is_copied(self, node: NodeDef) -> bool:
        return node.op == "Const" or node.name in self._fed

    def _task_of(self, node: NodeDef) -> str:
        """The task of a node; "" for one that each task has that reads it."""
        return "" if self._is_copied(node) or is_constant_enter(node) else task_of(node.device)

    def _tasks_of_frames(self) -> dict[Frame, set[str]]:
        """The tasks that nodes of each loop are on, those of the loops in it counted."""
        found: dict[Frame, set[str]] = {}
        for node in self._by_name.values():
            task = self._task_of(node)
            for frame in self._frames.frame_of(node).chain()[1:] if task else ():
                found.setdefault(frame, set()).add(task)
        return found

    def _copy(self, node: NodeDef, part: _Nodes) -> None:
        if self._is_copied(node) and node.name not in part.copied:
            part.copied.add(node.name)
            part.nodes.append(replace(node, input=[], device=f"{part.task}/device:CPU:0"))

    def _copy_enter(self, node: NodeDef, part: _Nodes) -> None:
        """Copies an Enter of a value that a loop does not change to a task that reads it there."""
        if node.name not in part.copied:
            part.copied.add(node.name)
            inputs = [self._input(item, part) for item in node.input]
            own = task_of(node.device) == part.task
            device = node.device if own else f"{part.task}/device:CPU:0"
            part.nodes.append(replace(node, input=inputs, device=device))

    def _add(self, node: NodeDef) -> None:
        task = task_of(node.device)
        part = self._of(task)
        push = self._by_name.get(str(node.attr.get(PUSH)))
        if push is not None and task_of(push.device) != task:
            raise InvalidArgumentError(
                f"{node.op} {node.name} on {task} takes back what {push.name} keeps on "
                f"{task_of(push.device)}; put both under one tb.device (made at {node.source})"
            )
        part.nodes.append(replace(node, input=[self._input(item, part) for item in node.input]))

    def _begin(self, enter: NodeDef) -> None:
        """Adds the control loops of a loop over tasks, where its first Enter is in program order."""
        frame = self._frames.entered(enter)
        tasks = self._tasks.get(frame, ())
        for task in sorted(tasks) if len(tasks) > 1 else ():
            self._control(frame, self._of(task))

    def _input(self, item: str, part: _Nodes) -> str:
        """The input that stands for a value, or a node's end, on the task of a part."""
        source = self._by_name[operation_name(item)]
        if self._is_copied(source):
            self._copy(source, part)
            return item
        if is_constant_enter(source):
            self._copy_enter(source, part)
            return item
        if task_of(source.device) == part.task:
            return item
        known = self._received.get((item, part.task))
        if known is None:
            known = self._received[item, part.task] = self._transfer(item, source, part)
        return known

    def _transfer(self, item: str, source: NodeDef, part: _Nodes, signal: bool = False) -> str:
        """Adds a Send and a Receive; returns the input that stands for the value on the reading task.

        signal: instead of the value it is sent that there is one, or that there is none.
        """
        end = item.startswith("^")
        signal = signal or end
        spec = TensorSpec((), float32) if signal else source.output[int(item.rpartition(":")[2])]
        frame, conditions = self._frames.of(item)
        lossy = self._lossy and not signal and spec.dtype is float32
        key = f"whether {item}" if signal and not end else item
        send = NodeDef(
            self._unique(f"{source.name}/send"),
            Send.name,
            [item],
            {"to": part.task, "key": key, "signal": signal, "lossy": lossy},
            device=source.device,
            source=source.source,
        )
        receive = NodeDef(
            self._unique(f"{source.name}/receive"),
            Receive.name,
            [f"^{self._control(frame, part)}"] if frame.parent is not None else [],
            {
                "key": key,
                "sender": task_of(source.device),
                "dtype": spec.dtype,
                "shape": spec.shape,
                "lossy": lossy,
                "conditions": tuple(sorted(map(str, conditions))),
                "after": self._sent_before(source.name, part.task, frame),
            },
            [TensorSpec(spec.shape, spec.dtype)],
            f"{part.task}/device:CPU:0",
            source=source.source,
        )
        self._of(task_of(source.device)).nodes.append(send)
        self._sends.setdefault(task_of(source.device), []).append((source.name, send.name, frame))
        part.nodes.append(receive)
        return f"^{receive.name}" if end else f"{receive.name}:0"

    def _reached(self) -> tuple[dict[str, int], dict[str, int]]:
        """A bit for each node that another task reads, and by node those bits that it depends on, its own
        with it; in one iteration.
        """
        bits: dict[str, int] = {}
        for node in self._graph.node:
            for item in node.input if self._task_of(node) else ():
                source = self._by_name[operation_name(item)]
                if self._task_of(source) not in ("", task_of(node.device)):
                    bits.setdefault(source.name, 1 << len(bits))
        reach: dict[str, int] = {}
        for node in self._graph.node:
            found = bits.get(node.name, 0) | reach.get(str(node.attr.get(PUSH)), 0)
            for item in node.input:
                source = self._by_name[operation_name(item)]
                if not (node.op == "Merge" and source.op == "NextIteration"):
                    found |= reach.get(source.name, 0)
            reach[node.name] = found
        return bits, reach

    def _sent_before(self, name: str, task: str, frame: Frame) -> tuple[str, ...]:
        """Names of the Sends that a Receive must follow, as its value depends on them by way of another task;
        those that another listed Send depends on are left out.
        """
        needed, earlier, found = self._reach[name], 0, []
        for source, send, own in reversed(self._sends.get(task, ())):
            bit = self._bits.get(source, 0)
            if own is frame and needed & bit & ~earlier:
                found.append(send)
                earlier |= self._reach[source] & ~bit
        return tuple(found)

    def _control(self, frame: Frame, part: _Nodes) -> str:
        """The name of the Merge of a task's control loop, which runs once in each iteration of the frame.

        White paper, section 4.4: each task of a loop has a small loop of its own; the task of the condition
        sends its value to all of them in each iteration.
        """
        known = self._controls.get((frame, part.task))
        if known is not None:
            return known
        loop, name = self._frames.loops[frame], frame.name
        enter, merge, switch, following = (
            self._unique(f"{name}/control/{each}") for each in ("Enter", "Merge", "Switch", "NextIteration")
        )
        self._controls[frame, part.task] = merge
        attrs = {
            "frame_name": name,
            "is_constant": False,
            "parallel_iterations": frame.parallel_iterations,
            "shape": None,
        }
        device = f"{part.task}/device:CPU:0"
        part.nodes.append(NodeDef(enter, "Enter", [self._token(frame, part)], attrs, device=device))
        part.nodes.append(NodeDef(merge, "Merge", [f"{enter}:0", f"{following}:0"], device=device))
        condition = self._input(loop.condition, part)
        part.nodes.append(NodeDef(switch, "Switch", [f"{merge}:0", condition], device=device))
        part.nodes.append(NodeDef(following, "NextIteration", [f"{switch}:1"], device=device))
        return merge

    def _token(self, frame: Frame, part: _Nodes) -> str:
        """A tensor around a loop that is there when the loop runs, and dead when it does not."""
        around = frame.chain()[-2]
        entered = (data_inputs(self._by_name[name])[0] for name in self._frames.loops[frame].enters)
        for item in entered if around.parent is not None or frame.conditions else ():
            source = self._by_name[operation_name(item)]
            if self._is_copied(source) or is_constant_enter(source):
                continue
            if task_of(source.device) == part.task:
                return item
            key = f"whether {item}", part.task
            if key not in self._received:
                self._received[key] = self._transfer(item, source, part, signal=True)
            return self._received[key]
        if around.parent is not None:
            return f"{self._control(around, part)}:0"
        start = NodeDef(self._unique(f"{frame.name}/control/start"), "Const", [], {"value": NOTHING})
        start.output, start.device = [TensorSpec((), float32)], f"{part.task}/device:CPU:0"
        part.nodes.append(start)
        return f"{start.name}:0"

    def _unique(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def _with_loop_variables(nodes: Sequence[NodeDef]) -> dict[str, NodeDef]:
    """The nodes by name; the inputs of the Merge of a loop's variable are moved to its task."""
    found = {node.name: node for node in nodes}
    for node in nodes:
        sources = [found[operation_name(item)] for item in data_inputs(node)] if node.op == "Merge" else []
        if any(source.op == "NextIteration" for source in sources):
            for source in sources:
                if task_of(source.device) != task_of(node.device):
                    found[source.name] = replace(source, device=node.device)
    return found


def follow_handles(needed: Sequence[Operation], places: dict[Operation, str]) -> None:
    """Moves ops that use a queue, or another object that a handle stands for, to the device of this object.

    What takes back a kept value goes to where it is kept. Raises InvalidArgumentError for an op that uses
    objects of two tasks.
    """
    owners: dict[Operation, Operation] = {}  # of ops whose first output is a handle
    for op in needed:
        if op.definition is StackPop:
            places[op] = places[op.graph.get_operation_by_name(op.attrs["push"])]
        used = [owners[tensor.op] for tensor in op.inputs if tensor.index == 0 and tensor.op in owners]
        if "shared_name" in op.definition.attrs or (op.type in ARRAYS and not used):
            owners[op] = op
            continue
        for owner in used[:1]:
            places[op] = places[owner]
            if op.definition.flow or op.type in ARRAYS:
                owners[op] = owner
        for owner in used:
            task, other = task_of(places[op]), task_of(places[owner])
            if task != other:
                raise InvalidArgumentError(
                    f"{op.type} {op.name} on {task} uses {owner.type} {owner.name} on {other}: it is used on "
                    f"its own task only; put both under one tb.device (made at {op.source})"
                )
