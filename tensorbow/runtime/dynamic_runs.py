"""Runs of a session in dynamic mode: steps that no plan can run whole."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from tensorbow.compiler import NeedsDynamicModeError
from tensorbow.compiler.prune import needed_for
from tensorbow.devices import Device, DeviceValue
from tensorbow.devices.names import DeviceName
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from tensorbow.executor import (
    DynamicPlan,
    DynamicStep,
    InterOpPool,
    QuickStep,
    StaticRegion,
    StepSpans,
    owned,
    threads_beside_caller,
    with_variables,
)
from tensorbow.graph import Operation, Resources, Tensor
from tensorbow.runtime.config_proto import ConfigProto
from tensorbow.runtime.fetches_and_feeds import GraphElements
from tensorbow.runtime.forgotten_updates import warn_of_updates_forgotten_by
from tensorbow.runtime.kept_values import Keep
from tensorbow.runtime.planned_runs import PlannedRuns
from tensorbow.runtime.quick_regions import QuickRegions
from tensorbow.runtime.run_stop import RunStop
from tensorbow.runtime.run_watch import RunWatch, current_watch, wanted_tracers, within_watch
from tensorbow.runtime.session_variables import SessionVariables
from tensorbow.runtime.step_cache import CACHED_STEPS, StepCache
from tensorbow.specs import Array
from tensorbow.timeline import StreamTrack


class DynamicRuns:
    """Plans and runs the dynamic steps of a session; their static regions are planned runs. Thread-safe."""

    def __init__(
        self,
        variables: SessionVariables,
        planned: PlannedRuns,
        cache: StepCache,
        config: ConfigProto,
        device: Device,
        *,
        soft: bool,
        name: str,
        host_objects: Resources | None,
    ):
        """cache: of the planned runs. device: the session's. soft: ops of strings may be in the scope of
        another device than a CPU. name: prefix of the threads' names. host_objects: of `Graph`.
        """
        self.plans: dict[Hashable, DynamicPlan] = {}  # by fetches and fed tensors
        self.running: set[DynamicStep | QuickStep] = set()
        self._variables, self._planned = variables, planned
        self._soft, self._compiles_loops = soft, config.compiles_loops
        self._timeout_ms = config.operation_timeout_in_ms
        self._pool = InterOpPool(threads_beside_caller(config.inter_op_parallelism_threads), name)
        without_value = variables.devices.without_value
        self.resources = Resources(  # as queues
            None, lambda name, container: not without_value([name]), host_objects
        )
        may_be_quick = device.kind == "cpu" and not planned.is_limited
        self._quick = QuickRegions(cache, device, f"{name} region") if may_be_quick else None
        self._track = StreamTrack(device.name.short, "dynamic steps")

    def known(
        self, elements: GraphElements, fed: Collection[Tensor], within: frozenset[Operation] | None = None
    ) -> DynamicPlan | None:
        """The plan of these fetches, if no values of variables can make them planned."""
        return self.plans.get((tuple(elements), frozenset(fed), within, False))

    def plan_for(
        self,
        elements: GraphElements,
        fed: Collection[Tensor],
        error: NeedsDynamicModeError,
        within: frozenset[Operation] | None = None,
    ) -> DynamicPlan:
        """The plan of these fetches, kept for later runs.

        error: why they are not planned. within: see `prune`. Raises InvalidArgumentError for fetches and
        feeds in a loop.
        """
        key = (tuple(elements), frozenset(fed), within, error.passing)
        plan = self.plans.get(key)
        if plan is None:
            plan = self.new_plan(elements, fed, error.why, within)
            while len(self.plans) >= CACHED_STEPS:
                self.plans.pop(next(iter(self.plans)), None)
            self.plans[key] = plan
        return plan

    def new_plan(
        self,
        elements: GraphElements,
        fed: Collection[Tensor],
        reason: str,
        within: frozenset[Operation] | None = None,
    ) -> DynamicPlan:
        """A plan that is not kept; arguments as of `plan_for`."""
        warn_of_updates_forgotten_by(elements, fed)
        needed = needed_for(elements, fed, within)
        if not self._soft:
            _require_strings_on_cpus(needed)
        return DynamicPlan(elements, fed, needed, reason, self._compiles_loops)

    def run(self, plan: DynamicPlan, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """Values of the plan's elements, None for operations."""
        self._variables.require_open()
        watch = current_watch()
        if watch is not None:
            watch.begin()
        limited = watch
        if self._timeout_ms and (watch is None or not watch.timeout_ms):
            limited = RunWatch(self._timeout_ms, None, "operation_timeout_in_ms")
            limited.begin()
        stop, keep = RunStop(limited, self._variables.lock.wake), self._planned.keep_on_devices()
        spans = self._spans_of_step(watch)
        quick = self._quick if limited is None and spans is None and keep is None else None
        run_region = partial(self._run_region, stop, keep, quick)
        step: DynamicStep | QuickStep
        if quick is not None and plan.chain is not None:
            step = QuickStep(plan, run_region, self.resources, stop.stop)
        else:
            step = DynamicStep(
                plan,
                run_region,
                self.resources,
                None if limited is None else limited.left_s,
                spans,
                self._pool,
                None if watch is None else partial(within_watch, watch),
                stop.stop,
                keeps_values=keep is not None,
            )
        self.running.add(step)
        try:
            self._variables.require_open()
            values = step.run(feeds)
        except DeadlineExceededError as error:
            if isinstance(step, QuickStep) or not step.waited_for:
                raise
            raise DeadlineExceededError(f"{error}; it waited for {', '.join(step.waited_for)}") from None
        finally:
            self.running.discard(step)
        read = partial(self._planned.run, feeds={})
        return with_variables(plan.elements, [owned(value) for value in values], read, self.resources)

    def _spans_of_step(self, watch: RunWatch | None) -> StepSpans | None:
        """Receiver of a dynamic step's spans: a trace, and the metadata of the run; None for neither."""
        wanted = wanted_tracers(watch)
        return StepSpans(wanted, self._track) if wanted else None

    def _run_region(
        self,
        stop: RunStop,
        keep: Keep | None,
        quick: QuickRegions | None,
        region: StaticRegion,
        arrays: Sequence[Any],
        loop_run: object,
    ) -> Sequence[Any]:
        """The outputs of a region, from its second run on maybe in this thread; see RunRegion."""
        if quick is not None and (found := quick.run(region, arrays, loop_run)) is not None:
            return found
        feeds, began_s = dict(zip(region.inputs, arrays, strict=True)), perf_counter()
        try:
            results = self._planned.run(region.elements, feeds, region, stop=stop, keep=keep)
        except ResourceExhaustedError:
            if quick is None:
                raise
            quick.trim()
            results = self._planned.run(region.elements, feeds, region, stop=stop, keep=keep)
        results = results[: len(region.outputs)]
        if quick is not None:
            quick.ran(
                region, arrays, perf_counter() - began_s, partial(self._planned.compiled, region, arrays)
            )
        return [each if type(each) is DeviceValue else np.asarray(each) for each in results]

    def cancel(self, error: CancelledError) -> None:
        """Ends the steps that run or wait by this error."""
        for step in list(self.running):
            step.cancel(error)

    def trim(self) -> None:
        """Frees memory that no running step uses."""
        if self._quick is not None:
            self._quick.trim()

    def close(self) -> None:
        """Frees queues and other objects of the steps, and ends the threads; no step may be running."""
        if self._quick is not None:
            self._quick.close()
        self.resources.close()
        self._pool.close()


def _require_strings_on_cpus(ops: Sequence[Operation]) -> None:
    """Raises InvalidArgumentError for an op of strings that a device scope puts elsewhere than on a CPU."""
    for op in ops:
        if op.has_strings and op.device:
            kind = DeviceName.parse(op.device).kind
            if kind not in (None, "CPU"):
                raise InvalidArgumentError(
                    f"{op.type} {op.name}: strings are in host memory, expected a CPU device, got "
                    f"{op.device}; move it out of the device scope, or allow soft placement "
                    f"(made at {op.source})"
                )
