"""The dynamic executor of one replica: runs the dynamic part of its steps on the replica's stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from scheduler.replicas.dynamic.executor_part import COMPILED, ExecutorPart
from tensorbow.compiler import Binding, RegionMemory
from tensorbow.devices import StreamGroup
from tensorbow.errors import AbortedError, InternalError
from tensorbow.executor import (
    VARIABLE,
    DynamicStep,
    InterOpPool,
    QuickStep,
    RegionCall,
    StaticRegion,
    StepSpans,
    threads_beside_caller,
)
from tensorbow.graph import Tensor
from tensorbow.program import Executable, Region
from tensorbow.runtime.run_stop import RunStop
from tensorbow.specs import Array
from tensorbow.timeline import CURRENT

VARIABLES = (Region.WEIGHTS, Region.SLOTS, Region.STATISTICS)
AGAIN = 1 << 40  # added to the counter of random ops for each further run of a region in a step


class ReplicaExecutor:
    """Runs an `ExecutorPart` with the variables of a replica. One step at a time, on the replica's stream.

    Regions have memory of the replica's stream group. Functions that take long run on threads of its own, so
    that `cancel` can end a step that waits for one.
    """

    def __init__(self, part: ExecutorPart, group: StreamGroup, bases: Mapping[Region, int], owner: str):
        """bases: base addresses of the replica's variables and gradients."""
        self.part = part
        self._group, self._owner = group, owner
        self._bases = {region: bases[region] for region in (*VARIABLES, Region.GRADIENTS)}
        self._memory = RegionMemory(group, f"{owner} between regions")
        self._on_cpu = group.device.kind == "cpu"
        self._calls: dict[object, RegionCall] = {}  # by region, shapes of its inputs, and which lie in homes
        self._homes: dict[Tensor, Array] = {}  # arrays of what lies in its home, where the host addresses it
        # On a GPU the stream's calls have one thread, also those of regions.
        self._pool = None if group.device.kind == "gpu" else InterOpPool(threads_beside_caller(0), owner)
        self._idle: dict[Executable, list[Binding]] = {}  # bound regions that no run uses
        self._lock = threading.Lock()  # guards all fields here, and the group's allocator
        self._step: DynamicStep | QuickStep | None = None  # that runs
        self._cancelled: BaseException | None = None  # ends this step and later ones, until `resume`
        self._values: dict[int, dict[str, Array]] = {}  # by result number, of steps that are not yet taken
        self._last: dict[str, Array] = {}  # what the last step made

    def run(self, number: int, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Runs a step; its gradients lie where the planned part reads them, its other values are there for
        `take`.

        number: of the result. inputs: the batch, by tensor name. state: all step scalars.
        Raises the first error of an op, AbortedError after `cancel`.
        """
        part, tracer = self.part, CURRENT.tracer
        stop = RunStop(None, lambda: None)
        runs: dict[StaticRegion, int] = {}
        counters = (f"counter:{name}" for name in part.counters)
        counter = next((state[key] for key in counters if key in state), number)
        run_region = partial(self._run_region, stop, state, counter, runs)
        step: DynamicStep | QuickStep
        if part.plan.chain is not None and tracer is None:
            step = QuickStep(part.plan, run_region, part.resources, stop.stop)
        else:
            step = DynamicStep(
                part.plan,
                run_region,
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
        self._find_homes()
        try:
            values = step.run({tensor: inputs[tensor.name] for tensor in part.inputs})
        finally:
            with self._lock:
                self._step = None
        made, last = dict[str, Array](), dict[str, Array]()
        if self._group.device.kind == "gpu":
            self._group.compute.synchronize()  # the step before may still be reading gradients
        for element, value in zip(part.plan.elements, values, strict=True):
            if not isinstance(element, Tensor):
                continue
            if value is VARIABLE:
                raise InternalError(f"{element.name} is a variable's reference, which nothing hands over")
            part.require_shape(element, value)
            last[element.name] = value
            gradient = part.gradients.get(element)
            if gradient is None:
                made[element.name] = value
            elif value is not self._homes.get(element):
                self._group.device.write(self._bases[Region.GRADIENTS] + gradient.offset, value)
        self._values[number], self._last = made, last

    def _find_homes(self) -> None:
        """Makes the arrays of values that have homes, when the first step runs and after `move_to`."""
        part, device = self.part, self._group.device
        if not self._on_cpu or len(self._homes) == len(part.homes):
            return
        if Region.HANDED not in self._bases:
            with self._lock:
                self._bases[Region.HANDED] = self._memory.allocate(Region.HANDED, part.handed_nbytes)
        self._homes = {
            tensor: device.view(self._bases[ref.region] + ref.offset, ref.shape, ref.dtype.as_numpy_dtype)
            for tensor, ref in part.homes.items()
        }

    def move_to(self, bases: Mapping[Region, int]) -> None:
        """Takes other base addresses of the replica, while nothing runs."""
        self._bases[Region.GRADIENTS] = bases[Region.GRADIENTS]
        self._homes = {}
        self._unbind()

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

    @property
    def waiting(self) -> list[str]:
        """The ops that its step waits for now, as messages name them; thread-safe."""
        step = self._step
        return [] if step is None else step.waiting

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
        loop_run: object,
    ) -> Sequence[Array]:
        homes = self._homes
        in_place = tuple(
            [homes.get(tensor) is array for tensor, array in zip(region.inputs, arrays, strict=True)]
        )
        key = (region, region.key(arrays), in_place)
        call = self._calls.get(key)
        if call is None:
            made = self._new_call(region, arrays, in_place)
            with self._lock:
                while len(self._calls) >= COMPILED:
                    del self._calls[next(iter(self._calls))]
                call = self._calls.setdefault(key, made)
        executable = call.executable
        state = {key: scalars[key] for key in call.state if key in scalars}
        if executable.counters:
            with self._lock:
                again = runs[region] = runs.get(region, -1) + 1
            drawn = counter + again * AGAIN
            state |= {f"counter:{name}": drawn for name in executable.counters}
        binding = self._bound(executable)
        try:
            with stop.running(binding.plan) if executable.may_not_end else nullcontext():
                binding.write({name: arrays[index] for index, name in call.inputs}, state)
                return call.launch(binding.plan) if self._on_cpu else self._copied(binding)
        finally:
            self._give(binding)

    def _new_call(
        self, region: StaticRegion, arrays: Sequence[Array], in_place: Sequence[bool]
    ) -> RegionCall:
        """A call of a region for inputs of these shapes. in_place: of each whether it lies in its home."""
        lie = frozenset(tensor for tensor, is_home in zip(region.inputs, in_place, strict=True) if is_home)
        executable = self.part.compiled(region, arrays, lie if self._on_cpu else None)
        homes: list[tuple[Array, bool] | None] = []
        for tensor, source in zip(region.outputs, executable.fetch_sources, strict=True):
            home, ref = self._homes.get(tensor), self.part.homes.get(tensor)
            if home is None or ref is None or home.shape != source.shape:
                homes.append(None)
            else:
                homes.append((home, (ref.region, ref.offset) == (source.region, source.offset)))
        written = [
            (index, tensor.name)
            for index, tensor in enumerate(region.inputs)
            if tensor not in lie and tensor.name not in region.baked_names
        ]
        return RegionCall(executable, written, homes)

    def _copied(self, binding: Binding) -> list[Array]:
        """Launches a region; copies of its results."""
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
            return Binding(executable, self._group, self._bases, ring=0 if self._on_cpu else 1, owner=owner)

    def _give(self, binding: Binding) -> None:
        with self._lock:
            self._idle.setdefault(binding.executable, []).append(binding)

    def close(self) -> None:
        """Gives the memory back, while nothing runs; idempotent."""
        if self._pool is not None:
            self._pool.close()
        self._unbind()
        self._homes, self._last = {}, {}
        self._memory.free()

    def _unbind(self) -> None:
        self._calls.clear()
        with self._lock:
            bound, self._idle = self._idle, {}
        for bindings in bound.values():
            for binding in bindings:
                binding.close()
