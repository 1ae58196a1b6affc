"""The rounds of one GPU device: its replicas' branches, what runs once for them, and the captured graphs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorbow.devices import StreamGroup
from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.errors import InternalError, ResourceExhaustedError, TensorBowError
from tensorbow.kernels.gpu.fused.plan import FusedPlan
from tensorbow.kernels.gpu.plan import EAGER_LAUNCHES, GpuPlan
from tensorbow.kernels.gpu.rounds.source import COPY, ROUNDS, WORD, ControlWord, Outcome
from tensorbow.kernels.gpu.rounds.staging import Staging
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.program.plan import BoundPlan, SegmentKind

_logger = logging.getLogger(__name__)
BLOCK, MOST_BLOCKS = 256, 64  # threads of a block, and blocks of a copy
WIDEST = 16  # bytes that a thread copies at a time


@dataclass(frozen=True)
class GraphPart:
    """Neighbouring segments of a variant that need no other device in between."""

    segments: tuple[int, ...]
    is_first: bool
    is_last: bool


class DeviceRounds:
    """The replicas of one device, on streams of their own; `stream`, of the first, begins and ends rounds."""

    def __init__(
        self,
        plans: Sequence[GpuPlan],
        central: GpuPlan | None,
        replicas: range,
        stops: DeviceArray,
        number: int,
        fused: bool,
    ):
        """plans: of its replicas, whose numbers are `replicas`. central: what runs once for all of them.

        stops: a word for each device, see `_Stops` of `program`. number: of this device.
        fused: all replicas in each kernel, on one stream, instead of one on each stream.
        Raises UnimplementedError for a step whose replicas cannot be fused.
        """
        self.plans, self._central, self.replicas = plans, central, replicas
        self.group: StreamGroup = plans[0].group
        self._context: GpuContext = plans[0].context
        self.runtime, self.stream = self._context.runtime, self._context.stream
        self._fused: FusedPlan | None = None
        self._fused_batches: FusedPlan | None = None  # which makes the batches, where they come as picks
        self._slots = plans[0].ring
        self._stops, self._number = stops, number
        self._memory: list[Any] = []
        self._events: list[int] = []
        self._staging: Staging | None = None
        self._batch_plans: Sequence[GpuPlan] = ()
        self._keys: tuple[str, ...] = ()
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._begin: Enqueue = _unprepared
        self._end: Enqueue = _unprepared
        self.at = replicas.start  # the replica whose calls were enqueued last
        try:
            self._allocate(fused and len(plans) > 1)
        except BaseException:
            self.close()
            raise

    def _allocate(self, fused: bool) -> None:
        """Takes what lasts as long as the rounds."""
        plans, central, device = self.plans, self._central, self.group.device
        self._fused = self._fused_of(plans) if fused else None
        self.outcomes: NDArray[np.int64] = device.host_array((self._slots,), WORD)
        self.outcomes[...] = Outcome.DONE
        self._restart: NDArray[np.int64] = device.host_array((ControlWord.WORDS,), WORD)
        statuses = [plan.address(plan.executable.state["status"]) for plan in plans]
        if central is not None:
            statuses.append(central.address(central.executable.state["status"]))
        self._control = self._copies = self._kept(np.zeros(ControlWord.WORDS, WORD))
        self._statuses = self._kept(np.array(statuses, WORD))
        self._fetched = np.array([copy for plan in plans for copy in plan.fetch_copies()], COPY)
        self._fetches = self._kept(self._fetched)
        self._lasting = len(self._memory)  # blocks; those behind are for staging
        while len(self._events) <= len(plans):
            self._events.append(self.runtime.make_event())

    def _kept(self, array: NDArray[Any]) -> DeviceArray:
        """A copy of an array in the device's memory."""
        block = self.group.allocate(max(array.nbytes, 1), owner="rounds")
        if block is None:
            raise InternalError("rounds: the array is empty")
        self._memory.append(block)
        if array.nbytes:
            self.group.device.write(block.address, array)
        return DeviceArray(block.address, array.shape, array.dtype)

    def _fused_of(self, plans: Sequence[GpuPlan]) -> FusedPlan:
        return FusedPlan(
            plans[0].executable,
            [plan.bases for plan in plans],
            self.group,
            self._context,
            gathers=False,
            workspaces=[plan.context.workspace for plan in plans],
        )

    # Before launches ----------------------------------------------------------------------------

    def take(self, batch_plans: Sequence[BoundPlan], keys: Sequence[str]) -> Staging:
        """The staging memory for launches with batches of these plans and these step scalars.

        batch_plans: of all replicas, which make batches from picks; empty for batches from outside.
        """
        own = [batch_plans[replica] for replica in self.replicas] if batch_plans else []
        if self._staging is None or self._batch_plans != own or self._keys != (*keys,):
            self.forget()
            self._batch_plans = [plan for plan in own if isinstance(plan, GpuPlan)]
            if len(self._batch_plans) < len(own):
                raise InternalError("rounds on a GPU: expected batches made by a GPU")
            self._keys = (*keys,)
            try:
                made = self.plans, self._batch_plans, keys, self._slots
                staging = self._staging = Staging(self.group, self.runtime, *made)
                if self._fused is not None and self._batch_plans:
                    self._fused_batches = self._fused_of(self._batch_plans)
                self._copies = self._kept(staging.copies)
                self._begin, self._end = self._prepared(staging)
            except BaseException:
                self._drop_staging()
                raise
        return self._staging

    def forget(self) -> None:
        """Drops the staging memory and all graphs, which may be running."""
        if self._staging is None:
            return
        self.runtime.synchronize_stream(self.stream)
        self._drop_graphs()
        self._drop_staging()

    def send(self, slots: Sequence[range]) -> None:
        """Enqueues the copy of what was staged for rounds with these slots."""
        if self._staging is not None:
            self._staging.send(slots, self.stream)

    def begin_at(self, slot: int) -> None:
        """Enqueues that the next round has this slot, and that no status has ended the rounds.

        What lies on other streams, such as cleared statuses, comes before: captured rounds wait for nothing.
        """
        self._join(self.plans)
        if self._central is not None:
            self._join([self._central])
        self._restart[...] = 0
        self._restart[ControlWord.NEXT] = slot
        runtime, words = self.runtime, self._restart
        ends = self._control.address, words.ctypes.data
        runtime.copy(*ends, words.nbytes, CopyKind.HOST_TO_DEVICE, self.stream)

    def reset(self) -> None:
        """Forgets that a status has ended rounds, while nothing runs."""
        self.outcomes[...] = Outcome.DONE
        for plan in self.plans:
            plan.forget_sent()
        if self._central is not None:
            with suppress(CudaError):  # a lost GPU: what follows will say so
                self._central.write({}, {"status": 0})

    # One round ----------------------------------------------------------------------------------

    def enqueue(self, variant: int, number: int, part: GraphPart) -> None:
        """Enqueues a part of a round, as a graph from its second time on.

        Raises a call's error with op and user's line, or a graph's error.
        """
        graph = self._graphs.get((variant, number))
        if graph is None:
            graph = self._graphs[variant, number] = _Graph()
        if not graph.handle and graph.times >= EAGER_LAUNCHES and not graph.is_refused:
            self._capture(graph, part)
        graph.times += 1
        if not graph.handle:
            self._calls(part)
            return
        try:
            self.runtime.launch_graph(graph.handle, self.stream)
        except TensorBowError as error:
            raise _with_text(error, f"the graph of a round: {error}") from error

    def _capture(self, graph: _Graph, part: GraphPart) -> None:
        """Captures a part; if CUDA refuses, that is logged."""
        runtime = self.runtime
        runtime.begin_capture(self.stream)
        try:
            self._calls(part)
        except BaseException as error:
            with suppress(TensorBowError):
                runtime.destroy_graph(runtime.end_capture(self.stream))
            if isinstance(error, CudaError) and not error.sticky:
                self._refuse(graph, error)
                return
            raise
        try:
            graph.handle = runtime.end_capture(self.stream)
        except ResourceExhaustedError as error:
            raise ResourceExhaustedError(f"no memory to capture a round: {error}") from error
        except CudaError as error:
            if error.sticky:
                raise
            self._refuse(graph, error)

    def _refuse(self, graph: _Graph, error: CudaError) -> None:
        graph.is_refused = True
        name = self.group.device.name.short
        _logger.warning("rounds of %s are launched call by call: their capture failed: %s", name, str(error))

    def _calls(self, part: GraphPart) -> None:
        """Enqueues the calls of a part, each replica's on its own stream."""
        segments = self.plans[0].executable.segments
        if part.is_first:
            self._begin()
        apart = False  # whether replicas' streams are ahead of `stream`
        batch_plans = self._batch_plans if part.is_first else ()  # that have not made their batches yet
        if batch_plans and self._fused_batches is not None:
            self._fused_batches.enqueue(0)
        for segment in part.segments:
            if segments[segment].kind is not SegmentKind.REPLICA:
                if apart:
                    self._join(self.plans)
                apart = False
                self._run_once(segment)
            elif self._fused is not None:
                self._fused.enqueue(segment)
            else:
                if not apart:
                    self._fork(self.plans)
                for index, plan in enumerate(self.plans):
                    self.at = self.replicas[index]
                    if batch_plans:
                        batch_plans[index].enqueue(0)
                    plan.enqueue(segment)
                apart, batch_plans = True, ()
        if apart:
            self._join(self.plans)
        if part.is_last:
            self._end()

    def _run_once(self, segment: int) -> None:
        """Enqueues a segment that runs once for all replicas."""
        if self._central is not None:
            self._fork([self._central])
            self._central.enqueue(segment)
            self._join([self._central])

    def _fork(self, plans: Sequence[GpuPlan]) -> None:
        """Has the streams of plans go on behind `stream`."""
        streams = [plan.stream for plan in plans if plan.stream != self.stream]
        if streams:
            self.runtime.record(self._events[0], self.stream)
        for stream in streams:
            self.runtime.wait(stream, self._events[0])

    def _join(self, plans: Sequence[GpuPlan]) -> None:
        """Has `stream` go on behind the streams of plans."""
        for event, plan in zip(self._events[1:], plans, strict=False):
            if plan.stream != self.stream:
                self.runtime.record(event, plan.stream)
                self.runtime.wait(self.stream, event)

    def _prepared(self, staging: Staging) -> tuple[Enqueue, Enqueue]:
        """The first and the last kernel of a round."""
        context = self._context
        count = np.int32(len(self.plans))
        others = np.int32(self._statuses.size)
        begin = context.launch(
            *(ROUNDS, "tb_begin_round", _grid(staging.copies), BLOCK, self._control),
            *(self._stops, np.int32(self._stops.size), self._statuses, others, self._copies),
        )
        own = DeviceArray(self._stops.address + self._number * WORD.itemsize, (), WORD)
        rows = DeviceArray(staging.rows, (), WORD)
        outcomes = DeviceArray(self.outcomes.ctypes.data, self.outcomes.shape, WORD)
        end = context.launch(
            *(ROUNDS, "tb_end_round", _grid(self._fetched), BLOCK),
            *(self._control, own, self._statuses, count, rows),
            *(np.int64(staging.row_nbytes), outcomes, np.int64(self._slots), self._fetches),
        )
        return begin, end

    def close(self) -> None:
        """Destroys the graphs and gives the memory back, while nothing runs; idempotent."""
        self._drop_graphs()
        self._drop_staging()
        if self._fused is not None:
            self._fused.close()
        events, self._events = self._events, []
        for event in events:
            with suppress(TensorBowError):
                self.runtime.destroy_event(event)
        self._give_back(0)

    def _give_back(self, left: int) -> None:
        """Frees all blocks but the first ones."""
        while len(self._memory) > left:
            block = self._memory.pop()
            if not self.group.allocator.closed:
                self.group.allocator.free(block)

    def _drop_staging(self) -> None:
        if self._staging is not None:
            self._staging.close()
            self._give_back(self._lasting)
        if self._fused_batches is not None:
            self._fused_batches.close()
        self._staging = self._fused_batches = None

    def _drop_graphs(self) -> None:
        graphs, self._graphs = self._graphs, {}
        for graph in graphs.values():
            if graph.handle:
                with suppress(TensorBowError):  # after a sticky error nothing can be destroyed
                    self.runtime.destroy_graph(graph.handle)


def _unprepared() -> None:
    raise InternalError("a round begins before anything was staged")


@dataclass
class _Graph:
    """A part as a graph. times: it was enqueued. is_refused: CUDA has refused to capture it."""

    handle: int = 0
    times: int = 0
    is_refused: bool = False


def _with_text(error: TensorBowError, text: str) -> TensorBowError:
    """An error of the same kind that says more."""
    if isinstance(error, CudaError):
        return CudaError(text, error.status, error.sticky)
    return type(error)(text)


def _grid(copies: NDArray[Any]) -> tuple[int, int, int]:
    """Blocks of a kernel that does copies, a row for each, behind its own row."""
    longest = int(copies["nbytes"].max(initial=0))
    return min(MOST_BLOCKS, max(1, -(-longest // (WIDEST * BLOCK)))), 1 + len(copies), 1
