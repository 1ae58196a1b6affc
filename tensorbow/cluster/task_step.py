"""A bound step's parts on one task: stages run as soon as what they wait for has arrived.

The parts of different devices run side by side, each in its own thread, whether their task is the same or
not: a stage waits until the stages before it on other devices have ended, and what they send has arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from tensorbow.cluster.run_limit import LimitReachedError, RunLimit
from tensorbow.cluster.task_variables import TaskVariables, names_touched
from tensorbow.compiler import Binding, MultiDeviceExecutable, VariableLayout, sends_of
from tensorbow.devices import Access, Event
from tensorbow.errors import AbortedError, FailedPreconditionError, raise_if_any
from tensorbow.graph import loop_name
from tensorbow.program import Ref, Region
from tensorbow.specs import Array
from tensorbow.timeline import OP, WAIT

HELD_BACK_NBYTES = (
    1 << 16
)  # smaller values wait for the next message to their task, if no stage waits before it

Post = Callable[[str, "list[int]", "list[str]", "list[Array]"], None]  # task, stages, keys, arrays


class Arrivals:
    """Arrivals for one run of a step on one task: ended stages, and values by key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._changed = threading.Condition(threading.Lock())
        self._ended: set[int] = set()
        self._values: dict[str, Any] = {}  # arrays, and of parts in the dynamic mode DEAD
        self._wanted: dict[str, Callable[[Any], None]] = {}  # by key, what takes a value that comes
        self._error: BaseException | None = None
        self._boxes: Mapping[str, Array] = {}
        self._receiving = 0  # messages that are being received into boxes

    def begin(self, boxes: Mapping[str, Array]) -> None:
        """Says where values may be received directly, by key, as the run has begun."""
        with self._changed:
            self._boxes = boxes

    def receive(self) -> Mapping[str, Array]:
        """The places for values of a message that comes; call `received` afterwards."""
        with self._changed:
            self._receiving += 1
            return self._boxes

    def received(self) -> None:
        """Ends a `receive`."""
        with self._changed:
            self._receiving -= 1

    def end(self) -> bool:
        """Closes the boxes; True once nothing is being received into them."""
        with self._changed:
            self._boxes = {}
            return not self._receiving

    def arrive(self, stages: Collection[int], values: Mapping[str, Any]) -> None:
        """Says that stages of other devices have ended, with the values that they send."""
        with self._changed:
            takers = {key: self._wanted.pop(key) for key in values if key in self._wanted}
            self._values.update((key, value) for key, value in values.items() if key not in takers)
            self._ended.update(stages)
            self._changed.notify_all()
        for key, take in takers.items():
            take(values[key])

    def when(self, key: str, take: Callable[[Any], None]) -> None:
        """Calls `take` with a value that has arrived or will; in the thread that it arrives in."""
        with self._changed:
            value = self._values.pop(key, None)
            if value is None:
                self._wanted[key] = take
                return
        take(value)

    def abort(self, error: BaseException) -> None:
        """Makes all waits raise; the first error counts."""
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def wait(self, stages: frozenset[int], limit: _PartLimit) -> None:
        """Waits until these stages have ended. Raises the error of the abort, and what `limit` raises."""
        while True:
            with self._changed:
                raise_if_any(self._error)
                if stages <= self._ended:
                    return
            left_s = limit.left_s()
            with self._changed:
                if self._error is None and not stages <= self._ended:
                    self._changed.wait(left_s)

    def check(self) -> None:
        """Raises the error of the abort, if there was one."""
        raise_if_any(self._error)

    def missing(self, stages: frozenset[int]) -> list[int]:
        """Returns the stages, of the given ones, that have not ended."""
        with self._changed:
            return sorted(stages - self._ended)

    def value(self, key: str) -> Array:
        """A value that has arrived, once."""
        value: Array = self._values.pop(key)
        return value


@dataclass(frozen=True)
class _TaskStage:
    """A stage of one device of this task, ready to run."""

    number: int
    segment: int
    needs: frozenset[int]  # stages of other devices
    receives: tuple[str, ...]
    copied: tuple[tuple[Ref, Array], ...]  # values to copy out before the next stage
    here: Mapping[str, Array]  # values for other devices of this task, by key
    away: Mapping[
        str, tuple[tuple[str, Array], ...]
    ]  # by task: keys and values; empty: only that it has ended
    reads: frozenset[str]
    writes: frozenset[str]
    accesses: tuple[Sequence[Access], Sequence[Access]]
    endless: Sequence[str]  # calls with loops that may never end

    def waited_for_variables(self) -> str:
        """Words for messages on the variables that this part waits for before it runs."""
        names = ", ".join(sorted(self.reads | self.writes)[:3])
        return f"waited for {names}, as another step uses such a variable"


@dataclass
class StepOfTask:
    """A step that a session has registered: the parts of this task, and where its variables are."""

    executable: MultiDeviceExecutable
    layouts: Mapping[str, VariableLayout]  # by full name of the device
    bases: Mapping[str, int]  # addresses that the layouts count from
    variables: Mapping[str, TaskVariables]
    incarnations: Mapping[str, str] = field(default_factory=dict)  # of the other tasks, by name


def task_of(device: str) -> str:
    """The task's part of a full device name."""
    return device[: device.index("/device:")]


class _PartLimit:
    """Time limit of the part of one device in a run, asked while it waits; tells its spans.

    at: what the part is at, for the error at the limit.
    """

    def __init__(self, run: Arrivals, limit: RunLimit, device: str, stream: str):
        self._run, self._limit = run, limit
        self._track = None if limit.spans is None else limit.spans.track(device, stream)
        self.at: Callable[[], str] = lambda: "began"
        self.computed = ""  # the last op, where ops run one by one

    def left_s(self) -> float:
        """See RunLimit.left_s; raises the error of another part, too."""
        self._run.check()
        try:
            return self._limit.left_s()
        except LimitReachedError:
            raise LimitReachedError(f"it {self.at()}") from None

    def after_op(self, op: str, began_s: float, ended_s: float) -> None:
        """Called after an op, where ops run one by one. Raises the error that ends the run."""
        self.computed = op
        self.tell(op, OP, began_s, ended_s)
        self.left_s()

    def tell(self, name: str, category: str, began_s: float, ended_s: float) -> None:
        """Adds a span, if the run is traced."""
        if self._track is not None and self._limit.spans is not None:
            self._limit.spans.tracer.add(self._track, name, category, began_s, ended_s)


class TaskStep:
    """A bound step of a task. One run at a time uses it; after a failed one it is closed."""

    def __init__(self, step: StepOfTask, parts: Mapping[str, Binding], label: str):
        """parts: by full name of the device, closed with the step."""
        self.step = step
        self.parts = parts
        self.groups = tuple(part.group for part in parts.values())
        self._label = label
        self.boxes: dict[str, Array] = {}  # for values that come from other tasks, by key
        self._in_place: set[str] = set()  # those boxes that are the step's own inputs
        self._needed = self._needs()
        self._stages = {name: self._bound(name) for name in parts}

    def _needs(self) -> dict[int, frozenset[int]]:
        """By stage, the stages of other devices that must have ended, and whose values have arrived."""
        stages, senders = self.step.executable.stages, self.step.executable.senders
        return {
            number: frozenset({*stage.waits, *(senders[stage.device, key] for key in stage.receives)})
            for number, stage in enumerate(stages)
        }

    def _bound(self, device: str) -> list[_TaskStage]:
        stages = self.step.executable.stages
        return [self._stage(n) for n, stage in enumerate(stages) if stage.device == device]

    def _stage(self, number: int) -> _TaskStage:
        stage = self.step.executable.stages[number]
        binding, layout = self.parts[stage.device], self.step.layouts[stage.device]
        executable, device = binding.executable, binding.group.device
        segment = executable.segments[stage.segment]
        own = task_of(stage.device)
        copied: list[tuple[Ref, Array]] = []
        here: dict[str, Array] = {}
        away: dict[str, list[tuple[str, Array]]] = {}
        for other, needs in self._needed.items():  # also tasks that wait only for the stage's end
            task = task_of(self.step.executable.stages[other].device)
            if number in needs and task != own:
                away.setdefault(task, [])
        for receiver, key, ref in sends_of(segment):
            # What the slab holds stays there until the next stage; a variable may change at once.
            stays = ref.region is Region.SLAB and device.kind == "cpu" and ref.nbytes >= HELD_BACK_NBYTES
            if stays and task_of(receiver) != own:
                address = binding.bases[ref.region] + ref.offset
                value = device.view(address, ref.shape, ref.dtype.as_numpy_dtype)
            else:
                value = device.host_array(ref.shape, ref.dtype.as_numpy_dtype)
                copied.append((ref, value))
            if task_of(receiver) == own:
                here[key] = value
            else:
                away[task_of(receiver)].append((key, value))
        for key in stage.receives:
            slot = executable.inputs[key]
            shape, dtype = slot.shape, slot.dtype.as_numpy_dtype
            if device.kind == "cpu":
                self._in_place.add(key)
                self.boxes[key] = device.view(binding.bases[slot.region] + slot.offset, shape, dtype)
            else:
                self.boxes[key] = device.host_array(shape, dtype)
        reads = [ref for group in segment.groups for ref in (*group.reads, *group.inputs)]
        writes = [ref for group in segment.groups for ref in group.writes]
        writes += [group.inputs[i] for group in segment.groups for i in group.definition.writes]
        fetched = executable.fetch_sources if segment.fetches else ()
        written = names_touched(layout, writes)
        return _TaskStage(
            number,
            stage.segment,
            self._needed[number],
            stage.receives,
            tuple(copied),
            here,
            {task: tuple(values) for task, values in away.items()},
            names_touched(layout, [*reads, *fetched]) - written,
            written,
            binding.plan.accesses(stage.segment),
            executable.endless_calls(stage.segment),
        )

    def run(
        self,
        run: Arrivals,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        post: Post,
        limit: RunLimit,
    ) -> None:
        """Runs all parts. post: sends values to another task. limit: ends waits, and loops without an end.

        Raises the error of the op that failed, of the abort, or of `limit`; the step is then closed.
        """
        first, *others = self.parts
        threads = [
            threading.Thread(
                target=self._run_guarded,
                args=(name, run, inputs, state, post, limit),
                name=f"{self._label} {name}",
            )
            for name in others
        ]
        for thread in threads:
            thread.start()
        try:
            self._run_part(first, run, inputs, state, post, limit)
        except BaseException as error:
            run.abort(AbortedError(f"another part failed: {error}"))
            raise
        finally:
            for thread in threads:
                thread.join()
        run.check()  # raises the error of another part

    def _run_guarded(
        self,
        name: str,
        run: Arrivals,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        post: Post,
        limit: RunLimit,
    ) -> None:
        try:
            self._run_part(name, run, inputs, state, post, limit)
        except BaseException as error:
            run.abort(error)

    def _run_part(
        self,
        name: str,
        run: Arrivals,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        post: Post,
        limit: RunLimit,
    ) -> None:
        binding, lock = self.parts[name], self.step.variables[name].lock
        plan, known = binding.plan, binding.executable
        waits = _PartLimit(run, limit, name, f"stream {binding.group.name.rpartition('/')[2]}")
        own_inputs = {key: value for key, value in inputs.items() if key in known.inputs}
        own_state = {key: value for key, value in state.items() if key in known.state}
        stages = self._stages[name]
        held_back: dict[str, tuple[list[int], list[str], list[Array]]] = {}  # by task

        def send(task: str) -> None:
            post(task, *held_back.pop(task))

        for index, stage in enumerate(stages):
            if stage.needs:
                for task in list(held_back):
                    send(task)
                began_s = perf_counter()
                waits.at = lambda: f"waited for {self._devices_of(run.missing(stage.needs))}"  # noqa: B023
                run.wait(stage.needs, waits)
                waits.tell(f"wait for {self._devices_of(stage.needs)}", WAIT, began_s, perf_counter())
            values = [(key, run.value(key)) for key in stage.receives]

            def work() -> None:
                if not index:  # noqa: B023 - runs before the next stage
                    binding.write(own_inputs, own_state)
                for key, value in values:  # noqa: B023
                    if key not in self._in_place or value is not self.boxes[key]:
                        plan.copy_in(key, value)
                if limit.each_op:
                    plan.launch_traced(stage.segment, 0, waits.after_op)  # noqa: B023
                else:
                    plan.launch(stage.segment)  # noqa: B023
                for ref, box in stage.copied:  # noqa: B023
                    plan.copy_out(ref, box)

            if stage.reads or stage.writes:
                waits.at = stage.waited_for_variables
                lock.acquire(work, stage.reads, stage.writes, waits)
            try:
                self._execute(binding, work, stage, waits)
            finally:
                lock.release(work)
            run.arrive((stage.number,), stage.here)
            for task, rows in stage.away.items():
                numbers, keys, arrays = held_back.setdefault(task, ([], [], []))
                numbers.append(stage.number)
                keys.extend(key for key, _ in rows)
                arrays.extend(value for _, value in rows)
                if sum(value.nbytes for value in arrays) >= HELD_BACK_NBYTES:
                    send(task)
        for task in list(held_back):
            send(task)

    def _devices_of(self, stages: Iterable[int]) -> str:
        """The devices of stages."""
        names = self.step.executable.stages
        return ", ".join(dict.fromkeys(names[number].device for number in sorted(stages)))

    def _execute(
        self, binding: Binding, work: Callable[[], None], stage: _TaskStage, limit: _PartLimit
    ) -> None:
        """Runs a stage and waits for its end. Raises the error of its op, or that ends the run."""
        stream = binding.group.compute
        label = f"{self._label} stage {stage.number}"
        if stage.endless:
            limit.at = lambda: f"was in {', '.join(map(loop_name, stage.endless))}"
        else:
            limit.at = lambda: f"computed {limit.computed}".rstrip()
        done = None if stage.endless else stream.run_here(work, label=label)
        if done is None:
            reads, writes = stage.accesses
            done = stream.submit(work, label=label, reads=reads, writes=writes)
        if stage.endless:
            self._watch(binding, done, limit)
        with suppress(LimitReachedError):  # of `after_op`, in the words of a kernel's error
            done.synchronize()
        limit.left_s()

    def _watch(self, binding: Binding, done: Event, limit: _PartLimit) -> None:
        """Waits for work with loops that may never end. They stop, and their error comes, with the run's."""
        try:
            while not done.done():
                left_s = limit.left_s()
                with suppress(TimeoutError):
                    done.synchronize(left_s)
        except BaseException:
            binding.plan.stop()
            with suppress(Exception):
                done.synchronize()
            raise

    def fetched(self) -> dict[str, tuple[Array, ...]]:
        """Views of the fetched values, by device."""
        return {name: part.plan.fetch_arrays(0) for name, part in self.parts.items()}

    def close(self) -> None:
        """Frees the memory, once no stage is running."""
        for part in self.parts.values():
            with suppress(Exception):
                part.group.compute.synchronize()
            with suppress(FailedPreconditionError):
                part.group.compute.reset()
            part.close()
