"""A task's part of a step in the dynamic mode: control flow, queues and other ops of the host on one task.

The dynamic executor runs it. Its static regions are compiled as steps of the task, when they first run with
inputs of certain shapes.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tensorbow.cluster.run_limit import LimitReachedError, RunLimit
from tensorbow.cluster.task_step import Arrivals
from tensorbow.cluster.transfer_ops import RUN
from tensorbow.compiler.prune import needed_for
from tensorbow.executor import DynamicPlan, DynamicStep, StaticRegion, StepSpans, TaskPool, with_variables
from tensorbow.graph import Graph, Operation, Resources, Tensor
from tensorbow.specs import Array, TensorSpec

MOST_REGIONS = 256  # compiled forms of a part's regions; with more of them all are made anew
LATER_DRAW = 1 << 40  # what the counter of a random op is raised by for each further draw of a run
OWN_DRAWS = 1 << 60  # where the counters begin of random ops that the session does not know by name

Send = Callable[[str, str, Any], None]  # task, key, value or DEAD


class StepsOfTask(Protocol):
    """Functions of a task that its parts need."""

    def compile(
        self,
        handle: str,
        session: str,
        ops: Sequence[Operation],
        elements: Sequence[Tensor | Operation],
        specs: Mapping[Tensor, TensorSpec],
        home: str,
    ) -> list[str]:
        """Compiles a step of this task alone; returns the names of its random ops."""

    def run(
        self,
        handle: str,
        name: str,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        limit: RunLimit,
        use: Callable[[list[Array]], Any],
    ) -> Any:
        """Runs it."""

    def release(self, handles: Sequence[str]) -> None:
        """Forgets steps."""


class DynamicPart:
    """A registered part, which several threads may run at once."""

    def __init__(
        self,
        task: StepsOfTask,
        handle: str,
        session: str,
        graph: Graph,
        fetches: Sequence[str],
        feeds: Sequence[str],
        home: str,
        pool: TaskPool,
    ):
        """graph: with the full name of each operation's device. fetches: names of tensors. feeds: names of
        placeholders. home: the device of constants. pool: of ops that wait or take long.
        """
        self.session = session
        self._pool = pool
        self._task, self._handle, self._home = task, handle, home
        ops = graph.get_operations()
        self._feeds = {name: graph.get_tensor_by_name(f"{name}:0") for name in feeds}
        elements = [graph.get_tensor_by_name(name) for name in fetches]
        self._plan = DynamicPlan(elements, list(self._feeds.values()), ops, "its step is dynamic")
        self._lock = threading.Lock()  # guards the fields below
        self._compiled: dict[object, tuple[str, list[str]]] = {}  # handles, and random ops
        self._numbers = itertools.count()
        self._draws: Counter[str] = Counter()
        self._running: set[DynamicStep] = set()
        self._released = False

    def run(
        self,
        name: str,
        run: Arrivals,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        limit: RunLimit,
        send: Send,
        resources: Resources,
    ) -> list[Array]:
        """The values that are fetched here. state: the counters of random ops.

        Raises the error of an op, and what `limit` raises.
        """
        this = _Run(self, name, run, state, limit, send)
        shared = Resources()
        shared.get(RUN, lambda: this)
        spans = None
        if limit.spans is not None:
            track = limit.spans.track(self._home, "dynamic steps")
            spans = StepSpans([limit.spans.tracer], track)
        step = DynamicStep(
            self._plan,
            this.run_region,
            resources,
            limit.left_s,
            spans,
            self._pool,
            stop=limit.stop,
            shared=shared,
        )
        with self._lock:
            self._running.add(step)
        try:
            values = step.run({tensor: inputs[name] for name, tensor in self._feeds.items()})
            return with_variables(self._plan.elements, values, this.read, resources)
        except LimitReachedError as error:
            waited = f"it waited for {', '.join(step.waited_for)}" if step.waited_for else ""
            raise LimitReachedError(this.was_at or waited or str(error) or "it computed") from None
        finally:
            with self._lock:
                self._running.discard(step)
            self._forget_released()

    def cancel(self, error: BaseException) -> None:
        """Ends the runs with an error."""
        with self._lock:
            running = list(self._running)
        for step in running:
            step.cancel(error)

    def release(self) -> None:
        """Forgets the compiled regions, once nothing runs."""
        self._released = True
        self._forget_released()

    def _forget_released(self) -> None:
        """Forgets the regions of a released part, or of one with too many of them, between runs."""
        with self._lock:
            if self._running or not (self._released or len(self._compiled) > MOST_REGIONS):
                return
            handles = [handle for handle, _ in self._compiled.values()]
            self._compiled.clear()
        self._task.release(handles)

    def run_step(
        self,
        key: object,
        elements: Sequence[Tensor | Operation],
        specs: Mapping[Tensor, TensorSpec],
        within: Collection[Operation] | None,
        name: str,
        inputs: Mapping[str, Array],
        draw: Callable[[str], int],
        limit: RunLimit,
    ) -> list[Array]:
        """Compiles a step, unless it is known by `key`, and runs it. draw: the counter of a random op."""
        with self._lock:
            known = self._compiled.get(key)
        if known is None:
            known = self._compile(key, elements, specs, within)
        handle, random = known
        state = {f"counter:{each}": draw(each) for each in random}
        values: list[Array] = self._task.run(
            handle, name, inputs, state, limit, lambda v: [np.array(a) for a in v]
        )
        return values

    def _compile(
        self,
        key: object,
        elements: Sequence[Tensor | Operation],
        specs: Mapping[Tensor, TensorSpec],
        within: Collection[Operation] | None,
    ) -> tuple[str, list[str]]:
        ops = needed_for(elements, specs, within)
        handle = f"{self._handle}/{next(self._numbers)}"
        random = self._task.compile(handle, self.session, ops, elements, specs, self._home)
        with self._lock:
            made = self._compiled.setdefault(key, (handle, random))
            surplus = [] if made[0] == handle else [handle]  # another thread was faster
        self._task.release(surplus)
        return made

    def own_draw(self, name: str) -> int:
        """The next counter of a random op that the session does not know by name."""
        with self._lock:
            self._draws[name] += 1
            return OWN_DRAWS + self._draws[name]


class _Run:
    """One run of a part. Regions of several threads run at once."""

    def __init__(
        self,
        part: DynamicPart,
        name: str,
        run: Arrivals,
        state: Mapping[str, Any],
        limit: RunLimit,
        send: Send,
    ):
        self._part, self._name, self._arrivals, self._state = part, name, run, state
        self._limit = limit
        self.send, self.receive = send, run.when
        self._numbers = itertools.count()
        self.was_at = ""  # what a region was at when the run came to its time limit
        self._lock = threading.Lock()  # guards the draws
        self._draws: Counter[str] = Counter()

    def run_region(self, region: StaticRegion, arrays: Sequence[Array], loop_run: object) -> Sequence[Array]:
        """Runs a region as a step of the task."""
        values = {tensor.name: array for tensor, array in zip(region.inputs, arrays, strict=True)}
        found = self._run(
            (region, region.key(arrays)),
            region.elements,
            region.feeds(arrays),
            region.within,
            {name: value for name, value in values.items() if name not in region.baked_names},
        )
        return found[: len(region.outputs)]

    def read(self, variables: Sequence[Any]) -> list[Array]:
        """The values of variables."""
        return self._run(tuple(variables), variables, {}, None, {})

    def _run(
        self,
        key: object,
        elements: Sequence[Tensor | Operation],
        specs: Mapping[Tensor, TensorSpec],
        within: Collection[Operation] | None,
        inputs: Mapping[str, Array],
    ) -> list[Array]:
        name = f"{self._name}/{next(self._numbers)}"
        try:
            return self._part.run_step(key, elements, specs, within, name, inputs, self._draw, self._limit)
        except LimitReachedError as error:
            self.was_at = str(error)
            raise

    def _draw(self, name: str) -> int:
        base = self._state.get(f"counter:{name}")
        if base is None:
            return self._part.own_draw(name)
        with self._lock:
            count = self._draws[name]
            self._draws[name] += 1
        return int(base) + count * LATER_DRAW
