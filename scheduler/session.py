"""TensorBowSession: trains an existing single-device program with several replicas (TensorBow, 2019)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeGuard

from scheduler.averaging.synchronisation import (
    FUSED,
    AsSynchronisation,
    OnNan,
    Synchronisation,
    modes_on,
    require_round_robin,
)
from scheduler.decisions.replica_tuner import Decision
from scheduler.decisions.step_tuner import BatchSplitTuner
from scheduler.engine.engine_arguments import AsWorkers
from scheduler.engine.global_batches import Extents, is_batch, joined_results, require_parts, split_feeds
from scheduler.engine.growing import grown, new_variables, started
from scheduler.engine.stepper import Stepper
from scheduler.replicas.device_plans import DevicePlans
from scheduler.replicas.replica_counts import TunedCounts, device_list, replica_counts
from scheduler.replicas.step_program import StepProgram, writes_weights
from scheduler.replicas.step_summary import (
    LearningExplanation,
    calls_of,
    dynamic_part_of,
    execution_of,
    mode_of,
    replicas_on,
)
from scheduler.replicas.values import of_model
from scheduler.workers.find import worker_group
from tensorbow.compiler import NeedsDynamicModeError, VariableLayout
from tensorbow.compiler.prune import needed_for, prune
from tensorbow.compiler.recompute import NEVER
from tensorbow.devices import AsDevices, opened
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)
from tensorbow.graph import AsGraph, Graph, GraphKeys, Operation, Tensor, warn_at_user_line
from tensorbow.kinds import Count, Flag, Mapped, Text, checked
from tensorbow.ops.control import Placeholder
from tensorbow.ops.state import VariableReference
from tensorbow.runtime import AsConfig, Explanation, Session
from tensorbow.runtime.config_proto import AUTO
from tensorbow.runtime.fetches_and_feeds import GraphElements, computed_for
from tensorbow.specs import Array, TensorSpec

REMEMBERED = 256  # fetch lists whose `_update_among` result is cached


@dataclass(frozen=True)
class _LearningStep:
    """Learning step for one fetch list and the shapes of its feeds."""

    number: int  # of the program in the engine
    program: StepProgram
    fed: tuple[TensorSpec, ...]
    split: tuple[bool, ...]  # per feed: whether it is split over the replicas

    def shapes(self, replicas: int) -> list[TensorSpec]:
        """Specs of one replica's inputs, when a number of replicas share the fed arrays."""
        return [
            TensorSpec((spec.extents[0] // replicas, *spec.extents[1:]), spec.dtype) if is_split else spec
            for spec, is_split in zip(self.fed, self.split, strict=True)
        ]


class TensorBowSession(Session):
    """A session that trains an existing program with several replicas.

    A run that reaches an optimiser's update is a learning run; every replica executes it. Feeds whose leading
    dimension is unknown in the graph are a global batch and are split over the replicas; other feeds are
    copied. Fetched tensors whose leading dimension is unknown are concatenated; others are averaged (integers
    rounded down; bools are replica 0's). A fetched variable has the value of z after the run; an optimiser's
    slot has replica 0's. All other runs read the central average model z with unsplit feeds, and their
    assignments go to z and to every replica; z is one replica, so that collectives have one value there. A
    program for one device only has to feed a batch that is `num_replicas` times as large.

    With `replicas_per_device="auto"` it begins with one replica per device, times its learning runs, and
    changes the number between runs until it knows with which one they train most examples per second
    (Crossbow, VLDB 2019, section 4). Global batches stay as they are fed: each replica's part becomes
    smaller, and only numbers that divide all batches so far are tried. On GPUs it goes on from there with
    fused replicas (`replica_mode` of `Synchronisation`), and takes the faster mode for all steps that can be
    fused. New replicas begin with z. Not reproducible: the changes depend on timing.

    In a job of several workers, as `tensorbow launch -n 2 train.py` and `mpirun` start it, the replicas of
    all workers are synchronised over MPI, and every worker makes the same runs: each feeds a batch of its own
    examples, which is split over its own replicas (`num_replicas`), and gets the results of these. Shard the
    data by `tb.worker_group().rank` and `.size`. The initial values are worker 0's; z is the same on all.
    Where a worker fails, the others raise AbortedError, which names it.

    One learning run, or one that assigns, executes at a time. Other runs of other threads execute beside it:
    each waits for the learning run that is under way, and for no later one, and reads z as that has left it.
    If variables were created after the first learning run, new replicas are built
    beside the old ones, which briefly doubles their memory. Assignments to trainable variables other than
    optimisers' updates do not count as learning. `trim` frees the workspace of the other runs; the replicas
    keep theirs until `close`.
    """

    @checked
    def __init__(
        self,
        target: Text = "tensorbow",
        graph: AsGraph | None = None,
        config: AsConfig | None = None,
        *,
        devices: AsDevices = ("/cpu:0",),
        replicas_per_device: TunedCounts = 2,
        synchronisation: AsSynchronisation | None = None,
        on_nan: OnNan = "stop",
        workers: AsWorkers | None = None,
    ):
        """replicas_per_device: one count for all devices, one per device, or "auto", in one process.
        synchronisation: default SMA. workers: default: the job that has started this process
        (`tb.worker_group()`), which may be alone.

        z is evaluated on the first device.
        Raises InvalidArgumentError for options out of range, NotFoundError for a missing device.
        """
        if target not in ("", "tensorbow"):
            raise InvalidArgumentError(f"TensorBowSession: target is 'tensorbow', got {target!r:.60}")
        self._learner_devices = device_list(devices)
        self._synchronisation = synchronisation or Synchronisation()
        self._workers = worker_group() if workers is None else workers
        self._tuner: BatchSplitTuner | None = None
        if isinstance(replicas_per_device, str) and self._workers.size > 1:
            raise InvalidArgumentError(
                f"TensorBowSession: replicas_per_device: expected a number with {self._workers.size} "
                f"workers, got {replicas_per_device!r:.60}; measure it in one process"
            )
        if isinstance(replicas_per_device, str):
            modes = modes_on({opened(each).kind for each in self._learner_devices}, self._synchronisation)
            self._tuner = BatchSplitTuner(len(self._learner_devices), self._is_stable, modes)
            replicas_per_device = self._tuner.replicas
        self._per_device = replica_counts(replicas_per_device, len(self._learner_devices))
        require_round_robin(self._synchronisation, "a TensorBowSession")
        self._on_nan = on_nan
        given = (NEVER, NEVER) if config is None else (config.recompute, config.swap)
        self._repeats, self._swaps = (NEVER if option == AUTO else option for option in given)
        self._stepper: Stepper | None = None  # with the replicas, created by the first learning run
        self._steps: dict[Any, _LearningStep] = {}
        self._learning: dict[Any, Operation | None] = {}  # (fetches, feeds) -> an optimiser's update, if any
        # (fetches, feeds) -> local variables that a run reaches; None if it reaches others, too
        self._reached: dict[Any, set[str] | None] = {}
        self._dynamic_writes: dict[Any, frozenset[str]] = {}  # (fetches, feeds) -> variables, in dynamic mode
        self._z_is_newer = False  # whether z changed since it was copied to the base session's variables
        self._turn = threading.RLock()  # guards what is above but `_learning`, `_reached`
        # Guards `_learning`. Taken before `_turn`, and held while waiting for it: runs keep their order.
        self._door = threading.RLock()
        super().__init__("", graph, config, device=self._learner_devices[0])

    def __repr__(self) -> str:
        names = (device if isinstance(device, str) else device.name.short for device in self._learner_devices)
        counts = ", ".join(f"{n} on {name}" for n, name in zip(self._per_device, names, strict=True))
        ending = " (closed)" if self.closed else ""
        return f"<tb.TensorBowSession {self._name}: {self.num_replicas} replicas ({counts}){ending}>"

    @property
    def num_replicas(self) -> int:
        """Number of replicas on all devices of this process; with "auto", of the last learning run."""
        return sum(self._per_device)

    @property
    def tuning(self) -> Decision | None:
        """The number that "auto" has chosen, with its reason; None before, and where a number was given."""
        return None if self._tuner is None else self._tuner.decision

    def _execute(self, elements: GraphElements, feeds: Mapping[Tensor, Array]) -> list[Any]:
        with self._door:
            update = self._update_among(elements, feeds)
        if update is not None:
            with self._turn:
                self._require_open()
                return self._learn(elements, feeds, update)
        if self._is_apart(elements, feeds):
            return super()._execute(elements, feeds)
        writes = self._writes(elements, feeds)
        with self._door, self._turn:
            self._require_open()
            self._bring_z()
            if writes:
                results = super()._execute(elements, feeds)
                self._write_to_replicas(writes)
                return results
        return super()._execute(elements, feeds)

    def _is_apart(self, elements: GraphElements, feeds: Collection[Tensor]) -> bool:
        """True if a run has no variable in common with the replicas.

        It takes no turn, as a learning run may wait for it: for the elements that it puts into a queue.
        """
        key = (tuple(elements), frozenset(feeds))
        if key in self._reached:
            names = self._reached[key]
        else:
            found = {op.name for op in needed_for(elements, feeds) if op.definition is VariableReference}
            local = {each.op.name for each in self.graph.get_collection(GraphKeys.LOCAL_VARIABLES)}
            names = found if found <= local else None
            if len(self._reached) >= REMEMBERED:
                self._reached = {}
            self._reached[key] = names
        stepper = self._stepper
        if names and stepper is not None:
            return names.isdisjoint(op.name for op in stepper.engine.learners.layout.variables)
        return names is not None

    def _writes(self, elements: GraphElements, feeds: Mapping[Tensor, Array]) -> Collection[str]:
        """Names of the variables that a run of the base session writes."""
        self._require_open()
        self._variables.follow_graph()
        key = (tuple(elements), frozenset(feeds))
        if key in self._dynamic_writes:
            return self._dynamic_writes[key]
        shapes = {tensor: value.shape for tensor, value in feeds.items()}
        try:
            return self._planned.step(elements, shapes).executable.writes
        except NeedsDynamicModeError:
            operations = needed_for(elements, feeds)
            written = (op.inputs[index].op for op in operations for index in op.definition.writes)
            names = frozenset(op.name for op in written if op.definition is VariableReference)
            if len(self._dynamic_writes) >= REMEMBERED:
                self._dynamic_writes.clear()
            self._dynamic_writes[key] = names
            return names

    def _update_among(self, elements: GraphElements, feeds: Collection[Tensor]) -> Operation | None:
        """Returns an optimiser's update of a trainable variable that the run reaches, or None."""
        key = (tuple(elements), frozenset(feeds))
        if key not in self._learning:
            if len(self._learning) >= REMEMBERED:
                self._learning.clear()
            self._learning[key] = _update_in(needed_for(elements, feeds), self.graph)
        return self._learning[key]

    def explain(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Explains the step that `run` would run; of a learning run the step of the replicas, with its parts.

        Arguments are those of `Session.explain`; feeds are global batches. Raises what `run` raises.
        """
        _, elements = self._arguments.fetch_list(fetches, "explain")
        shapes = {} if feed_dict is None else self._arguments.shapes(feed_dict)
        elements = computed_for(elements, shapes)
        with self._door, self._turn:
            self._require_open()
            update = self._update_among(elements, shapes)
            if update is None:
                return super().explain(fetches, feed_dict)
            step = self._described(elements, shapes, update)
            device = opened(self._learner_devices[0])
            specs, stepper = step.shapes(self.num_replicas), self._stepper
            options = self._synchronisation if stepper is None else stepper.engine.options
            plans = DevicePlans(step.program, specs, device, options, self.num_replicas, 1)
            devices = [opened(each) for each in self._learner_devices]
            summary = replicas_on(devices, self._per_device, options)
            for tensor, fed, spec, is_split in zip(shapes, step.fed, specs, step.split, strict=True):
                how = f"split into {spec} for each replica" if is_split else "copied to each replica"
                summary.append(f"feed {tensor.name}: {fed} {how}")
            summary += execution_of(plans.step)
            summary += mode_of(plans.step, device, options, self.num_replicas)
            summary += calls_of(plans.step, device)
            shared = plans.step.for_device(0, self._per_device[0]) if plans.step.shares_memory else None
            return LearningExplanation(
                tuple(summary),
                Explanation.of_device(plans.step.for_replica, device),
                None if shared is None else Explanation.of_device(shared, device),
                dynamic_part_of(plans.step, device),
            )

    def _described(
        self, elements: GraphElements, shapes: Mapping[Tensor, Extents], update: Operation
    ) -> _LearningStep:
        """A step, not yet compiled. Raises InvalidArgumentError for a batch that does not split."""
        split = tuple(is_batch(tensor, extents) for tensor, extents in shapes.items())
        for (tensor, extents), is_split in zip(shapes.items(), split, strict=True):
            if is_split:
                require_parts(tensor, extents[0], self.num_replicas)
        fed = tuple(TensorSpec(extents, tensor.dtype) for tensor, extents in shapes.items())
        program = self._program(elements, list(shapes), update)
        return _LearningStep(len(self._steps), program, fed, split)

    # Learning ---------------------------------------------------------------------------------

    def _learn(self, elements: GraphElements, feeds: Mapping[Tensor, Array], update: Operation) -> list[Any]:
        if self._tuner is not None:
            self._tune(self._tuner, feeds)
        step, stepper = self._learning_step(elements, feeds, update)
        self._device_variables.require_initialized(stepper.engine.executables_of(step.number)[0].reads_first)
        stepper.select(step.number)
        if self._tuner is not None:
            self._follow_mode(self._tuner, stepper)
        self._z_is_newer = True
        began = perf_counter()
        results = stepper.step(split_feeds(feeds, step.split, self.num_replicas))
        if self._tuner is not None:
            sizes = (spec.extents[0] for spec, is_split in zip(step.fed, step.split, strict=True) if is_split)
            self._tuner.after_run(perf_counter() - began, next(sizes, self.num_replicas))
        computed = _computed(elements, feeds)
        joined = iter([*map(joined_results, computed, results.metrics)])
        values: list[Any] = []
        for element in elements:
            if _is_variable(element, feeds):
                self._bring_z()
                values.append(self._device_variables.of(element.op.name).read(element.op.name)[()])
            else:
                values.append(next(joined) if isinstance(element, Tensor) else None)
        return values

    def _learning_step(
        self, elements: GraphElements, feeds: Mapping[Tensor, Array], update: Operation
    ) -> tuple[_LearningStep, Stepper]:
        """The step, compiled if it is new, and the stepper of replicas that have it."""
        key = (tuple(elements), tuple((tensor, value.shape) for tensor, value in feeds.items()))
        step, stepper = self._steps.get(key), self._stepper
        if step is None or stepper is None:
            step = self._described(elements, dict(key[1]), update)
            self._shape_counts.add(key[0], dict(key[1]))
            if not any(step.split):
                self._warn_of_copies(feeds)
            self._stepper = stepper = self._with_step_added(step)
            self._steps[key] = step
        return step, stepper

    def _warn_of_copies(self, feeds: Mapping[Tensor, Array]) -> None:
        """Warns that all replicas learn from the same examples, if no feed of a learning run is split."""
        batch = next((tensor for tensor, value in feeds.items() if value.ndim and value.shape[0] > 1), None)
        if batch is None or self.num_replicas == 1:
            return
        dims = batch.spec.dims
        open_dims = ", ".join(map(str, (None, *dims[1:])))
        warn_at_user_line(
            f"TensorBowSession: feed {batch.name} has the fixed shape {batch.shape}, so that all "
            f"{self.num_replicas} replicas get the same copy and learn from the same examples; give it the "
            f"shape [{open_dims}] to split a global batch over the replicas (made at {batch.op.source})"
        )

    def _program(self, elements: GraphElements, fed: list[Tensor], update: Operation) -> StepProgram:
        tensors = _computed(elements, fed)
        operations = [element for element in elements if isinstance(element, Operation)]
        for op in prune([*operations, *(tensor.op for tensor in tensors)], fed):
            if op.definition is Placeholder and op.outputs[0] not in fed:
                raise InvalidArgumentError(
                    f"placeholder {op.name} must be fed: add it to feed_dict (made at {op.source})"
                )
        first, *others = operations or [update]
        metrics = {f"{index} {tensor.name}": tensor for index, tensor in enumerate(tensors)}
        return StepProgram(
            tuple(fed),
            None,
            first,
            metrics,
            tuple(others),
            self._repeats,
            self._swaps,
            resources=self._dynamic.resources,
        )

    def _with_step_added(self, step: _LearningStep) -> Stepper:
        """The replicas with a further step; new ones if there are none, or if it needs new variables."""
        old, count = self._stepper, self.num_replicas
        programs = [(known.program, known.shapes(count), 1) for known in (*self._steps.values(), step)]
        if old is not None:
            old.settle()
            if not new_variables(old.engine, self.graph):
                old.engine.add_program(*programs[-1])
                return old
            self._bring_z()
        self._variables.follow_graph()
        names = [op.name for op in VariableLayout.of_graph(self.graph).variables]
        ready = {name for name in names if name in self._device_variables.of(name).initialized}
        values = self._device_variables.values(names)
        if old is not None:
            new = grown(old, programs, values)
            old.shut_down()
        else:
            where = self._learner_devices, self._per_device
            more: dict[str, Any] = {"on_nan": self._on_nan, "workers": self._workers}
            new = started(programs, *where, self._synchronisation, values=values, **more)
            try:
                self._device_variables.require_initialized(new.engine.executables_of(0)[0].reads_first)
            except BaseException:
                new.shut_down()
                raise
        _keep_initialized(new, ready)
        return new

    # Number of replicas -----------------------------------------------------------------------

    def _is_stable(self, per_device: int) -> bool:
        try:
            self._synchronisation.alpha_for(per_device * len(self._learner_devices))
        except InvalidArgumentError:
            return False
        return True

    def _tune(self, tuner: BatchSplitTuner, feeds: Mapping[Tensor, Array]) -> None:
        """Changes the number of replicas to the one that the tuner wants in the next run."""
        (current, *_), stepper = self._per_device, self._stepper
        tuner.before_run([value.shape[0] for tensor, value in feeds.items() if is_batch(tensor, value.shape)])
        counts = (tuner.replicas,) * len(self._learner_devices)
        if stepper is not None and tuner.replicas != current:
            stepper.settle()
            ready = {*stepper.engine.learners.replicas[0].container.initialized}
            stepper.close()
            try:
                shapes = [step.shapes(sum(counts)) for step in self._steps.values()]
                stepper.engine.resize(counts, stepper.round, shapes=shapes)
            except (ResourceExhaustedError, InvalidArgumentError) as error:
                tuner.refuse(current, str(error))
                counts = self._per_device
            finally:
                self._stepper = Stepper(stepper.engine, stepper.round)
            _keep_initialized(self._stepper, ready)
        self._per_device = counts

    def _follow_mode(self, tuner: BatchSplitTuner, stepper: Stepper) -> None:
        """Changes the mode of the replicas to the one that the tuner wants in the run that follows."""
        engine = stepper.engine
        if tuner.mode is None or engine.options.fused == (tuner.mode == FUSED):
            return
        stepper.pause()
        try:
            engine.fuse(tuner.mode == FUSED, required=tuner.decision is None)
        except (ResourceExhaustedError, UnimplementedError) as error:
            if tuner.mode != FUSED:
                raise
            tuner.leave_out(str(error))

    # z ----------------------------------------------------------------------------------------

    def _bring_z(self) -> None:
        """Copies z, and replica 0's optimiser slots, to the base session's variables."""
        stepper = self._stepper
        if stepper is None or not self._z_is_newer:
            return
        stepper.settle()
        learners = stepper.engine.learners
        ready = learners.replicas[0].container.initialized
        values = {**learners.values.replica_values(0), **stepper.engine.central_values()}
        super().load_variables({name: value for name, value in values.items() if name in ready})
        self._z_is_newer = False

    def _write_to_replicas(self, names: Collection[str]) -> None:
        """Copies variables of the base session to z and to every replica."""
        if self._stepper is None or not names:
            return
        learners = self._stepper.engine.learners
        known = {op.name for op in learners.layout.variables}
        values = self._device_variables.values(sorted(known.intersection(names)))
        if values:
            self._stepper.settle()
            learners.values.assign(values)

    @checked
    def load_variables(self, values: Mapped) -> None:
        """Sets variables by name, in z and in every replica. Raises NotFoundError, InvalidArgumentError."""
        with self._door, self._turn:
            self._bring_z()
            super().load_variables(values)
            self._write_to_replicas(values)

    @checked
    def replica_values(self, replica: Count, slots: Flag = False) -> dict[str, Array]:
        """Variables of one replica by name; before the first learning run, the session's variables.

        slots: adds optimisers' slots and counts, which a graph without the optimiser lacks.

        Raises InvalidArgumentError for a replica out of range, FailedPreconditionError after `close`.
        """
        with self._door, self._turn:
            self._require_open()
            if not 0 <= replica < self.num_replicas:
                raise InvalidArgumentError(
                    f"replica_values: there is no replica {replica} of {self.num_replicas}"
                )
            if self._stepper is None:
                layout, ready = VariableLayout.of_graph(self.graph), sorted(self.container.initialized)
                values = {name: self.container.read(name) for name in ready}
            else:
                self._stepper.settle()
                learners = self._stepper.engine.learners
                layout, values = learners.layout, learners.values.replica_values(replica)
            return values if slots else of_model(layout, values)

    def ema_values(self) -> dict[str, Array]:
        """Variables of z by name, with the weights of its moving average.

        Raises FailedPreconditionError before the first learning run, and without the option `ema` of
        `synchronisation`.
        """
        with self._door, self._turn:
            self._require_open()
            if self._stepper is None:
                raise FailedPreconditionError("ema_values: there are none before the first learning run")
            self._stepper.settle()
            return self._stepper.engine.ema_values()

    def close(self) -> None:
        """Finishes running steps and frees all memory; idempotent."""
        with self._turn:
            stepper, self._stepper = self._stepper, None
            try:
                if stepper is not None:
                    stepper.shut_down()
            finally:
                super().close()


def _keep_initialized(stepper: Stepper, names: Collection[str]) -> None:
    """Leaves only these of the replicas' variables initialised."""
    for replica in stepper.engine.learners.replicas:
        replica.container.initialized.intersection_update(names)


def _update_in(operations: Sequence[Operation], graph: Graph) -> Operation | None:
    """Returns an optimiser's update of a trainable variable among `operations`, or None.

    A sparse (row-wise) update is an ordinary write: it counts if a train op of `minimize` is present as well.
    """
    dense = (op for op in operations if op.definition.update is not None)
    found = next((op for op in dense if writes_weights(op)), None)
    if found is None and any(writes_weights(op) for op in operations):
        train_ops = set(graph.get_collection(GraphKeys.TRAIN_OP))
        found = next((op for op in operations if op in train_ops), None)
    return found


def _is_variable(element: Tensor | Operation, fed: Collection[Tensor]) -> TypeGuard[Tensor]:
    return element not in fed and isinstance(element, Tensor) and element.op.definition is VariableReference


def _computed(elements: GraphElements, fed: Collection[Tensor]) -> list[Tensor]:
    """Fetched tensors that the replicas compute: all except variables."""
    return [e for e in elements if isinstance(e, Tensor) and not _is_variable(e, fed)]
