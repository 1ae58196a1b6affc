"""The dynamic executor of one replica: runs the dynamic part of its steps on the replica's stream."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.replicas.dynamic.executor_part import CompiledRegion, ExecutorPart
from scheduler.replicas.dynamic.replica_regions import RegionRunner, RegionState
from tensorbow.devices import StreamGroup
from tensorbow.errors import AbortedError, InternalError
from tensorbow.executor import (
    VARIABLE,
    DynamicStep,
    InterOpPool,
    QuickStep,
    StaticRegion,
    StepSpans,
    threads_beside_caller,
)
from tensorbow.graph import Tensor
from tensorbow.program import Region
from tensorbow.runtime.run_stop import RunStop
from tensorbow.specs import Array
from tensorbow.timeline import CURRENT


class ReplicaExecutor:
    """Runs an `ExecutorPart` with the variables of a replica. One step at a time, on the replica's stream.

    Functions that take long run on threads of its own, so that `cancel` can end a step that waits for one.
    """

    def __init__(
        self,
        part: ExecutorPart[CompiledRegion],
        regions: RegionRunner,
        group: StreamGroup,
        owner: str,
        readers: Sequence[Collection[str]] | None = None,
    ):
        """regions: runs those of the part. group: of the stream that runs the steps. readers: names of the
        values that each planned part of the replica reads; by default one reads all.
        """
        self.part = part
        self._regions, self._group = regions, group
        # On a GPU the stream's calls have one thread, also those of regions.
        self._pool = None if group.device.kind == "gpu" else InterOpPool(threads_beside_caller(0), owner)
        self._lock = threading.Lock()  # guards the two fields below
        self._step: DynamicStep | QuickStep | None = None  # that runs
        self._cancelled: BaseException | None = None  # ends this step and later ones, until `resume`
        self._readers = readers
        # By planned part and result number, what is not yet taken.
        self._values: dict[tuple[int, int], dict[str, Array]] = {}
        self._last: dict[str, Array] = {}  # what the last step made

    def run(self, number: int, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Runs a step; its gradients lie where the planned part reads them, its other values are there for
        `take`.

        number: of the result. inputs: the batch, by tensor name. state: all step scalars.
        Raises the first error of an op, AbortedError after `cancel`.
        """
        part, tracer = self.part, CURRENT.tracer
        stop = RunStop(None, lambda: None)
        counters = (f"counter:{name}" for name in part.counters)
        counter = next((state[key] for key in counters if key in state), number)
        of_step = RegionState(stop, state, counter)
        regions = self._regions

        def run_region(region: StaticRegion, arrays: Sequence[Any], loop_run: object) -> Sequence[Array]:
            return regions.run(of_step, region, arrays)

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
        regions.begin()
        try:
            values = step.run({tensor: inputs[tensor.name] for tensor in part.inputs})
        finally:
            with self._lock:
                self._step = None
        made, last = dict[str, Array](), dict[str, Array]()
        if self._group.device.kind == "gpu":
            self._group.compute.synchronize()  # the step before may still be reading gradients
        for element, value in zip(part.plan.elements, part.filled(values), strict=True):
            if not isinstance(element, Tensor):
                continue
            if value is VARIABLE:
                raise InternalError(f"{element.name} is a variable's reference, which nothing hands over")
            part.require_shape(element, value)
            last[element.name] = value
            gradient = part.gradients.get(element)
            if gradient is None:
                made[element.name] = value
            else:
                regions.leave(element, gradient, value)
        self._last = last
        if self._readers is None:
            self._values[0, number] = made
            return
        for reader, names in enumerate(self._readers):
            self._values[reader, number] = {name: made[name] for name in names if name in made}

    def move_to(self, bases: Mapping[Region, int]) -> None:
        """Takes other base addresses of the replica, while nothing runs."""
        self._regions.move_to(bases)

    def take(self, number: int, reader: int = 0) -> dict[str, Array]:
        """Values that a step has made for a planned part, by tensor name; forgets them."""
        return self._values.pop((reader, number))

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

    def close(self) -> None:
        """Gives the memory back, while nothing runs; idempotent."""
        if self._pool is not None:
            self._pool.close()
        self._regions.close()
        self._last = {}


def waiting_in(executors: Iterable[tuple[int, ReplicaExecutor | None]]) -> list[str]:
    """The ops that executors wait for now, each with the number of its replica, as text."""
    return [
        f"{op} in replica {index}"
        for index, executor in executors
        if executor is not None
        for op in executor.waiting
    ]
