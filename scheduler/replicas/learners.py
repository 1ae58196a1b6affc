"""The learners: all replicas of a model and z, on their devices, and what is enqueued on their streams."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from scheduler.averaging.outer_progress import replica_layout
from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisation import Synchronisation, require_no_meeting
from scheduler.averaging.synchronisers import UPDATE, Synchroniser
from scheduler.averaging.transport import Transport
from scheduler.averaging.transport_choice import transport_for
from scheduler.replicas.central import CentralModel, device_exchanges
from scheduler.replicas.device_dataset import DeviceDataset
from scheduler.replicas.device_plans import Compiled, DevicePlans, require_host_memory
from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.dynamic.executor_part import ExecutorPart
from scheduler.replicas.dynamic.replica_executor import waiting_in
from scheduler.replicas.endless_loops import loops_end
from scheduler.replicas.launches import Launcher
from scheduler.replicas.parted_step import AnyProgram
from scheduler.replicas.replica import Replica
from scheduler.replicas.replica_counts import replica_counts, require_different
from scheduler.replicas.round_launcher import round_launcher, why_not_fused
from scheduler.replicas.task_launcher import TaskLauncher
from scheduler.replicas.values import ReplicaValues, check_combination
from scheduler.workers.lockstep import Lockstep
from scheduler.workers.shared_memory import SharedPages
from tensorbow.compiler import VariableLayout
from tensorbow.data import BatchInputs, KeptData
from tensorbow.devices import Device, Stream
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    TensorBowError,
    UnimplementedError,
)
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Region, WorkerExchange
from tensorbow.specs import TensorSpec

_numbers = itertools.count()


class Learners:
    """k replicas on one or several devices, and z on each device.

    Everything here enqueues and returns; the engine decides what and when. Reading
    and setting values is for when nothing is in flight.
    """

    def __init__(
        self,
        program: AnyProgram,
        shapes: Sequence[TensorSpec],
        devices: Sequence[Device],
        replicas_per_device: int | Sequence[int],
        options: Synchronisation,
        *,
        results: int,
        transport: Transport | None = None,
        layout: VariableLayout | None = None,
        compiled: Compiled | None = None,
        random_streams: Sequence[int] | None = None,
        by_segment: bool = False,
        may_be_captured: bool | None = None,
        lockstep: Lockstep | None = None,
    ):
        """shapes: specs of the program's inputs. results: so many of a replica are kept.

        replicas_per_device: one count for all devices, or one for each; replicas go by device. layout,
        compiled: as for DevicePlans. random_streams: by replica, default: its number.
        by_segment: launches no whole rounds. may_be_captured: whether the replicas of a step that cannot be
        fused are captured where others are fused; default: unless the options ask for fused ones.
        lockstep: with the workers of other processes, which have replicas too. All make their learners, and
        select steps, in the same order.

        Raises InvalidArgumentError for options out of range, ResourceExhaustedError for memory.
        """
        if not devices:
            raise InvalidArgumentError("devices: expected at least one, got none")
        require_different(devices)
        self.devices = list(devices)
        self.results = results
        self.options = options
        self.may_be_captured = not options.fused if may_be_captured is None else may_be_captured
        self.per_device = replica_counts(replicas_per_device, len(devices))
        self.count = sum(self.per_device)
        self.lockstep = lockstep
        # Of all workers: their replicas, counted through worker by worker, and the number of the first here.
        every = [self.per_device] if lockstep is None else lockstep.all_gather("replicas", self.per_device)
        self.per_device_of_all = [count for counts in every for count in counts]
        self.worker_counts = [sum(counts) for counts in every]
        self.total = sum(self.worker_counts)
        self.first = sum(self.worker_counts[: 0 if lockstep is None else lockstep.rank])
        # By replica, the index of its device in `devices`.
        self.device_indices = [index for index, count in enumerate(self.per_device) for _ in range(count)]
        self.random_streams = [*self.numbers] if random_streams is None else [*random_streams]
        self.averages = options.averages(self.total)
        self.alpha = options.alpha_for(self.total)
        self.averages_gradients = options.averages_gradients(self.total)
        self.mean_gradient_from = options.mean_gradient_from(self.total)
        self.z_copies = options.z_copies(self.total)
        self._own_variables = (*program.variables,)
        self.layout = layout or replica_layout(program.variables, options)
        check_combination(self.layout)
        self.replicas: list[Replica] = []
        self.central: list[CentralModel] = []
        self._transport = transport
        self._pages: SharedPages | None = None  # while all workers have one z
        # A transport of the caller's sums between devices; that between workers is none that a GPU launches.
        of_workers = lockstep is not None and devices[0].kind == "gpu"
        self._by_segment = by_segment or transport is not None or of_workers
        self._kept: list[DeviceDataset] = []  # the data set, by device, where devices keep it
        self._caller_waits = False  # for the results of launches, so that it may run tasks in its own thread
        self._selected = 0  # of the programs
        self._programs = [program]
        self._launchers: dict[int, Launcher] = {}  # by program
        self._require_gpus(options)
        self._closed = False
        self.in_run = False  # set by the engine
        self._name = f"engine-{next(_numbers)}"
        require_no_meeting(self.options, program.exchange_ops)
        try:
            known: Compiled = {} if compiled is None else compiled
            self._plans = [
                DevicePlans(program, shapes, device, options, self.total, results, self.layout, known)
                for device in self.devices
            ]
            self._build(ring=results)
        except BaseException:
            self.close()
            raise

    def _build(self, ring: int) -> None:
        for plans, count in zip(self._plans, self.per_device, strict=True):
            plans.require_room(count)
        require_host_memory(self._plans, self.per_device)
        steps = [plans.step for plans in self._plans]
        self._bind_central(0, steps)
        for index, device_index in enumerate(self.device_indices):
            device, shared = (
                self.devices[device_index],
                self._shared(0, index) if steps[0].shares_memory else {},
            )
            replica = Replica(
                self.numbers[index],
                device,
                steps[device_index],
                self.layout,
                shared,
                ring=ring,
                name=self._name,
            )
            self.replicas.append(replica)
            replica.set_state(
                {
                    "replica": self.numbers[index],
                    "random_stream": self.random_streams[index],
                    "alpha": self.alpha,
                }
            )
        variants = RoundVariants(self.options, self.total)
        self.tasks = TaskLauncher(self.replicas, self.central, variants, self.device_indices)
        self.launcher: Launcher = self.tasks
        self.values = ReplicaValues(
            self.layout, self.options, self.replicas, self.central, self.total, self.lockstep
        )
        self.select(0)

    def _bind_central(self, number: int, steps: Sequence[Executable]) -> None:
        """Gives every device the work that a step does once for all its replicas, if there is any."""
        if not steps[0].shares_memory:
            return
        options, first = self.options, self.first
        synchroniser = Synchroniser.of(options, self.total)
        for device_index, (device, count) in enumerate(zip(self.devices, self.per_device, strict=True)):
            replicas, first = range(first, first + count), first + count
            if device_index < len(self.central):
                self.central[device_index].add(number, steps[device_index])
                continue
            model = CentralModel(
                device,
                self.layout,
                number,
                steps[device_index],
                replicas,
                synchroniser,
                self._name,
                options.priority,
            )
            self.central.append(model)
            model.set_state(
                {
                    "mu": options.z_momentum,
                    "share": 1 / (self.total - options.backup),
                    "outer_rate": options.outer_learning_rate,
                }
            )
        if self._transport is None:
            self._transport = transport_for(self.devices, f"{self._name} exchanges", options, self.lockstep)

    def _shared(self, number: int, index: int) -> dict[Region, int]:
        """Base addresses of what a replica shares with its device in a step."""
        device_index = self.device_indices[index]
        return self.central[device_index].bases_for(number, index - self.device_indices.index(device_index))

    def add_program(
        self, program: AnyProgram, shapes: Sequence[TensorSpec], results: int | None = None
    ) -> int:
        """Binds a further step to all replicas, while nothing runs; its number for `select`.

        results: so many of a replica are kept; by default as many as of the first step.
        Raises InvalidArgumentError when its graph has other variables than the replicas.
        """
        if (*program.variables,) != self._own_variables:
            new = [op.name for op in program.variables if op not in self.layout.variables]
            raise InvalidArgumentError(
                f"the replicas have no room for variables made after them: {', '.join(new[:3]) or 'none'}; "
                "build all steps, optimisers included, before the first one runs"
            )
        require_no_meeting(self.options, program.exchange_ops)
        executables = [plans.compile(program, shapes) for plans in self._plans]
        number, moved, first = self.replicas[0].steps, False, not self.central
        self._programs[number:] = [program]
        try:
            self._bind_central(number, executables)
            if first:  # no step before updates weights
                for model in self.central:
                    model.fill({name: self.replicas[0].container.read(name) for name in model.names})
            for index, replica in enumerate(self.replicas):
                shared = self._shared(number, index) if executables[0].shares_memory else {}
                executable = executables[self.device_indices[index]]
                moved |= replica.add(executable, shared, results or self.results)
        except BaseException:
            moved = True  # some may have
            self.forget(number)
            raise
        finally:
            if moved:  # what launches whole steps knows their addresses
                self._drop_launchers()
                self.select(self._selected)
        return number

    def forget(self, number: int) -> None:
        """Unbinds the steps from a number on, of which none is selected."""
        for owner in self._owners():
            owner.forget(number)

    def select(self, number: int, must_fuse: bool = False) -> None:
        """Makes all replicas launch one of their steps, while nothing is in flight.

        must_fuse: whatever `may_be_captured` says. Raises UnimplementedError for one that trains and whose
        replicas cannot be fused where they have to be, ResourceExhaustedError for memory; the step before is
        selected then.
        """
        for owner in self._owners():
            owner.select(number)
        for replica in self.replicas:
            replica.set_state({"status": 0})
        whole = self.replicas[0].step
        if self.lockstep is not None:
            self.lockstep.require_equal("exchanges and optimisers of a step", self._common(number, whole))
        meet = len(self.central) > 1 or self.lockstep is not None
        transport = self._transport if meet and whole.shares_memory else None
        if transport is not None:
            transport.halves = self._sends_halves(number)
            transport.connect(device_exchanges(self.central))
        self.tasks.select(whole, transport)
        before, self._selected = self._selected, number
        self.executable = self.replicas[0].own_step
        if number not in self._launchers:
            try:
                made = None if self._by_segment else self._round_launcher(transport, must_fuse)
            except BaseException:
                if before in self._launchers:
                    self.select(before)
                raise
            if self.lockstep is not None:
                how = "by segments, as without native code" if made is None else "of whole rounds"
                self.lockstep.require_equal("launches", [how])
                if made is not None:
                    made.connect()
            self._launchers[number] = made or self.tasks
        self.launcher = self._launchers[number]
        self._place_central()
        self.set_caller_waits(self._caller_waits)
        self.launcher.reset()

    def _place_central(self) -> None:
        """Has all workers share one z if the selected step moves it so; a step that has no z changes nothing.

        Collective. Raises ResourceExhaustedError.
        """
        step = self.replicas[0].step
        written = (ref for segment in step.segments for group in segment.groups for ref in group.writes)
        if self.lockstep is None or not any(ref.region is Region.CENTRAL for ref in written):
            return
        if not self.launcher.shares_central:
            self._end_sharing()
        elif self._pages is None:
            addresses, nbytes = zip(*(model.pages for model in self.central), strict=True)
            self._pages = self.lockstep.share_pages(addresses, nbytes[0])

    def _end_sharing(self) -> None:
        if self._pages is not None:
            self._pages.end()
            self._pages = None

    def _common(self, number: int, step: Executable) -> list[str]:
        """Exchanges of a step, the library's included, and hyper-parameters: equal on all workers."""
        program = self._programs[number]
        groups = [group for index in step.exchange_segments for group in step.segments[index].groups]
        values = [(g.definition.name, g.inputs[0]) for g in groups]
        every = [f"{name} of {value.dtype.name}{[*value.shape]}" for name, value in values]
        mode, numbers = self.options.replica_mode, program.hyperparameters if self.synchronises else []
        return [f"replica_mode={mode!r}", *every, *program.exchanges, *numbers]

    @property
    def transport(self) -> Transport | None:
        """Transport of exchanges between devices and with other workers; None if there are none."""
        return self._transport

    @property
    def numbers(self) -> range:
        """The numbers of this process's replicas among those of all workers."""
        return range(self.first, self.first + self.count)

    @property
    def worker_exchange(self) -> WorkerExchange | None:
        """The exchange with other workers, for native code."""
        if self.lockstep is None:
            return None
        lockstep, group, halves = self.lockstep, self.lockstep.exchanges, self._sends_halves(self._selected)
        overlaps = not lockstep.shares_memory and lockstep.overlap_nbytes is not None
        return WorkerExchange(
            lockstep.control,
            self.first,
            self.worker_counts,
            partial(group.native_sum, halves=halves),
            group.native_share,
            lockstep.share_memory if lockstep.shares_memory else None,
            lockstep.rank,
            halves,
            partial(lockstep.overlapped, halves=halves) if overlaps else None,
            lockstep.overlap_nbytes or 0,
            lockstep.shares_memory and self.averages,
            group.native_swap if lockstep.swaps and not halves else None,
            group.end_swap,
        )

    def _sends_halves(self, number: int) -> bool:
        """True if a step sums nothing over the workers but values that replicas send as bfloat16."""
        return self.options.exchange_dtype is not None and not self._programs[number].exchanges

    def _round_launcher(self, transport: Transport | None, must_fuse: bool) -> Launcher | None:
        """A launcher of whole rounds, if there can be one; evaluations that cannot be fused are captured, and
        so are other steps that need not be fused.
        """
        options, step = self.options, self.replicas[0].step
        falls_back = self.may_be_captured and not must_fuse
        layout, written = self.layout, self.executable.writes
        trains = any(layout.ref(name).region is Region.WEIGHTS for name in written)
        shares = options.fused and max(self.per_device) > 1  # one replica has its kernels for itself
        if shares and (why := why_not_fused(step, self.devices[0], options, self.total)):
            if trains and not falls_back:
                raise UnimplementedError(f"replica_mode: the replicas of this step cannot be fused: {why}")
            options = replace(options, replica_mode="captured")
        kind = self.devices[0].kind
        if self.runs_executors and kind != "cpu" and (kind != "gpu" or self.lockstep is not None):
            return None
        try:
            return round_launcher(self.replicas, self.central, options, transport, self.worker_exchange)
        except UnimplementedError:
            if not trains:
                return None
            if not (falls_back and options.fused):
                raise
        captured = replace(options, replica_mode="captured")
        return round_launcher(self.replicas, self.central, captured, transport)

    def fuse(self, fused: bool, required: bool = True) -> None:
        """Has all replicas of a GPU run in each of its kernels, or each in its own, while nothing runs.

        `options.replica_mode` says so from then on. required: False if the selected step may stay as it is.
        Raises InvalidArgumentError for other devices, UnimplementedError for a selected step whose replicas
        cannot be fused, ResourceExhaustedError for memory; nothing has changed then.
        """
        if fused == self.options.fused:
            return
        before = self.options
        options = replace(before, replica_mode="fused" if fused else "captured")
        self._require_gpus(options)
        self.options = options
        self._drop_launchers()
        try:
            self.select(self._selected, must_fuse=fused and required)
        except BaseException:
            self.options = before
            with suppress(TensorBowError):  # `prepare` tries again
                self.select(self._selected)
            raise

    def _require_gpus(self, options: Synchronisation) -> None:
        """Raises InvalidArgumentError for devices on which replicas cannot be as the options say."""
        if options.backup and self.devices[0].kind == "gpu":
            raise InvalidArgumentError(
                f"backup: expected CPU devices, got {self.devices[0].name.short}; leave it out"
            )
        if options.fused and (self._by_segment or self.devices[0].kind != "gpu"):
            raise InvalidArgumentError(
                "replica_mode: 'fused' is for replicas of one GPU each, with the library's transport; got "
                f"{'a part on ' if self._by_segment else ''}{self.devices[0].name.short}; leave it out"
            )

    def _drop_launchers(self) -> None:
        """Closes the launchers of whole rounds; `select` or `prepare` makes them anew."""
        if self._launchers:
            self.launcher = self.tasks
        while self._launchers:
            self._launchers.popitem()[1].close()

    @property
    def checks_come_first(self) -> bool:
        """True if the selected step writes no variable before all gradients have been checked."""
        executable = self.executable
        segments = (executable.segments[number] for number in executable.variants[UPDATE])
        groups = [group for segment in segments for group in segment.groups]
        writes = [index for index, group in enumerate(groups) if group.predicated]
        checks = [index for index, group in enumerate(groups) if group.definition.sets_status]
        return not writes or not checks or max(checks) < min(writes)

    @property
    def executor_part(self) -> ExecutorPart[Any] | None:
        """The part of the selected step that replicas run by the dynamic executor, if there is one."""
        step = self.replicas[0].step
        return step.part if isinstance(step, DividedExecutable) else None

    @property
    def waiting(self) -> list[str]:
        """The ops that dynamic parts wait for now, each with its replica, as text."""
        return waiting_in((replica.index, replica.executor) for replica in self.replicas)

    @property
    def runs_executors(self) -> bool:
        """True if replicas run part of the selected step by the dynamic executor."""
        return self.executor_part is not None

    @property
    def launches_rounds(self) -> bool:
        """True if rounds are launched as a whole, exchanges included."""
        return self.launcher is not self.tasks

    @property
    def synchronises(self) -> bool:
        """True if replicas are kept together at all."""
        return self.averages or self.averages_gradients

    def called_apart(self) -> list[str]:
        """Reasons why calls of the selected step are not launched with others: those without native code on
        CPU devices, those that cannot be captured on GPUs.
        """
        replica = self.replicas[0]
        if self.executor_part is not None:
            return [self.executor_part.reason]
        backend = backend_for(replica.device)
        planned = [launch for segment in replica.step.segments for launch in backend.launches(segment)]
        return [launch.reason for launch in planned if launch.reason]

    def restarts_before(self, round: int, jumps: bool) -> bool:
        """True if averaging restarts before a round: where the rate `jumps`, and to go over to ssgd."""
        if not self.averages or (self.mean_gradient_from is not None and round > self.mean_gradient_from):
            return False
        return (jumps and self.options.restarts) or round == self.mean_gradient_from

    def set_caller_waits(self, waits: bool) -> None:
        """Sets whether the caller waits for the result, so that it may run the task in its own thread."""
        self._caller_waits = self.launcher.caller_waits = self.tasks.caller_waits = waits

    def require_inputs(self, inputs: Sequence[BatchInputs]) -> None:
        """Raises InvalidArgumentError for inputs of a step that do not fit: a batch for each replica."""
        require_count(inputs, self.count)
        for replica, own in zip(self.replicas, inputs, strict=True):
            replica.check(own)

    def prepare(self) -> None:
        """Before a run: the sticky status of a run that failed is cleared.

        Raises FailedPreconditionError after `close`, or for variables without a value.
        """
        if self._closed:
            raise FailedPreconditionError("the replicas are closed; make a new engine")
        if self._selected not in self._launchers:  # there was no memory for it when others were dropped
            self.select(self._selected)
        for replica in self.replicas:
            replica.container.require_initialized(self.executable.reads_first)
            replica.set_state({"status": 0})
        self.launcher.reset()

    def drain(self) -> BaseException | None:
        """Waits until nothing is in flight; makes failed streams usable again. The first error, or None.

        Loops that count to no limit are stopped, see `loops_end`.
        """
        first: BaseException | None = None
        streams = self._streams()
        with loops_end(self.replicas):
            for stream in streams:
                try:
                    stream.synchronize()
                except BaseException as error:
                    if not isinstance(error, Exception) and error is not stream.error:
                        raise  # an interrupt now, not one of a task that was done in the caller's thread
                    first = first or error
        for stream in streams:
            if stream.error is not None:
                stream.reset()
        self.tasks.reset()
        try:
            self.launcher.reset()
        except TensorBowError as error:  # another worker has failed while an exchange was under way
            first = first or error
        try:
            return first
        finally:
            del first  # see raise_if_any

    def keep_data(self, kept: Sequence[DeviceDataset]) -> None:
        """Has replicas make batches from a data set that devices keep, while nothing is in flight.

        kept: by device, and owned by the learners from now on; it replaces what they had.
        """
        for replica, device_index in zip(self.replicas, self.device_indices, strict=True):
            replica.keep_data(kept[device_index])
        previous, self._kept = self._kept, [*kept]
        for data in previous:
            data.close()

    @property
    def dataset(self) -> KeptData | None:
        """The data set that devices keep, if any."""
        return self._kept[0].dataset if self._kept else None

    def drop_data(self) -> None:
        """Closes the data set that devices keep, if any.

        Raises FailedPreconditionError while a run is going on, which may be reading it.
        """
        if self.in_run:
            raise FailedPreconditionError("keep_on_devices: a run is going on; call it before or after")
        for data in self.release_data():
            data.close()

    def release_data(self) -> list[DeviceDataset]:
        """Gives up the data set that devices keep, without closing it; returns each device's, if any."""
        kept, self._kept = self._kept, []
        for replica in self.replicas:
            replica.keep_data(None)
        return kept

    def plans_for(
        self, options: Synchronisation, replicas: int, specs: Sequence[TensorSpec] | None = None
    ) -> list[DevicePlans]:
        """The plans of each device for another number of replicas, on all devices.

        specs: of the first program's inputs, by default as they are.
        """
        return [plans.with_count(options, replicas, specs) for plans in self._plans]

    def held_nbytes(self, device: Device) -> int:
        """Bytes of a device's memory that replicas and z hold or are guaranteed."""
        partitions = [owner.group.partition for owner in self._owners() if owner.device is device]
        return sum(max(each.held_nbytes, each.guaranteed_nbytes) for each in partitions)

    def _owners(self) -> list[Replica | CentralModel]:
        return [*self.replicas, *self.central]

    def _streams(self) -> list[Stream]:
        streams = [owner.group.compute for owner in self._owners()]
        return [*streams, *(self._transport.streams if self._transport is not None else ())]

    def close(self) -> None:
        """Closes all streams and gives all memory back; idempotent."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        if any(replica.may_not_end for replica in self.replicas):
            with loops_end(self.replicas):
                for stream in self._streams():
                    with suppress(Exception):
                        stream.synchronize()
        self._end_sharing()
        for owner in self._owners():
            owner.close()
        self._drop_launchers()
        self.replicas.clear()
        self.central.clear()
        while self._kept:
            self._kept.pop().close()


def require_count(inputs: Sequence[BatchInputs], replicas: int) -> None:
    """Raises InvalidArgumentError for inputs of another number of replicas."""
    if len(inputs) != replicas:
        raise InvalidArgumentError(
            f"step: expected inputs for {replicas} replicas, a tuple of arrays each, got {len(inputs)}"
        )
