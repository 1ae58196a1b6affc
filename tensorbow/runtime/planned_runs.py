"""Runs of a session in planned mode: steps are compiled once, cached, and bound for each run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from tensorbow.compiler import DeviceSet, MultiDeviceExecutable
from tensorbow.executor import StaticRegion
from tensorbow.graph import Operation, Tensor
from tensorbow.program import Executable
from tensorbow.runtime.compilation import compile_on_devices
from tensorbow.runtime.config_proto import ConfigProto
from tensorbow.runtime.fetches_and_feeds import GraphElements
from tensorbow.runtime.forgotten_updates import warn_of_updates_forgotten_by
from tensorbow.runtime.kept_values import Keep
from tensorbow.runtime.random_state import RandomState
from tensorbow.runtime.run_stop import RunStop
from tensorbow.runtime.run_watch import current_watch
from tensorbow.runtime.session_variables import SessionVariables
from tensorbow.runtime.shape_counts import ShapeCounts
from tensorbow.runtime.shared_lock import WaitLimit
from tensorbow.runtime.single_device_step import SingleDeviceStep
from tensorbow.runtime.spreading import GreedyPlacement
from tensorbow.runtime.step_cache import BoundStep, Run, Step, StepCache
from tensorbow.specs import Array, TensorSpec

SLOT_S = 0.05  # seconds after which a run that waits for others asks for its own limit
Result = TypeVar("Result")


class PlannedRuns:
    """Compiles the steps of a session and runs them, several at a time; thread-safe."""

    def __init__(
        self,
        variables: SessionVariables,
        cache: StepCache,
        devices: DeviceSet,
        config: ConfigProto,
        random_state: RandomState,
        shape_counts: ShapeCounts,
        *,
        soft: bool,
        greedy: GreedyPlacement | None,
    ):
        """soft, greedy: see `compile_on_devices`."""
        self.endless: set[SingleDeviceStep] = set()  # those that run and may never end
        self._variables, self._cache, self._devices = variables, cache, devices
        self._random_state, self._shape_counts = random_state, shape_counts
        self._logs_placement = config.log_device_placement
        most = config.inter_op_parallelism_threads
        self._running = threading.BoundedSemaphore(most) if most else None
        self._options: dict[str, Any] = {
            "soft": soft,
            "compiles_loops": config.compiles_loops,
            "greedy": greedy,
            "lossy": config.lossy_transfers,
            "recompute": config.recompute,
            "swap": config.swap,
        }

    def run(
        self,
        elements: GraphElements,
        feeds: Mapping[Tensor, Array],
        region: StaticRegion | None = None,
        within: frozenset[Operation] | None = None,
        stop: RunStop | None = None,
        keep: Keep | None = None,
    ) -> list[Any]:
        """Values of the elements, None for operations. Raises NeedsDynamicModeError if no plan can run them.

        region: of a dynamic plan. within: see `prune`. stop: of the dynamic run that the region belongs to.
        keep: see SingleDeviceStep.run.
        """
        limit = stop or current_watch()

        def launched(bound: BoundStep) -> list[Any]:
            executable = bound.executable
            if executable.reads_first:
                self._variables.require_values(executable.reads_first, executable.reads_maybe)
            inputs = {tensor.name: value for tensor, value in feeds.items()}
            if region is not None:
                inputs = {name: value for name, value in inputs.items() if name not in region.baked_names}
            state = self._random_state.draw(executable.counters) if executable.counters else {}
            if self._running is None:
                arrays = self._run_bound(bound, inputs, state, stop, keep)
            else:
                while not self._running.acquire(timeout=None if limit is None else SLOT_S):
                    if limit is not None:
                        limit.left_s()
                try:
                    arrays = self._run_bound(bound, inputs, state, stop, keep)
                finally:
                    self._running.release()
            if executable.writes:
                self._variables.devices.mark_initialized(executable.writes)
            return arrays

        shapes = {tensor: value.shape for tensor, value in feeds.items()}
        compiled = None if region is None else (region, [*feeds.values()])
        results = iter(
            self.with_step(elements, shapes, launched, compiled=compiled, within=within, limit=limit)
        )
        return [next(results) if isinstance(e, Tensor) else None for e in elements]

    def _run_bound(
        self,
        bound: BoundStep,
        inputs: Mapping[str, Any],
        state: Mapping[str, Any],
        stop: RunStop | None,
        keep: Keep | None,
    ) -> list[Array]:
        """Runs a bound step; `stop_loops`, and `stop`, end it if it has a loop that may never end."""
        if not (isinstance(bound, SingleDeviceStep) and bound.executable.may_not_end):
            return bound.run(inputs, state, keep)
        self.endless.add(bound)
        try:
            self._variables.require_open()
            with nullcontext() if stop is None else stop.running(bound):
                return bound.run(inputs, state, keep)
        finally:
            self.endless.discard(bound)

    def keep_on_devices(self) -> Keep | None:
        """Memory for values between the regions of a dynamic step, if a device has its own."""
        for device in self._devices.known():
            if device.kind == "gpu":
                return self._cache.new_value
        return None

    def stop_loops(self) -> None:
        """Ends the loops that run and may never end: their steps fail with CancelledError."""
        for bound in list(self.endless):
            bound.stop()

    def with_step(
        self,
        elements: GraphElements,
        shapes: Mapping[Tensor, tuple[int, ...]],
        use: Callable[[BoundStep], Result],
        runs: bool = True,
        compiled: tuple[StaticRegion, Sequence[Array]] | None = None,
        within: frozenset[Operation] | None = None,
        limit: WaitLimit | None = None,
    ) -> Result:
        """Calls `use` with the bound step, reserved for this caller meanwhile.

        compiled: a region of a dynamic plan and its inputs. within: see `prune`. limit: ends waits.
        """
        run, variables = Run(), self._variables
        try:
            try:
                while True:
                    variables.follow_graph()
                    step = self.step(elements, shapes, compiled, within)
                    shares = bool(runs and variables.shared.stores)
                    self._begin(run, step, runs, limit)
                    if step.layout_version == variables.layout_version:
                        break
                    variables.lock.release(run)  # another thread has allocated new variables meanwhile
                bound = self._cache.take(step, variables.devices.bases, run)
                if not shares:
                    return use(bound)
                with variables.shared.held(step.executable.reads_first, step.executable.writes):
                    return use(bound)
            finally:
                self._end(run)
        except BaseException:
            self._end(run)  # an interrupt may have skipped the call above
            raise

    def _begin(self, run: Run, step: Step, runs: bool, limit: WaitLimit | None) -> None:
        """Waits until no other step writes the variables that it reads, or touches those that it writes."""
        reads, writes, watch = step.executable.reads_first, step.executable.writes, current_watch()
        variables = self._variables
        if watch is not None:
            watch.begin()
        if runs and variables.shared.stores and variables.shared.touched_by(reads, writes):
            variables.lock.acquire_exclusive(run, limit)
        else:
            variables.lock.acquire(run, reads, writes if runs else frozenset(), limit)
        variables.require_open()

    def _end(self, run: Run) -> None:
        self._cache.give(run)
        self._variables.lock.release(run)

    def step(
        self,
        elements: GraphElements,
        shapes: Mapping[Tensor, tuple[int, ...]],
        of_region: tuple[StaticRegion, Sequence[Array]] | None = None,
        of_part: frozenset[Operation] | None = None,
    ) -> Step:
        """The compiled step of the elements; arguments as of `with_step`.

        Raises what `compile_on_devices` raises.
        """

        def compiled() -> Step:
            self._variables.require_open()
            within: Collection[Operation] | None = of_part
            if of_region is None:
                self._shape_counts.add(tuple(elements), shapes)
                warn_of_updates_forgotten_by(elements, shapes)
                feeds = {tensor: TensorSpec(shape, tensor.dtype) for tensor, shape in shapes.items()}
            else:
                region, arrays = of_region
                feeds, within = region.feeds(arrays), region.within
            executable, costs = compile_on_devices(
                elements,
                feeds,
                self._devices,
                self._variables.devices,
                within=within,
                free_nbytes=self._free_nbytes,
                **self._options,
            )
            step = Step(executable, self._variables.layout_version, costs=costs)
            if self._logs_placement:
                sys.stderr.write("".join(f"{line}\n" for line in self._placement_of(step)))
            return step

        if of_region is not None:
            region, arrays = of_region
            return self._cache.get((region, region.key(arrays)), compiled)
        return self._cache.get((tuple(elements), frozenset(shapes.items()), of_part), compiled)

    def compiled(self, region: StaticRegion, arrays: Sequence[Array]) -> Executable | MultiDeviceExecutable:
        """A region of a dynamic plan, compiled for inputs of these shapes."""
        shapes = {tensor: array.shape for tensor, array in zip(region.inputs, arrays, strict=True)}
        return self.step(region.elements, shapes, (region, arrays)).executable

    @property
    def is_limited(self) -> bool:
        """True if only so many plans may run at a time."""
        return self._running is not None

    def _placement_of(self, step: Step) -> list[str]:
        """The device of each op of a step, one a line, in the form of TensorFlow's log."""
        whole = step.executable
        lines = [f"{name}: {device}" for name, device in step.devices(str(self._devices.home.name)).items()]
        touched = whole.reads_first | whole.writes
        variables = {op.name: str(d.name) for op, d in self._variables.devices.placement.items()}
        return [*lines, *(f"{name}: {variables[name]}" for name in sorted(touched) if name in variables)]

    def _free_nbytes(self) -> int:
        """Bytes of its device that a step may use; its scratch blocks are given up."""
        memory = self._devices.home.memory
        return memory.limit_nbytes - memory.held_nbytes + self._cache.scratch_nbytes(self._devices.home)
