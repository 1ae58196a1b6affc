"""A parameter shard: variables that all workers share, and the optimisers that update them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from replicator.asynchronous.checkpoint_writer import CheckpointWriter
from replicator.asynchronous.pushes import Contribution, SharedStep
from tensorbow.errors import InvalidArgumentError
from tensorbow.files import shown
from tensorbow.graph import GLOBAL_VARIABLES, Graph, Operation, Tensor, convert_to_tensor
from tensorbow.ops.control import placeholder
from tensorbow.ops.indexed_slices import IndexedSlices
from tensorbow.runtime import Session
from tensorbow.specs import Array, as_dtype, int64
from tensorbow.training import RollingCheckpoints
from tensorbow.variables import Variable

LIFE_BITS = 32  # of a sequence number: those above them count the processes of a worker


class ParameterShard:
    """Some of a step's variables, which it updates by the gradients that workers push (OSDI 2016, 4.4).

    Each push has its worker's number and a sequence number that grows; one that comes again, because its
    answer was lost, changes nothing. With a folder the shard saves itself every `save_every` pushes, in the
    background, and a new one goes on from the newest checkpoint there.
    """

    def __init__(
        self,
        step: SharedStep,
        owned: Sequence[str],
        state: Mapping[str, Array] | None = None,
        folder: Path | None = None,
        save_every: int = 100,
    ):
        """owned: names of its variables. state: values by name, slots too, of those that are given.

        Raises InvalidArgumentError for a state or a checkpoint of other variables, and as `push`.
        """
        self._graph = Graph()
        self._applied: dict[int, int] = {}  # the last sequence number of each worker
        self.pushes = 0  # that were applied
        self._save_every = save_every
        self._writer: CheckpointWriter | None = None
        self._feeds: list[dict[str, Tensor | tuple[Tensor, Tensor]]] = []  # by push and variable
        self._deltas: dict[str, Tensor] = {}
        updates: list[Operation] = []
        with self._graph.as_default():
            wanted = set(owned)
            self._variables = {
                spec.name: Variable(spec.value, spec.trainable, name=spec.name, decayed=spec.decayed)
                for spec in step.variables
                if spec.name in wanted
            }
            for push in step.pushes:
                feeds, pairs = dict[str, Any](), list[Any]()
                for name in push.variables:
                    if name in self._variables:
                        feeds[name], gradient = self._fed_gradient(name, push.rows.get(name))
                        pairs.append((gradient, self._variables[name]))
                self._feeds.append(feeds)
                if pairs:
                    updates.append(push.optimizer.apply_gradients(pairs))
            for name in step.written:
                if name in self._variables:
                    variable = self._variables[name]
                    self._deltas[name] = delta = placeholder(variable.dtype, variable.shape)
                    is_number = variable.dtype.is_floating or variable.dtype.is_integer
                    updates.append((variable.assign_add if is_number else variable.assign)(delta).op)
            self._all = {
                variable.op.name: variable for variable in self._graph.get_collection(GLOBAL_VARIABLES)
            }
            self._session = Session(graph=self._graph)
            self._session.run([variable.initializer for variable in self._all.values()])
            self._update = self._session.make_callable(
                [[*self._variables.values()], updates], [*self._fed_tensors()]
            )
            self._read = self._session.make_callable([*self._variables.values()])
        if state is not None:
            self.load(state)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            checkpoints = RollingCheckpoints(folder)
            self._go_on(checkpoints)
            self._writer = CheckpointWriter(checkpoints)

    def _fed_gradient(self, name: str, rows: int | None) -> tuple[Any, Any]:
        """Placeholders of a gradient, and the gradient that they make."""
        variable = self._variables[name]
        if rows is None:
            fed = placeholder(variable.dtype, variable.shape)
            return fed, fed
        values = placeholder(variable.dtype, [rows, *variable.shape.as_list()[1:]])
        indices = placeholder(int64, [rows])
        shape = convert_to_tensor(np.array(variable.shape.as_list(), np.int64))
        return (values, indices), IndexedSlices(values, indices, shape)

    def _fed_tensors(self) -> list[Tensor]:
        fed: list[Tensor] = []
        for feeds in self._feeds:
            for each in feeds.values():
                fed += each if isinstance(each, tuple) else (each,)
        return [*fed, *self._deltas.values()]

    def _go_on(self, checkpoints: RollingCheckpoints) -> None:
        newest, _ = checkpoints.newest()
        if newest is None:
            checkpoints.save(self.pushes, *self._checkpoint())
        else:
            missing = sorted(set(self._all) - set(newest.arrays))
            if missing:
                raise InvalidArgumentError(
                    f"{shown(newest.path)} has no {missing[0]}, which the shard has now: it is of another "
                    "model or optimizer; give another folder"
                )
            self.load(newest.arrays)
            self.pushes = int(newest.metadata["round"])
            self._applied = {int(worker): int(last) for worker, last in newest.metadata["applied"].items()}

    def _checkpoint(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and metadata of a checkpoint of this moment."""
        applied = {str(worker): last for worker, last in self._applied.items()}
        return self.state(), {"round": self.pushes, "applied": applied}

    def last_of(self, worker: int) -> int:
        """The sequence number of a worker's last push that was applied; -1 if there was none."""
        return self._applied.get(worker, -1)

    def pull(self) -> dict[str, Array]:
        """The values of its variables, by name."""
        return dict(zip(self._variables, self._read(), strict=True))

    def push(self, worker: int, sequence: int, contribution: Contribution) -> dict[str, Array]:
        """Applies what a worker's step changes, once; returns the values of its variables.

        sequence: of the worker's steps. Raises InvalidArgumentError for gradients that are not those of the
        step, ResourceExhaustedError if an earlier checkpoint could not be written.
        """
        if sequence <= self.last_of(worker):
            return self.pull()
        fed: list[Array] = []
        for number, (feeds, gradients) in enumerate(zip(self._feeds, contribution.gradients, strict=True)):
            if set(feeds) != set(gradients):
                raise InvalidArgumentError(
                    f"push {number} of worker {worker}: expected gradients of {', '.join(sorted(feeds))}, "
                    f"got {', '.join(sorted(gradients)) or 'none'}"
                )
            for name, tensor in feeds.items():
                gradient = gradients[name]
                if isinstance(tensor, tuple) != isinstance(gradient, tuple):
                    raise InvalidArgumentError(
                        f"push {number} of worker {worker}: {name}: rows or dense differ"
                    )
                fed += gradient if isinstance(gradient, tuple) else (gradient,)
        fed += [contribution.added[name] for name in self._deltas]
        values, _ = self._update(*fed)
        self._applied[worker] = sequence
        self.pushes += 1
        if self._writer is not None and self.pushes % self._save_every == 0:
            self._writer.write(self.pushes, *self._checkpoint())
        return dict(zip(self._variables, values, strict=True))

    def state(self) -> dict[str, Array]:
        """The values of all variables by name, slots and counters of optimisers too."""
        return dict(zip(self._all, self._session.run([*self._all.values()]), strict=True))

    def load(self, state: Mapping[str, Array]) -> None:
        """Sets variables and slots; names that this shard has not are ignored.

        Raises InvalidArgumentError for another shape or dtype.
        """
        own = {name: value for name, value in state.items() if name in self._all}
        for name, value in own.items():
            spec = self._all[name]
            if tuple(spec.shape.as_list()) != value.shape or spec.dtype is not as_dtype(value.dtype):
                raise InvalidArgumentError(
                    f"{name}: expected {spec.dtype.name} {spec.shape}, got {value.dtype} {value.shape}"
                )
        self._session.load_variables(own)

    def close(self) -> None:
        """Writes a last checkpoint, and frees memory and threads. Idempotent. Raises as `push`."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                try:
                    writer.write(self.pushes, *self._checkpoint())
                finally:
                    writer.close()
        finally:
            self._session.close()


def first_sequence(last: int) -> int:
    """The sequence number of the first push of a worker that begins, or begins again.

    last: its last that was applied, -1 if there was none. Pushes of its earlier process that are still on
    their way have lower numbers, and do not pass for one of the new process.
    """
    return ((last >> LIFE_BITS) + 1) << LIFE_BITS


def shared_out(step: SharedStep, shards: int) -> list[list[str]]:
    """Names of the variables of each shard: the largest first, each to the shard with the fewest bytes.

    Raises InvalidArgumentError for more shards than variables: each is a process, and has one at least.
    """
    if shards > len(step.variables):
        raise InvalidArgumentError(
            f"num_shards: expected at most {len(step.variables)}, as many as step_fn has variables, since "
            f"each shard is a process that keeps whole variables, got {shards}; give fewer"
        )
    owned: list[list[str]] = [[] for _ in range(shards)]
    load = [0] * shards
    for variable in sorted(step.variables, key=lambda each: (-each.value.nbytes, each.name)):
        least = load.index(min(load))
        owned[least].append(variable.name)
        load[least] += variable.value.nbytes
    return owned
