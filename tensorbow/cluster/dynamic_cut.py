"""Parts of a dynamic step: its graph cut between tasks, with a Send and a Receive for what crosses.

All of a loop or branch is on one task: what leaves it is sent, what is inside is not. Constants and fed
placeholders are copied to the tasks that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensorbow.cluster.task_step import task_of
from tensorbow.cluster.transfer_ops import Receive, Send
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphDef, NodeDef, Operation
from tensorbow.graph.context_def import used_contexts
from tensorbow.graph.function_def import used_functions
from tensorbow.graph.graph_def import PUSH, operation_name
from tensorbow.specs import TensorSpec, float32

NOTHING = np.zeros((), np.float32)  # is sent where only the end of an op counts
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

    def __init__(self, graph: GraphDef, fed: Collection[str], is_certain: Callable[[str], bool]):
        """fed: names of placeholders that are fed. is_certain: True for an input that each run
        makes once, as it is in no loop or branch.

        Raises InvalidArgumentError for a loop or branch that is not on one task.
        """
        self._graph, self._fed, self._is_certain = graph, fed, is_certain
        self._by_name = {node.name: node for node in graph.node}
        self._names = set(self._by_name)
        self._parts: dict[str, _Nodes] = {}
        self._received: dict[tuple[str, str], str] = {}  # by input and task: the input there
        for node in graph.node:
            if not self._is_copied(node):
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
                context=used_contexts(self._graph.context, part.nodes),
                library=used_functions(self._graph.library, part.nodes),
            )
            found[task] = PartOfTask(
                graph, [name for name in self._fed if name in part.copied], places.get(task, [])
            )
        return found

    def _of(self, task: str) -> _Nodes:
        return self._parts.setdefault(task, _Nodes(task))

    def _is_copied(self, node: NodeDef) -> bool:
        return (node.op == "Const" and not node.input) or node.name in self._fed

    def _copy(self, node: NodeDef, part: _Nodes) -> None:
        if self._is_copied(node) and node.name not in part.copied:
            part.copied.add(node.name)
            part.nodes.append(replace(node, device=f"{part.task}/device:CPU:0"))

    def _add(self, node: NodeDef) -> None:
        task = task_of(node.device)
        part = self._of(task)
        push = self._by_name.get(str(node.attr.get(PUSH)))
        if push is not None and task_of(push.device) != task:
            raise self._split(node, task, f"takes back what {push.name} keeps", task_of(push.device))
        part.nodes.append(replace(node, input=[self._input(item, node, task, part) for item in node.input]))

    def _input(self, item: str, node: NodeDef, task: str, part: _Nodes) -> str:
        source = self._by_name[operation_name(item)]
        if self._is_copied(source):
            self._copy(source, part)
            return item
        other = task_of(source.device)
        if other == task:
            return item
        known = self._received.get((item, task))
        if known is None:
            if not self._is_certain(item):
                what = "waits for" if item.startswith("^") else "reads"
                raise self._split(node, task, f"{what} {item.removeprefix('^')}", other)
            known = self._received[item, task] = self._send(item, source, task, part)
        return known

    def _split(self, node: NodeDef, task: str, what: str, other: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{node.op} {node.name} on {task} {what} on {other}, in a loop or branch: all of a loop or "
            "branch, with its gradient, runs on one task; put it under one tb.device, or bring the value out "
            f"before (made at {node.source})"
        )

    def _send(self, item: str, source: NodeDef, task: str, part: _Nodes) -> str:
        """Adds a Send and a Receive; returns the input that stands for the value on the reading task."""
        senders = self._parts[task_of(source.device)].nodes
        waits = [item] if item.startswith("^") else []
        if waits:  # for an end, not a value
            spec = TensorSpec((), float32)
            value = NodeDef(
                self._unique(f"{source.name}/ended"), "Const", [], {"value": np.zeros((), np.float32)}
            )
            value.output, value.device = [spec], source.device
            senders.append(value)
            sent = f"{value.name}:0"
        else:
            spec, sent = source.output[int(item.rpartition(":")[2])], item
        send = NodeDef(
            self._unique(f"{source.name}/send"), Send.name, [sent, *waits], {"to": task, "key": item}
        )
        receive = NodeDef(self._unique(f"{source.name}/receive"), Receive.name)
        receive.attr = {"key": item, "dtype": spec.dtype, "shape": spec.shape}
        receive.output = [TensorSpec(spec.shape, spec.dtype)]
        send.device, send.source = source.device, source.source
        receive.device, receive.source = f"{task}/device:CPU:0", source.source
        senders.append(send)
        part.nodes.append(receive)
        return f"^{receive.name}" if waits else f"{receive.name}:0"

    def _unique(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def follow_handles(needed: Sequence[Operation], places: dict[Operation, str]) -> None:
    """Moves ops that use a queue, or another object that a handle stands for, to the device of this object.

    Raises InvalidArgumentError for a handle that enters a loop or branch of another task.
    """
    owners: dict[Operation, Operation] = {}  # of ops whose first output is a handle
    for op in needed:
        used = [owners[tensor.op] for tensor in op.inputs if tensor.index == 0 and tensor.op in owners]
        if "shared_name" in op.definition.attrs or (op.type in ARRAYS and not used):
            owners[op] = op
            continue
        for owner in used[:1]:
            if op.definition.flow:
                owners[op] = owner
            else:
                places[op] = places[owner]
                if op.type in ARRAYS:
                    owners[op] = owner
        for owner in used:
            task, other = task_of(places[op]), task_of(places[owner])
            if task != other:
                raise InvalidArgumentError(
                    f"{op.type} {op.name} on {task} uses {owner.type} {owner.name} on {other}: it is used on "
                    f"its own task only; put both under one tb.device (made at {op.source})"
                )
