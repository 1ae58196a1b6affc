"""Cost model: the seconds of an op on a kind of device, estimated or measured, and those of a transfer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensorbow.specs import TensorSpec

Shape: TypeAlias = "Sequence[int]"


@dataclass(frozen=True)
class DeviceSpeed:
    """Assumed rates of a kind of device: flop/s, bytes of memory/s, seconds for each call."""

    flops_per_s: float
    bytes_per_s: float
    call_s: float


@dataclass(frozen=True)
class LinkSpeed:
    """A transfer between two devices: seconds until it begins, and bytes/s of each of its two copies."""

    latency_s: float
    bytes_per_s: float


# Orders of magnitude: a core with AVX-512, a data-centre GPU, PCIe. Measured costs replace those of ops.
SPEEDS: Mapping[str, DeviceSpeed] = {
    "cpu": DeviceSpeed(1e11, 1e10, 2e-6),
    "gpu": DeviceSpeed(1e13, 1e12, 4e-6),
}
LINKS: Mapping[frozenset[str], LinkSpeed] = {
    frozenset({"cpu"}): LinkSpeed(1e-4, 5e9),  # a thread wakes another one
    frozenset({"cpu", "gpu"}): LinkSpeed(3e-5, 1e10),
    frozenset({"gpu"}): LinkSpeed(1e-5, 5e10),
}


def flops_of(op: str, attrs: Mapping[str, Any], inputs: Sequence[Shape], outputs: Sequence[Shape]) -> float:
    """Floating-point operations of an op, a multiplication and an addition as two.

    op: its type. An element of an op that is no product, convolution or pooling counts as one.
    """
    made = math.prod(outputs[0]) if outputs else 0
    if op in ("MatMul", "BatchMatMulV2") and outputs:
        across = attrs.get("transpose_a") or attrs.get("adj_x")
        return 2.0 * made * inputs[0][-2 if across else -1]
    if op in ("Conv2D", "DepthwiseConv2dNative"):
        return 2.0 * made * math.prod(inputs[1][: 3 if op == "Conv2D" else 2])
    if op in ("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"):
        return 2.0 * math.prod(inputs[2]) * math.prod(inputs[1][: 3 if op[:1] == "C" else 2])
    if op in ("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter"):
        return 2.0 * math.prod(inputs[2]) * math.prod(outputs[0][: 3 if op[:1] == "C" else 2])
    if op in ("MaxPool", "AvgPool"):
        return float(made * math.prod(attrs["ksize"]))
    return float(max([made, *map(math.prod, inputs)]))


@dataclass(frozen=True)
class NodeCost:
    """Key of the cost of an op: its type, and the dtypes and shapes of its inputs and outputs."""

    op: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    flops: float
    nbytes: int  # read and written

    @staticmethod
    def of(
        op: str, attrs: Mapping[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> NodeCost:
        """The cost of an op with these specs, of known shapes."""
        shapes = [[spec.extents for spec in specs] for specs in (inputs, outputs)]
        return NodeCost(
            op,
            tuple((spec.dtype.name, spec.extents) for spec in inputs),
            tuple((spec.dtype.name, spec.extents) for spec in outputs),
            flops_of(op, attrs, *shapes),
            sum(spec.nbytes for spec in (*inputs, *outputs)),
        )


class CostModel:
    """Seconds of ops and transfers: the mean of what was measured, by op, shapes and kind of device, or else
    an estimate from operations and bytes.
    """

    def __init__(
        self,
        speeds: Mapping[str, DeviceSpeed] = SPEEDS,
        links: Mapping[frozenset[str], LinkSpeed] = LINKS,
    ):
        """speeds: by kind of device. links: by the two kinds. Kinds that are missing count as CPUs."""
        self._speeds, self._links = speeds, links
        self._measured: dict[tuple[str, NodeCost], tuple[float, int]] = {}  # sum of seconds, and how many

    def __len__(self) -> int:
        """Number of pairs of an op with its shapes and a kind of device that were measured."""
        return len(self._measured)

    def estimated_s(self, cost: NodeCost, kind: str) -> float:
        """The estimate: a call, and the longer of arithmetic and memory traffic."""
        speed = self._speeds.get(kind, self._speeds["cpu"])
        return speed.call_s + max(cost.flops / speed.flops_per_s, cost.nbytes / speed.bytes_per_s)

    def is_measured(self, cost: NodeCost, kind: str) -> bool:
        """True if such an op was measured on that kind of device."""
        return (kind, cost) in self._measured

    def seconds(self, cost: NodeCost, kind: str) -> float:
        """Seconds of an op on a kind of device."""
        found = self._measured.get((kind, cost))
        return self.estimated_s(cost, kind) if found is None else found[0] / found[1]

    def add(self, costs: Sequence[NodeCost], kind: str, duration_s: float) -> None:
        """Takes over the time of one call of an op, or of several fused ones, shared by their estimates."""
        estimates = [self.estimated_s(cost, kind) for cost in costs]
        for cost, estimate in zip(costs, estimates, strict=True):
            total, count = self._measured.get((kind, cost), (0.0, 0))
            share = duration_s * estimate / sum(estimates)
            self._measured[kind, cost] = (total + share, count + 1)

    def transfer_s(self, sender: str, receiver: str, nbytes: int) -> tuple[float, float]:
        """Seconds until a transfer begins, and those of a copy at each end, by kinds of devices."""
        link = self._links.get(frozenset({sender, receiver}), self._links[frozenset({"cpu"})])
        return link.latency_s, nbytes / link.bytes_per_s
