"""Greedy placement on simulated devices: each op goes where it would be finished first.

White paper, section 3.2.1: a simulated step walks over the ops in the order in which their inputs are there,
and puts each on the device on which it ends soonest, with the transfers that it needs there. What has been
placed is then simulated in program order, as streams run it, beside everything on one device; the best that
fits in memory is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tensorbow.errors import InternalError

Transfer = Callable[[int, int, int], "tuple[float, float]"]  # sender, receiver, bytes: see CostModel
SHARES = (1.0, 0.8, 0.6, 0.4, 0.2)  # of the limits, tried until a step fits: temporaries come on top


@dataclass(frozen=True)
class SimulatedOp:
    """One op of a step, or a variable, which has no time and no inputs. Ops come after their inputs.

    group: index of its group. seconds: by device. inputs: index of the task that makes each, and its bytes.
    nbytes: of its outputs while they are needed; a variable's are its group's.
    """

    name: str
    group: int
    seconds: tuple[float, ...] = ()
    inputs: tuple[tuple[int, int], ...] = ()
    nbytes: int = 0

    @property
    def is_source(self) -> bool:
        """True for a variable: it goes where it is read first."""
        return not self.seconds


@dataclass(frozen=True)
class PlacedGroup:
    """Tasks that share a device: the devices they may be on, the preferred first, and the bytes of variables
    that come to be there.
    """

    devices: tuple[int, ...]
    nbytes: int = 0


@dataclass(frozen=True)
class Assignment:
    """A placement, simulated: device by group, seconds of the step, and peak bytes by device.

    sent: values that cross between devices, and sent_nbytes: their bytes. fits: all peaks are within limits.
    """

    devices: tuple[int, ...]
    makespan_s: float
    peaks: tuple[int, ...]
    sent: int
    sent_nbytes: int
    fits: bool


class _Step:
    """Simulated devices during a step. It begins on the first one, and on the others after a latency."""

    def __init__(self, tasks: Sequence[SimulatedOp], transfer: Transfer, devices: int):
        self.tasks, self.transfer = tasks, transfer
        self.free_at = [transfer(0, device, 0)[0] if device else 0.0 for device in range(devices)]
        self.ends: dict[int, float] = {}  # by task
        self.copies: dict[tuple[int, int], float] = {}  # arrival by task and receiver
        self.sent_nbytes = 0
        self.used: set[int] = set()  # devices

    def begin(self, task: SimulatedOp, device: int, where: Callable[[int], int]) -> float:
        """Time at which a task could begin on a device. where: the device of an earlier task."""
        ready = self.free_at[device]
        for index, nbytes in dict(task.inputs).items():
            if where(index) == device:
                ready = max(ready, self.ends[index])
            elif (index, device) in self.copies:
                ready = max(ready, self.copies[index, device])
            else:
                latency, copy = self.transfer(where(index), device, nbytes)
                ready = max(ready, self.ends[index] + copy + latency) + copy
        return ready

    def run(self, number: int, device: int, where: Callable[[int], int], *, delays_senders: bool) -> None:
        """Runs a task on a device, after the transfers that it needs."""
        task = self.tasks[number]
        if task.is_source:
            self.ends[number] = 0.0
            return
        for index, nbytes in dict(task.inputs).items():
            if where(index) != device and (index, device) not in self.copies:
                latency, copy = self.transfer(where(index), device, nbytes)
                if delays_senders:
                    self.free_at[where(index)] += copy
                self.free_at[device] = max(self.free_at[device], self.ends[index] + copy + latency) + copy
                self.copies[index, device] = self.free_at[device]
                self.sent_nbytes += nbytes
        self.used.add(device)
        self.free_at[device] = self.ends[number] = self.begin(task, device, where) + task.seconds[device]


class _Memory:
    """Bytes on each device: variables of placed groups, and outputs and copies that are still to be read."""

    def __init__(self, tasks: Sequence[SimulatedOp], groups: Sequence[PlacedGroup], devices: int):
        self._tasks, self._groups = tasks, groups
        self.used = [0] * devices
        self.peaks = [0] * devices
        self._left = [0] * len(tasks)  # tasks that have still to read its outputs
        for task in tasks:
            for index in {index for index, _ in task.inputs}:
                self._left[index] += 1
        self._held: dict[int, dict[int, int]] = {}  # by task: bytes by device

    def add(self, device: int, nbytes: int) -> None:
        self.used[device] += nbytes
        self.peaks[device] = max(self.peaks[device], self.used[device])

    def settle(self, group: int, device: int) -> None:
        self.add(device, self._groups[group].nbytes)

    def run(self, number: int, device: int) -> None:
        task = self._tasks[number]
        for index, nbytes in dict(task.inputs).items():
            held = self._held.setdefault(index, {})
            if device not in held and not self._tasks[index].is_source:
                held[device] = nbytes
                self.add(device, nbytes)
        if not task.is_source:
            self._held.setdefault(number, {})[device] = task.nbytes
            self.add(device, task.nbytes)
        for index in {index for index, _ in task.inputs}:
            self._left[index] -= 1
            if not self._left[index]:
                self._drop(index)
        if not self._left[number] and not task.is_source:
            self._drop(number)

    def _drop(self, number: int) -> None:
        for device, nbytes in self._held.pop(number, {}).items():
            self.used[device] -= nbytes


def simulate(
    tasks: Sequence[SimulatedOp],
    groups: Sequence[PlacedGroup],
    devices: Sequence[int],
    transfer: Transfer,
    limits: Sequence[int],
) -> Assignment:
    """Simulates a placement: each device runs its tasks in program order. devices: by group."""
    memory = _Memory(tasks, groups, len(limits))
    for group, device in enumerate(devices):
        memory.settle(group, device)
    readers: list[dict[int, int]] = [{} for _ in tasks]  # of each task: bytes read by other devices
    for task in tasks:
        for index, nbytes in task.inputs:
            if devices[tasks[index].group] != devices[task.group]:
                readers[index][devices[task.group]] = nbytes
    step = _Step(tasks, transfer, len(limits))
    for number, task in enumerate(tasks):
        here = devices[task.group]
        step.run(number, here, lambda index: devices[tasks[index].group], delays_senders=False)
        if readers[number]:  # a stage ends with its sends
            step.used.add(here)
        step.free_at[here] += sum(transfer(here, to, n)[1] for to, n in readers[number].items())
        memory.run(number, here)
    return Assignment(
        tuple(devices),
        max((step.free_at[device] for device in step.used), default=0.0),
        tuple(memory.peaks),
        sum(map(len, readers)),
        step.sent_nbytes,
        all(peak <= limit for peak, limit in zip(memory.peaks, limits, strict=True)),
    )


def place_greedily(
    tasks: Sequence[SimulatedOp], groups: Sequence[PlacedGroup], transfer: Transfer, limits: Sequence[int]
) -> tuple[Assignment, Assignment]:
    """The best placement found, and the one with every group on the device it prefers, to compare.

    tasks: in program order. limits: bytes by device.
    Its simulated time is at most that of the latter, unless that does not fit in memory.
    """

    def simulated(devices: Sequence[int]) -> Assignment:
        return simulate(tasks, groups, devices, transfer, limits)

    together = simulated([group.devices[0] for group in groups])
    found = [together]
    for device in range(len(limits)):
        found.append(simulated([device if device in g.devices else g.devices[0] for g in groups]))
    for in_order in (False, True):
        for share in SHARES:
            allowed = [int(limit * share) for limit in limits]
            found.append(simulated(_Greedy(tasks, groups, transfer, allowed).placed(in_order)))
            if found[-1].fits:
                break
    return min(found, key=lambda each: _rank(each, limits)), together


def _rank(found: Assignment, limits: Sequence[int]) -> tuple[int, float]:
    """Orders placements: those that fit by their time, and before the others by what is too much."""
    over = sum(max(0, peak - limit) for peak, limit in zip(found.peaks, limits, strict=True))
    return over, found.makespan_s


class _Greedy:
    """One greedy walk over the tasks."""

    def __init__(
        self,
        tasks: Sequence[SimulatedOp],
        groups: Sequence[PlacedGroup],
        transfer: Transfer,
        limits: Sequence[int],
    ):
        self._tasks, self._groups, self._limits = tasks, groups, limits
        self._step = _Step(tasks, transfer, len(limits))
        self._step.ends.update({number: 0.0 for number, task in enumerate(tasks) if task.is_source})
        self._memory = _Memory(tasks, groups, len(limits))
        self._where: list[int | None] = [None] * len(groups)

    def placed(self, in_order: bool) -> list[int]:
        """The device of each group. in_order: walks in program order, else by when inputs are there."""
        for index, group in enumerate(self._groups):
            if len(group.devices) == 1:
                self._settle(index, group.devices[0])
        for number in range(len(self._tasks)) if in_order else self._by_readiness():
            task = self._tasks[number]
            if not task.is_source:
                self._place(number, task)
        return [
            group.devices[0] if w is None else w for group, w in zip(self._groups, self._where, strict=True)
        ]

    def _by_readiness(self) -> Iterator[int]:
        """Numbers of the tasks, by when their inputs are there; the caller places each before the next."""
        left = [0] * len(self._tasks)
        readers: list[list[int]] = [[] for _ in self._tasks]
        for number, task in enumerate(self._tasks):
            for index in {i for i, _ in task.inputs if not self._tasks[i].is_source}:
                left[number] += 1
                readers[index].append(number)
        ready = [(0.0, n) for n, task in enumerate(self._tasks) if not left[n] and not task.is_source]
        heapify(ready)
        while ready:
            _, number = heappop(ready)
            yield number
            for reader in readers[number]:
                left[reader] -= 1
                if not left[reader]:
                    inputs = self._tasks[reader].inputs
                    heappush(ready, (max(self._step.ends.get(i, 0.0) for i, _ in inputs), reader))

    def _settle(self, group: int, device: int) -> None:
        if self._where[group] is None:
            self._where[group] = device
            self._memory.settle(group, device)

    def _device_of(self, index: int) -> int:
        device = self._where[self._tasks[index].group]
        if device is None:
            raise InternalError(f"{self._tasks[index].name} is read before it is placed")
        return device

    def _place(self, number: int, task: SimulatedOp) -> None:
        step, group = self._step, self._groups[task.group]
        # Variables that nothing has read yet come along, where they may.
        loose = [i for i, _ in task.inputs if self._where[self._tasks[i].group] is None]
        settled = self._where[task.group]
        options = group.devices if settled is None else (settled,)

        def where(index: int, device: int) -> int:
            own = self._groups[self._tasks[index].group].devices
            return (device if device in own else own[0]) if index in loose else self._device_of(index)

        def end_on(device: int) -> float:
            return step.begin(task, device, lambda index: where(index, device)) + task.seconds[device]

        needed = task.nbytes + (group.nbytes if settled is None else 0)
        needed += sum(self._groups[g].nbytes for g in {self._tasks[i].group for i in loose} - {task.group})
        room = {d: self._limits[d] - self._memory.used[d] - needed for d in options}
        fitting = [d for d in options if room[d] >= 0] or [max(options, key=lambda d: room[d])]
        device = min(fitting, key=end_on)
        for index in loose:
            self._settle(self._tasks[index].group, where(index, device))
        self._settle(task.group, device)
        step.run(number, device, self._device_of, delays_senders=True)
        self._memory.run(number, device)
