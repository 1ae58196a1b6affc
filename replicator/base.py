"""Base class of all Replicators: one graph for the step, one engine that runs it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeAlias
from weakref import WeakSet

from replicator.backup_launches import BackupLaunches
from replicator.collectives import map_gather, map_reduce
from replicator.dataset_inputs import OnDevice
from replicator.first_come_loop import FirstComeLoop, require_any_taker
from replicator.input_functions import (
    PER_REPLICA,
    InputFunction,
    InputOptions,
    ReplicaShare,
    Replication,
    SmallerBatch,
)
from replicator.lockstep_loop import AUTO, LockstepLoop, StepsPerLaunch
from replicator.picked_inputs import inputs_of
from replicator.replicated_step import BuiltStep, ReplicatedStep, steps_with_room
from replicator.results import ReplicaResults, read_outside
from replicator.running_replicas import RunningReplicas
from replicator.starting import started
from replicator.state_file import restore_file, restore_newest, save_file, save_newest
from replicator.tracing import Trace, current_trace, trace_step
from replicator.training_loop import TrainingLoop
from replicator.training_results import training_results
from replicator.wrapped_optimizer import WrappedOptimizer
from scheduler.averaging.synchronisation import (
    FUSED,
    AsSynchronisation,
    OnNan,
    Synchronisation,
    require_round_robin,
    require_whole_replicas,
)
from scheduler.replicas.replica_counts import ReplicaCounts, device_list, replica_counts, require_different
from scheduler.replicas.replica_seeds import Seeds, seeds_for
from scheduler.replicas.step_summary import replicas_on
from scheduler.workers.group import LoneWorker, WorkerGroup
from tensorbow.devices import AsDevices, opened
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Graph, Operation, get_default_graph
from tensorbow.kinds import AsPath, Count, Flag, Function, Mapped, Positive, checked, instance
from tensorbow.nest import map_leaves
from tensorbow.ops import collectives
from tensorbow.ops.collectives import outside_steps, refuse_around_steps
from tensorbow.optimizers import Optimizer
from tensorbow.runtime import MonitoredSession, Session
from tensorbow.specs import Array
from tensorbow.training import CheckpointSaverHook

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-/]")

AsOptimizer: TypeAlias = Annotated[
    Optimizer | WrappedOptimizer, instance(Optimizer, WrappedOptimizer, expected="an optimizer")
]
AsSession: TypeAlias = Annotated[
    Session | MonitoredSession, instance(Session, MonitoredSession, expected="a session")
]


class Replicator:
    """Runs a user's step on all replicas (TF-Replicator, section 3).

    A `step_fn` is written for one device. `run` traces it once, in the Replicator's own graph, and returns
    tensors of the user's graph; fetching them runs the step on all replicas. Create the step's variables in
    `step_fn` or in `context()`. Use it with `with`, which calls `shutdown` at the end. Make a
    `tb.NonReplicator` or `tb.MultiGpuReplicator`; this class, `tb.Replicator`, is the type of both.
    """

    workers: WorkerGroup = LoneWorker()  # processes whose replicas are synchronised together

    @checked
    def __init__(
        self,
        devices: AsDevices,
        replicas_per_device: ReplicaCounts,
        synchronisation: AsSynchronisation,
        on_nan: OnNan = "stop",
        seeds: Seeds | None = None,
        devices_per_replica: Positive = 1,
    ):
        self.graph = Graph()  # the step's graph
        refuse_around_steps(get_default_graph())
        self.graph.seed = get_default_graph().seed
        named = device_list(devices)
        self.devices = [opened(device) for device in named]
        require_different(self.devices)
        self.devices_per_replica = devices_per_replica
        groups = len(self.devices) // devices_per_replica
        if len(self.devices) != groups * devices_per_replica:
            raise InvalidArgumentError(
                f"devices: expected a multiple of num_gpus_per_replica={devices_per_replica}, got "
                f"{len(self.devices)} devices"
            )
        self.replicas_per_device = replica_counts(replicas_per_device, groups)
        self.share = ReplicaShare.of(self.workers, sum(self.replicas_per_device))
        self.synchronisation = synchronisation
        synchronisation.alpha_for(self.num_replicas)  # raises for an unstable alpha
        require_whole_replicas(synchronisation, devices_per_replica)
        self._on_nan = on_nan
        self.seeds = seeds_for(seeds, synchronisation, self.replicas_per_device, groups)
        self._outer: Graph | None = None  # default graph outside of `context()`
        self._step_graph: Graph | None = None  # graph that holds the ReplicatedStep ops
        self._fused = False  # whether `tune` chose fused replicas, for the steps that can be fused
        self._running = self._new_replicas()
        self._closing: WeakSet[MonitoredSession] = WeakSet()  # sessions that shut this down
        self._saved_by: list[CheckpointSaverHook] = []

    def _new_replicas(self, tried: str | None = None) -> RunningReplicas:
        """Replicas that are to be started, in the number that is set. tried: their mode."""
        synchronisation = self.synchronisation
        if tried is not None:
            synchronisation = replace(synchronisation, replica_mode=tried)
        where = self.devices, self.replicas_per_device, synchronisation
        options = {
            "fused": self._fused,
            "on_nan": self._on_nan,
            "seeds": self.seeds,
            "devices_per_replica": self.devices_per_replica,
            "workers": self.workers,
        }
        return RunningReplicas(self.graph, lambda steps, values: started(steps, values, *where, **options))

    def _begin_anew(
        self, replicas_per_device: tuple[int, ...], *, tried: str | None = None, fused: bool = False
    ) -> None:
        """Takes so many replicas, without steps, variables and values. Raises if averaging is unstable.

        tried: mode that all steps must have. fused: whether those that can be fused are.
        """
        share = ReplicaShare.of(self.workers, sum(replicas_per_device))
        self.synchronisation.alpha_for(share.total)
        self.shutdown()
        seed, self.graph = self.graph.seed, Graph()
        self.graph.seed = seed
        self.replicas_per_device, self.share = replicas_per_device, share
        self._fused = fused
        self._step_graph, self._running = None, self._new_replicas(tried)

    @property
    def num_replicas(self) -> int:
        """Number of replicas on all devices, and of all workers."""
        return self.share.total

    @property
    def num_local_replicas(self) -> int:
        """Number of replicas of this process; results have a row for each."""
        return self.share.count

    # Building ---------------------------------------------------------------------------------

    @contextmanager
    def context(self) -> Iterator[Replicator]:
        """Context in which the step's graph is the default: create models and optimisers of the step here."""
        before, outer = self._outer, get_default_graph()
        self._outer = before if outer is self.graph else outer
        try:
            with self.graph.as_default(), outside_steps():
                yield self
        finally:
            self._outer = before

    @checked
    def logical_device(self, index: Count) -> AbstractContextManager[None]:
        """Context in which ops of a step are made on a device of the replica (TF-Replicator, section 3.3).

        index: from 0; ops without such a context are on device 0. Variables live where they are made, and the
        gradient of an op is computed where the op is.
        Raises InvalidArgumentError for an index out of range, FailedPreconditionError outside of a step and
        of `context()`.
        """
        if index >= self.devices_per_replica:
            raise InvalidArgumentError(
                f"logical_device: expected 0 to {self.devices_per_replica - 1}, as a replica has "
                f"{self.devices_per_replica} device(s), got {index}; see num_gpus_per_replica"
            )
        if get_default_graph() is not self.graph:
            raise FailedPreconditionError(
                "logical_device is for use inside a step_fn, or inside `with replicator.context():`"
            )
        return self.graph.device(str(self.devices[index].name))

    @checked
    def wrap_optimizer(self, optimizer: AsOptimizer) -> WrappedOptimizer:
        """Wraps an optimiser for use in `step_fn`."""
        return optimizer if isinstance(optimizer, WrappedOptimizer) else WrappedOptimizer(optimizer)

    # Collectives, in a step ---------------------------------------------------------------------

    def all_reduce(self, value: Any, op: str = "sum", label: str | None = None) -> Any:
        """See `tb.all_reduce`; in a step only. label: names its ops."""
        return collectives.all_reduce(value, op, self._in_step("all_reduce", label))

    def all_sum(self, value: Any, label: str | None = None) -> Any:
        """See `tb.all_sum`; in a step only. label: names its ops."""
        return collectives.all_sum(value, self._in_step("all_sum", label))

    def all_gather(self, value: Any, label: str | None = None) -> Any:
        """See `tb.all_gather`; in a step only. label: names its ops."""
        return collectives.all_gather(value, self._in_step("all_gather", label))

    def broadcast(self, value: Any, source: int = 0, label: str | None = None) -> Any:
        """See `tb.broadcast`; in a step only. label: names its ops."""
        return collectives.broadcast(value, source, self._in_step("broadcast", label))

    def map_reduce(self, function: Any, value: Any, op: str = "sum", label: str | None = None) -> Any:
        """See `tb.map_reduce`; in a step only. label: names its ops."""
        return map_reduce(function, value, op, self._in_step("map_reduce", label))

    def map_gather(self, function: Any, value: Any, label: str | None = None) -> Any:
        """See `tb.map_gather`; in a step only. label: names its ops."""
        return map_gather(function, value, self._in_step("map_gather", label))

    def _in_step(self, what: str, label: str | None) -> str | None:
        """A label as a name for ops. Raises FailedPreconditionError outside of a step of this Replicator."""
        if current_trace(what).graph is not self.graph:
            raise FailedPreconditionError(
                f"{what} was called on another Replicator than the one that builds the step; use that one"
            )
        return None if label is None else NOT_IN_NAMES.sub("_", str(label)).lstrip("_-./") or None

    # Building a step ----------------------------------------------------------------------------

    @checked
    def run(
        self,
        step_fn: Function,
        input_fn: InputFunction | None = None,
        input_replication: Replication = PER_REPLICA,
        input_split_fn: Function | None = None,
        *,
        smaller_batch: SmallerBatch = "error",
        prefetch: Count = 1,
        data_on_device: OnDevice = "auto",
    ) -> Any:
        """Traces a step and returns its results as tensors `[num_replicas, ...]` of the current graph.

        step_fn: called once with the nest from `input_fn`, as one argument, or the items of a tuple or list
            if it has several parameters without a default; returns any nest of tensors and operations.
        input_fn: called per replica (PER_REPLICA) or once (PER_WORKER). Its parameter, if it has one, gets
            the replica's number if named `replica_id`, otherwise an `InputContext`. Returns an iterable of
            nests of arrays (a generator, a data set, a list), a function that is called for the nest of each
            step until it raises StopIteration, or one nest of arrays or tensors: a tuple, a dictionary or an
            array, which each step gets again. Or a `DatasetBatches`, for all replicas or, with PER_REPLICA
            and an order of its own for each, for one; the step gets images and labels. A `tb.data.Dataset` of
            `from_tensor_slices` that is batched, with any of shuffle, shard, take, skip, repeat, is kept on
            devices too: up to eight arrays, the same ones for all replicas.
        input_split_fn: (nest, num_replicas) -> a nest per replica; default: splits the leading axis.
        smaller_batch: for a batch of fewer examples than the first, as the last one of an epoch: `error`,
            `drop` it with those of the other replicas, `pad` it with its own examples from the first on, or
            `compile` the step for it, once per size: all replicas' batches must then be equally large, and
            the number of examples is None in the shapes that step_fn sees.
        prefetch: rounds of inputs drawn ahead, by a thread, while a step runs; 0 draws each when its step
            begins, for inputs that depend on earlier steps. Inputs that take no time need no thread.
        data_on_device: for a DatasetBatches or such a Dataset: `auto` keeps the data on devices with enough
            free memory, which make the batches, `always` raises where that cannot be, `never` makes them on
            the host. The bits are the same. Devices keep the data of one step, and the host makes the rest.

        Fetching any result runs the whole step once on every replica; operations and None in the result
        evaluate to None. Several steps share the replicas' variables. A step that updates no trainable
        variable, such as an evaluation, reads each replica's own variables and does not count as a round:
        nothing is averaged and no schedule advances. Steps can be built after `init`; if that creates
        variables, call `init` again.
        Raises InvalidArgumentError for what cannot be replicated, naming it, and for a step that trains with
        dispatch `fcfs`, as each fetch waits for all replicas; FailedPreconditionError if the current graph is
        the Replicator's own, unless within `context()`.
        """
        given = input_fn, input_replication, input_split_fn, smaller_batch, prefetch, data_on_device
        step = self._trace(step_fn, InputOptions(*given), is_awaited=True)
        outer = self._outer if self._outer is not None else get_default_graph()
        if outer is self.graph:
            raise FailedPreconditionError("run: there is no graph around the replicator's own to run it from")
        self._step_graph = outer
        refuse_around_steps(outer)  # also if it is not the one that this was made in
        traced = step.traced
        traced.require_known_shapes()
        results = tuple((tensor.spec.extents, tensor.dtype) for tensor in traced.tensors)
        with outer.as_default():
            explain = partial(self._explain, step)
            made = ReplicatedStep(
                runner=step, replicas=self.num_local_replicas, results=results, explain=explain
            )
        op: Operation = made if isinstance(made, Operation) else (made[0] if type(made) is tuple else made).op

        def replaced(name: str, leaf: Any) -> Any:
            return op.outputs[leaf] if isinstance(leaf, int) else op

        return map_leaves(replaced, traced.structure, "output")

    def _explain(self, step: BuiltStep) -> list[str]:
        """Lines that an explanation of the results of `run` shows."""
        return self._running.explanation(step) or [
            *replicas_on(self.devices, self.replicas_per_device, self.synchronisation),
            "call replicator.init(session) to see memory, kernel calls and exchanges",
        ]

    def _trace(
        self,
        step_fn: Any,
        given: InputOptions,
        steps_per_launch: int | str = 1,
        *,
        is_awaited: bool = False,
    ) -> BuiltStep:
        """is_awaited: each round is waited for before the next one begins."""
        self._before_building(step_fn, given)
        with self.context():
            inputs = inputs_of(given, self.share, self._running.host)
            parts = self.devices[: self.devices_per_replica]
            options = self.synchronisation
            trace = Trace(
                self.num_replicas, self.graph, options.sync != "none", not options.in_lockstep, parts
            )
            traced = trace_step(step_fn, inputs, trace)
        if isinstance(steps_per_launch, str):
            steps_per_launch = 1 if not options.in_lockstep else steps_with_room(traced)
        running = self._running
        step = BuiltStep(running.run, len(running.steps), traced, inputs, steps_per_launch)
        require_any_taker(step, trace, options)
        if inputs.are_equal and options.sync != "none" and not step.updates_no_weights:
            warnings.warn(
                "input_fn gives all replicas the same batches, so that they learn little more than one: "
                "give each its own, as by input_fn(replica_id) with shard(num_shards, replica_id) or "
                "shuffle(..., seed=replica_id), or one global batch with tb.PER_WORKER",
                stacklevel=4,
            )
        if is_awaited and not step.updates_no_weights:
            require_round_robin(options, "run")
        running.add(step)
        return step

    def _before_building(self, step_fn: Any, options: InputOptions) -> None:
        """Called with the arguments of each step before it is built."""

    # Running ----------------------------------------------------------------------------------

    @checked
    def init(self, session: AsSession | None = None, values: Mapped | None = None) -> None:
        """Creates the replicas, all with the same values: those of the initialisers, or `values`.

        Call it again after `run` has created variables: the replicas are rebuilt beside the old ones and keep
        their state; only new variables start from their initialisers, or `values`.

        session: the one that will run the results of `run`; of a `tb.train.MonitoredTrainingSession` with a
        folder of checkpoints the newest state is restored, and saved from then on. values: by name;
        optimisers' slots may be left out. Raises FailedPreconditionError without a step or when nothing is
        new, InvalidArgumentError or NotFoundError for values that do not fit, ResourceExhaustedError if
        memory does not suffice.
        """
        if not self._running.steps:
            raise FailedPreconditionError("init: there is no step yet; call replicator.run(step_fn) before")
        if not isinstance(session, (Session, MonitoredSession, NoneType)):
            raise InvalidArgumentError(f"init: expected a session or None, got {session!r:.60}")
        graph = None if session is None else session.graph
        if graph is not None and self._step_graph is not None and graph is not self._step_graph:
            raise InvalidArgumentError("init: the session is of another graph than the results of run")
        self._running.begin(values)
        if isinstance(session, MonitoredSession) and session not in self._closing:
            self._closing.add(session)
            session.on_close(self._shut_down)
            for hook in session.hooks:
                if isinstance(hook, CheckpointSaverHook):
                    hook.add(self)
                    self._saved_by.append(hook)

    def shutdown(self, session: Any = None) -> None:
        """Finishes running steps, frees streams and memory, and keeps `central_values`. Idempotent.

        A session that saves checkpoints saves the last state before.
        """
        while self._saved_by:
            self._saved_by.pop().remove(self)
        self._shut_down()

    def _shut_down(self) -> None:
        """Shuts down without saving, as a session does that ended with an error."""
        self._saved_by.clear()
        self._running.shut_down()

    @checked
    def train(
        self,
        step_fn: Function,
        input_fn: InputFunction | None = None,
        steps: Count | None = None,
        input_replication: Replication = PER_REPLICA,
        input_split_fn: Function | None = None,
        *,
        smaller_batch: SmallerBatch = "error",
        prefetch: Count = 1,
        data_on_device: OnDevice = "auto",
        steps_per_launch: StepsPerLaunch = AUTO,
    ) -> Iterator[Any]:
        """Runs a step `steps` times or until the input ends; yields results as arrays `[num_replicas, ...]`.

        Needs no session: calls `init` before the first step and `shutdown` after the last, unless the
        replicas exist already; to go on from a file, call `restore` before the first step, and to begin with
        known weights `load_variables`. Operations in the
        result are yielded as None. Input that ends before `steps`
        steps, or before that of another replica, ends the loop with a warning. `central_values()` remain
        available afterwards. Each call builds the step anew. Random ops without a seed of their own then get
        another, as wherever TensorFlow builds an op again; those with one, as `tb.nn.dropout(x, rate=0.5,
        seed=1)`, go on with the numbers of one longer call, if the replicas exist already.

        With dispatch `fcfs` a replica that is free takes the next inputs, while others are still busy. Row i
        of a result is of the i-th inputs of its step, whichever replica took them; results come in order. The
        replicas are given the inputs of at most 16 steps whose results are not yielded, so that `prefetch=0`
        is refused. Whoever reads, saves or changes them between two results waits for the steps that have
        begun: the values, and the position that `save` writes, are as many steps ahead of the results. An
        error comes after the results of the steps before it. Where the loop is left early, the steps that
        have begun are done, and a warning says if one of them has failed; an interrupt ends them where each
        replica is. A schedule of a wrapped optimiser follows the steps that train, whoever takes them, and
        random ops draw by the batch; what a step counts in variables, each replica counts for itself.

        steps_per_launch: rounds that replicas do in one launch, on CPU devices with native code and on GPUs;
        `auto`: as many as take about 20 ms, at most 64. Results, values and errors are those of 1. Inputs of
        so many rounds are drawn ahead, unless `prefetch` is 0 or input_fn gives a function that is called for
        each step: then there is one round a launch, as with functions that have effects (`tb.py_func` without
        `stateful=False`, queues). Between two rounds that were launched together, whoever
        reads or changes the replicas has some of their rounds done again; that is cheap every N steps, N
        constant.
        """
        given = input_fn, input_replication, input_split_fn, smaller_batch, prefetch, data_on_device
        step = self._trace(step_fn, InputOptions(*given), steps_per_launch)
        return self._train(self._loop(step, steps, steps_per_launch), self._running.stepper is not None)

    def _loop(self, step: BuiltStep, rounds: int | None, steps_per_launch: int | str) -> TrainingLoop:
        if not self.synchronisation.in_lockstep and not step.updates_no_weights:
            return (FirstComeLoop if self.workers.size == 1 else BackupLaunches)(
                step, rounds, steps_per_launch
            )
        return LockstepLoop(step, rounds, steps_per_launch)

    def _train(self, loop: TrainingLoop, there: bool = False) -> Iterator[Any]:
        """there: True if the replicas were there before it, and stay."""
        averages = self.synchronisation.averages(self.num_replicas)
        tau = self.synchronisation.tau if averages else 0
        return training_results(loop, self._running, self.init, None if there else self.shutdown, tau)

    # Values -----------------------------------------------------------------------------------

    def central_values(self) -> dict[str, Array]:
        """Variables of the central model by name, for evaluation and saving; after `shutdown` the last ones.

        Without optimisers' slots and counts. To evaluate, pass them to `load_variables` of a session over
        the step's graph, `tb.Session(graph=replicator.graph)`, or over any graph that makes the model's
        variables with the same names. Independent replicas (`sync="none"`) have no central model: of several
        the values are replica 0's, with a warning; see `replica_values`.
        Raises FailedPreconditionError before `init`.
        """
        self._warn_without_z("central_values")
        with self._running.values("central_values") as values:
            return values.central()

    def _warn_without_z(self, what: str) -> None:
        if self.synchronisation.sync == "none" and self.num_replicas > 1:
            warnings.warn(
                f"{what}: replicas with sync='none' have no central model; these are the values of "
                f"replica 0 of {self.num_replicas}. Take each replica's own from replica_values(i), also "
                "after train()",
                stacklevel=3,
            )

    def newest_values(self) -> tuple[int, dict[str, Array]]:
        """Number of training steps done, and `central_values` after them: for evaluation beside `train`.

        Waits for the launch that is going on, from any thread, and disturbs nothing. The replicas may be some
        rounds ahead of the results that `train` has yielded; `central_values` takes them back to those, and
        has rounds done again. Dispatch `fcfs` waits for all steps that have begun. After `shutdown`, and so
        after `train`, the last ones. Raises FailedPreconditionError before `init`.
        """
        self._warn_without_z("newest_values")
        with self._running.values("newest_values", may_be_ahead=True) as values:
            return values.round, values.central()

    def ema_values(self) -> dict[str, Array]:
        """`central_values`, with the weights of the moving average of z; after `shutdown` the last ones.

        Raises FailedPreconditionError before `init`, and without the option `ema`.
        """
        if self.synchronisation.ema is None:
            raise FailedPreconditionError("ema_values: there is no moving average of z; give ema=0.99")
        with self._running.values("ema_values") as values:
            return values.average()

    @checked
    def replica_values(self, replica: Count, slots: Flag = False) -> dict[str, Array]:
        """Variables of one replica's model by name, as `central_values`.

            with tb.Graph().as_default(), tb.Session() as session:
                predictions = model(images)  # makes the variables, with the names that they have in the step
                session.load_variables(replicator.replica_values(0))
                session.run(predictions, {images: pictures})

        slots: adds optimisers' slots and counts, which a graph without the optimiser lacks.
        After `shutdown`, and so after `train`, the last ones where nothing keeps replicas together
        (`sync="none"`). Raises FailedPreconditionError before `init`, and otherwise after `shutdown`,
        InvalidArgumentError for a replica out of range.
        """
        if replica >= self.num_local_replicas:
            raise InvalidArgumentError(
                f"replica_values: there is no replica {replica} of {self.num_local_replicas}"
            )
        with self._running.values("replica_values") as values:
            return values.replica(replica, slots)

    @checked
    def load_variables(self, values: Mapped) -> None:
        """Sets variables by name, in every replica and in z; calls `init` if there are steps and nobody has.

        So training begins with values that are known, such as those of a model trained before:

            loop = replicator.train(step_fn, input_fn, steps=1000)
            replicator.load_variables(values)
            for losses in loop:
                ...

        One with aggregation SUM has the value in replica 0 and 0 in the others, so that reading gives what
        was assigned. (In a step each replica assigns its own copy.)
        Raises FailedPreconditionError before there is a step, and after `shutdown` until there is another,
        NotFoundError or InvalidArgumentError for values that do not fit; nothing has changed then.
        """
        if self._running.waits_for_init:
            self.init()
        with self._running.between_rounds("load_variables") as stepper:
            stepper.settle()
            stepper.engine.learners.values.assign(values)

    def read(self, values: Any) -> Any:
        """Values of variables, and of tensors computed from them, outside of a step; also after `shutdown`.

        values: a nest of variables and tensors of the step's graph, as the value of `tb.metrics.accuracy`.
            A variable made with `synchronization=ON_READ` gives the sum or mean over the replicas or replica
            0's value, as its `aggregation` says; others give z's.
        Returns the nest with arrays. Raises FailedPreconditionError before `init`, and InvalidArgumentError
        for tensors that depend on a step's inputs, collectives or writes, and for trainable variables of
        several replicas with `sync="none"`, which have no z: `replica_values` has each replica's.
        """

        def joined() -> Mapping[str, Array]:
            with self._running.values("read") as found:
                return found.joined()

        independent = self.synchronisation.sync == "none" and self.num_replicas > 1
        return read_outside(values, self.graph, joined, independent)

    @property
    def _results(self) -> ReplicaResults:
        def rows(name: str) -> list[Array]:
            return [
                self.replica_values(replica, slots=True)[name] for replica in range(self.num_local_replicas)
            ]

        return ReplicaResults(self.graph, self.num_local_replicas, rows)

    def local_results(self, value: Any) -> tuple[Any, ...]:
        """The replicas' own values, in a tuple, of a result of `run` or `train`.

        value: a nest of tensors or arrays `[num_replicas, ...]`, or of variables of the step's graph, whose
            values are read now. Operations and None stay. Returns one nest for each replica.
        Raises InvalidArgumentError for values without the axis of replicas, FailedPreconditionError in a
        step.
        """
        return self._results.local(value)

    @checked
    def reduce_mean(self, value: Any, axis: Count | None = None) -> Any:
        """Mean over the replicas of floating values, see `local_results`.

        axis: of each replica's value, is reduced too: the leading one, 0, of results by example.
        Raises as `local_results`, and InvalidArgumentError for other dtypes or an axis that is not there.
        """
        return self._results.reduced("reduce_mean", value, axis)

    @checked
    def reduce_sum(self, value: Any, axis: Count | None = None) -> Any:
        """Sum over the replicas, see `reduce_mean`, of numbers of any dtype."""
        return self._results.reduced("reduce_sum", value, axis)

    @checked
    def save(self, path: AsPath) -> int:
        """Saves everything that the next step depends on, so that `restore` goes on with the same bits (with
        dispatch `fcfs`, from the same values: who takes what is not saved).

        Returns the number of training steps that the replicas have done, those of all training steps of the
        Replicator together. With `fcfs` the last ones may be of results that `train` has yet to yield.

        That is all replicas' variables and slots, the central model, the round, and how far the inputs are;
        what `input_fn` and its generators hold themselves is the caller's. The file is written atomically; of
        several workers all call this, and worker 0 writes the replicas of all.
        Raises FailedPreconditionError before `init` and after `shutdown`, ResourceExhaustedError when it
        cannot be written.
        """
        with self._running.between_rounds("save") as stepper:
            save_file(Path(path), stepper, self._running.steps)
            return stepper.round

    @checked
    def restore(self, path: AsPath) -> int:
        """Restores what `save` wrote, in a Replicator made in the same way; calls `init` if nobody has.

        Returns the number that `save` returned.
        Inputs are drawn, and left out, up to where they were; they must not be further on, unless they are
        the same in all steps.
        Raises InvalidArgumentError for a file of other replicas, options, steps or variables, NotFoundError
        or DataLossError for one that is missing or damaged; the replicas are then as they were.
        """
        if self._running.stepper is None and self._running.steps:
            self.init()
        with self._running.between_rounds("restore") as stepper:
            restore_file(Path(path), stepper, self._running.steps)
            return stepper.round

    def save_newest(self, folder: Path) -> None:
        """Saves the state as the newest checkpoint of a folder, of which the last three are kept."""
        with self._running.between_rounds("save_newest") as stepper:
            save_newest(folder, stepper, self._running.steps)

    def restore_newest(self, folder: Path) -> bool:
        """Restores the newest checkpoint of a folder that can be read; False if there is none.

        Warns of newer ones that cannot. Raises as `restore`.
        """
        with self._running.between_rounds("restore_newest") as stepper:
            return restore_newest(folder, stepper, self._running.steps)

    def __repr__(self) -> str:
        names = [device.name.short for device in self.devices]
        size = self.devices_per_replica
        groups = ["+".join(names[first : first + size]) for first in range(0, len(names), size)]
        counts = zip(self.replicas_per_device, groups, strict=True)
        where = ", ".join(f"{count} on {group}" for count, group in counts)
        defaults = Synchronisation()
        options = asdict(self.synchronisation).items()
        given = [f"{name} {value}" for name, value in options if value != getattr(defaults, name)]
        given += [f"replica_mode {FUSED}"] if self._fused else []
        said = dict.fromkeys([f"sync {self.synchronisation.sync}", *given])
        if self.share.workers > 1:
            where += f" of worker {self.share.worker} of {self.share.workers}"
        return f"<tb.{type(self).__name__} {where}; {', '.join(said)}>"

    def __enter__(self) -> Replicator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
