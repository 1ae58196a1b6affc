"""A replica with several parts, one per logical device, as one replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.averaging.synchronisers import UPDATE
from scheduler.replicas.dynamic.divided_parts import DividedParts
from scheduler.replicas.dynamic.parted_regions import PartedRegions
from scheduler.replicas.dynamic.replica_executor import ReplicaExecutor
from scheduler.replicas.mail import Mail, mail_between
from scheduler.replicas.replica import Replica
from tensorbow.compiler import GRADIENT, PartedExecutable
from tensorbow.data import BatchInputs, BatchRecipe
from tensorbow.errors import InvalidArgumentError
from tensorbow.program import Executable
from tensorbow.specs import Array


class PartedContainer:
    """The variables of all parts."""

    def __init__(self, parts: Sequence[Replica]):
        self._homes = {name: part.container for part in parts for name in part.layout.refs()}

    @property
    def initialized(self) -> set[str]:
        """Names of variables that have a value."""
        return {name for name, home in self._homes.items() if name in home.initialized}

    def read(self, name: str) -> Array:
        """A variable's value, copied."""
        return self._homes[name].read(name)


@dataclass
class _Step:
    """A step of all parts. mail, inputs: by part; inputs: which of the whole step's inputs it reads.

    executor: of the part that is not planned, if there is one.
    """

    executable: PartedExecutable
    mail: list[Mail]
    inputs: list[list[int]]
    input_count: int
    executor: ReplicaExecutor | None


class PartedReplica:
    """The parts of a replica; see `Replica` for what is done with all of them."""

    def __init__(self, index: int, parts: Sequence[Replica], names: Sequence[str]):
        """names: of the parts, as in what they send."""
        self.index, self.parts, self._names = index, parts, names
        self.container = PartedContainer(parts)
        self.device = parts[0].device
        self._steps: list[_Step] = []

    def add(self, executable: PartedExecutable, inputs: Sequence[str]) -> None:
        """Adds a step, which the parts have bound and selected. inputs: names of all its inputs, in order."""
        devices = [part.device for part in self.parts]
        mail = mail_between(executable.parts, self._names, devices)
        read = [part.own_step.inputs for part in self.parts]
        for part, own in zip(self.parts, mail, strict=True):
            part.connect(own)
        executor = None
        if isinstance(executable, DividedParts):
            bases, first = [part.container.bases for part in self.parts], self.parts[0].group
            owner = f"{first.name} dynamic part {len(self._steps)}"
            regions = PartedRegions(executable.part, first, self._names, devices, bases, owner)
            executor = ReplicaExecutor(executable.part, regions, first, owner, [*read])
            for number, part in enumerate(self.parts):
                part.follow(executor, number, self.parts[1:])
        indices = [[inputs.index(name) for name in part.input_names] for part in self.parts]
        self._steps.append(_Step(executable, mail, indices, len(inputs), executor))

    def select(self, number: int) -> None:
        """Makes a step the one that is launched; the parts have selected it."""
        self._now = self._steps[number]

    @property
    def held_nbytes(self) -> int:
        """Bytes of devices' memory that the parts hold."""
        return sum(part.held_nbytes for part in self.parts)

    @property
    def own_step(self) -> PartedExecutable:
        """The selected step."""
        return self._now.executable

    def step_of(self, number: int) -> PartedExecutable:
        """A step of all parts."""
        return self._steps[number].executable

    def executables_of(self, number: int) -> tuple[Executable, ...]:
        """A step's executables, by part."""
        return self._steps[number].executable.parts

    def inputs_by_part(self, inputs: BatchInputs) -> list[tuple[Array, ...]]:
        """The arrays that each part reads, of those of the whole step.

        Raises InvalidArgumentError for another number of arrays.
        """
        arrays = inputs.arrays() if isinstance(inputs, BatchRecipe) else inputs
        if len(arrays) != self._now.input_count:
            raise InvalidArgumentError(
                f"a batch of replica {self.index}: expected {self._now.input_count} arrays, got {len(arrays)}"
            )
        return [tuple(arrays[index] for index in own) for own in self._now.inputs]

    def check(self, inputs: BatchInputs) -> None:
        """See Replica.check."""
        for part, own in zip(self.parts, self.inputs_by_part(inputs), strict=True):
            part.check(own)

    def results(self, result_number: int) -> list[Any]:
        """See Replica.results; the status is set if that of any part is."""
        fetched = [part.results(result_number) for part in self.parts]
        values = [fetched[part][index] for part, index in self.own_step.fetches]
        return [*values, max(each[-1] for each in fetched)]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See Replica.set_state; each part takes what it knows."""
        for part in self.parts:
            part.set_state(known_state(part, state))

    def bad_inputs(self, inputs: BatchInputs) -> list[str]:
        """See Replica.bad_inputs."""
        pairs = zip(self.parts, self.inputs_by_part(inputs), strict=True)
        return [*dict.fromkeys(name for part, own in pairs for name in part.bad_inputs(own))]

    def name_bad_op(self, inputs: BatchInputs, state: Mapping[str, Any]) -> str | None:
        """See Replica.name_bad_op."""
        executor = self._now.executor
        if executor is not None and (name := executor.first_nonfinite):
            return name
        for part, own in zip(self.parts, self.inputs_by_part(inputs), strict=True):
            if executor is None:
                part.write(own, known_state(part, state))
        for number, segment in self.own_step.order(UPDATE):
            if self.own_step.parts[number].segments[segment].name == GRADIENT:
                found = self.parts[number].find_nonfinite(segment)
                if found:
                    return found
        return None

    @property
    def executor(self) -> ReplicaExecutor | None:
        """See Replica.executor."""
        return self._now.executor

    def forget_mail(self) -> None:
        """Forgets what was sent and read, when nothing is in flight."""
        for step in self._steps:
            for mail in step.mail:
                mail.forget()


def known_state(part: Replica, state: Mapping[str, Any]) -> dict[str, Any]:
    """The step scalars that a part's step has."""
    return {key: value for key, value in state.items() if key in part.own_step.state}
