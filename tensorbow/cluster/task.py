"""A task: registers the steps of sessions, runs its parts of them, and sends values to the other tasks."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tensorbow.cluster.cluster_spec import ClusterSpec, task_name
from tensorbow.cluster.dynamic_part import DynamicPart
from tensorbow.cluster.peer_links import PeerLinks
from tensorbow.cluster.run_limit import RunLimit
from tensorbow.cluster.sent_graph import CONTAINER, container_of
from tensorbow.cluster.task_step import Arrivals, StepOfTask, TaskStep, task_of
from tensorbow.cluster.task_variables import TaskVariables
from tensorbow.compiler import (
    Binding,
    NeedsDynamicModeError,
    compile_multi_device,
    compile_step,
    of_one_device,
)
from tensorbow.devices import Device, DeviceName, StreamGroup, available_devices, get_device
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TensorBowError,
)
from tensorbow.executor import InterOpPool, PoolShare, TaskPool, threads_beside_caller
from tensorbow.graph import DEAD, Graph, GraphDef, Operation, Resources, Tensor
from tensorbow.kernels.backends import backend_for
from tensorbow.ops.importing import import_graph_def
from tensorbow.ops.state import VariableReference
from tensorbow.program import Region
from tensorbow.queues.named_objects import NamedObjects
from tensorbow.specs import Array, TensorSpec, as_dtype

CLOSE_S = 10.0  # for running steps to end
LATE_S = 60.0  # how long values of a run that has not begun are kept
MOST_LATE = 1 << 12  # such runs

_numbers = itertools.count()


class _Registered:
    """A session's step, and its bound forms that nobody uses."""

    def __init__(self, step: StepOfTask, session: str):
        self.step = step
        self.session = session
        self.idle: list[TaskStep] = []
        self.released = False
        own = list(step.executable.parts.items())
        self.reads = {name: part.reads_first for name, part in own}
        self.writes = {name: part.writes for name, part in own}
        self.touched = {name: part.reads_first | part.writes for name, part in own}
        self.lost: set[str] = set()  # variables that were reset since
        # By index among the step's fetches: device, and index among the part's.
        here = step.executable.parts
        self.fetches = {i: place for i, place in enumerate(step.executable.fetches) if place[0] in here}


class ClusterTask:
    """One task of a cluster, in this process. All methods are thread-safe."""

    def __init__(self, cluster: ClusterSpec, job: str, index: int, token: str, threads: int = 0):
        """threads: for ops of all dynamic steps, one of them each step's own; 0 for the default."""
        self.cluster = cluster
        self.name = task_name(job, index)
        self.incarnation = uuid.uuid4().hex
        self.token = token
        self._peers = PeerLinks(self.name, cluster.tasks(), token)
        self._label = f"task {self.name} {next(_numbers)}"
        self._threads = threads
        self._pool = InterOpPool(threads_beside_caller(threads), self._label)  # of all sessions
        self._lock = threading.RLock()  # guards the fields below
        self._steps: dict[str, _Registered] = {}
        self._variables: dict[str, TaskVariables] = {}  # by full name of the device
        self._runs: dict[str, Arrivals] = {}  # of runs that have begun, and of those that values came for
        self._came_s: OrderedDict[str, float] = OrderedDict()  # runs not begun, and when the first value came
        self._given_up: OrderedDict[str, None] = OrderedDict()  # failed runs, whose late values are dropped
        self._groups: list[StreamGroup] = []
        self._busy: set[StreamGroup] = set()
        self._failed: list[tuple[Arrivals, TaskStep]] = []  # steps that failed, not yet closed
        self._parts: dict[str, tuple[DynamicPart, dict[str, str]]] = {}  # with the tasks' incarnations
        self._objects = NamedObjects()  # queues and the like, which sessions share
        self._resources: dict[str, Resources] = {}  # by session
        self._shares: dict[str, PoolShare] = {}  # of sessions that limit their ops
        self._closed = False

    def describe(self) -> dict[str, Any]:
        """The task for a client: name, incarnation, cluster and devices."""
        return {
            "task": self.name,
            "incarnation": self.incarnation,
            "cluster": {
                job: {str(i): self.cluster.task_address(job, i) for i in self.cluster.task_indices(job)}
                for job in self.cluster.jobs
            },
            "devices": [f"{self.name}{row['name']}" for row in available_devices()],
        }

    # Registering ------------------------------------------------------------------------------

    def register(
        self,
        handle: str,
        session: str,
        graph: str,
        fetches: Sequence[str],
        feeds: Mapping[str, tuple[str, Sequence[int]]],
        home: str,
        lossy: bool,
        incarnations: Mapping[str, str],
    ) -> dict[str, Any]:
        """Compiles this task's parts of a step; the session runs it by its handle.

        graph: a GraphDef with the full name of each operation's device. fetches: names of tensors and
        operations. feeds: dtype and shape by tensor. home: the device of fetched constants and feeds.
        lossy: see `partition`.
        """
        made = _imported(graph)
        elements: list[Tensor | Operation] = [made.as_graph_element(name) for name in fetches]
        specs: dict[Tensor, TensorSpec] = {}
        for name, (dtype, shape) in feeds.items():
            tensor = made.as_graph_element(name)
            if not isinstance(tensor, Tensor):
                raise InvalidArgumentError(f"register: {name} is no tensor")
            specs[tensor] = TensorSpec(tuple(shape), as_dtype(dtype))
        return self._compile(
            handle, session, made.get_operations(), elements, specs, home, lossy, dict(incarnations), feeds
        )

    def compile(
        self,
        handle: str,
        session: str,
        ops: Sequence[Operation],
        elements: Sequence[Tensor | Operation],
        specs: Mapping[Tensor, TensorSpec],
        home: str,
    ) -> list[str]:
        """Compiles a step of this task alone, which `run` runs; returns the names of its random ops.

        ops: with the full names of their devices, all of this task. On one device loops and conds that depend
        on data may be compiled.
        """
        counters: list[str] = self._compile(handle, session, ops, elements, specs, home)["counters"]
        return counters

    def _compile(
        self,
        handle: str,
        session: str,
        ops: Sequence[Operation],
        elements: Sequence[Tensor | Operation],
        specs: Mapping[Tensor, TensorSpec],
        home: str,
        lossy: bool = False,
        incarnations: Mapping[str, str] | None = None,
        feeds: Collection[str] = (),
    ) -> dict[str, Any]:
        names = {op: op.device for op in ops}
        with self._lock:
            self._require_open()
            mine = {name for name in (*names.values(), home) if task_of(name) == self.name}
            places = {name: self._variables_on(name) for name in mine}
        for name, variables in places.items():
            variables.grow(op for op in ops if op.definition is VariableReference and names[op] == name)
        snapshots = {name: variables.layout() for name, variables in places.items()}
        layouts = {name: layout for name, (layout, _) in snapshots.items()}
        devices = {name: variables.device for name, variables in places.items()}
        if incarnations is None and len(set(names.values())) == 1:
            (name,) = set(names.values())
            backend = backend_for(devices[name])
            one = compile_step(elements, specs, layouts[name], backend, within=frozenset(ops))
            executable = of_one_device(one, name, devices[name])
        else:
            executable = compile_multi_device(
                ops, elements, specs, names, home, devices, layouts, keeps_received=True, lossy=lossy
            )
        bases = {name: base for name, (_, base) in snapshots.items()}
        step = StepOfTask(executable, layouts, bases, places, incarnations or {})
        registered = _Registered(step, session)
        with self._lock:
            self._require_open()
            self._steps[handle] = registered
        parts = executable.parts.values()
        return {
            "digest": executable.digest,
            "fetches": list(registered.fetches),
            "feeds": sorted({name for part in parts for name in part.inputs if name in feeds}),
            "counters": [name for part in parts for name in part.counters],
            "parts": len(executable.parts),
            "endless": any(part.may_not_end for part in parts),
        }

    def register_dynamic(
        self,
        handle: str,
        session: str,
        graph: str,
        fetches: Sequence[str],
        feeds: Sequence[str],
        incarnations: Mapping[str, str],
        threads: int,
    ) -> None:
        """Takes this task's part of a step in the dynamic mode; the session runs it by its handle.

        graph: a GraphDef of the part alone, with full device names. fetches: names of tensors. feeds: of
        placeholders. threads: on which the session lets ops run at the same time, at most; 0 for no limit of
        its own.
        """
        made = _imported(graph)
        home = f"{self.name}/device:CPU:0"
        with self._lock:
            self._require_open()
            pool = self._pool_of(session, threads)
        part = DynamicPart(self, handle, session, made, fetches, feeds, home, pool)
        with self._lock:
            self._require_open()
            self._parts[handle] = part, dict(incarnations)
            if session not in self._resources:
                self._resources[session] = Resources(self._objects, self._has_value)

    def _pool_of(self, session: str, threads: int) -> TaskPool:
        """The pool for a session's ops: a share of the task's if it limits them."""
        if not threads:
            return self._pool
        if session not in self._shares:
            most = threads_beside_caller(threads)
            self._shares[session] = PoolShare(self._pool, most)
            if not self._threads:
                self._pool.allow(most)
        return self._shares[session]

    def _variables_on(self, name: str) -> TaskVariables:
        if name not in self._variables:
            parsed = DeviceName.parse(name)
            device = get_device(DeviceName(kind=parsed.kind, index=parsed.index))
            self._variables[name] = TaskVariables(device, name, self._label)
        return self._variables[name]

    def release(self, handles: Sequence[str]) -> None:
        """Forgets steps; those that are unknown are ignored."""
        with self._lock:
            for handle in handles:
                part = self._parts.pop(handle, None)
                if part is not None:
                    part[0].release()
                registered = self._steps.pop(handle, None)
                if registered is not None:
                    registered.released = True
                    while registered.idle:
                        registered.idle.pop().close()

    def release_session(self, session: str) -> None:
        """Forgets all steps of a session, and ends those that run."""
        with self._lock:
            for part, _ in self._parts.values():
                if part.session == session:
                    part.cancel(AbortedError("the session that runs the step has gone"))
            self.release([h for h, (part, _) in self._parts.items() if part.session == session])
            self.release([h for h, registered in self._steps.items() if registered.session == session])
            resources = self._resources.pop(session, None)
            self._shares.pop(session, None)
        if resources is not None:
            resources.close()

    # Running ----------------------------------------------------------------------------------

    def run(
        self,
        handle: str,
        name: str,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        limit: RunLimit,
        use: Callable[[list[Array]], Any],
    ) -> Any:
        """Runs a registered step and gives what `use` makes of views of the values that are fetched here.

        name: of the run, the same on all tasks. limit: ends the run.
        """
        if handle in self._parts:
            return use(self._run_part(handle, name, inputs, state, limit))
        with self._lock:
            self._require_open()
            registered = self._steps.get(handle)
            if registered is None:
                raise NotFoundError(f"run: {self.name} has no step {handle}; make a new session")
            if registered.lost:
                raise FailedPreconditionError(
                    f"variables without a value: {', '.join(sorted(registered.lost))}, which were reset; run "
                    "tb.global_variables_initializer(), or restore a checkpoint"
                )
            run = self._runs.setdefault(name, Arrivals(name))
            self._came_s.pop(name, None)
        step = registered.step
        if not step.executable.parts:
            with self._lock:
                del self._runs[name]
            return use([])
        bound: TaskStep | None = None
        try:
            _require_values(step, registered.reads)
            with self._lock:
                bound = self._take(registered)
            run.begin(bound.boxes)
            bound.run(
                run, inputs, state, lambda *message: self._post(step.incarnations, name, *message), limit
            )
            for device, names in registered.writes.items():
                step.variables[device].mark(names)
            views = bound.fetched()
            result = use([views[device][number] for device, number in registered.fetches.values()])
        except BaseException:
            with self._lock:
                self._give_up(name)
                if bound is not None:
                    self._busy.difference_update(bound.groups)
                    self._failed.append((run, bound))
                    self._close_failed()
            raise
        with self._lock:
            del self._runs[name]
            self._give(registered, bound)
        return result

    def _run_part(
        self,
        handle: str,
        name: str,
        inputs: Mapping[str, Array],
        state: Mapping[str, Any],
        limit: RunLimit,
    ) -> list[Array]:
        with self._lock:
            self._require_open()
            if handle not in self._parts:
                raise NotFoundError(f"run: {self.name} has no step {handle}; make a new session")
            part, incarnations = self._parts[handle]
            resources = self._resources[part.session]
            run = self._runs.setdefault(name, Arrivals(name))
            self._came_s.pop(name, None)

        def send(task: str, key: str, value: Any) -> None:
            if value is DEAD:
                self._post(incarnations, name, task, [], [], [], [key])
            else:
                self._post(incarnations, name, task, [], [key], [value])

        try:
            values = part.run(name, run, inputs, state, limit, send, resources)
        except BaseException:
            with self._lock:
                self._give_up(name)
            raise
        with self._lock:
            del self._runs[name]
        return values

    def _give_up(self, name: str) -> None:
        """Forgets a run that has failed; what other tasks still send for it is dropped."""
        self._runs.pop(name, None)
        self._given_up[name] = None
        while len(self._given_up) > MOST_LATE:
            self._given_up.popitem(last=False)

    def _close_failed(self) -> None:
        """Closes steps that failed, once no value is being received into their memory."""
        for run, bound in self._failed[:]:
            if run.end():
                self._failed.remove((run, bound))
                bound.close()

    def _take(self, registered: _Registered) -> TaskStep:
        self._close_failed()
        for bound in registered.idle:
            if self._busy.isdisjoint(bound.groups):
                registered.idle.remove(bound)
                self._busy.update(bound.groups)
                return bound
        parts: dict[str, Binding] = {}
        step = registered.step
        try:
            for name, part in step.executable.parts.items():
                group = self._free_group(step.executable.devices[name])
                self._busy.add(group)
                shared = {Region.STATISTICS: step.bases[name]}
                parts[name] = Binding(part, group, shared, ring=1, owner=f"{self._label} step")
            return TaskStep(step, parts, self._label)
        except BaseException:
            for binding in parts.values():
                self._busy.discard(binding.group)
                binding.close()
            raise

    def _free_group(self, device: Device) -> StreamGroup:
        for group in self._groups:
            if group.device is device and group not in self._busy:
                return group
        group = device.stream_group(f"{self._label}/{len(self._groups)}")
        self._groups.append(group)
        return group

    def _give(self, registered: _Registered, bound: TaskStep) -> None:
        self._busy.difference_update(bound.groups)
        if registered.released or self._closed:
            bound.close()
        else:
            registered.idle.append(bound)

    # Values of other tasks --------------------------------------------------------------------

    def _post(
        self,
        incarnations: Mapping[str, str],
        run: str,
        task: str,
        stages: list[int],
        keys: list[str],
        arrays: list[Array],
        dead: Sequence[str] = (),
    ) -> None:
        """Sends a message to another task. dead: keys of tensors that have no value in this run."""
        header = {"op": "data", "run": run, "stages": stages, "keys": keys}
        self._peers.send(
            task, incarnations.get(task, ""), {**header, "dead": list(dead)} if dead else header, arrays
        )

    def check_links(self) -> None:
        """Raises UnavailableError if a link to another task does not carry what was sent."""
        self._peers.check()

    def run_of(self, name: str) -> Arrivals:
        """The run of that name; kept for a while if it has not begun here."""
        with self._lock:
            if name in self._given_up:
                return Arrivals(name)
            run = self._runs.get(name)
            if run is None:
                now = time.monotonic()
                while self._came_s and (
                    len(self._came_s) >= MOST_LATE or now - next(iter(self._came_s.values())) > LATE_S
                ):
                    self._runs.pop(self._came_s.popitem(last=False)[0], None)
                run = self._runs[name] = Arrivals(name)
                self._came_s[name] = now
            return run

    # Variables --------------------------------------------------------------------------------

    def load(self, values: Mapping[str, Mapping[str, Array]]) -> None:
        """Sets variables, by full name of the device and name; raises NotFoundError before changing any."""
        with self._lock:
            places = {device: self._variables.get(device) for device in values}
        for device, arrays in values.items():
            variables = places[device]
            missing = sorted(set(arrays) - set(variables.names() if variables is not None else ()))
            if missing:
                raise NotFoundError(f"no variable '{missing[0]}' on {device}")
        for device, arrays in values.items():
            known = places[device]
            if known is None:
                raise InternalError(f"no variables on {device}")
            known.load(arrays)

    def declare(self, graph: str) -> None:
        """Makes room for the variables of a GraphDef, whose devices are full names."""
        ops = _imported(graph).get_operations()
        for name in dict.fromkeys(op.device for op in ops):
            with self._lock:
                variables = self._variables_on(name)
            variables.grow(op for op in ops if op.definition is VariableReference and op.device == name)

    def without_value(self, names: Mapping[str, Sequence[str]]) -> list[str]:
        """Names of the variables without a value. names: by full name of the device."""
        with self._lock:
            places = {device: self._variables.get(device) for device in names}
        missing: list[str] = []
        for device, wanted in names.items():
            variables = places[device]
            missing += wanted if variables is None else variables.without_value(wanted)
        return missing

    def _has_value(self, variable: str, container: str) -> bool:
        name = f"{container}{CONTAINER}{variable}" if container else variable
        with self._lock:
            places = list(self._variables.values())
        return any(not place.without_value([name]) for place in places)

    def reset(self, containers: Sequence[str] | None) -> None:
        """Removes the variables and queues in these containers, or all; steps of open sessions lose them."""
        if containers is None or containers:
            self._objects.forget(containers)
        with self._lock:
            for device, variables in self._variables.items():
                gone = [n for n in variables.names() if containers is None or container_of(n) in containers]
                variables.forget(gone)
                for registered in self._steps.values():
                    touched = registered.touched.get(device, frozenset())
                    registered.lost |= touched.intersection(gone)

    def close(self) -> None:
        """Ends running steps and frees the memory; idempotent."""
        with self._lock:
            self._closed = True
            runs, steps = list(self._runs.values()), list(self._steps)
            parts, resources = list(self._parts), list(self._resources.values())
            for part, _ in self._parts.values():
                part.cancel(AbortedError(f"{self.name} closes"))
        for run in runs:
            run.abort(AbortedError(f"{self.name} closes"))
        self._peers.close()
        self.release([*parts, *steps])
        self._objects.forget(None)
        for each in resources:
            each.close()
        deadline = time.monotonic() + CLOSE_S
        while self._busy and time.monotonic() < deadline:
            time.sleep(0.01)
        self._pool.close()
        with self._lock:
            for _, bound in self._failed:
                bound.close()
        for group in self._groups:
            with suppress(TensorBowError):
                group.close()
        for variables in self._variables.values():
            variables.close()

    def _require_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError(f"{self.name}: the server is stopped; make a new tb.train.Server")


def _require_values(step: StepOfTask, reads: Mapping[str, Collection[str]]) -> None:
    """Raises FailedPreconditionError for variables without a value. reads: those of each device.

    Those that only branches and loops of a region touch may need none: NeedsDynamicModeError then.
    """
    for device, names in reads.items():
        variables = step.variables[device]
        maybe = frozenset() if step.incarnations else step.executable.parts[device].reads_maybe
        missing = variables.without_value(maybe) if maybe else ()
        if missing:
            why = f"{', '.join(missing[:3])} has no value, and may not be needed"
            raise NeedsDynamicModeError(f"a compiled branch or loop: {why}", why, passing=True)
        variables.require(names)


def _imported(text: str) -> Graph:
    with Graph().as_default() as made:
        import_graph_def(GraphDef.from_json(text), name="")
    return made
