"""Session: runs any part of a graph, as in TensorFlow 1 (OSDI 2016, section 3.2)."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar, overload

import numpy as np

from tensorbow.array_likes import string_array
from tensorbow.compiler import DeviceSet, NeedsDynamicModeError, Placer
from tensorbow.compiler.prune import prune
from tensorbow.devices import AsDevice, AsDevices, DeviceValue, opened
from tensorbow.devices.names import DeviceName
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from tensorbow.executor import (
    VARIABLE,
    DynamicPlan,
    DynamicStep,
    InterOpPool,
    StaticRegion,
    StepSpans,
    default_threads,
)
from tensorbow.graph import (
    AsGraph,
    GraphKeys,
    Operation,
    Resources,
    Tensor,
    default_session,
    get_default_graph,
    warn_at_user_line,
)
from tensorbow.kinds import Flag, Items, Mapped, Names, Text, checked, one_of
from tensorbow.nest import flatten, pack
from tensorbow.ops.state import VariableReference
from tensorbow.runtime.compilation import compile_on_devices
from tensorbow.runtime.config_proto import (
    AsConfig,
    AsRunMetadata,
    ConfigProto,
    RunMetadata,
    RunOptions,
    allowed_devices,
    check_run_options,
    warn_of_ignored,
)
from tensorbow.runtime.container import Container
from tensorbow.runtime.device_variables import DeviceVariables
from tensorbow.runtime.explain import DynamicExplanation, Explanation, MultiDeviceExplanation, unbound
from tensorbow.runtime.fetches_and_feeds import Arguments, computed_for, is_made_after, made_of
from tensorbow.runtime.forgotten_updates import warn_of_forgotten_updates
from tensorbow.runtime.kept_values import Keep
from tensorbow.runtime.named_containers import SharedVariables, reset_containers
from tensorbow.runtime.partial_run import PartialRun
from tensorbow.runtime.partition_graphs import partition_graphs_of
from tensorbow.runtime.run_costs import cost_graph_of
from tensorbow.runtime.run_stop import RunStop
from tensorbow.runtime.run_watch import RunWatch, current_watch, watched, within_watch
from tensorbow.runtime.session_targets import require_options_of, session_class
from tensorbow.runtime.shape_counts import ShapeCounts
from tensorbow.runtime.shared_lock import SharedLock, WaitLimit
from tensorbow.runtime.single_device_step import SingleDeviceStep
from tensorbow.runtime.spreading import GreedyPlacement
from tensorbow.runtime.step_cache import BoundStep, Run, Step, StepCache
from tensorbow.specs import Array, TensorSpec
from tensorbow.timeline import CURRENT, StreamTrack

GREEDY = "greedy"
AsPlacement: TypeAlias = Annotated[str, one_of("simple", GREEDY)]
SLOT_S = 0.05  # seconds after which a run that waits for others asks for its own limit
CACHED_STEPS = 64  # compiled steps kept; the least recently used one is dropped first
Extents: TypeAlias = "tuple[int, ...]"
Result = TypeVar("Result")
_numbers = itertools.count()


class Session:
    """Runs operations of a graph and keeps the values of its variables.

    Steps are compiled once per set of fetches, feeds and fed shapes. `run` may be called from several
    threads, even while the graph grows: steps run concurrently unless one writes a variable that the other
    reads or writes.
    """

    _greedy: GreedyPlacement | None = None

    def __new__(cls, target: str = "", *args: Any, **options: Any) -> Any:
        """Makes an instance of the class registered for `target`, a subclass of Session."""
        chosen = cls if isinstance(target, str) and not target else session_class(target)
        if options:
            require_options_of(chosen, options)
        return object.__new__(chosen if issubclass(chosen, cls) else cls)

    @overload
    def __init__(
        self,
        target: Text = "",
        graph: AsGraph | None = None,
        config: AsConfig | None = None,
        *,
        device: AsDevice = "/cpu:0",
        devices: AsDevices | None = None,
        allow_soft_placement: Flag = False,
        placement: AsPlacement = "simple",
    ) -> None: ...

    @overload
    def __init__(self, target: Text, graph: Any = None, config: Any = None, **options: Any) -> None: ...

    @checked  # type: ignore[misc] # the classes of targets take options of their own
    def __init__(
        self,
        target: Text = "",
        graph: AsGraph | None = None,
        config: AsConfig | None = None,
        *,
        device: AsDevice = "/cpu:0",
        devices: AsDevices | None = None,
        allow_soft_placement: Flag = False,
        placement: AsPlacement = "simple",
    ):
        """A session over `graph` (by default the default graph).

        device: the device of operations and variables that request no other.
        devices: further devices that device scopes may name; None for every device of this process.
        allow_soft_placement: an operation whose device is missing, or has no kernel for it, runs elsewhere.
        placement: of operations and variables that request no device. "simple": on `device`; "greedy": each
        on the one of all devices that would finish it first in a simulated step, by the costs of ops and
        transfers, within the memory that is left (white paper, section 3.2.1). See `place_again`.
        config: TensorFlow 1's form of options; a warning names values that have no effect.
        target: a name of `register_target`, such as "tensorbow": makes that kind of session; or the target of
        a `tb.train.Server`, which runs the graph on the tasks of its cluster.

        Raises InvalidArgumentError for an unknown target, NotFoundError for a missing device.
        """
        self.graph = graph if graph is not None else get_default_graph()
        self.device = opened(device)
        config = ConfigProto() if config is None else config
        warn_of_ignored(config, kind=self.device.kind)
        self._devices = DeviceSet(
            self.device, None if devices is None else [*map(opened, devices)], allowed_devices(config)
        )
        allow_soft_placement = allow_soft_placement or config.allow_soft_placement
        self._logs_placement = config.log_device_placement
        most = config.inter_op_parallelism_threads
        self._running = threading.BoundedSemaphore(most) if most else None
        self._soft = allow_soft_placement
        self._lossy, self._recompute, self._swap = config.lossy_transfers, config.recompute, config.swap
        self._compiles_loops = config.compiles_loops
        self._timeout_ms = config.operation_timeout_in_ms  # of steps that may wait
        self._name = f"session-{next(_numbers)}"
        self.random_stream = 0  # see `tensorbow.compiler.compile.state_scalars`
        fraction = config.gpu_options.per_process_gpu_memory_fraction
        self._cache = StepCache(self.device, self._name, CACHED_STEPS, fraction)
        self.container = Container(self._cache.groups[0], f"{self._name} variables")
        self._greedy = (
            GreedyPlacement(self._devices, self._cache.scratch_nbytes) if placement == GREEDY else None
        )
        self._device_variables = DeviceVariables(
            self.container,
            self._devices,
            self._cache.group_of,
            soft=allow_soft_placement,
            greedy=self._greedy,
        )
        self._shared = SharedVariables(self._device_variables)
        self._arguments = Arguments(self.graph)
        self._shape_counts = ShapeCounts()
        self._layout_version = 0
        self._graph_version = -1  # graph version whose variables are allocated
        self._counters: dict[str, int] = {}  # random op -> draws so far; owned by _counters_lock
        self._counters_lock = threading.Lock()
        self._variables = SharedLock()  # by name: a run waits for those that write what it touches
        self._stack = ExitStack()
        self._closed = False
        self._closing = False  # `close` was called
        self._dynamic_plans: dict[Hashable, DynamicPlan] = {}  # by fetches and fed tensors
        self._dynamic_steps: set[DynamicStep] = set()  # those that run
        self._endless: set[SingleDeviceStep] = set()  # those that run and may never end
        self._pool = InterOpPool(most - 1 if most else default_threads(), self._name)
        self._partial_runs: dict[str, PartialRun] = {}  # by handle
        self._resources = Resources()
        self._executor_track = StreamTrack(self.device.name.short, "dynamic steps")

    # Running ----------------------------------------------------------------------------------

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """Runs the operations that `fetches` need and returns their values in the same nest.

        fetches: a tensor, operation, variable, name, or any nest of them; operations give None.
        feed_dict: values that replace tensors of the graph, by tensor or name.
        options, run_metadata: TensorFlow 1's: a time limit, and a container for times and costs of the ops.

        Returns NumPy arrays (NumPy scalars for rank 0) owned by the caller.
        Raises InvalidArgumentError for fetches, feeds, shapes or dtypes that do not fit, NotFoundError
        for unknown names, FailedPreconditionError for a closed session or variables without a value,
        DeadlineExceededError at the time limit: a step on CPU devices ends after the op that it is in, one
        on GPUs at its end. The session stays usable.
        """
        if options is not None or run_metadata is not None:
            check_run_options(options, run_metadata)
            if options is not None and (
                options.timeout_in_ms or options.trace_level or options.output_partition_graphs
            ):
                with watched(options, run_metadata) as watch:
                    values = self.run(fetches, feed_dict)
                if run_metadata is not None and watch.used:
                    self._describe_run(fetches, feed_dict, options, run_metadata)
                if not watch.used:
                    warn_at_user_line(
                        f"run: options have no effect on a step of {type(self).__name__} that runs "
                        "elsewhere or trains replicas; tb.profiler.trace writes the timeline of a block"
                    )
                return values
        elements = [self._arguments.fetched(leaf) for leaf in flatten(fetches)]
        feeds = {} if feed_dict is None else self._arguments.feeds(feed_dict)
        return pack(fetches, iter(self._values(elements, feeds)))

    def _describe_run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None,
        options: RunOptions,
        run_metadata: RunMetadata,
    ) -> None:
        """Fills in what is derived from a run's spans and graph."""
        elements = [self._arguments.fetched(leaf) for leaf in flatten(fetches)]
        fed = {} if feed_dict is None else self._arguments.feeds(feed_dict)
        elements = computed_for(elements, fed)
        if options.trace_level:
            run_metadata.cost_graph = cost_graph_of(self.graph, run_metadata.step_stats.tracer, elements)
        if options.output_partition_graphs:
            needed = prune([e if isinstance(e, Operation) else e.op for e in elements if e not in fed], fed)
            placer = Placer(self._devices, soft=self._soft, fixed=self._device_variables.placement)
            devices = {op: str(device.name) for op, device in placer.place(needed).items()}
            if self._greedy is not None:
                shapes = {tensor: value.shape for tensor, value in fed.items()}
                placed = self._step(elements, shapes).devices(str(self.device.name))
                devices = {op: placed.get(op.name, device) for op, device in devices.items()}
            run_metadata.partition_graphs = partition_graphs_of(
                needed, fed, elements, devices, str(self.device.name)
            )

    @checked
    def make_callable(self, fetches: Any, feed_list: Items | None = None) -> Callable[..., Any]:
        """A function that runs `fetches` and takes feeds by position; saves the lookup of names in each run.

        Raises what `run` raises: for names here, for values when the function is called.
        """
        elements = [self._arguments.fetched(leaf, "make_callable") for leaf in flatten(fetches)]
        fed = self._arguments.feed_list(feed_list or (), "make_callable", "feed_list")
        convert = self._arguments.value

        def call(*args: Any) -> Any:
            if len(args) != len(fed):
                raise InvalidArgumentError(f"expected {len(fed)} values for the feed_list, got {len(args)}")
            feeds = {tensor: convert(tensor, value) for tensor, value in zip(fed, args, strict=True)}
            return pack(fetches, iter(self._values(elements, feeds)))

        return call

    @checked
    def partial_run_setup(self, fetches: Any, feeds: Items | None = None) -> str:
        """Begins a step whose feeds come and whose results are taken in parts; returns its handle.

        fetches: everything that its parts will fetch, in any nest. feeds: the tensors that they will feed.
        The parts are runs of `partial_run`. As in TensorFlow 1 each operation runs at most once, with the
        first part that needs it, and its results are kept for later parts. Raises InvalidArgumentError and
        NotFoundError as `run` does, InvalidArgumentError in sessions whose steps run elsewhere.
        """
        self._require_open()
        if type(self)._execute is not Session._execute:
            raise InvalidArgumentError(
                f"partial_run_setup: expected a plain tb.Session, got {type(self).__name__}, whose steps run "
                "whole; call run, or make a tb.Session of the graph"
            )
        elements = [self._arguments.fetched(leaf, "partial_run_setup") for leaf in flatten(fetches)]
        fed = self._arguments.feed_list(feeds or (), "partial_run_setup", "feeds")
        handle = f"partial-run-{next(_numbers)}"
        self._partial_runs[handle] = PartialRun(elements, fed)
        return handle

    @checked
    def partial_run(self, handle: Text, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Runs the next part of a partial run and returns the values of `fetches` in the same nest.

        handle: of `partial_run_setup`. fetches, feed_dict: as of `run`; each of the setup's once. Values that
        no fetch needs yet may be fed, too.

        Raises InvalidArgumentError for a fetch or feed that the setup does not have or that an earlier part
        had, for a fetch that needs what no part has fed, and for a handle of which all was fetched; the run
        can then go on. What an operation raises ends the partial run.
        """
        partial = self._partial_runs.get(handle)
        if partial is None:
            raise InvalidArgumentError(
                f"partial_run: expected the handle of a partial run with values left to fetch, got "
                f"{handle!r}; make one by partial_run_setup"
            )
        elements = [self._arguments.fetched(leaf, "partial_run") for leaf in flatten(fetches)]
        with partial.turn:
            part = partial.begin(elements, {} if feed_dict is None else self._arguments.feeds(feed_dict))
            try:
                values = self._execute_within([*part.computed, *part.kept], part.feeds, part.within)
            except BaseException:
                self._partial_runs.pop(handle, None)
                raise
            partial.finish(elements, part, map(_kept, values[len(part.computed) :]))
            if partial.is_over:
                self._partial_runs.pop(handle, None)
            found = dict(zip(part.computed, values, strict=False))
            computed = [found.get(e) for e in computed_for(elements, part.fed)]
            return pack(fetches, iter(made_of(elements, part.fed, iter(computed))))

    def explain(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> Explanation | MultiDeviceExplanation | DynamicExplanation:
        """Explains the step that `run` would run: segments, order, addresses, memory, reasons.

        A `tb.TensorSpec` may stand for a fed value. A step that does not fit in memory is explained without
        addresses; one in dynamic mode with its loops and regions, and why it is not planned.
        """
        elements = [self._arguments.fetched(leaf, "explain") for leaf in flatten(fetches)]
        shapes = {} if feed_dict is None else self._arguments.shapes(feed_dict)
        elements = computed_for(elements, shapes)

        def explained(bound: BoundStep) -> Explanation | MultiDeviceExplanation:
            return bound.explain()

        try:
            return self._with_step(elements, shapes, explained, runs=False)
        except NeedsDynamicModeError as error:
            known = self._dynamic_plans.get((tuple(elements), frozenset(shapes), None, False))
            plan = known or self._dynamic_plan(elements, shapes, error.why)
            return DynamicExplanation(plan, str(self.device.name))
        except ResourceExhaustedError as error:
            if self._graph_version != self.graph.version:  # the variables do not fit: no plan without them
                raise
            return unbound(self._step(elements, shapes).executable, self.device, f"not bound: {error}")

    @checked
    def place_again(self, run_metadata: AsRunMetadata) -> int:
        """Takes over the times of a run's ops, and places all steps anew by them; variables stay.

        run_metadata: of a run of this session with `trace_level` above 0; ops on GPUs have no times in it.
        Several runs add up to means. Returns the number of calls whose times were taken.

        Raises InvalidArgumentError in a session without placement="greedy", and for the metadata of a run
        whose step this session does not have (any more).
        """
        if self._greedy is None:
            raise InvalidArgumentError(
                "place_again: expected a session that places by costs, got one that does not; make it by "
                'tb.Session(placement="greedy")'
            )
        with self._variables.exclusive:
            self._require_open()
            with self._cache.lock:
                steps = ((step.parts, step.costs) for step in self._cache.latest() if step.costs)
                taken = self._greedy.measure(run_metadata.step_stats, steps)
                if not taken:
                    raise InvalidArgumentError(
                        "place_again: expected run_metadata with the times of a step of this session, got "
                        "none; run it with tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE)"
                    )
                self._cache.clear()
        return taken

    def _values(self, elements: Sequence[Tensor | Operation], feeds: Mapping[Tensor, Array]) -> list[Any]:
        """Values of the fetches: computed by a step, or made of what it computes."""
        for element in elements:
            if is_made_after(element, feeds):
                computed = self._execute(computed_for(elements, feeds), feeds)
                return made_of(elements, feeds, iter(computed))
        return self._execute(elements, feeds)

    def _execute(self, elements: Sequence[Tensor | Operation], feeds: Mapping[Tensor, Array]) -> list[Any]:
        """Values of the elements, None for operations."""
        return self._execute_within(elements, feeds, None)

    def _execute_within(
        self,
        elements: Sequence[Tensor | Operation],
        feeds: Mapping[Tensor, Array],
        within: frozenset[Operation] | None,
    ) -> list[Any]:
        """As `_execute`; within: see `prune`."""
        if self._dynamic_plans:
            plan = self._dynamic_plans.get((tuple(elements), frozenset(feeds), within, False))
            if plan is not None:
                return self._run_dynamic(plan, feeds)
        try:
            return self._run_planned(elements, feeds, within=within)
        except NeedsDynamicModeError as error:
            key = (tuple(elements), frozenset(feeds), within, error.passing)
            plan = self._dynamic_plans.get(key)
            if plan is None:
                plan = self._dynamic_plan(elements, feeds, error.why, within)
                while len(self._dynamic_plans) >= CACHED_STEPS:
                    self._dynamic_plans.pop(next(iter(self._dynamic_plans)), None)
                self._dynamic_plans[key] = plan
        return self._run_dynamic(plan, feeds)

    def _dynamic_plan(
        self,
        elements: Sequence[Tensor | Operation],
        fed: Collection[Tensor],
        reason: str,
        within: frozenset[Operation] | None = None,
    ) -> DynamicPlan:
        wanted = [e if isinstance(e, Operation) else e.op for e in elements if e not in fed]
        self._warn_of_forgotten_updates(elements, fed)
        needed = prune(wanted, fed, within)
        if not self._soft:
            _require_strings_on_cpus(needed)
        return DynamicPlan(elements, fed, needed, reason, self._compiles_loops)

    def _run_dynamic(self, plan: DynamicPlan, feeds: Mapping[Tensor, Array]) -> list[Any]:
        self._require_open()
        watch = current_watch()
        if watch is not None:
            watch.begin()
        limited = watch
        if self._timeout_ms and (watch is None or not watch.timeout_ms):
            limited = RunWatch(self._timeout_ms, None, "operation_timeout_in_ms")
            limited.begin()
        stop = RunStop(limited, self._variables.wake)
        keeps = any(device.kind == "gpu" for device in self._devices.known())
        step = DynamicStep(
            plan,
            partial(self._run_region, stop, self._cache.new_value if keeps else None),
            self._resources,
            None if limited is None else limited.left_s,
            self._spans_of_step(watch),
            self._pool,
            None if watch is None else partial(within_watch, watch),
            stop.stop,
            keeps_values=keeps,
        )
        self._dynamic_steps.add(step)
        try:
            self._require_open()
            values = step.run(feeds)
        except DeadlineExceededError as error:
            if not step.waited_for:
                raise
            raise DeadlineExceededError(f"{error}; it waited for {', '.join(step.waited_for)}") from None
        finally:
            self._dynamic_steps.discard(step)
        late = [e for e, value in zip(plan.elements, values, strict=True) if value is VARIABLE]
        read = iter(self._run_planned(late, {}) if late else ())
        return [next(read) if value is VARIABLE else _owned(value) for value in values]

    def _spans_of_step(self, watch: RunWatch | None) -> StepSpans | None:
        """Where a dynamic step tells its spans: a trace, and the metadata of the run; None for neither."""
        tracers = [CURRENT.tracer, None if watch is None else watch.tracer]
        wanted = [each for each in tracers if each is not None]
        return StepSpans(wanted, self._executor_track) if wanted else None

    def _run_region(
        self, stop: RunStop, keep: Keep | None, region: StaticRegion, arrays: Sequence[Any]
    ) -> Sequence[Any]:
        feeds = dict(zip(region.inputs, arrays, strict=True))
        results = self._run_planned(region.elements, feeds, region, stop=stop, keep=keep)
        results = results[: len(region.outputs)]
        return [each if type(each) is DeviceValue else np.asarray(each) for each in results]

    def _run_planned(
        self,
        elements: Sequence[Tensor | Operation],
        feeds: Mapping[Tensor, Array],
        region: StaticRegion | None = None,
        within: frozenset[Operation] | None = None,
        stop: RunStop | None = None,
        keep: Keep | None = None,
    ) -> list[Any]:
        """Values of the elements, of one plan. stop: of the dynamic run that a region belongs to. keep: see
        SingleDeviceStep.run.
        """
        limit = stop or current_watch()

        def launched(bound: BoundStep) -> list[Any]:
            executable = bound.executable
            if executable.reads_first:
                self._require_values(executable.reads_first, executable.reads_maybe)
            inputs = {tensor.name: value for tensor, value in feeds.items()}
            if region is not None:
                inputs = {name: value for name, value in inputs.items() if name not in region.baked_names}
            state = self._draw(executable.counters) if executable.counters else {}
            if self.random_stream and executable.counters:
                state["random_stream"] = self.random_stream
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
                self._device_variables.mark_initialized(executable.writes)
            return arrays

        shapes = {tensor: value.shape for tensor, value in feeds.items()}
        compiled = None if region is None else (region, [*feeds.values()])
        results = iter(
            self._with_step(elements, shapes, launched, compiled=compiled, within=within, limit=limit)
        )
        return [next(results) if isinstance(e, Tensor) else None for e in elements]

    def _require_values(self, names: frozenset[str], maybe: frozenset[str]) -> None:
        """Raises FailedPreconditionError for variables without a value.

        maybe: those that only branches and loops touch; the dynamic mode finds out whether these run.
        """
        if maybe:
            missing = self._device_variables.without_value(maybe)
            if missing:
                why = f"{', '.join(missing[:3])} has no value, and may not be needed"
                raise NeedsDynamicModeError(f"a compiled branch or loop: {why}", why, passing=True)
        self._device_variables.require_initialized(names)

    def _run_bound(
        self,
        bound: BoundStep,
        inputs: Mapping[str, Any],
        state: Mapping[str, Any],
        stop: RunStop | None,
        keep: Keep | None,
    ) -> list[Array]:
        """Runs a bound step; `close`, and `stop`, end it if it has a loop that may never end."""
        if not (isinstance(bound, SingleDeviceStep) and bound.executable.may_not_end):
            return bound.run(inputs, state, keep)
        self._endless.add(bound)
        try:
            self._require_open()
            with nullcontext() if stop is None else stop.running(bound):
                return bound.run(inputs, state, keep)
        finally:
            self._endless.discard(bound)

    def _with_step(
        self,
        elements: Sequence[Tensor | Operation],
        shapes: Mapping[Tensor, Extents],
        use: Callable[[BoundStep], Result],
        runs: bool = True,
        compiled: tuple[StaticRegion, Sequence[Array]] | None = None,
        within: frozenset[Operation] | None = None,
        limit: WaitLimit | None = None,
    ) -> Result:
        """Calls `use` with the bound step, reserved for this caller meanwhile.

        compiled: a region of a dynamic plan and its inputs. within: see `prune`. limit: ends waits.
        """
        run = Run()
        try:
            try:
                while True:
                    if self._graph_version != self.graph.version:
                        self._follow_graph()
                    step = self._step(elements, shapes, compiled, within)
                    shares = bool(runs and self._shared.stores)
                    self._begin(run, step, runs, limit)
                    if step.layout_version == self._layout_version:
                        break
                    self._variables.release(run)  # another thread has allocated new variables meanwhile
                bound = self._cache.take(step, self._device_variables.bases, run)
                if not shares:
                    return use(bound)
                with self._shared.held(step.executable.reads_first, step.executable.writes):
                    return use(bound)
            finally:
                self._end(run)
        except BaseException:
            self._end(run)  # an interrupt may have skipped the call above
            raise

    def _begin(self, run: Run, step: Step, runs: bool, limit: WaitLimit | None) -> None:
        """Waits until no other step writes the variables that it reads, or touches those that it writes."""
        reads, writes, watch = step.executable.reads_first, step.executable.writes, current_watch()
        if watch is not None:
            watch.begin()
        if runs and self._shared.stores and self._shared.touched_by(reads, writes):
            self._variables.acquire_exclusive(run, limit)
        else:
            self._variables.acquire(run, reads, writes if runs else frozenset(), limit)
        self._require_open()

    def _end(self, run: Run) -> None:
        self._cache.give(run)
        self._variables.release(run)

    def _draw(self, names: Sequence[str]) -> dict[str, int]:
        """Advances the counters of these random ops by one run and returns them."""
        with self._counters_lock:
            state = {}
            for name in names:
                state[f"counter:{name}"] = count = self._counters.get(name, 0)
                self._counters[name] = count + 1
            return state

    # Compiling --------------------------------------------------------------------------------

    def _follow_graph(self) -> None:
        """Takes over operations added to the graph; waits for running steps only if variables are new."""
        operations = self.graph.get_operations()
        seen = self._graph_version
        if seen < 0 or any(op.definition is VariableReference for op in operations[seen:]):
            with self._variables.exclusive:
                self._require_open()
                self._grow()
        else:
            with self._cache.lock:
                self._graph_version = max(self._graph_version, len(operations))

    def _grow(self) -> None:
        """Allocates all variables of the graph and drops steps with old addresses. No step may be running."""
        with self._cache.lock:
            operations = self.graph.get_operations()
            variables = [op for op in operations if op.definition is VariableReference]
            if self._device_variables.grow(variables):
                self._layout_version += 1
                self._cache.clear()
            self._shared.grow(variables)
            self._graph_version = len(operations)

    def _step(
        self,
        elements: Sequence[Tensor | Operation],
        shapes: Mapping[Tensor, Extents],
        of_region: tuple[StaticRegion, Sequence[Array]] | None = None,
        of_part: frozenset[Operation] | None = None,
    ) -> Step:
        def compiled() -> Step:
            self._require_open()
            within: Collection[Operation] | None = of_part
            if of_region is None:
                self._shape_counts.add(tuple(elements), shapes)
                self._warn_of_forgotten_updates(elements, shapes)
                feeds = {tensor: TensorSpec(shape, tensor.dtype) for tensor, shape in shapes.items()}
            else:
                region, arrays = of_region
                feeds, within = region.feeds(arrays), region.within
            executable, costs = compile_on_devices(
                elements,
                feeds,
                self._devices,
                self._device_variables,
                soft=self._soft,
                within=within,
                compiles_loops=self._compiles_loops,
                greedy=self._greedy,
                lossy=self._lossy,
                recompute=self._recompute,
                swap=self._swap,
                free_nbytes=self._free_nbytes,
            )
            step = Step(executable, self._layout_version, costs=costs)
            if self._logs_placement:
                sys.stderr.write("".join(f"{line}\n" for line in self._placement_of(step)))
            return step

        if of_region is not None:
            region, arrays = of_region
            return self._cache.get((region, region.key(arrays)), compiled)
        return self._cache.get((tuple(elements), frozenset(shapes.items()), of_part), compiled)

    def _placement_of(self, step: Step) -> list[str]:
        """The device of each op of a step, one a line, in the form of TensorFlow's log."""
        whole = step.executable
        lines = [f"{name}: {device}" for name, device in step.devices(str(self.device.name)).items()]
        touched = whole.reads_first | whole.writes
        variables = {op.name: str(d.name) for op, d in self._device_variables.placement.items()}
        return [*lines, *(f"{name}: {variables[name]}" for name in sorted(touched) if name in variables)]

    def _free_nbytes(self) -> int:
        """Bytes of its device that a step may use; its scratch blocks are given up."""
        memory = self.device.memory
        return memory.limit_nbytes - memory.held_nbytes + self._cache.scratch_nbytes(self.device)

    def _warn_of_forgotten_updates(
        self, elements: Sequence[Tensor | Operation], fed: Collection[Tensor]
    ) -> None:
        if self.graph.get_collection(GraphKeys.UPDATE_OPS):
            wanted = [e if isinstance(e, Operation) else e.op for e in elements if e not in fed]
            warn_of_forgotten_updates(prune(wanted, fed))

    # Variables and life -----------------------------------------------------------------------

    @checked
    def load_variables(self, values: Mapped) -> None:
        """Sets variables by name from arrays. Raises NotFoundError, InvalidArgumentError."""
        with self._variables.exclusive:
            self._require_open()
            self._grow()
            with self._shared.held((), tuple(values)):
                self._device_variables.load(values)

    @staticmethod
    @checked
    def reset(target: Text = "", containers: Names | None = None) -> None:
        """Removes the values of variables in named containers (`tb.container`), by default in all.

        Waits for running steps; sessions stay open. Raises NotFoundError for an unknown container,
        InvalidArgumentError for an unknown target.
        """
        chosen = session_class(target) if target else Session
        if chosen.reset is not Session.reset:
            chosen.reset(target, containers)
        elif target:
            raise InvalidArgumentError(
                f"Session.reset: target {target!r:.60} has no containers; leave it empty"
            )
        else:
            reset_containers(containers)

    def _require_open(self) -> None:
        if self._closing:
            raise FailedPreconditionError("the session is closed; make a new one")

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def trim(self) -> int:
        """Frees memory that no running step uses; returns the bytes given back to the device.

        Variables and compiled steps stay; a step allocates its memory again in its next run. Raises
        FailedPreconditionError for a closed session.
        """
        self._require_open()
        return self._cache.trim()

    def close(self) -> None:
        """Waits for running steps, then ends the session and frees its memory; idempotent.

        Steps in dynamic mode that run or wait, for example on a queue, are cancelled, and so are loops that
        count to no limit.
        """
        self._closing = True
        for step in list(self._dynamic_steps):
            step.cancel(CancelledError("the session was closed while the step ran"))
        for bound in list(self._endless):
            bound.stop()
        with self._variables.exclusive:
            if not self._closed:
                self._closed = True
                self._partial_runs.clear()
                self._resources.close()
                self._pool.close()
                self._cache.close()
                self._device_variables.close()

    def as_default(self) -> AbstractContextManager[Any]:
        """Context in which this is the session that `eval` and `run` use, and its graph the default graph."""
        stack = ExitStack()
        stack.enter_context(self.graph.as_default())
        stack.enter_context(default_session(self))
        return stack

    def __enter__(self) -> Session:
        self._require_open()
        self._stack.enter_context(self.as_default())
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        self.close()

    def __repr__(self) -> str:
        return f"<tb.Session {self._name} on {self.device.name.short}{' (closed)' if self._closed else ''}>"


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


def _kept(value: Any) -> Array:
    """A fetched value as an array again."""
    return string_array(value) if type(value) is bytes else np.asarray(value)


def _owned(value: Any) -> Any:
    """A fetched value as the caller's own: a copy, or for rank 0 a NumPy scalar."""
    if value is None:
        return None
    return value.copy() if value.ndim else value[()]


NoTarget: TypeAlias = Annotated[
    str, one_of("", remedy="for another target write tb.Session(target).as_default()")
]


class InteractiveSession(Session):
    """A session that is the default one, with a graph that was given, from its creation until `close`, for
    notebooks.

    Of several the newest open one is the default. A `with` statement is not needed.
    """

    @checked
    def __init__(
        self, target: NoTarget = "", graph: AsGraph | None = None, config: AsConfig | None = None
    ) -> None:
        """graph: by default the default graph; one that is given becomes the default graph as well. Raises
        InvalidArgumentError for a target.
        """
        super().__init__(target, graph, config)
        self._default = default_session(self) if graph is None else self.as_default()
        self._default.__enter__()

    def close(self) -> None:
        """Ends the session, which is then no longer the default one; idempotent."""
        if not self.closed:
            self._default.__exit__(None, None, None)
        super().close()
