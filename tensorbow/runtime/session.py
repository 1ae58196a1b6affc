"""Session: runs any part of a graph, as in TensorFlow 1 (OSDI 2016, section 3.2)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Annotated, Any, TypeAlias, overload

from tensorbow.compiler import DeviceSet, NeedsDynamicModeError, Placer
from tensorbow.compiler.prune import needed_for
from tensorbow.devices import AsDevice, AsDevices, opened
from tensorbow.errors import (
    CancelledError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from tensorbow.graph import (
    AsGraph,
    GraphDef,
    Operation,
    Tensor,
    default_session,
    get_default_graph,
    warn_at_user_line,
)
from tensorbow.kinds import Flag, Items, Mapped, Names, Text, checked, one_of
from tensorbow.nest import pack
from tensorbow.ops.host_variables import host_assigns
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
from tensorbow.runtime.dynamic_runs import DynamicRuns
from tensorbow.runtime.explain import DynamicExplanation, Explanation, MultiDeviceExplanation, unbound
from tensorbow.runtime.fetches_and_feeds import Arguments, GraphElements, computed_for, is_made_after, made_of
from tensorbow.runtime.named_containers import reset_containers
from tensorbow.runtime.partial_run import PartialRun
from tensorbow.runtime.partition_graphs import partition_graphs_of
from tensorbow.runtime.planned_runs import PlannedRuns
from tensorbow.runtime.quick_regions import CLOSED
from tensorbow.runtime.random_state import RandomState
from tensorbow.runtime.run_costs import cost_graph_of
from tensorbow.runtime.run_watch import watched
from tensorbow.runtime.session_targets import require_options_of, session_class
from tensorbow.runtime.session_variables import SessionVariables
from tensorbow.runtime.shape_counts import ShapeCounts
from tensorbow.runtime.spreading import GreedyPlacement
from tensorbow.runtime.step_cache import CACHED_STEPS, StepCache
from tensorbow.specs import Array

GREEDY = "greedy"
AsPlacement: TypeAlias = Annotated[str, one_of("simple", GREEDY)]
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
        chosen = cls if isinstance(target, str) and not target else session_class(target, cls.__name__)
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
        self._soft = allow_soft_placement or config.allow_soft_placement
        self._name = f"session-{next(_numbers)}"
        fraction = config.gpu_options.per_process_gpu_memory_fraction
        self._cache = StepCache(self.device, self._name, CACHED_STEPS, fraction)
        self.container = Container(self._cache.groups[0], f"{self._name} variables")
        self._greedy = (
            GreedyPlacement(self._devices, self._cache.scratch_nbytes) if placement == GREEDY else None
        )
        self._device_variables = DeviceVariables(
            self.container, self._devices, self._cache.group_of, soft=self._soft, greedy=self._greedy
        )
        self._variables = SessionVariables(self.graph, self._device_variables, self._cache)
        self._arguments = Arguments(self.graph)
        self.random_state = RandomState()
        self._shape_counts = ShapeCounts()
        self._planned = PlannedRuns(
            self._variables,
            self._cache,
            self._devices,
            config,
            self.random_state,
            self._shape_counts,
            soft=self._soft,
            greedy=self._greedy,
        )
        self._dynamic = DynamicRuns(
            self._variables,
            self._planned,
            self._cache,
            config,
            self.device,
            soft=self._soft,
            name=self._name,
            host_objects=self.graph.host_objects,
        )
        self._partial_runs: dict[str, PartialRun] = {}  # by handle
        self._stack = ExitStack()
        self._closed = False

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
                if not watch.used and (run_metadata is not None or watch.deadline_s is None):
                    warn_at_user_line(
                        f"run: options have no effect on a step of {type(self).__name__} that runs "
                        "elsewhere or trains replicas; tb.profiler.trace writes the timeline of a block"
                    )
                return values
        fetches, elements = self._arguments.fetch_list(fetches)
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
        _, elements = self._arguments.fetch_list(fetches)
        fed = {} if feed_dict is None else self._arguments.feeds(feed_dict)
        elements = computed_for(elements, fed)
        if options.trace_level:
            run_metadata.cost_graph = cost_graph_of(self.graph, run_metadata.step_stats.tracer, elements)
        if options.output_partition_graphs:
            run_metadata.partition_graphs = list(self._partition_graphs(elements, fed))

    def _partition_graphs(self, elements: GraphElements, fed: Mapping[Tensor, Array]) -> Sequence[GraphDef]:
        """The graph of each device that takes part in a run."""
        needed = needed_for(elements, fed)
        placer = Placer(self._devices, soft=self._soft, fixed=self._device_variables.placement)
        devices = {op: str(device.name) for op, device in placer.place(needed).items()}
        if self._greedy is not None:
            shapes = {tensor: value.shape for tensor, value in fed.items()}
            placed = self._planned.step(elements, shapes).devices(str(self.device.name))
            devices = {op: placed.get(op.name, device) for op, device in devices.items()}
        return partition_graphs_of(needed, fed, elements, devices, str(self.device.name))

    @checked
    def make_callable(self, fetches: Any, feed_list: Items | None = None) -> Callable[..., Any]:
        """A function that runs `fetches` and takes feeds by position; saves the lookup of names in each run.

        Raises what `run` raises: for names here, for values when the function is called.
        """
        fetches, elements = self._arguments.fetch_list(fetches, "make_callable")
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
        _, elements = self._arguments.fetch_list(fetches, "partial_run_setup")
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
        fetches, elements = self._arguments.fetch_list(fetches, "partial_run")
        feeds = {} if feed_dict is None else self._arguments.feeds(feed_dict)
        try:
            values = partial.run(elements, feeds, self._execute_within)
        finally:
            if partial.is_over:
                self._partial_runs.pop(handle, None)
        return pack(fetches, iter(values))

    def explain(
        self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None
    ) -> Explanation | MultiDeviceExplanation | DynamicExplanation:
        """Explains the step that `run` would run: segments, order, addresses, memory, reasons.

        A `tb.TensorSpec` may stand for a fed value. A step that does not fit in memory is explained without
        addresses; one in dynamic mode with its loops and regions, and why it is not planned.
        """
        _, elements = self._arguments.fetch_list(fetches, "explain")
        shapes = {} if feed_dict is None else self._arguments.shapes(feed_dict)
        elements = computed_for(elements, shapes)

        try:
            return self._planned.with_step(elements, shapes, lambda bound: bound.explain(), runs=False)
        except NeedsDynamicModeError as error:
            known = self._dynamic.known(elements, shapes)
            plan = known or self._dynamic.new_plan(elements, shapes, error.why)
            return DynamicExplanation(plan, str(self.device.name))
        except ResourceExhaustedError as error:
            if not self._variables.are_allocated:  # they do not fit: no plan without them
                raise
            step = self._planned.step(elements, shapes)
            return unbound(step.executable, self.device, f"not bound: {error}")

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
        with self._variables.lock.exclusive:
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

    def _values(self, elements: GraphElements, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """Values of the fetches: computed by a step, or made of what it computes."""
        for element in elements:
            if is_made_after(element, feeds):
                computed = self._execute(computed_for(elements, feeds), feeds)
                return made_of(elements, feeds, iter(computed))
        return self._execute(elements, feeds)

    def _execute(self, elements: GraphElements, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """Values of the elements, None for operations."""
        return self._execute_within(elements, feeds, None)

    def _execute_within(
        self, elements: GraphElements, feeds: Mapping[Tensor, Array], within: frozenset[Operation] | None
    ) -> list[Any]:
        """Runs as `_execute` does; within: see `prune`."""
        plan = self._dynamic.known(elements, feeds, within) if self._dynamic.plans else None
        if plan is None:
            try:
                return self._planned.run(elements, feeds, within=within)
            except NeedsDynamicModeError as error:
                plan = self._dynamic.plan_for(elements, feeds, error, within)
        return self._dynamic.run(plan, feeds)

    # Variables and life -----------------------------------------------------------------------

    @checked
    def load_variables(self, values: Mapped) -> None:
        """Sets variables by name from arrays. Raises NotFoundError, InvalidArgumentError."""
        on_host, feeds = host_assigns(self.graph, values)
        names = {op.inputs[0].op.name for op in on_host}
        self._variables.load({name: value for name, value in values.items() if name not in names})
        if on_host:
            Session._execute(self, on_host, self._arguments.feeds(feeds))

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
        self._variables.require_open()

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
        self._dynamic.trim()
        return self._cache.trim()

    def close(self) -> None:
        """Waits for running steps, then ends the session and frees its memory; idempotent.

        Steps in dynamic mode that run or wait, for example on a queue, are cancelled, and so are loops that
        count to no limit.
        """
        self._variables.closing = True
        self._dynamic.cancel(CancelledError(CLOSED))
        self._planned.stop_loops()
        with self._variables.lock.exclusive:
            if not self._closed:
                self._closed = True
                self._partial_runs.clear()
                self._dynamic.close()
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
