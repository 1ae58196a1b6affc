"""The round program of GPUs: all devices' rounds, and where they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from allocators import Allocation
from tensorbow.devices.gpu_stream import GpuStream
from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.launches import launches_of
from tensorbow.kernels.gpu.plan import GpuPlan
from tensorbow.kernels.gpu.rounds.device_rounds import DeviceRounds, GraphPart
from tensorbow.kernels.gpu.rounds.source import WORD, Outcome
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.program.plan import Executable, SegmentKind
from tensorbow.program.rounds import STICKY, LaunchFeeds, RoundLaunch, RoundProgram, RoundProgramSpec
from tensorbow.specs import Array


class GpuRounds(RoundProgram):
    """All replicas' bound steps. A round is one CUDA graph of a device, or several, cut where devices meet.

    The first and the last kernel of a round know its slot from a counter on the device, so that a round of a
    launch costs the host one call for each graph.
    """

    chooses_threads = False
    may_refuse = False

    def __init__(self, plans: Sequence[GpuPlan], rounds: RoundProgramSpec):
        """Raises ResourceExhaustedError, or UnimplementedError for replicas that cannot be fused; nothing
        stays allocated then.
        """
        step = rounds.step
        self._plans, self._post = plans, rounds.post
        self._exchanges = step.exchange_segments
        self._parts = [_parts(rounds, name) for name in rounds.variants]
        self._slots, self.replicas = plans[0].ring, len(plans)
        self._next: int | None = None  # the round that the devices expect, if they expect any
        self._stopped = False
        self._devices: list[DeviceRounds] = []
        self._streams: list[GpuStream] = []
        first, count = 0, len(rounds.replicas)
        self._stops = _Stops(plans, count)
        try:
            for number, replicas in enumerate(rounds.replicas):
                own = range(first, first + replicas)
                central = rounds.central_plans[number] if rounds.central_plans else None
                if central is not None and not isinstance(central, GpuPlan):
                    raise InternalError(f"rounds on GPUs: expected a GPU's plan, got {central!r}")
                members = plans[own.start : own.stop]
                self._devices.append(
                    DeviceRounds(members, central, own, self._stops.words, number, rounds.fused)
                )
                stream = members[0].group.compute
                if not isinstance(stream, GpuStream):
                    raise InternalError(f"rounds on GPUs: expected a GPU's stream, got {stream!r}")
                self._streams.append(stream)
                first = own.stop
        except BaseException:
            self.close()
            raise

    def launch(
        self,
        first: int,
        variants: Sequence[int],
        feeds: LaunchFeeds,
        state: Mapping[str, Any],
        threads: int,
    ) -> RoundLaunch:
        """See RoundProgram.launch."""
        slots = _pieces(first % self._slots, len(variants), self._slots)
        launch = _GpuLaunch(self, first, variants, slots, self._next != first)
        self._next = first + len(variants)
        for device in self._devices:
            staging = device.take(feeds.batch_plans, [key for key in state if state[key] != STICKY])
            staging.fill(slots, feeds, state, device.replicas)
            for piece in slots:
                device.outcomes[piece.start : piece.stop] = 0
        return launch

    def enqueue(self, launch: _GpuLaunch) -> None:
        """Enqueues the rounds of a launch; the first device's stream goes on behind all of them."""
        for device in self._devices:
            if launch.restarts:
                device.begin_at(launch.slots[0].start)
            device.send(launch.slots)
        if launch.restarts:
            self._stops.clear(self._devices[0])
        self._meet()
        for variant in launch.variants:
            for number, part in enumerate(self._parts[variant]):
                for launch.device in self._devices:
                    launch.device.enqueue(variant, number, part)
                if not part.is_last:
                    self._cross(part.segments[-1])
            self._meet()
            launch.enqueued += 1

    def _cross(self, segment: int) -> None:
        """Completes an exchange between the devices."""
        if self._post is None:
            raise InternalError("an exchange between devices without a transport")
        done = self._post(self._exchanges.index(segment), [stream.record() for stream in self._streams])
        for stream in self._streams:
            stream.wait(done)

    def _meet(self) -> None:
        """Has all devices go on when all are there: they must agree on whether a status ends the rounds."""
        if len(self._streams) == 1:
            return
        first, *others = self._streams
        for stream in others:
            first.wait(stream.record())
        all_there = first.record()
        for stream in others:
            stream.wait(all_there)

    def fetched(self, replica: int, first: int, count: int) -> list[Array]:
        """See RoundProgram.fetched."""
        return self._plans[replica].fetch_runs(first, count)

    def done(self, slots: Sequence[range]) -> int:
        """Number of rounds done of those with these slots; all devices do equally many."""
        outcomes = self._devices[0].outcomes
        done = 0
        for piece in slots:
            words = outcomes[piece.start : piece.stop]
            done += int(np.count_nonzero(words & Outcome.DONE))
        return done

    @property
    def stopped(self) -> bool:
        """See RoundProgram.stopped."""
        if not self._stopped:
            self._stopped = any(bool((device.outcomes & Outcome.STOPS).any()) for device in self._devices)
        return self._stopped

    def stop(self) -> None:
        """See RoundProgram.stop; on GPUs no thread waits for another."""
        self._stopped = True

    def reset(self) -> None:
        """See RoundProgram.reset."""
        self._next, self._stopped = None, False
        for device in self._devices:
            device.reset()

    def close(self) -> None:
        """See RoundProgram.close."""
        while self._devices:
            self._devices.pop().close()
        self._stops.close()


class _Stops:
    """A word for each device, which all read: the number of rounds begun when a status ended them, or 0.

    They lie in the memory of the GPU, or in pinned memory where there are several.
    """

    def __init__(self, plans: Sequence[GpuPlan], count: int):
        self._group = plans[0].group
        self._pinned: Array | None = None
        self._block: Allocation | None = None
        if len({id(plan.context.runtime) for plan in plans}) > 1:
            self._pinned = self._group.device.host_array((count,), np.int64)
            self._pinned[...] = 0
            address = self._pinned.ctypes.data
        else:
            self._block = self._group.allocate(count * WORD.itemsize, owner="rounds")
            address = 0 if self._block is None else self._block.address
        self.words = DeviceArray(address, (count,), WORD)

    def clear(self, device: DeviceRounds) -> None:
        """Clears all words, behind what is enqueued on a device's stream; nothing else may be running."""
        if self._pinned is not None:
            self._pinned[...] = 0
        else:
            device.runtime.fill(self.words.address, 0, self.words.nbytes, device.stream)

    def close(self) -> None:
        """Gives the memory back; idempotent."""
        block, self._block = self._block, None
        if block is not None and not self._group.allocator.closed:
            self._group.allocator.free(block)


class _GpuLaunch(RoundLaunch):
    """Some rounds, enqueued by one thread."""

    def __init__(
        self, program: GpuRounds, first: int, variants: Sequence[int], slots: Sequence[range], restarts: bool
    ):
        """slots: of the rounds, in pieces without a gap. restarts: the devices expect other rounds."""
        self._program, self.variants, self.slots, self.restarts = program, [*variants], slots, restarts
        self.enqueued = 0  # rounds, before one that failed
        self.device: DeviceRounds | None = None  # whose calls were enqueued last

    @property
    def threads(self) -> Sequence[range]:
        """See RoundLaunch.threads."""
        return [range(self._program.replicas)]

    def run(self, thread: int) -> None:
        """See RoundLaunch.run; returns when everything is enqueued."""
        self._program.enqueue(self)

    def at(self, thread: int) -> tuple[int, int]:
        """See RoundLaunch.at."""
        return 0 if self.device is None else self.device.at, self.enqueued

    def done(self, replica: int) -> int:
        """See RoundLaunch.done."""
        return self._program.done(self.slots)

    def let_go(self) -> None:
        """See RoundLaunch.let_go; the inputs were copied when it was made."""


def why_not_whole(step: Executable, variants: Sequence[str]) -> str:
    """Reason why rounds of a step are not launched as a whole; empty if they are."""
    for name in variants:
        for number in step.variants[name]:
            for launch in launches_of(step.segments[number].groups):
                if launch.reason:
                    return launch.reason
    return ""


def _parts(rounds: RoundProgramSpec, name: str) -> list[GraphPart]:
    """The segments of a variant, cut behind exchanges where there are several devices."""
    cuts: list[list[int]] = [[]]
    for segment in rounds.step.variants[name]:
        cuts[-1].append(segment)
        if len(rounds.replicas) > 1 and rounds.step.segments[segment].kind is SegmentKind.EXCHANGE:
            cuts.append([])
    last = len(cuts) - 1
    return [GraphPart((*each,), number == 0, number == last) for number, each in enumerate(cuts)]


def _pieces(first: int, count: int, slots: int) -> list[range]:
    """Slots of some rounds, as ranges: two where they go on from the first slot."""
    end = min(first + count, slots)
    return [range(first, end), *([range(first + count - end)] if end - first < count else [])]
