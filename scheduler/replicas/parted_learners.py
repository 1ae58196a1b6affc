"""Learners whose replicas have several parts, one per logical device (TF-Replicator, section 3.3).

Part p of all replicas is like the replicas of a model of its own: `Learners` with the variables of that part,
on the p-th device of each replica, with a z and a transport of their own. What parts send to each other goes
by `mail`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from scheduler.averaging.outer_progress import replica_layout
from scheduler.averaging.synchronisation import Synchronisation, require_whole_replicas
from scheduler.replicas.device_dataset import DeviceDataset
from scheduler.replicas.device_plans import Compiled, DevicePlans
from scheduler.replicas.dynamic.divided_parts import DividedParts
from scheduler.replicas.dynamic.executor_part import ExecutorPart
from scheduler.replicas.dynamic.replica_executor import waiting_in
from scheduler.replicas.learners import Learners, require_count
from scheduler.replicas.parted_launcher import PartedLauncher
from scheduler.replicas.parted_replica import PartedReplica
from scheduler.replicas.parted_step import PartedStep
from scheduler.replicas.replica_counts import require_different
from scheduler.replicas.step_program import StepProgram
from tensorbow.data import BatchInputs
from tensorbow.devices import Device
from tensorbow.errors import AbortedError, FailedPreconditionError, InvalidArgumentError
from tensorbow.specs import Array, TensorSpec


class PartedLearners:
    """k replicas with several parts each; see `Learners` for what is done with all of them."""

    def __init__(
        self,
        program: StepProgram,
        shapes: Sequence[TensorSpec],
        devices: Sequence[Device],
        devices_per_replica: int,
        replicas_per_device: int | Sequence[int],
        options: Synchronisation,
        *,
        results: int,
        compiled: Compiled | None = None,
        random_streams: Sequence[int] | None = None,
    ):
        """devices: those of the first group of `devices_per_replica`, then of the next group, and so on; the
        replicas of a group have their parts on its devices. replicas_per_device: by group.

        Raises InvalidArgumentError for devices that make no whole groups, or for groups of other kinds than
        the first; and as `Learners`.
        """
        if len(devices) % devices_per_replica:
            raise InvalidArgumentError(
                f"devices: expected a multiple of devices_per_replica={devices_per_replica}, got "
                f"{len(devices)} devices"
            )
        require_whole_replicas(options, devices_per_replica)
        require_different(devices)
        self.devices = list(devices)
        by_part = [self.devices[part::devices_per_replica] for part in range(devices_per_replica)]
        first = [own[0] for own in by_part]
        self._first, self._steps = first, [PartedStep(program, first, options)]
        for own in by_part:
            other = next((device for device in own if device.kind != own[0].kind), None)
            if other is not None:
                raise InvalidArgumentError(
                    f"devices: expected {other.name.short} to be a {own[0].kind}, as {own[0].name.short} is "
                    "in the first replica"
                )
        self.options = options
        self.in_run = False  # set by the engine
        self.parts: list[Learners] = []
        try:
            for part, layout, own in zip(self._steps[0].parts, self._steps[0].layouts, by_part, strict=True):
                learners = Learners(
                    part,
                    shapes,
                    own,
                    replicas_per_device,
                    options,
                    results=results,
                    layout=layout,
                    compiled=compiled,
                    random_streams=random_streams,
                    by_segment=True,
                )
                self.parts.append(learners)
        except BaseException:
            self.close()
            raise
        some = self.parts[0]
        self.per_device, self.count, self.alpha = some.per_device, some.count, some.alpha
        self.per_device_of_all, self.total, self.numbers = some.per_device_of_all, some.total, some.numbers
        self.averages, self.averages_gradients = some.averages, some.averages_gradients
        self.mean_gradient_from, self.synchronises = some.mean_gradient_from, some.synchronises
        self.layout = replica_layout(program.variables, options)
        self.replicas = [
            PartedReplica(index, [part.replicas[index] for part in self.parts], self._steps[0].names)
            for index in range(self.count)
        ]
        self.launcher = self.tasks = PartedLauncher(self.parts, self.replicas, options)
        self.values = PartedValues(self.parts)
        self._add_to_replicas()
        self.select(0)

    def _add_to_replicas(self) -> None:
        """Adds the last step, which all parts have selected, to the replicas."""
        step = self._steps[-1]
        for replica in self.replicas:
            replica.add(step.executable, [tensor.name for tensor in step.program.inputs])

    def add_program(
        self, program: StepProgram, shapes: Sequence[TensorSpec], results: int | None = None
    ) -> int:
        """See Learners.add_program."""
        step, number = PartedStep(program, self._first, self.options), len(self._steps)
        added: list[Learners] = []
        try:
            for learners, part in zip(self.parts, step.parts, strict=True):
                learners.add_program(part, shapes, results)
                added.append(learners)
        except BaseException:
            for learners in added:
                learners.forget(number)
            raise
        self._steps.append(step)
        for learners in self.parts:
            learners.select(number)
        self._add_to_replicas()
        self.select(self._selected)
        return number

    def select(self, number: int) -> None:
        """See Learners.select."""
        for part in self.parts:
            part.select(number)
        for replica in self.replicas:
            replica.select(number)
        self.executable = self._steps[number].executable
        self.tasks.select(self.executable)
        self._selected = number

    @property
    def checks_come_first(self) -> bool:
        """False: a part may have updated before another finds a gradient that is not finite."""
        return False

    @property
    def executor_part(self) -> ExecutorPart[Any] | None:
        """See Learners.executor_part."""
        return self.executable.part if isinstance(self.executable, DividedParts) else None

    @property
    def waiting(self) -> list[str]:
        """See Learners.waiting."""
        return waiting_in((replica.index, replica.executor) for replica in self.replicas)

    @property
    def runs_executors(self) -> bool:
        """See Learners.runs_executors."""
        return self.executor_part is not None

    def called_apart(self) -> list[str]:
        """See Learners.called_apart."""
        if self.executor_part is not None:
            return [self.executor_part.reason]
        return [reason for part in self.parts for reason in part.called_apart()]

    def restarts_before(self, round: int, jumps: bool) -> bool:
        """See Learners.restarts_before."""
        return self.parts[0].restarts_before(round, jumps)

    def set_caller_waits(self, waits: bool) -> None:
        """Does nothing: the parts of a replica run at the same time."""

    def require_inputs(self, inputs: Sequence[BatchInputs]) -> None:
        """See Learners.require_inputs."""
        require_count(inputs, self.count)
        for replica, own in zip(self.replicas, inputs, strict=True):
            replica.check(own)

    def prepare(self) -> None:
        """See Learners.prepare."""
        for part in self.parts:
            part.prepare()
            for replica in part.replicas:
                own = self.executable.reads_first & set(part.layout.refs())
                replica.container.require_initialized(own)
        self.launcher.reset()

    def drain(self) -> BaseException | None:
        """See Learners.drain; an error that only follows on another comes last."""
        errors = [error for part in self.parts if (error := part.drain()) is not None]
        self.launcher.reset()
        try:
            return next((e for e in errors if not isinstance(e, AbortedError)), errors[0] if errors else None)
        finally:
            del errors

    @property
    def dataset(self) -> None:
        """None: devices keep no data set."""

    def keep_data(self, kept: Sequence[DeviceDataset]) -> None:
        """Raises FailedPreconditionError: a batch is fed to the parts that read it."""
        raise _not_in_parts("keep_on_devices")

    def drop_data(self) -> None:
        """Does nothing: there is no data set."""

    def release_data(self) -> list[DeviceDataset]:
        """Returns nothing: there is no data set."""
        return []

    def plans_for(self, options: Synchronisation, replicas: int) -> list[DevicePlans]:
        """Raises FailedPreconditionError: such replicas stay as many."""
        raise _not_in_parts("resize")

    def held_nbytes(self, device: Device) -> int:
        """See Learners.held_nbytes."""
        return sum(part.held_nbytes(device) for part in self.parts)

    def close(self) -> None:
        """See Learners.close."""
        for part in self.parts:
            part.close()


def _not_in_parts(what: str) -> FailedPreconditionError:
    return FailedPreconditionError(f"{what}: not for replicas with several devices each")


AnyLearners: TypeAlias = Learners | PartedLearners


class PartedValues:
    """The variables of all parts; see `ReplicaValues`."""

    def __init__(self, parts: Sequence[Learners]):
        self._parts = [part.values for part in parts]
        self._homes = {name: number for number, part in enumerate(parts) for name in part.layout.refs()}

    def initialize(self, values: Mapping[str, Array], *others: Mapping[str, Array]) -> None:
        """See ReplicaValues.initialize."""
        split = [self._split(each) for each in (values, *others)]
        for number, part in enumerate(self._parts):
            part.initialize(*(each[number] for each in split))

    def assign(self, values: Mapping[str, Array]) -> None:
        """See ReplicaValues.assign."""
        for part, own in zip(self._parts, self._split(values), strict=True):
            part.assign(own)

    def central_values(self, round: int, joined: bool = False) -> dict[str, Array]:
        """See ReplicaValues.central_values."""
        parts = (part.central_values(round, joined) for part in self._parts)
        return {name: value for values in parts for name, value in values.items()}

    def set_average(self, values: Mapping[str, Array]) -> None:
        """See ReplicaValues.set_average."""
        for part in self._parts:
            part.set_average({name: values[name] for name in part.layout.refs() if name in values})

    def ema_values(self, round: int) -> dict[str, Array]:
        """See ReplicaValues.ema_values."""
        return {name: value for part in self._parts for name, value in part.ema_values(round).items()}

    def replica_values(self, index: int) -> dict[str, Array]:
        """See ReplicaValues.replica_values."""
        return {name: value for part in self._parts for name, value in part.replica_values(index).items()}

    def state_arrays(self) -> dict[str, Array]:
        """See ReplicaValues.state_arrays; the same names, whatever the parts."""
        return {name: value for part in self._parts for name, value in part.state_arrays().items()}

    def load_state_arrays(self, arrays: Mapping[str, Array]) -> None:
        """See ReplicaValues.load_state_arrays."""
        own: list[dict[str, Array]] = [{} for _ in self._parts]
        for key, value in arrays.items():
            own[self._homes.get(key.partition("/")[2], 0)][key] = value
        for part, mine in zip(self._parts, own, strict=True):
            part.require_fitting(mine)
        for part, mine in zip(self._parts, own, strict=True):
            part.load_state_arrays(mine)

    def _split(self, values: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Values by part; values that belong to no part go to the first, which refuses them."""
        own: list[dict[str, Array]] = [{} for _ in self._parts]
        for name, value in values.items():
            own[self._homes.get(name, 0)][name] = value
        return own
