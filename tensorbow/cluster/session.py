"""ClusterSession: `tb.Session("tcp://host:port")`, which runs graphs on the tasks of a cluster."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NoReturn

from tensorbow.cluster.cluster_devices import ClusterDevices
from tensorbow.cluster.dynamic_cut import StepCut, follow_handles
from tensorbow.cluster.frames import StepFrames
from tensorbow.cluster.links import Links, Pending
from tensorbow.cluster.run_limit import RunLimit, TimeLimit
from tensorbow.cluster.run_spans import ARRAYS, TaskSpans, TracesOfTasks
from tensorbow.cluster.sent_graph import SentGraph, name_on_tasks, text_of
from tensorbow.cluster.task_errors import of_task
from tensorbow.cluster.task_step import task_of
from tensorbow.compiler import Placer
from tensorbow.compiler.prune import needed_for
from tensorbow.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TensorBowError,
    UnavailableError,
    UnimplementedError,
)
from tensorbow.executor import DynamicPlan
from tensorbow.graph import AsGraph, GraphDef, Operation, Tensor, get_default_graph
from tensorbow.graph.graph_def import operation_name
from tensorbow.kinds import Flag, Mapped, Name, Names, PositiveNumber, Text, checked
from tensorbow.ops.constant import to_array
from tensorbow.ops.host_variables import VARIABLES, host_assigns
from tensorbow.ops.state import VariableReference
from tensorbow.queues.python_functions import PyFunc, PyFuncStateless
from tensorbow.runtime import AsConfig, Session
from tensorbow.runtime.config_proto import warn_of_ignored
from tensorbow.runtime.fetches_and_feeds import Arguments, GraphElements
from tensorbow.runtime.forgotten_updates import warn_of_forgotten_updates
from tensorbow.runtime.partition_graphs import partition_graphs_of
from tensorbow.runtime.random_state import RandomState
from tensorbow.runtime.run_watch import current_watch, wanted_tracers
from tensorbow.runtime.shape_counts import ShapeCounts
from tensorbow.runtime.step_cache import CACHED_STEPS
from tensorbow.specs import Array

SCHEMES = ("tcp://", "grpc://")  # the second as TensorFlow's programs write it; the protocol is the same
# After these errors tasks may have forgotten the session's steps: the next runs register them again.
FORGOTTEN_BY = (UnavailableError, AbortedError, FailedPreconditionError, NotFoundError)
TAKEN = (  # options of the config
    "allow_soft_placement",
    "inter_op_parallelism_threads",
    "lossy_transfers",
    "operation_timeout_in_ms",
)

_numbers = itertools.count()


@dataclass(eq=False)
class _RegisteredStep:
    """A step that the tasks know by its handle: what each of them is sent, and what it gives."""

    handle: str
    feeds: dict[str, list[tuple[str, Tensor]]]  # by task: names there, and the tensors fed
    counters: dict[str, list[str]]  # by task: random ops
    fetches: dict[str, list[int]]  # by task: indices among the fetched tensors
    is_dynamic: bool = False
    may_not_end: bool = False  # its parts may wait, for example on a queue, or have loops without an end
    graphs: Sequence[GraphDef] = ()  # of the parts of a dynamic step


class ClusterSession(Session):
    """A session on the tasks of a cluster. Variables live at their tasks, shared by name with other sessions.

    Ops without a device run on the target's task. Steps of several threads or clients run concurrently: each
    stage of a step is atomic on its device, steps as wholes are not (asynchronous updates, as in OSDI 2016,
    section 4.4).
    """

    @checked
    def __init__(
        self,
        target: Text,
        graph: AsGraph | None = None,
        config: AsConfig | None = None,
        *,
        token: Name = None,
        connect_timeout_s: PositiveNumber = 60.0,
        health_check_s: PositiveNumber = 5.0,
        allow_soft_placement: Flag = False,
    ):
        """target: of a `tb.train.Server`, as "tcp://host:port" or "grpc://host:port". graph: by default the
        default graph. token: see `tb.train.Server`.

        connect_timeout_s: how long it waits for a task's server to come. health_check_s: a task that a step
        waits for is asked after so many seconds whether it lives, and has as many to answer.
        allow_soft_placement: an operation whose device is missing runs elsewhere.

        Raises UnavailableError if no task answers, PermissionDeniedError for another token.
        """
        scheme, _, address = target.partition("://")
        if f"{scheme}://" not in SCHEMES:
            raise InvalidArgumentError(f"Session: expected a target as 'tcp://host:port', got {target!r:.80}")
        self.graph = graph if graph is not None else get_default_graph()
        if config is not None:
            warn_of_ignored(config, TAKEN)
            allow_soft_placement = allow_soft_placement or config.allow_soft_placement
        self._soft = allow_soft_placement
        self._lossy = config is not None and config.lossy_transfers
        self._timeout_ms = 0 if config is None else config.operation_timeout_in_ms
        self._threads = 0 if config is None else config.inter_op_parallelism_threads
        self._running = threading.BoundedSemaphore(self._threads) if self._threads else None
        self._traces = TracesOfTasks()
        self._target = target
        self._name = f"cluster-session-{next(_numbers)}"
        self._id = uuid.uuid4().hex
        self._links = Links(address, token, self._id, connect_timeout_s, health_check_s)
        self._places = ClusterDevices(self._links)
        self.device = self._places.home
        self._arguments = Arguments(self.graph)
        self._shape_counts = ShapeCounts()
        self.random_state = RandomState()
        self._partial_runs = {}
        self._fixed: dict[Operation, Any] = {}  # devices of variables, once chosen
        self._steps: OrderedDict[Hashable, _RegisteredStep] = OrderedDict()
        self._registering = threading.RLock()  # guards the two above
        self._serial = itertools.count()
        self._waiting: set[Pending] = set()  # of running steps that may not end by themselves
        self._stack = ExitStack()
        self._closed = False

    # Running ----------------------------------------------------------------------------------

    def _execute(self, elements: Sequence[Tensor | Operation], feeds: Mapping[Tensor, Array]) -> list[Any]:
        step = self._registered(elements, {tensor: value.shape for tensor, value in feeds.items()})
        try:
            with self._turn(step, self._limit()) as limit:
                values = self._run_on_tasks(step, feeds, limit)
        except TensorBowError as error:
            if isinstance(error, FORGOTTEN_BY):
                with self._registering:
                    self._steps.clear()
            raise
        results = iter(range(len(values)))
        return [values[next(results)] if isinstance(e, Tensor) else None for e in elements]

    @contextmanager
    def _turn(self, step: _RegisteredStep, limit: TimeLimit | None) -> Iterator[TimeLimit | None]:
        """Waits for a place among inter_op_parallelism_threads; yields what is left of the limit.

        A dynamic step does not wait, as it may be what another one waits for; its tasks limit its ops.
        """
        if self._running is None or step.is_dynamic:
            yield limit
            return
        began_s = perf_counter()
        if limit is None:
            self._running.acquire()
        elif not self._running.acquire(timeout=limit.left_s):
            raise DeadlineExceededError(
                f"run: it has taken longer than {limit.option}={limit.milliseconds} and is given up: it "
                f"waited for other runs, as inter_op_parallelism_threads={self._threads}"
            )
        try:
            waited_s = perf_counter() - began_s
            yield None if limit is None else replace(limit, left_s=max(0.0, limit.left_s - waited_s))
        finally:
            self._running.release()

    def _limit(self) -> TimeLimit | None:
        """The time limit of a run that begins now: that of its options, or of the session."""
        watch = current_watch()
        if watch is not None:
            watch.begin()
            left_s = watch.left_s()
            if left_s is not None:
                return TimeLimit(watch.option, watch.timeout_ms, left_s, each_op=True)
        if self._timeout_ms:
            return TimeLimit(
                "operation_timeout_in_ms", self._timeout_ms, self._timeout_ms / 1e3, each_op=False
            )
        return None

    def _partition_graphs(self, elements: GraphElements, fed: Mapping[Tensor, Array]) -> Sequence[GraphDef]:
        step = self._registered(elements, {tensor: value.shape for tensor, value in fed.items()})
        if step.is_dynamic:
            return step.graphs
        needed = needed_for(elements, fed)
        with self._registering:
            places = self._placed(needed)
        return partition_graphs_of(needed, fed, elements, places, str(self._places.home.name))

    def _run_on_tasks(
        self, step: _RegisteredStep, feeds: Mapping[Tensor, Array], limit: TimeLimit | None
    ) -> dict[int, Any]:
        """Runs a registered step; the fetched values by index. Raises the first error of a task.

        This process's task runs its part in this thread, but under a time limit as others do: it may be late.
        """
        run = f"{self._id}-{next(self._serial)}"
        values: dict[int, Any] = {}
        pending = Pending(self._links.check_s, limit)
        tracers = wanted_tracers(current_watch())
        sent_s: dict[str, float] = {}
        if step.may_not_end:
            self._waiting.add(pending)
        local: tuple[Any, list[Any]] | None = None

        def keep(task: str, arrays: Sequence[Array]) -> None:
            for index, array in zip(step.fetches[task], arrays, strict=True):
                values[index] = array if array.shape else array[()]

        try:
            self._require_open()
            for task, fed in step.feeds.items():
                link = self._links.link(task)
                state = self.random_state.draw(step.counters[task])
                arrays = [feeds[tensor] for _, tensor in fed]
                names = [name for name, _ in fed]
                if link.here is not None and local is None and limit is None:
                    local = link, [dict(zip(names, arrays, strict=True)), state]
                    continue
                connection = link.take()
                pending.add(link, connection)
                header: dict[str, Any] = {
                    "op": "run",
                    "step": step.handle,
                    "run": run,
                    "feeds": names,
                    "state": state,
                }
                if limit is not None:
                    header["limit"] = limit.to_entry()
                if tracers:
                    header["traced"] = True
                sent_s[task] = perf_counter()
                connection.send(header, arrays)
            if local is not None:
                link, arguments = local
                try:
                    spans = TaskSpans() if tracers else None
                    own = RunLimit(pending.look, spans=spans)
                    keep(link.name, link.here.run(step.handle, run, *arguments, own, _copied))
                except TensorBowError as error:
                    pending.raise_if_cancelled()
                    if error.task:
                        raise
                    raise of_task(error, link.name) from error
                if spans is not None:
                    self._traces.add(tracers, spans.to_arrays(), spans.began_s)
            for task, (_, found) in pending.collect().items():
                if tracers:
                    found, of_spans = found[:-ARRAYS], found[-ARRAYS:]
                    self._traces.add(tracers, of_spans, sent_s[task])
                keep(task, found)
        finally:
            self._waiting.discard(pending)
            pending.close()
        return values

    # Registering ------------------------------------------------------------------------------

    def _registered(
        self, elements: Sequence[Tensor | Operation], shapes: Mapping[Tensor, tuple[int, ...]]
    ) -> _RegisteredStep:
        key: Hashable = (tuple(elements), frozenset(shapes.items()))
        of_any_shape = (tuple(elements), frozenset(shapes))  # the key of steps in the dynamic mode
        with self._registering:
            self._require_open()
            key = of_any_shape if of_any_shape in self._steps else key
            step = self._steps.get(key)
            if step is None:
                self._shape_counts.add(tuple(elements), shapes)
                step = self._register(elements, shapes)
                self._steps[of_any_shape if step.is_dynamic else key] = step
                while len(self._steps) > CACHED_STEPS:
                    old = self._steps.popitem(last=False)[1]
                    self._links.release({task: [old.handle] for task in old.feeds})
            else:
                self._steps.move_to_end(key)
            return step

    def _register(
        self, elements: Sequence[Tensor | Operation], shapes: Mapping[Tensor, tuple[int, ...]]
    ) -> _RegisteredStep:
        """Places a step and sends it to its tasks."""
        needed = needed_for(elements, shapes)
        warn_of_forgotten_updates(needed)
        _require_no_functions(needed)
        home = str(self._places.home.name)
        places = self._placed(needed)
        sent = SentGraph(needed, places, shapes, home)
        fetches = [sent.name(element) for element in elements]
        feeds = {name: (tensor.dtype.name, list(shapes[tensor])) for tensor, name in sent.fed.items()}
        tasks = list(dict.fromkeys([task_of(name) for name in (*places.values(), home)]))
        handle = f"{self._id}-step-{next(self._serial)}"
        header = {
            "op": "register",
            "step": handle,
            "fetches": fetches,
            "feeds": feeds,
            "home": home,
            "lossy": self._lossy,
            "incarnations": {task: self._links.link(task).incarnation for task in tasks},
        }
        answers = self._ask(tasks, header, [text_of(sent.graph)])
        reasons = [answer["dynamic"] for answer in answers.values() if "dynamic" in answer]
        if reasons:
            return self._register_dynamic(handle, elements, list(shapes), needed, places, reasons[0])
        if len({answer["digest"] for answer in answers.values()}) > 1:
            raise InternalError(
                f"the tasks {', '.join(tasks)} cut a step in different ways; use the same version on all of "
                "them"
            )
        by_name = {name: tensor for tensor, name in sent.fed.items()}
        running = [task for task in tasks if answers[task]["parts"]]
        return _RegisteredStep(
            handle,
            {task: [(name, by_name[name]) for name in answers[task]["feeds"]] for task in running},
            {task: answers[task]["counters"] for task in running},
            {task: answers[task]["fetches"] for task in running},
            may_not_end=any(answers[task]["endless"] for task in running),
        )

    def _register_dynamic(
        self,
        handle: str,
        elements: Sequence[Tensor | Operation],
        fed: Sequence[Tensor],
        needed: Sequence[Operation],
        places: dict[Operation, str],
        reason: str,
    ) -> _RegisteredStep:
        """Cuts a step that no plan runs between tasks, and sends each its part."""
        home = str(self._places.home.name)
        follow_handles(needed, places)
        DynamicPlan(elements, fed, needed, reason)  # raises for fetches and feeds in loops
        sent = SentGraph(needed, places, {tensor: tensor.spec.shape for tensor in fed}, home)
        placeholders = {operation_name(name): tensor for tensor, name in sent.fed.items()}
        frames = StepFrames(needed, fed, sent.name)
        cut = StepCut(sent.graph, frames, list(placeholders), self._lossy)
        fetched = [sent.name(element) for element in elements if isinstance(element, Tensor)]
        parts = cut.parts(fetched, task_of(home))
        random = [op for op in needed if op.definition.random]
        for task, part in parts.items():
            header = {
                "op": "register_dynamic",
                "step": handle,
                "fetches": [name for _, name in part.fetches],
                "feeds": part.placeholders,
                "incarnations": {each: self._links.link(each).incarnation for each in parts},
                "threads": self._threads,
            }
            self._ask([task], header, [text_of(part.graph)])
        return _RegisteredStep(
            handle,
            {t: [(name, placeholders[name]) for name in part.placeholders] for t, part in parts.items()},
            {t: [op.name for op in random if task_of(places[op]) == t] for t in parts},
            {t: [index for index, _ in part.fetches] for t, part in parts.items()},
            is_dynamic=True,
            may_not_end=True,
            graphs=[part.graph for part in parts.values()],
        )

    def _placed(self, needed: Sequence[Operation]) -> dict[Operation, str]:
        """The full name of the device of each operation; variables keep theirs."""
        placer = Placer(self._places, soft=self._soft, fixed=self._fixed)
        placement = placer.place(needed)
        self._fixed.update({op: d for op, d in placement.items() if op.definition in VARIABLES})
        return {op: str(device.name) for op, device in placement.items()}

    def _ask(
        self, tasks: Sequence[str], header: Mapping[str, Any], arrays: Sequence[Array] = ()
    ) -> dict[str, dict[str, Any]]:
        """Sends one request to several tasks at once; their answers, by task."""
        pending = Pending(self._links.check_s)
        try:
            for task in tasks:
                link = self._links.link(task)
                connection = link.take()
                pending.add(link, connection)
                connection.send(header, arrays)
            return {task: found for task, (found, _) in pending.collect().items()}
        finally:
            pending.close()

    # Variables --------------------------------------------------------------------------------

    def _at_tasks(self, variables: Sequence[Operation]) -> dict[str, list[Operation]]:
        """Variables by task; makes room for them there."""
        by_task: dict[str, list[Operation]] = {}
        with self._registering:
            self._require_open()
            places = self._placed(variables)
        for variable in variables:
            by_task.setdefault(task_of(places[variable]), []).append(variable)
        for task, own in by_task.items():
            graph = SentGraph(own, {op: places[op] for op in own}, {}, "").graph
            self._ask([task], {"op": "declare"}, [text_of(graph)])
        return by_task

    @checked
    def load_variables(self, values: Mapped) -> None:
        """Sets variables by name from arrays. Raises NotFoundError, InvalidArgumentError."""
        on_host, feeds = host_assigns(self.graph, values)
        if on_host:
            self._execute(on_host, self._arguments.feeds(feeds))
            there = {op.inputs[0].op.name for op in on_host}
            values = {name: value for name, value in values.items() if name not in there}
        known = {op.name: op for op in self.graph.get_operations() if op.definition is VariableReference}
        arrays: dict[Operation, Array] = {}
        for name, value in values.items():
            if name not in known:
                raise NotFoundError(f"no variable '{name}'; there are: {', '.join(known) or 'none'}")
            spec = known[name].outputs[0].spec
            array = to_array(value, spec.dtype)
            if array.shape != spec.extents:
                raise InvalidArgumentError(
                    f"variable {name}: expected shape {list(spec.extents)}, got {list(array.shape)}"
                )
            arrays[known[name]] = array
        for task, own in self._at_tasks(list(arrays)).items():
            names = [[str(self._fixed[op].name), name_on_tasks(op)] for op in own]
            header = {"op": "load", "names": names}
            self._links.link(task).call(header, self._links.check_s, [arrays[op] for op in own])

    def without_value(self, variables: Sequence[Operation]) -> list[str]:
        """The names of those variables that have no value yet."""
        missing: set[str] = set()
        for task, own in self._at_tasks(list(variables)).items():
            asked: dict[str, list[str]] = {}
            for op in own:
                asked.setdefault(str(self._fixed[op].name), []).append(name_on_tasks(op))
            header = {"op": "without_value", "names": asked}
            missing.update(self._links.link(task).call(header, self._links.check_s)["names"])
        return [op.name for op in variables if name_on_tasks(op) in missing]

    @staticmethod
    @checked
    def reset(target: Text = "", containers: Names | None = None, *, token: Name = None) -> None:
        """Takes values of variables on all tasks away: of those in these containers, by default of all."""
        links = Links(target.partition("://")[2], token, uuid.uuid4().hex, 10.0, 5.0)
        try:
            header = {"op": "reset", "containers": None if containers is None else list(containers)}
            for task in links.tasks():
                links.link(task).call(header, links.check_s)
        finally:
            links.close()

    # Life -------------------------------------------------------------------------------------

    def explain(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> NoReturn:
        """Raises UnimplementedError: the tasks compile the step, each its own parts."""
        raise UnimplementedError(
            "explain: a session on a cluster has no plan of its own; explain the step in a plain tb.Session, "
            "with allow_soft_placement=True"
        )

    def trim(self) -> int:
        """Has the tasks forget this session's steps; the next runs register them again. Returns 0."""
        with self._registering:
            self._require_open()
            steps, self._steps = list(self._steps.values()), OrderedDict()
        for step in steps:
            self._links.release({task: [step.handle] for task in step.feeds})
        return 0

    def close(self) -> None:
        """Ends the session; variables stay at their tasks; idempotent."""
        if not self._closed:
            self._closed = True
            for pending in list(self._waiting):
                pending.cancel(CancelledError("the session was closed while the step ran"))
            with suppress(TensorBowError):
                self._links.close()

    def _require_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("the session is closed; make a new one")

    def __repr__(self) -> str:
        return f"<tb.Session {self._name} on {self._target}{' (closed)' if self._closed else ''}>"


def _copied(views: Sequence[Array]) -> list[Array]:
    return [view.copy() for view in views]


def _require_no_functions(ops: Sequence[Operation]) -> None:
    """Raises InvalidArgumentError for a function of Python, which no message carries."""
    for op in ops:
        if op.definition in (PyFunc, PyFuncStateless):
            raise InvalidArgumentError(
                f"{op.type} {op.name}: a function of Python stays in its process, and runs on no task of a "
                "cluster; feed its result, or define an operation in all processes by tb.define_op (made at "
                f"{op.source})"
            )
