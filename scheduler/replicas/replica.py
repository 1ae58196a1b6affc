"""A replica: one copy of the model's variables, pinned to one stream group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from scheduler.replicas.device_dataset import BatchMaker, DeviceDataset
from scheduler.replicas.dynamic.divided_step import DividedBinding, DividedExecutable
from scheduler.replicas.dynamic.late_batches import LateBatches
from scheduler.replicas.dynamic.replica_executor import ReplicaExecutor
from scheduler.replicas.dynamic.replica_regions import VARIABLES, ReplicaRegions
from scheduler.replicas.mail import Mail
from scheduler.replicas.memory import planned_nbytes
from scheduler.replicas.replica_step import ReplicaStep
from tensorbow.array_likes import as_array
from tensorbow.compiler import AVERAGING_STATE, GRADIENT, Binding, Scratch, VariableLayout
from tensorbow.data import BatchInputs, BatchRecipe, BatchRun, PinnedArrays
from tensorbow.devices import Access, Device, Event
from tensorbow.errors import InternalError, InvalidArgumentError, TensorBowError
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Region
from tensorbow.runtime import Container
from tensorbow.specs import Array, render_dims
from tensorbow.timeline import CURRENT, WORK


class Replica:
    """Its variables, its bound plan, and the tasks enqueued on its stream."""

    def __init__(
        self,
        index: int,
        device: Device,
        executable: Executable,
        layout: VariableLayout,
        shared: Mapping[Region, int],
        *,
        ring: int,
        name: str,
    ):
        """index: among all replicas. executable: with all segments. shared: base addresses of what the device
        has for all replicas, and of what this one hands to exchanges. ring: results kept, at least as many as
        tasks are launched ahead.

        Raises ResourceExhaustedError; nothing stays open then.
        """
        self.index = index
        self.device = device
        self.layout = layout
        self._owner = owner = f"{name} replica {index}"
        blocks = self.blocks(executable, layout, ring)
        blocks += backend_for(device).workspaces(device)
        self.group = device.stream_group(owner, planned_nbytes=planned_nbytes(blocks))
        try:
            self.container = Container(self.group, f"{owner} variables")
            self.container.grow(layout.variables)
            nbytes = Scratch.nbytes_for(executable, shared, ring)
            self._scratch = Scratch(self.group, owner, nbytes, apart=False)  # as planned
            self.binding = self._bind(executable, shared, ring, self._scratch)
        except BaseException:
            self.group.close()
            raise
        self._data: DeviceDataset | None = None
        self._bound = [self._step_of(executable, self.binding, ring)]
        self._now = self._bound[0]
        self.step = executable  # with all segments, also those that devices run
        self.own_step = executable.for_replica

    @property
    def held_nbytes(self) -> int:
        """Bytes of the device's memory that the replica holds."""
        return self.group.partition.held_nbytes

    @property
    def steps(self) -> int:
        """Number of steps that are bound."""
        return len(self._bound)

    def forget(self, number: int) -> None:
        """Unbinds the steps from a number on."""
        while len(self._bound) > number:
            self._bound.pop().close()

    def _bind(
        self, executable: Executable, shared: Mapping[Region, int], ring: int, scratch: Scratch
    ) -> Binding:
        bases = {**self.container.bases, **shared}
        own = executable.for_replica
        kind = DividedBinding if isinstance(own, DividedExecutable) else Binding
        return kind(own, self.group, bases, ring=ring, owner=self._owner, scratch=scratch)

    def _step_of(self, executable: Executable, binding: Binding, ring: int) -> ReplicaStep:
        """A bound step, and the executor of a divided one."""
        executor = None
        if isinstance(executable, DividedExecutable):
            regions = ReplicaRegions(executable.part, self.group, binding.bases, self._owner)
            executor = ReplicaExecutor(executable.part, regions, self.group, self._owner)
        return ReplicaStep(executable, binding, self.index, ring, executor)

    def add(self, executable: Executable, shared: Mapping[Region, int], ring: int) -> bool:
        """Binds a further step to the same variables, z and stream, for `select`, while nothing is in flight.

        The executable is of the same variable layout. shared, ring: as for the first. True when the other
        steps were bound anew, for this one needs more room to work in. Raises ResourceExhaustedError; what is
        bound stays usable.
        """
        nbytes = Scratch.nbytes_for(executable, shared, ring)
        before = self._scratch
        moves = nbytes > before.nbytes
        scratch = Scratch(self.group, self._owner, nbytes, apart=True) if moves else before
        try:
            binding = self._bind(executable, shared, ring, scratch)
        except BaseException:
            if moves:
                scratch.free()
            raise
        for key in ("replica", "random_stream", *AVERAGING_STATE):
            if key in self.binding.scalars:
                binding.write({}, {key: self.binding.scalars[key]})
        if moves:
            self._scratch = scratch
            for bound in self._bound:
                bound.move_to(scratch)
            before.free()
            self.group.allocator.trim()
        self._bound.append(self._step_of(executable, binding, ring))
        return moves

    def step_of(self, number: int) -> Executable:
        """A bound step, with all segments."""
        return self._bound[number].executable

    def executables_of(self, number: int) -> tuple[Executable, ...]:
        """A bound step's executable: one, for a replica without parts."""
        return (self._bound[number].executable,)

    def select(self, number: int) -> None:
        """Makes a bound step the one that is launched, while no task is in flight."""
        self._now = self._bound[number]
        self.step, self.binding = self._now.executable, self._now.binding
        self.own_step = self.step.for_replica

    @property
    def data(self) -> DeviceDataset | None:
        """The device's data set, from which recipes are made into batches, if there is one."""
        return self._data

    def keep_data(self, data: DeviceDataset | None) -> None:
        """Selects the device's data set, from which recipes are made into batches; None: none.

        Call it while no task is in flight.
        """
        self._data = data
        for bound in self._bound:
            bound.forget_batch_maker()

    @staticmethod
    def blocks(executable: Executable, layout: VariableLayout, ring: int) -> list[int]:
        """Sizes of what one allocates, in bytes, in order: for the dry run of `scheduler.replicas.memory`."""
        variables = [layout.region_nbytes[region] for region in VARIABLES]
        return [*variables, *Binding.blocks(executable, (*VARIABLES, *executable.exchange_inputs), ring)]

    def launch(
        self,
        round: int,
        inputs: BatchInputs,
        state: Mapping[str, Any],
        segments: Sequence[tuple[int, Event | None]],
        result_number: int | None = None,
        caller_waits: bool = False,
    ) -> Event:
        """Enqueues one learning task: batch and scalars in, then segments, each after an event, if any.

        inputs: a batch, which must stay unchanged until the returned event is done; or its recipe, of which
        it is made on the device, where that keeps the data set.
        result_number: number under which `results` returns what the task fetches, by default the round. A
        replica's tasks have consecutive numbers; the last `ring` results are kept.
        caller_waits: True if the caller waits for the result, so that it may run the task in its own thread.

        Raises InvalidArgumentError for inputs of another number, shape or dtype than the step was compiled
        for.
        """
        result = round if result_number is None else result_number
        write = self._writer(inputs, state, result)
        compute, now = self.group.compute, self._now
        if now.mail:
            ((segment, after),) = segments
            return self._submit(segment, partial(self._begin, write, segment, round, result), after, result)
        endless = self._now.executable.may_not_end or self._now.executor is not None
        here = caller_waits and not endless  # an interrupt must come through
        if here and all(after is None for _, after in segments):

            def work() -> None:
                self._name_errors(round, write)
                for segment, _ in segments:
                    self._run(segment, round, result)

            done = compute.run_here(work, label=f"replica {self.index} step")
            if done is not None:
                return done
        for index, (segment, after) in enumerate(segments):
            if after is not None:
                compute.wait(after)
            if index == 0:
                reads, writes = now.accesses_with_inputs(segment)
                first = partial(self._begin, write, segment, round, result)
                compute.enqueue(first, label=now.labels[segment], reads=reads, writes=writes)
            elif index < len(segments) - 1:
                run = partial(self._run, segment, round, result)
                reads, writes = now.accesses[segment]
                compute.enqueue(run, label=now.labels[segment], reads=reads, writes=writes)
            else:
                return self._submit(segment, partial(self._run, segment, round, result))
        return compute.record()

    def stop_loops(self) -> None:
        """Ends loops that run: their tasks fail with CancelledError; thread-safe."""
        for each in self._bound:
            each.binding.plan.stop()
            if each.executor is not None:
                each.executor.cancel()

    def resume_loops(self) -> None:
        """Lets loops run again."""
        for each in self._bound:
            each.binding.plan.resume()
            if each.executor is not None:
                each.executor.resume()

    @property
    def may_not_end(self) -> bool:
        """True if a step of it has a loop that may never end, or an op of the host, which may wait."""
        return any(each.executable.may_not_end or each.executor is not None for each in self._bound)

    def update(self, segment: int, round: int, after: Event | None) -> Event:
        """Enqueues a segment behind an exchange, after an event."""
        return self._submit(segment, partial(self._run, segment, round, round), after, round)

    def _begin(self, write: Callable[[], None], segment: int, round: int, result_number: int) -> None:
        self._name_errors(round, write)
        self._run(segment, round, result_number)

    def _writer(
        self, inputs: BatchInputs, state: Mapping[str, Any], result_number: int
    ) -> Callable[[], None]:
        """Returns a function for the stream that writes a batch and step scalars to the replica's memory.

        Used by TaskLauncher only; RoundLauncher passes picks to the round program.
        """
        binding = self.binding
        if self._now.take is not None:
            take = partial(self._now.take, result_number)
            own = partial(self._inputs_of_plan, inputs)
            return lambda: binding.write({**own(), **take()}, state)
        if not isinstance(inputs, BatchRecipe):
            feeds = self._feeds(inputs)
            if isinstance(inputs, PinnedArrays):
                return lambda: self._copy(feeds, state)
            return lambda: binding.write(feeds, state)
        recipe = inputs
        if self._data is None or self._data.dataset is not recipe.dataset:
            return lambda: binding.write(self._feeds(recipe.arrays()), state)
        maker, picks = self.batch_maker_for(recipe), recipe.picks()

        def make() -> None:
            maker.make(picks, result_number)
            binding.write({}, state)

        return make

    def _inputs_of_plan(self, inputs: BatchInputs) -> dict[str, Array]:
        """Arrays of a batch that the planned part of a divided step reads, by tensor name."""
        read = self.own_step.inputs.keys() & {name for name, _ in self._now.inputs}
        if not read:
            return {}
        feeds = self._feeds(inputs.arrays() if isinstance(inputs, BatchRecipe) else inputs)
        return {name: feeds[name] for name in read}

    @property
    def executor(self) -> ReplicaExecutor | None:
        """The executor of the selected step's dynamic part, if it has one."""
        return self._now.executor

    def run_executor(
        self,
        round: int,
        inputs: BatchInputs,
        state: Mapping[str, Any],
        result_number: int | None = None,
        after: Event | None = None,
    ) -> Event:
        """Enqueues the dynamic part of a divided step, whose planned part `launch` enqueues behind it.

        Arguments are those of `launch`; its results are there for the planned part of that number alone.
        after: event of another stream, which has read the gradients before.
        """
        executor = self._now.executor
        if executor is None:
            raise InternalError(f"replica {self.index} has a planned step, which no executor runs")
        number, batch = round if result_number is None else result_number, self.batches(inputs)
        values = {**executor.part.scalars, **self.binding.scalars, **state}

        def run() -> None:
            executor.run(number, batch[0], values)

        bases, part, touched = self.binding.bases, executor.part, self.variables()
        made = [Access(bases[ref.region] + ref.offset, ref.nbytes) for ref in part.gradients.values()]
        touched += self._now.beside
        if after is not None:
            self.group.compute.wait(after)
        return self.group.compute.submit(
            partial(self._name_errors, round, run),
            label=f"replica {self.index} dynamic part",
            reads=touched,
            writes=[*touched, *made] if part.writes else made,
        )

    def run_dynamic_part(
        self, round: int, batch: Mapping[str, Array], state: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Runs the dynamic part of a divided step in this thread; the inputs of the planned part, by name."""
        executor = self._now.executor
        if executor is None:
            raise InternalError(f"replica {self.index} has a planned step, which no executor runs")
        tracer, began_s = CURRENT.tracer, perf_counter()
        executor.run(round, batch, {**self.binding.scalars, **state})
        if tracer is not None:
            label = f"replica {self.index} dynamic part"
            tracer.add(self.group.compute.track, label, WORK, began_s, perf_counter())
        made, read = executor.take(round), self.own_step.inputs
        return {**made, **{name: batch[name] for name in read if name not in made}}

    def _copy(self, feeds: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Copies a batch from where it is: not first to memory that the device reaches."""
        for name, array in feeds.items():
            self.binding.plan.copy_in(name, array)
        self.binding.write({}, state)

    def batch_maker_for(self, recipe: BatchRecipe) -> BatchMaker:
        """The bound step that makes batches like a recipe's, from the data set that the device keeps.

        Raises InvalidArgumentError as `launch` does.
        """
        now, data = self._now, self._data
        if data is None:
            raise InternalError(f"a recipe came to replica {self.index}, whose device keeps no data set")
        if now.batch_maker is None or recipe.batch_size != now.inputs[0][1].shape[0]:
            self._feeds(recipe.zeros_like_batch())  # raises for a batch of other shapes or dtypes
            now.batch_maker = BatchMaker(
                data, self.group, self.own_step, self.binding.bases, now.ring, self._owner
            )
        return now.batch_maker

    def check(self, inputs: BatchInputs) -> None:
        """Raises InvalidArgumentError for inputs of another number, shape or dtype than the step's."""
        self._feeds(inputs.zeros_like_batch() if isinstance(inputs, BatchRecipe) else inputs)

    def _feeds(self, inputs: Sequence[Array]) -> dict[str, Array]:
        if len(inputs) != len(self._now.inputs):
            raise InvalidArgumentError(
                f"a batch of replica {self.index}: expected {len(self._now.inputs)} arrays "
                f"({', '.join(name for name, _ in self._now.inputs)}), got {len(inputs)}"
            )
        feeds: dict[str, Array] = {}
        for (name, ref), given in zip(self._now.inputs, inputs, strict=True):
            value = given if type(given) is np.ndarray else as_array(given)
            if value.shape != ref.shape or value.dtype != ref.dtype.as_numpy_dtype:
                raise InvalidArgumentError(
                    f"a batch of replica {self.index}: {name} must be {ref.dtype.name}"
                    f"{render_dims(ref.shape)} as the step was compiled for, "
                    f"got {value.dtype}{render_dims(value.shape)}"
                )
            feeds[name] = value
        return feeds

    def batches(self, inputs: BatchInputs | BatchRun) -> LateBatches:
        """The batch of a step, or of several, by input name. Raises InvalidArgumentError as `launch`."""
        return LateBatches(self._feeds, inputs)

    def feeds_of(self, inputs: BatchInputs | BatchRun) -> list[dict[str, Array]]:
        """The batch of a step, or the batches of several, by input name; see `launch`."""
        run = inputs if isinstance(inputs, BatchRun) else (inputs,)
        return [self._feeds(one.arrays() if isinstance(one, BatchRecipe) else one) for one in run]

    def _run(self, segment: int, round: int, result_number: int) -> None:
        """Runs a segment of a task."""
        launch = partial(self.binding.plan.launch, segment, result_number)
        if self._now.mail:
            launch = partial(self._now.mail.run, segment, self.binding.plan, result_number, launch)
        self._name_errors(round, launch)

    def _name_errors(self, round: int, work: Callable[[], None]) -> None:
        """Does work of a task; an error says which task it was: a replica's step in round r is its step r."""
        try:
            work()
        except TensorBowError as error:
            raise type(error)(f"replica {self.index} at step {round}: {error}") from error

    def _submit(
        self, segment: int, work: Callable[[], None], after: Event | None = None, number: int = 0
    ) -> Event:
        """Enqueues a segment, after an event and the mail that it reads. number: its result."""
        compute, now = self.group.compute, self._now
        if after is not None:
            compute.wait(after)
        reads, writes = now.accesses[segment]
        if not now.mail:
            return compute.submit(work, label=now.labels[segment], reads=reads, writes=writes)
        for event in now.mail.before(segment, number):
            compute.wait(event)
        mail_reads, mail_writes = now.mail.accesses(segment, number)
        done = compute.submit(
            work,
            label=now.labels[segment],
            reads=[*reads, *mail_reads],
            writes=[*now.accesses_with_inputs(segment)[1], *mail_writes],
        )
        now.mail.ran(segment, number, done)
        return done

    def training_state(self) -> list[Array]:
        """Views of the weights and optimiser slots, as bytes; on devices whose memory the host addresses."""
        nbytes = self.layout.region_nbytes
        regions = [region for region in (Region.WEIGHTS, Region.SLOTS) if nbytes[region]]
        return [self.device.view(self.binding.bases[each], (nbytes[each],), np.uint8) for each in regions]

    def copy_training_state(self, source: Replica) -> Event:
        """Enqueues a copy of another replica's weights and optimiser slots; its status is cleared."""
        reads, writes, copies = list[Access](), list[Access](), list[tuple[Array, Array]]()
        for region in (Region.WEIGHTS, Region.SLOTS):
            if nbytes := self.layout.region_nbytes[region]:
                theirs, own = source.binding.bases[region], self.binding.bases[region]
                reads.append(Access(theirs, nbytes))
                writes.append(Access(own, nbytes))
                given = source.device.view(theirs, (nbytes,), np.uint8)
                copies.append((self.device.view(own, (nbytes,), np.uint8), given))

        def copy() -> None:
            for target, given in copies:
                np.copyto(target, given)
            self.set_state({"status": 0})

        label = f"replica {self.index} copies replica {source.index}"
        return self.group.compute.submit(copy, label=label, reads=reads, writes=writes)

    def results(self, result_number: int) -> list[Any]:
        """Values fetched by a finished task: numbers, and copies of arrays. The last is its status."""
        return self.binding.plan.fetch_values(result_number)

    def connect(self, mail: Mail) -> None:
        """Has the selected step exchange values with other parts of the replica, while nothing runs."""
        self._now.mail = mail
        self._now.inputs = tuple(
            pair for pair in self._now.executable.inputs.items() if pair[0] not in mail.received
        )

    def follow(self, executor: ReplicaExecutor, part: int, others: Sequence[Replica] = ()) -> None:
        """Has the planned part of the selected step take what an executor makes, while nothing runs.

        The replica that is the first part runs and closes it. others: the further parts of this one.
        """
        self._now.follow(executor, part)
        if part == 0:
            self._now.executor = executor
            self._now.beside = [each for other in others for each in other.variables(str(other.device.name))]

    def variables(self, device: str = "") -> list[Access]:
        """The memory of the variables. device: its name, for launches on others."""
        nbytes, bases = self.layout.region_nbytes, self.container.bases
        return [Access(bases[region], nbytes[region], device) for region in VARIABLES if nbytes[region]]

    @property
    def input_names(self) -> list[str]:
        """Names of the selected step's inputs, in the order in which `launch` takes them."""
        return [name for name, _ in self._now.inputs]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Sets step scalars for all tasks from now on; while nothing runs."""
        self.binding.write({}, state)

    def bad_inputs(self, inputs: BatchInputs) -> list[str]:
        """The names of a batch's inputs that hold NaN or infinite values themselves."""
        feeds = self._feeds(inputs.arrays() if isinstance(inputs, BatchRecipe) else inputs)
        return [
            name.removesuffix(":0")
            for name, value in feeds.items()
            if value.dtype.kind == "f" and not np.isfinite(value).all()
        ]

    def name_bad_op(self, inputs: BatchInputs, state: Mapping[str, Any]) -> str | None:
        """Runs the gradient of a batch again, op by op; names the first with a NaN or infinite result."""
        executor = self._now.executor
        if executor is None:
            self.write(inputs, state)
        elif name := executor.first_nonfinite:  # it is not run again: its ops have effects
            return name
        segments = enumerate(self.own_step.segments)
        gradient = (number for number, segment in segments if segment.name == GRADIENT)
        return next(filter(None, map(self.find_nonfinite, gradient)), None)

    def write(self, inputs: BatchInputs, state: Mapping[str, Any]) -> None:
        """Writes a batch and step scalars to the replica's memory; while nothing runs."""
        arrays = inputs.arrays() if isinstance(inputs, BatchRecipe) else inputs
        self.binding.write(self._feeds(arrays), state)

    def find_nonfinite(self, segment: int) -> str | None:
        """Runs a segment op by op; names the first with a NaN or infinite result; while nothing runs."""
        found: list[str | None] = []
        plan = self.binding.plan

        def launch() -> None:
            found.append(plan.find_nonfinite(segment))

        if self._now.mail is None:
            launch()
        else:
            self._now.mail.run(segment, plan, 0, launch)
            self.group.compute.synchronize()
        return found[0]

    def close(self) -> None:
        """Closes the stream and gives the memory back."""
        self.group.close()
        for bound in self._bound:
            bound.close()
        self.container.close()
