"""One model spread over several stream groups: the baseline of the TensorBow thesis's figure 5.6.

TensorFlow 1 trains one model however many stream groups a device has, and places ops on their streams as they
depend on one another. Here the calls of one replica's compiled step are placed in the same spirit: a call
follows the last call that it depends on, unless another one has followed that already; then it takes the next
stream. Streams wait for one another by events, call by call; nothing is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from harness import LEARNING_RATE, MOMENTUM, paced
from ours import made_up_data

import tensorbow as tb
from scheduler.averaging.synchronisers import Synchroniser
from scheduler.training.models.classifier_step import build_program
from tensorbow.compiler import Binding, VariableLayout
from tensorbow.devices import Event, Stream, get_device
from tensorbow.kernels import backend_for
from tensorbow.models import get_model
from tensorbow.program.plan import BoundPlan, Group, Ref
from tensorbow.runtime import Container

Call = Callable[[], object]


def overlap(left: Sequence[Ref], right: Sequence[Ref]) -> bool:
    """True if some memory is in both."""
    return any(
        a.region is b.region and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
        for a in left
        for b in right
    )


def dependencies(groups: Sequence[Group]) -> list[list[int]]:
    """Earlier calls that each call must follow: writers of what it uses, readers of what it writes."""
    found: list[list[int]] = []
    for place, group in enumerate(groups):
        touched = [*group.reads, *group.writes]
        found.append(
            [
                before
                for before, other in enumerate(groups[:place])
                if overlap(other.writes, touched) or overlap(other.reads, group.writes)
            ]
        )
    return found


def placement(after: Sequence[Sequence[int]], streams: int) -> list[int]:
    """Number of the stream of each call. after: see `dependencies`."""
    placed: list[int] = []
    followed: set[int] = set()
    following = 0
    for earlier in after:
        last = max(earlier, default=None)
        if last is not None and last not in followed:
            followed.add(last)
            placed.append(placed[last])
        else:
            placed.append(following % streams)
            following += 1
    return placed


def calls_on(plan: BoundPlan, segment: int) -> list[tuple[Group, Call]]:
    """Calls of a bound segment, one by one."""
    pieces: Any = getattr(plan, "_pieces", None)
    if pieces is not None:
        return [pair for piece in pieces[segment] for pair in zip(piece.groups, piece.calls, strict=False)]
    groups = plan.executable.segments[segment].groups
    return list(zip(groups, plan._one_by_one(segment), strict=True))  # type: ignore[attr-defined]


class SpreadModel:
    """One model in training on a device, its step spread over stream groups; a `Window` of images/s."""

    def __init__(self, model: str, batch_size: int, streams: int, device_name: str):
        data, device = made_up_data(model), get_device(device_name)
        with tb.Graph().as_default():
            tb.set_random_seed(1)
            program = build_program(get_model(model), data, MOMENTUM, LEARNING_RATE, 0.0)
        layout = VariableLayout.of_graph(program.graph)
        executable = program.compile(program.specs(batch_size), layout, backend_for(device), Synchroniser())
        self._groups = [device.stream_group(f"spread {number} of {streams}") for number in range(streams)]
        self._container = Container(self._groups[0])
        self._container.grow(layout.variables)
        self._container.load(program.initial_values())
        self._binding = Binding(executable, self._groups[0], self._container.bases)
        bases = self._binding.bases
        plans = [self._binding.plan]
        plans += [backend_for(device).bind(executable, bases, group, 1) for group in self._groups[1:]]
        self._others = plans[1:]
        self._data, self._batch_size = data, batch_size
        self._draw = np.random.default_rng(1)
        self._inputs = list(executable.inputs)
        segments = range(len(executable.segments))
        by_plan = [[pair for segment in segments for pair in calls_on(plan, segment)] for plan in plans]
        self._after = dependencies([group for group, _ in by_plan[0]])
        self.placed = placement(self._after, streams)
        self._calls = [by_plan[stream][place][1] for place, stream in enumerate(self.placed)]
        self._streams: list[Stream] = [group.compute for group in self._groups]
        self._last: list[Event] = []  # of the step before
        self._window = paced(self.run_steps, batch_size)

    def __call__(self, seconds: float) -> float:
        return self._window(seconds)

    def run_steps(self, steps: int) -> None:
        """Trains so many steps, each on a batch copied from the host; a step begins after the one before."""
        for _ in range(steps):
            batch = self._data.batch(self._draw.integers(0, len(self._data), self._batch_size))
            self._step(dict(zip(self._inputs, batch, strict=True)))
        for stream in self._streams:
            stream.synchronize()

    def _step(self, batch: dict[str, Any]) -> None:
        first = self._streams[0]
        for event in self._last:
            first.wait(event)
        first.submit(lambda: self._binding.write(batch, {}), label="batch")
        events: list[Event] = []
        begun = first.record()
        for place, call in enumerate(self._calls):
            stream = self._streams[self.placed[place]]
            if self.placed[place]:
                stream.wait(begun)
            for earlier in self._after[place]:
                if self.placed[earlier] != self.placed[place]:
                    stream.wait(events[earlier])
            events.append(stream.submit(call, label="call"))
        self._last = [stream.record() for stream in self._streams[1:]]

    def values(self) -> dict[str, Any]:
        """Values of the variables by name."""
        return {op.name: self._container.read(op.name) for op in self._container.layout.variables}

    def close(self) -> None:
        """Releases everything."""
        for stream in self._streams:
            stream.synchronize()
        for plan in self._others:
            plan.close()
        self._binding.close()
        self._container.close()
        for group in self._groups:
            group.close()

    def __enter__(self) -> SpreadModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
