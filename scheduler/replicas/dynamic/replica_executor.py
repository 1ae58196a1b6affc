"""The dynamic executor of one replica: runs the dynamic part of its steps on the replica's stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from scheduler.replicas.dynamic.executor_part import COMPILED, ExecutorPart
from tensorbow.compiler import Binding
from tensorbow.devices import StreamGroup
from tensorbow.errors import AbortedError, InternalError
from tensorbow.executor import (
    VARIABLE,
    DynamicStep,
    InterOpPool,
    StaticRegion,
    StepSpans,
    threads_beside_caller,
)
from tensorbow.graph import Tensor
from tensorbow.program import Executable, Region
from tensorbow.runtime.run_stop import RunStop
from tensorbow.specs import Array
from tensorbow.timeline import CURRENT

AGAIN = 1 << 40  # added to the counter of random ops for each further run of a region in a step


class ReplicaExecutor:
    """Runs an `ExecutorPart` with the variables of a replica. One step at a time, on the replica's stream.

    Regions have memory of the replica's stream group. Functions that take long run on threads of its own, so
    that `cancel` can end a step that waits for one.
    """

    def __init__(self, part: ExecutorPart, group: StreamGroup, variables: Mapping[Region, int], owner: str):
        """variables: base addresses of the replica's variables."""
        self.part = part
        self._group, self._variables, self._owner = group, variables, owner
        # On a GPU the stream's calls have one thread, also those of regions.
        self._pool = None if group.device.kind == "gpu" else InterOpPool(threads_beside_caller(0), owner)
        self._idle: dict[Executable, list[Binding]] = {}  # bound regions that no run uses
        self._lock = threading.Lock()  # guards all fields here, and the group's allocator
        self._step: DynamicStep | None = None  # that runs
        self._cancelled: BaseException | None = None  # ends this step and later ones, until `resume`
        self._values: dict[int, dict[str, Array]] = {}  # by result number, of steps that are not yet taken
        self._last: dict[str, Array] = {}  # what the last step made

    def run(self, number: int, inputs: Mapping[str, Array], state: Mapping[str, Any], counter: int) -> None:
        """Runs a step; its values are there for `take`.

        number: of the result. inputs: the batch, by tensor name. state: all step scalars. counter: of the
        random ops.
        Raises the first error of an op, AbortedError after `cancel`.
        """
        part, tracer = self.part, CURRENT.tracer
        stop = RunStop(None, lambda: None)
        runs: dict[StaticRegion, int] = {}
        step = DynamicStep(
            part.plan,
            partial(self._run_region, stop, state, counter, runs),
            part.resources,
            None,
            None if tracer is None else StepSpans([tracer], self._group.compute.track),
            self._pool,
            None,
            stop.stop,
            functions_apart=True,
        )
        with self._lock:
            if self._cancelled is not None:
                raise self._cancelled
            self._step = step
        try:
            values = step.run({tensor: inputs[tensor.name] for tensor in part.inputs})
        finally:
            with self._lock:
                self._step = None
        made: dict[str, Array] = {}
        for element, value in zip(part.plan.elements, values, strict=True):
            if not isinstance(element, Tensor):
                continue
            if value is VARIABLE:
                raise InternalError(f"{element.name} is a variable's reference, which nothing hands over")
            part.require_shape(element, value)
            made[element.name] = value
        self._values[number] = self._last = made

    def take(self, number: int) -> dict[str, Array]:
        """Values that a step has made for the planned part, by tensor name; forgets them."""
        return self._values.pop(number)

    @property
    def first_nonfinite(self) -> str | None:
        """Name of the first op whose value, as the last step has handed it over, is not finite."""
        for name, value in self._last.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                return name.partition(":")[0]
        return None

    def cancel(self) -> None:
        """Ends the step that runs, whatever it waits for, and those to come, until `resume`; thread-safe."""
        error = AbortedError("the step was given up, as the run ends; nothing is wrong with its ops")
        with self._lock:
            self._cancelled, step = error, self._step
        if step is not None:
            step.cancel(error)

    def resume(self) -> None:
        """Lets steps run again after `cancel`; thread-safe."""
        with self._lock:
            self._cancelled = None

    def reset(self) -> None:
        """Drops values that nobody has taken, of steps that failed, and resumes; while nothing runs."""
        self._values.clear()
        self.resume()

    # Regions ----------------------------------------------------------------------------------

    def _run_region(
        self,
        stop: RunStop,
        scalars: Mapping[str, Any],
        counter: int,
        runs: dict[StaticRegion, int],
        region: StaticRegion,
        arrays: Sequence[Array],
    ) -> Sequence[Array]:
        executable = self.part.compiled(region, arrays)
        state = {key: scalars[key] for key in executable.state if key in scalars}
        if executable.counters:
            with self._lock:
                again = runs[region] = runs.get(region, -1) + 1
            drawn = counter + again * AGAIN
            state |= {f"counter:{name}": drawn for name in executable.counters}
        inputs = {
            tensor.name: array
            for tensor, array in zip(region.inputs, arrays, strict=True)
            if tensor.name not in region.baked_names
        }
        binding = self._bound(executable)
        try:
            with stop.running(binding.plan) if executable.may_not_end else nullcontext():
                return self._launch(binding, inputs, state)[: len(region.outputs)]
        finally:
            self._give(binding)

    def _launch(self, binding: Binding, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> list[Array]:
        binding.write(inputs, state)
        for segment in range(len(binding.executable.segments)):
            binding.plan.launch(segment)
        if self._group.device.kind == "gpu":
            self._group.compute.synchronize()
        return [view.copy() for view in binding.plan.fetch_arrays(0)]

    def _bound(self, executable: Executable) -> Binding:
        with self._lock:
            idle = self._idle.get(executable)
            if idle:
                return idle.pop()
            while len(self._idle) >= COMPILED:
                for each in self._idle.pop(next(iter(self._idle))):
                    each.close()
            owner = f"{self._owner} region {len(self._idle)}"
            return Binding(executable, self._group, self._variables, ring=1, owner=owner)

    def _give(self, binding: Binding) -> None:
        with self._lock:
            self._idle.setdefault(binding.executable, []).append(binding)

    def close(self) -> None:
        """Gives the memory back, while nothing runs; idempotent."""
        if self._pool is not None:
            self._pool.close()
        with self._lock:
            bound, self._idle = self._idle, {}
        for bindings in bound.values():
            for binding in bindings:
                binding.close()
