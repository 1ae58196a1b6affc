"""A backend: how plans become calls on one kind of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from tensorbow.devices import Device, StreamGroup
from tensorbow.errors import UnimplementedError
from tensorbow.graph import Kernel, blame
from tensorbow.ops.definition import kernel_for
from tensorbow.program.nodes import Node, Unit
from tensorbow.program.plan import BoundPlan, Executable, PlannedLaunch, Region, Segment
from tensorbow.program.rounds import RoundProgram, RoundProgramSpec


class Backend(ABC):
    """Makes calls of plans, on one kind of device."""

    kernel_kind: str  # whose kernels, scratch sizes and in-place rules it uses
    title = ""  # for tables and `explain`

    def made_with(self, device: Device) -> dict[str, str]:
        """Names and versions that the bits of results depend on: kernels, libraries, processor."""
        return {"kernels": self.title}

    def computing(self, compute: str) -> Backend:
        """The backend for steps of a device with that precision of products (`Device.compute`).

        Raises FailedPreconditionError if this machine cannot compute so.
        """
        return self

    def _kernel(self, node: Node) -> Kernel:
        """The kernel of a node. Raises UnimplementedError naming op, line and the kinds that have one."""
        try:
            return kernel_for(node.definition, self.kernel_kind)
        except UnimplementedError as error:
            raise UnimplementedError(blame(node.definition.name, node.name, error, node.source)) from None

    @abstractmethod
    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        """Fuses neighbouring nodes into units, before memory is planned."""

    def workspaces(self, device: Device) -> Sequence[int]:
        """Bytes of each block that a stream group with plans allocates beside the plans' regions."""
        return ()

    def round_program(self, plans: Sequence[BoundPlan], rounds: RoundProgramSpec) -> RoundProgram | None:
        """Rounds of all replicas of a process as single launches; None where that cannot be.

        plans: by replica, of the replicas' part of the step.
        """
        return None

    def why_not_fused(self, step: Executable, variants: Sequence[str]) -> str:
        """Reason why the replicas of a device cannot run in each other's kernels, as far as that is known
        before the step is bound; empty if there is none. variants: the rounds' ends.
        """
        return "it is for GPUs"

    def launches(self, segment: Segment) -> Sequence[PlannedLaunch]:
        """Like `BoundPlan.launches`, before a plan is bound."""
        return ()

    @abstractmethod
    def bind(
        self, executable: Executable, bases: Mapping[Region, int], group: StreamGroup, ring: int
    ) -> BoundPlan:
        """Fixes the addresses. `ring` is the number of RING slots."""
