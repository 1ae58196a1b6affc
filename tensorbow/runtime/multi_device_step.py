"""Bound steps over several devices: a binding and a stream group per device, and values sent between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tensorbow.compiler import Binding, MultiDeviceExecutable
from tensorbow.compiler.partition import Send
from tensorbow.devices import Access, Event, StreamGroup
from tensorbow.devices.gpu import mail_access
from tensorbow.errors import FailedPreconditionError, raise_if_any
from tensorbow.program import Ref
from tensorbow.runtime.explain import Explanation, MultiDeviceExplanation
from tensorbow.runtime.kept_values import Keep, KeptValues
from tensorbow.runtime.run_watch import RunWatch, current_watch
from tensorbow.runtime.single_device_step import launch


@dataclass(frozen=True)
class _BoundStage:
    """A stage with its stream: the work to enqueue, and the memory that it reads and writes."""

    group: StreamGroup
    device: str
    work: Callable[[], None]
    label: str
    reads: Sequence[Access]
    writes: Sequence[Access]
    waits: tuple[int, ...]
    signals: bool
    first_of: Binding | None  # for the first stage of a part: the binding whose feeds it writes


class _PresentRun:
    watch: RunWatch | None = None
    kept: Mapping[str, KeptValues] = {}  # by device, of a region


class MultiDeviceStep:
    """A bound step over several devices. Only one run at a time uses it.

    Stages are enqueued on their devices' streams and ordered by events; no host thread waits in between.
    """

    def __init__(self, executable: MultiDeviceExecutable, parts: Mapping[str, Binding], label: str):
        """parts: by device, closed with the step. label: of the launches, with the stage's number behind."""
        self.executable = executable
        self.parts = parts
        self.groups = tuple(part.group for part in parts.values())
        self._present = _PresentRun()
        self._mail: dict[tuple[str, str], Any] = {}  # mailboxes by receiver and input
        seen: set[str] = set()
        self._stages = [self._bind(number, seen, label) for number in range(len(executable.stages))]

    def _bind(self, number: int, seen: set[str], label: str) -> _BoundStage:
        stage = self.executable.stages[number]
        binding, device = self.parts[stage.device], stage.device
        executable, plan, segment = binding.executable, binding.plan, stage.segment
        reads, writes = (list(accesses) for accesses in plan.accesses(segment))
        sends: list[tuple[Ref, Any]] = []
        for group in executable.segments[segment].groups:
            if group.definition is Send:
                source, target, key = group.inputs[0], self.parts[group.attrs["to"]], group.attrs["key"]
                slot = target.executable.inputs[key]
                sender, dtype = binding.group.device, slot.dtype.as_numpy_dtype
                mailbox = target.group.device.mailbox(sender, slot.shape, dtype)
                self._mail[group.attrs["to"], key] = mailbox
                sends.append((source, mailbox))
                if slot.nbytes:
                    writes.append(mail_access(mailbox))
        received = [(key, self._mail[stage.device, key]) for key in stage.receives]
        for key, mailbox in received:
            slot = executable.inputs[key]
            if slot.nbytes:
                writes.append(Access(binding.bases[slot.region] + slot.offset, slot.nbytes))
                reads.append(mail_access(mailbox))

        present = self._present  # not self: a cycle would keep the step's memory

        def work() -> None:
            for key, mailbox in received:
                plan.copy_in(key, mailbox)
            launch(plan, segment, binding.group.compute, present.watch, present.kept.get(device))
            for source, mailbox in sends:
                plan.copy_out(source, mailbox)

        first = None if stage.device in seen else binding
        seen.add(stage.device)
        return _BoundStage(
            binding.group,
            device,
            work,
            f"{label} stage {number}",
            reads,
            writes,
            stage.waits,
            stage.signals,
            first_of=first,
        )

    def run(self, inputs: Mapping[str, Any], state: Mapping[str, Any], keep: Keep | None = None) -> list[Any]:
        """Runs a step, waits for its end, and returns copies of the fetched values. keep: see
        SingleDeviceStep.run.

        Raises the error of the op that failed once all streams are idle; they stay usable.
        """
        present, kept = self._present, None
        present.watch = current_watch()
        if keep is not None:
            kept = {name: KeptValues(part, inputs, keep) for name, part in self.parts.items()}
            present.kept = kept
        try:
            self._enqueue(inputs, state)
            finish(self.groups)
        except BaseException:  # or an interrupt: stages may still use the binding's memory
            _settle(self.groups)
            raise
        finally:
            present.kept = {}
        fetched = {name: part.plan.fetch_arrays(0) for name, part in self.parts.items()}
        if kept is not None:
            return [
                kept[name].fetched(index, fetched[name][index]) for name, index in self.executable.fetches
            ]
        views = [fetched[name][index] for name, index in self.executable.fetches]
        return [view.copy() if view.shape else view[()] for view in views]

    def _enqueue(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        events: dict[int, Event] = {}
        for number, stage in enumerate(self._stages):
            stream = stage.group.compute
            for awaited in stage.waits:
                stream.wait(events[awaited])
            kept = self._present.kept.get(stage.device)
            work = stage.work if stage.first_of is None else _with_feeds(stage, inputs, state, kept)
            stream.enqueue(work, label=stage.label, reads=stage.reads, writes=stage.writes)
            if stage.signals:
                events[number] = stream.record()

    def explain(self) -> MultiDeviceExplanation:
        """Explanation with addresses."""
        parts = {name: Explanation.of_binding(part) for name, part in self.parts.items()}
        return MultiDeviceExplanation(self.executable, parts)

    def close(self) -> None:
        """Frees the memory; idempotent."""
        for binding in self.parts.values():
            binding.close()


def _with_feeds(
    stage: _BoundStage, inputs: Mapping[str, Any], state: Mapping[str, Any], kept: KeptValues | None
) -> Callable[[], None]:
    binding, work = stage.first_of, stage.work

    def first() -> None:
        if binding is not None:
            known = binding.executable
            own_state = {key: value for key, value in state.items() if key in known.state}
            if kept is not None:
                kept.write(own_state)
            else:
                own = {name: value for name, value in inputs.items() if name in known.inputs}
                binding.write(own, own_state)
        work()

    return first


def finish(groups: Sequence[StreamGroup]) -> None:
    """Waits until all of these groups are idle; raises the first error."""
    error: Exception | None = None
    for group in groups:
        try:
            group.compute.synchronize()
        except Exception as raised:
            error = error or raised
    try:
        raise_if_any(error)
    finally:
        del error


def _settle(groups: Sequence[StreamGroup]) -> None:
    for group in groups:
        with suppress(Exception):
            group.compute.synchronize()
    for group in groups:
        with suppress(FailedPreconditionError):
            group.compute.reset()
