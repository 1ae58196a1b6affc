"""The learners: all replicas of a model and z, on their devices, and what is enqueued on their streams."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.averaging import (
    SEGMENT_UPDATE,
    averaging_segment,
    central_executable,
    restart_segment,
)
from scheduler.central import CentralModel
from scheduler.collectives import AllReduce, InProcessAllReduce
from scheduler.memory import require_room
from scheduler.options import Synchronisation
from scheduler.replica import Replica
from scheduler.step import StepProgram
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device, Event, Stream
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.kernels import Executable, Region, backend_for
from tensorbow.specs import Array, TensorSpec

_numbers = itertools.count()


class Learners:
    """k replicas on one or several devices, and z on each device.

    Everything here enqueues and returns; `scheduler.engine` decides what and when. Reading and
    setting values is for when nothing is in flight.
    """

    def __init__(
        self,
        program: StepProgram,
        shapes: Sequence[TensorSpec],
        devices: Sequence[Device],
        replicas_per_device: int,
        options: Synchronisation,
        *,
        ring: int,
        all_reduce: AllReduce | None = None,
    ):
        """shapes: specs of the program's inputs. ring: results of a replica that are kept.

        Raises InvalidArgumentError for options out of range, ResourceExhaustedError for memory.
        """
        if not devices:
            raise InvalidArgumentError("devices: expected at least one, got none")
        if replicas_per_device < 1:
            raise InvalidArgumentError(f"replicas per device: expected at least 1, got {replicas_per_device}")
        names = [str(device.name) for device in devices]
        if len(set(names)) != len(names):
            raise InvalidArgumentError(f"devices: expected different ones, got {', '.join(names)}")
        self.devices = list(devices)
        self.options = options
        self.per_device = replicas_per_device
        self.count = len(devices) * replicas_per_device
        self.averages = options.averages(self.count)
        self.alpha = options.alpha_for(self.count)
        self.slots = options.staleness + 1 if self.averages else 0
        self.layout = VariableLayout.of_graph(program.graph)
        _check_combination(self.layout)
        self.replicas: list[Replica] = []
        self.central: list[CentralModel] = []
        self._z_events: dict[int, list[Event]] = {}  # by averaging number, one per device
        self._last: list[Event | None] = [None] * self.count  # the last enqueued task of each replica
        self._all_reduce = all_reduce
        self._closed = False
        try:
            self._build(program, shapes, ring)
        except BaseException:
            self.close()
            raise

    def _build(self, program: StepProgram, shapes: Sequence[TensorSpec], ring: int) -> None:
        name = f"engine-{next(_numbers)}"
        executables: dict[str, Executable] = {}
        for device in self.devices:
            if device.kind not in executables:
                executables[device.kind] = program.compile(
                    shapes, self.layout, backend_for(device), self.slots, self.options.clear_velocity
                )
            self._require_room(device, executables[device.kind], ring)
        for place, device in enumerate(self.devices):
            if self.averages:
                executable = self._central_executable(device, self.per_device)
                mu = self.options.mu
                self.central.append(CentralModel(device, self.layout, executable, self.slots, mu, name))
            for local in range(self.per_device):
                replica = Replica(
                    place * self.per_device + local,
                    device,
                    executables[device.kind],
                    self.layout,
                    self.central[place].bases_for(local) if self.averages else {},
                    ring=ring,
                    name=name,
                )
                self.replicas.append(replica)
                replica.set_state({"replica": replica.index})
                if self.averages:
                    replica.set_state({"alpha": self.alpha})
        self.executable = self.replicas[0].executable
        if len(self.central) > 1:
            if self._all_reduce is None:
                self._all_reduce = InProcessAllReduce(self.devices[0], f"{name} all-reduce")
            self._all_reduce.connect([model.vectors() for model in self.central])

    def _central_executable(self, device: Device, replicas: int) -> Executable:
        return central_executable(self.layout, backend_for(device), replicas, self.slots)

    def _require_room(self, device: Device, executable: Executable, ring: int) -> None:
        shared = (Region.CENTRAL, Region.CORRECTIONS) if self.averages else ()

        def central_blocks(replicas: int) -> list[int]:
            if not self.averages:
                return []
            return CentralModel.blocks(self._central_executable(device, replicas))

        blocks = Replica.blocks(executable, self.layout, shared, ring)
        require_room(device, self.per_device, blocks, central_blocks)

    # Enqueueing ---------------------------------------------------------------------------------

    def launch(self, index: int, round: int, inputs: Sequence[Array], state: Mapping[str, Any]) -> Event:
        """Enqueues a learning task; the inputs must stay unchanged until the event is done."""
        segment, after = SEGMENT_UPDATE, None
        if self.averages and (round + 1) % self.options.tau == 0:
            number = self._averagings(round) - 1
            segment = averaging_segment(number % self.slots)
            events = self._z_events.get(number - self.slots)
            after = events[index // self.per_device] if events else None
        done = self.replicas[index].launch(round, inputs, state, segment, after)
        self._last[index] = done
        return done

    def _averagings(self, round: int) -> int:
        """Averagings up to and including the one of this round."""
        return (round + 1) // self.options.tau

    def synchronise(self, round: int) -> list[Event]:
        """Enqueues the averaging of a round, all of whose tasks are enqueued; an event per device."""
        number = self._averagings(round) - 1
        slot = number % self.slots
        reduced = [model.reduce(slot, self._tasks_of(place)) for place, model in enumerate(self.central)]
        total = self._all_reduce.post(reduced) if self._all_reduce is not None else None
        moved = [model.move(slot, total) for model in self.central]
        self._z_events[number] = moved
        self._z_events.pop(number - self.slots, None)
        return moved

    def restart(self, round: int) -> None:
        """Enqueues w_i = z, u = 0 after a round and its averaging; no older z is read afterwards.

        Before the first averaging z is what it started from.
        """
        slot = (self._averagings(round) - 1) % self.slots
        cleared = [model.restart(slot) for model in self.central]
        for index, replica in enumerate(self.replicas):
            after = cleared[index // self.per_device]
            self._last[index] = replica.restart(restart_segment(slot), after)
        for number in self._z_events:
            self._z_events[number] = cleared

    def _tasks_of(self, place: int) -> list[Event]:
        first = place * self.per_device
        return [event for event in self._last[first : first + self.per_device] if event is not None]

    def prepare(self) -> None:
        """Before a run: the sticky status of a run that failed is cleared.

        Raises FailedPreconditionError after `close`, or for variables without a value.
        """
        if self._closed:
            raise FailedPreconditionError("the replicas are closed; make a new engine")
        for replica in self.replicas:
            replica.container.require_initialized(self.executable.reads_first)
            replica.set_state({"status": 0})

    def drain(self) -> BaseException | None:
        """Waits until nothing is in flight; makes failed streams usable again. The first error, or None."""
        first: BaseException | None = None
        streams = self._streams()
        for stream in streams:
            try:
                stream.synchronize()
            except Exception as error:
                first = first or error
        for stream in streams:
            if stream.error is not None:
                stream.reset()
        self._z_events.clear()
        self._last = [None] * self.count
        return first

    def _streams(self) -> list[Stream]:
        owners: list[Replica | CentralModel] = [*self.replicas, *self.central]
        streams = [owner.group.compute for owner in owners]
        return [*streams, *(self._all_reduce.streams if self._all_reduce is not None else ())]

    # Values, while nothing runs -----------------------------------------------------------------

    def initialize(self, values: Mapping[str, Array]) -> None:
        """Starts from these values of the variables: z_d = z, w_i = z, u = 0.

        Optimiser slots that are not given start at 0. A variable whose replicas' values are summed keeps its
        value in replica 0 and starts at 0 in the others.
        Raises InvalidArgumentError or NotFoundError for values that do not fit, before any change.
        """
        operations = {op.name: op for op in self.layout.variables}
        slots = {name for name, op in operations.items() if op.attrs["role"] == "slots"}
        missing = sorted(operations.keys() - slots - values.keys())
        if missing:
            raise InvalidArgumentError(
                f"initialize: no value for {_some(missing)}; give one for every variable of the step"
            )
        for replica in self.replicas:
            replica.container.load(values)
            for name in slots - values.keys():
                replica.container.view(name)[...] = 0
            replica.container.initialized.update(slots)
            if replica.index:
                for name, op in operations.items():
                    if op.attrs["combine"] == "sum":
                        replica.container.view(name)[...] = 0
        first = self.replicas[0].container
        for model in self.central:
            model.fill({name: first.view(name) for name in model.weights(0)})

    def central_values(self, round: int) -> dict[str, Array]:
        """The central model at the end of round `round` - 1: weights and other variables, copied.

        Without averaging it is replica 0's.
        """
        values = self.replica_values(0)
        for op in self.layout.variables:
            if op.attrs["role"] == "slots":
                del values[op.name]
            elif self.averages and op.attrs["combine"] in ("mean", "sum"):
                values[op.name] = self._combined(op.name, op.attrs["combine"])
        if self.averages:
            slot = (round // self.options.tau - 1) % self.slots
            for name, view in self.central[0].weights(slot).items():
                values[name] = view.copy()
        return values

    def _combined(self, name: str, how: str) -> Array:
        """The sum or mean of a variable over the replicas, in their order; a mean of integers rounds down."""
        total, *others = (replica.container.read(name) for replica in self.replicas)
        for other in others:
            total += other
        if how == "mean":
            divide = np.true_divide if total.dtype.kind == "f" else np.floor_divide
            divide(total, total.dtype.type(self.count), out=total)
        return total

    def replica_values(self, index: int) -> dict[str, Array]:
        """All variables of a replica, slots included, copied."""
        container = self.replicas[index].container
        return {name: container.read(name) for name in self.layout.refs()}

    def state_arrays(self) -> dict[str, Array]:
        """Everything the next step depends on, by name, copied: the content of a checkpoint."""
        arrays: dict[str, Array] = {}
        for replica in self.replicas:
            for name, value in self.replica_values(replica.index).items():
                arrays[f"replica{replica.index}/{name}"] = value
        if self.averages:
            for slot in range(self.slots):
                for name, view in self.central[0].weights(slot).items():
                    arrays[f"central{slot}/{name}"] = view.copy()
            for name, view in self.central[0].velocity().items():
                arrays[f"velocity/{name}"] = view.copy()
        return arrays

    def load_state_arrays(self, arrays: Mapping[str, Array]) -> None:
        """The reverse of `state_arrays`.

        Raises InvalidArgumentError for names, shapes or dtypes that do not fit, before any change.
        """
        targets = self._targets()
        missing, unknown = sorted(targets.keys() - arrays.keys()), sorted(arrays.keys() - targets.keys())
        if missing or unknown:
            raise InvalidArgumentError(
                f"the checkpoint does not fit this model and these replicas: missing {_some(missing)}; "
                f"unexpected {_some(unknown)}; resume with the options it was written with"
            )
        for name, views in targets.items():
            have, want = arrays[name], views[0]
            if have.shape != want.shape or have.dtype != want.dtype:
                raise InvalidArgumentError(
                    f"the checkpoint does not fit: {name} is {have.dtype}{list(have.shape)}, "
                    f"expected {want.dtype}{list(want.shape)}"
                )
        for name, views in targets.items():
            for view in views:
                view[...] = arrays[name]
        for replica in self.replicas:
            replica.container.initialized.update(self.layout.refs())

    def _targets(self) -> dict[str, list[Array]]:
        targets: dict[str, list[Array]] = {}
        for replica in self.replicas:
            for name in self.layout.refs():
                targets[f"replica{replica.index}/{name}"] = [replica.container.view(name)]
        for model in self.central:
            for slot in range(self.slots):
                for name, view in model.weights(slot).items():
                    targets.setdefault(f"central{slot}/{name}", []).append(view)
            for name, view in model.velocity().items():
                targets.setdefault(f"velocity/{name}", []).append(view)
        return targets

    def close(self) -> None:
        """Closes all streams and gives all memory back; idempotent."""
        self._closed = True
        if self._all_reduce is not None:
            self._all_reduce.close()
            self._all_reduce = None
        owners: list[Replica | CentralModel] = [*self.replicas, *self.central]
        for owner in owners:
            owner.close()
        self.replicas, self.central = [], []


def _check_combination(layout: VariableLayout) -> None:
    """Weights are averaged while training, all others only when z is read."""
    for op in layout.variables:
        how, is_weight = op.attrs["combine"], op.attrs["role"] == "weights"
        if is_weight != (how == "sma") and op.attrs["role"] != "slots":
            kind, ways = ("trainable", "sma") if is_weight else ("not trainable", "mean, sum or first")
            raise InvalidArgumentError(
                f"variable {op.name} is {kind}, so its replicas combine by {ways}, not {how} "
                f"(made at {op.source})"
            )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
