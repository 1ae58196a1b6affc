"""The graphs that a run's devices execute, as TensorFlow's RunMetadata has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import GraphDef, NodeDef, Operation, Tensor
from tensorbow.graph.context_def import used_contexts
from tensorbow.graph.function_def import used_functions
from tensorbow.graph.graph_def import graph_def_of
from tensorbow.specs import DType, TensorSpec, float32

TOKEN = np.zeros((), np.float32)  # what a control dependency between devices sends


def partition_graphs_of(
    needed: Sequence[Operation],
    fed: Collection[Tensor],
    fetched: Sequence[Tensor | Operation],
    devices: Mapping[Operation, str],
    client: str,
) -> list[GraphDef]:
    """A GraphDef for each device, with `_Send` and `_Recv` where tensors come from or go to another.

    needed: the pruned operations. devices: of each of them. client: the device that feeds and fetches.
    """
    partitions = _Partitions(fed, devices, client)
    whole = graph_def_of(needed, {})
    for op, node in zip(needed, whole.node, strict=True):
        partitions.add(op, node)
    for element in fetched:
        if isinstance(element, Tensor) and element not in fed:
            partitions.fetch(element)
    return [
        GraphDef(
            nodes, context=used_contexts(whole.context, nodes), library=used_functions(whole.library, nodes)
        )
        for _, nodes in sorted(partitions.nodes.items())
    ]


class _Partitions:
    def __init__(self, fed: Collection[Tensor], devices: Mapping[Operation, str], client: str):
        self.nodes: dict[str, list[NodeDef]] = {}  # by device
        self._fed = set(fed)
        self._devices = devices
        self._client = client
        self._received: dict[tuple[Any, str], str] = {}  # names of `_Recv` nodes, by what and where
        self._sent: set[tuple[str, str, str]] = set()  # names, from where to where

    def add(self, op: Operation, node: NodeDef) -> None:
        here = self._devices[op]
        inputs = []
        for tensor in op.inputs:
            if tensor in self._fed:
                inputs.append(
                    f"{self._receive(tensor, tensor.name, tensor.spec, self._client, here, True)}:0"
                )
            elif self._devices[tensor.op] == here:
                inputs.append(tensor.name)
            else:
                source = self._devices[tensor.op]
                self._send(tensor.name, tensor.dtype, source, here)
                inputs.append(f"{self._receive(tensor, tensor.name, tensor.spec, source, here)}:0")
        for control in op.control_inputs:
            if control not in self._devices:
                continue
            inputs.append(
                f"^{control.name if self._devices[control] == here else self._token(control, here)}"
            )
        node.input, node.device = inputs, here
        node.colocation = []
        self.nodes.setdefault(here, []).append(node)

    def fetch(self, tensor: Tensor) -> None:
        """Sends a fetched tensor to the client."""
        source = self._devices.get(tensor.op, self._client)
        if tensor.op in self._devices:
            self._send(tensor.name, tensor.dtype, source, self._client, True)

    def _token(self, control: Operation, here: str) -> str:
        """The node that comes after a control dependency on another device."""
        source, name = self._devices[control], f"{control.name}/_token"
        spec = TensorSpec((), float32)
        if not any(node.name == name for node in self.nodes.setdefault(source, [])):
            constant = NodeDef(name, "Const", [f"^{control.name}"], {"value": TOKEN}, [spec], source)
            self.nodes.setdefault(source, []).append(constant)
        self._send(f"{name}:0", float32, source, here)
        return self._receive(control, f"{name}:0", spec, source, here)

    def _receive(
        self, key: Any, name: str, spec: TensorSpec, source: str, here: str, client: bool = False
    ) -> str:
        received = self._received.get((key, here))
        if received is None:
            received = self._received[(key, here)] = _name("_recv", name, self.nodes.setdefault(here, []))
            attrs = _attrs(name, spec.dtype, source, here, client)
            node = NodeDef(received, "_Recv", [], attrs, [TensorSpec(spec.shape, spec.dtype)], here)
            self.nodes[here].append(node)
        return received

    def _send(self, name: str, dtype: DType, source: str, target: str, client: bool = False) -> None:
        if (name, source, target) not in self._sent:
            self._sent.add((name, source, target))
            sent = _name("_send", name, self.nodes.setdefault(source, []))
            attrs = _attrs(name, dtype, source, target, client)
            self.nodes.setdefault(source, []).append(NodeDef(sent, "_Send", [name], attrs, [], source))


def _name(prefix: str, tensor: str, taken: Sequence[NodeDef]) -> str:
    name = f"{prefix}_{tensor.replace(':', '_').replace('/', '_')}"
    names = {node.name for node in taken}
    number, unique = 0, name
    while unique in names:
        number += 1
        unique = f"{name}_{number}"
    return unique


def _attrs(name: str, dtype: DType, source: str, target: str, client: bool) -> dict[str, Any]:
    return {
        "tensor_type": dtype,
        "tensor_name": name,
        "send_device": source,
        "recv_device": target,
        "client_terminated": client,
    }
