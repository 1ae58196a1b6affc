"""Replicator whose workers train asynchronously, around variables at parameter shards."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from replicator.asynchronous.pushes import PushingOptimizer
from replicator.asynchronous.ray_actors import AsyncProcesses, ray_library
from replicator.asynchronous.shard_files import any_folders, other_folders, state_in
from replicator.input_functions import InputFunction, InputOptions, SmallerBatch
from tensorbow.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError
from tensorbow.files import shown
from tensorbow.graph import get_default_graph
from tensorbow.kinds import (
    AsPath,
    Count,
    Function,
    NonNegative,
    Positive,
    PositiveNumber,
    Text,
    checked,
    instance,
)
from tensorbow.optimizers import Optimizer
from tensorbow.specs import Array
from tensorbow.training import load_arrays, make_folder, save_arrays

AsAnOptimizer = Annotated[Any, instance(Optimizer, PushingOptimizer, expected="an optimizer")]


class MultiWorkerAsyncReplicator:
    """Trains a step by workers that do not wait for each other (TF-Replicator, section 3.1; OSDI 2016, 4.4).

    The variables live at parameter shards. Each worker, a process of its own, reads them, computes the
    gradients of its own batch and pushes them; the optimiser, at the shards, applies each push when it comes.
    Any worker may die: the others go on, and it is started again. A shard that dies begins again with its
    newest checkpoint, and no push is applied twice. Not reproducible. Workers never meet: collectives and
    `tb.replica_id` are refused in the step. Needs `pip install 'tensorbow[async]'`, which brings Ray.

        replicator = tb.MultiWorkerAsyncReplicator(num_workers=4)
        for loss in replicator.train(step_fn, input_fn, steps=1000):
            print(loss)
    """

    @checked
    def __init__(
        self,
        num_workers: Positive = 2,
        num_shards: Positive = 1,
        *,
        staleness: Count | None = None,
        folder: AsPath | None = None,
        save_every: Positive = 100,
        worker_timeout_s: PositiveNumber = 10.0,
        address: Text | None = None,
        device: Text = "/cpu:0",
        gpus_per_worker: NonNegative = 0,
    ):
        """num_shards: processes that the variables are shared out to, by size; at most as many as variables.

        staleness: a worker waits while it is more than so many steps ahead of the slowest; None: it never
            waits. Workers that are not heard of for `worker_timeout_s` are not waited for.
        folder: of the shards' checkpoints, written every `save_every` pushes; by default a temporary one on
            this machine. Shards on several machines need one that all of them can read. A training does not
            begin in one that has another's checkpoints, unless `restore(folder)` goes on from them.
        address: of a running Ray cluster, such as "10.0.0.1:6379" (`ray start --head`, and on the other
            machines `ray start --address=...`). By default processes of this machine, which listen on the
            loopback address and ask for a token that only they have.
        device: of each worker. gpus_per_worker: GPUs that Ray gives each; with 1 give device="/gpu:0".
        """
        self.num_workers, self.num_shards = num_workers, num_shards
        self._limits = staleness, worker_timeout_s
        self._folder = None if folder is None else Path(folder)
        self._save_every = save_every
        self._address = address
        self._device, self._gpus = device, gpus_per_worker
        self._processes: AsyncProcesses | None = None
        self._state: Mapping[str, Array] | None = None  # at the beginning of the next training
        self._owns_folder = False  # its checkpoints are of this object's last training
        self._goes_on = False  # `_state` comes from the folder's checkpoints
        self._last: Mapping[str, Array] | None = None  # when the last one ended
        self._names: list[str] = []  # of the model's variables
        self.steps_by_worker: list[int] = []
        """Number of steps that each worker has done, of the last `train`."""

    def __reduce__(self) -> Any:  # a step_fn may refer to it: its processes stay here
        return _without_processes, (self.num_workers, self.num_shards)

    @property
    def num_replicas(self) -> int:
        """Number of workers, each of which has one replica."""
        return self.num_workers

    @checked
    def wrap_optimizer(self, optimizer: AsAnOptimizer) -> PushingOptimizer:
        """Wraps an optimiser for use in `step_fn`: gradients are pushed, and applied at the shards.

        A schedule counts the pushes of all workers. Raises InvalidArgumentError for an optimiser whose
        options are tensors.
        """
        return optimizer if isinstance(optimizer, PushingOptimizer) else PushingOptimizer(optimizer)

    @checked
    def train(
        self,
        step_fn: Function,
        input_fn: InputFunction | None = None,
        steps: Count | None = None,
        *,
        smaller_batch: SmallerBatch = "error",
        prefetch: Count = 1,
    ) -> Iterator[Any]:
        """Runs `steps` steps of all workers together, or until their inputs end; yields results as they come.

        step_fn, input_fn: as of `Replicator.train`; they are sent to the workers, so that they make their
        variables, models and data themselves. The context's replica_id is the worker's number; a worker that
        is started again begins its inputs anew. What a step adds to variables that are not trainable, such as
        moving averages, is added at the shards.
        Yields results of one worker's step: arrays `[1, ...]` in the nest that step_fn returns, None for
        operations. Raises an error of a worker's step or inputs, naming the worker, InvalidArgumentError or
        UnimplementedError for a step that cannot be asynchronous, InvalidArgumentError for one with fewer
        variables than there are shards, UnimplementedError without Ray, AlreadyExistsError for a folder with
        another training's checkpoints, ResourceExhaustedError or InvalidArgumentError for one that cannot be
        made. Begins with the values of the initialisers, or those of `restore`.
        """
        if self._processes is not None:
            raise FailedPreconditionError("train: this Replicator trains already; end that loop first")
        inputs = InputOptions(input_fn, smaller_batch=smaller_batch, prefetch=prefetch)
        return self._train(step_fn, inputs, steps)

    def _train(self, step_fn: Any, inputs: InputOptions, steps: int | None) -> Iterator[Any]:
        if self._folder is not None:
            make_folder(self._folder)  # before Ray starts, which takes seconds
        ray = ray_library(self._address)
        folder = Path(tempfile.mkdtemp(prefix="tensorbow-shards-")) if self._folder is None else self._folder
        staleness, timeout_s = self._limits
        try:
            self._take_over(folder)
            processes = self._processes = AsyncProcesses(
                ray,
                step_fn,
                inputs,
                self.num_workers,
                self.num_shards,
                (steps, staleness, timeout_s),
                folder,
                self._save_every,
                self._state,
                get_default_graph().seed,
                self._device,
                self._gpus,
            )
            self._names, self._state = [variable.name for variable in processes.step.variables], None
            self._owns_folder, self._goes_on = True, False
            for path in other_folders(folder, self.num_shards):
                shutil.rmtree(path, ignore_errors=True)  # of the training that this one goes on from
            is_over, done = False, 0
            while not is_over:
                results, is_over, self.steps_by_worker = processes.take()
                for _, result in results:
                    yield result
                done += len(results)
            if steps is not None and done < steps:
                warnings.warn(
                    f"train: {done} of {steps} steps: the inputs of all workers have ended; have "
                    "input_fn give more, or ask for fewer steps",
                    stacklevel=2,
                )
        except KeyboardInterrupt:  # of this process: Ray's frames say nothing
            raise KeyboardInterrupt("training by asynchronous workers was interrupted") from None
        finally:
            self.shutdown()
            if self._folder is None:
                shutil.rmtree(folder, ignore_errors=True)

    def _take_over(self, folder: Path) -> None:
        """Makes the folder this training's. Raises AlreadyExistsError for another training's checkpoints."""
        found = any_folders(folder)
        if found and not (self._owns_folder or self._goes_on):
            raise AlreadyExistsError(
                f"folder: {shown(folder)} has checkpoints of an earlier training; call restore(folder) to go "
                "on from them, or give another folder"
            )
        if not self._goes_on:
            for path in found:  # of this object's last training
                shutil.rmtree(path, ignore_errors=True)
            self._owns_folder = True

    def shutdown(self, session: Any = None) -> None:
        """Ends the processes, and keeps `central_values`. Idempotent."""
        processes, self._processes = self._processes, None
        if processes is None:
            return
        try:
            processes.end()
            self._last = processes.state()
            if self._folder is not None:
                processes.end_shards()
        finally:
            processes.close()

    def _values(self, what: str) -> Mapping[str, Array]:
        if self._processes is not None:
            return self._processes.state()
        if self._last is None:
            raise FailedPreconditionError(f"{what}: there are no values before train()")
        return self._last

    def central_values(self) -> dict[str, Array]:
        """Variables by name, without optimisers' slots, also while training; after it the last ones.

        Raises FailedPreconditionError before `train`.
        """
        values = self._values("central_values")
        return {name: values[name] for name in self._names}

    @checked
    def save(self, path: AsPath) -> int:
        """Saves the shards' variables and slots; returns the number of steps done.

        The positions of inputs are not saved. Raises FailedPreconditionError before `train`,
        ResourceExhaustedError when the file cannot be written.
        """
        steps = sum(self.steps_by_worker)
        save_arrays(Path(path), self._values("save"), {"kind": "asynchronous", "steps": steps})
        return steps

    @checked
    def restore(self, path: AsPath) -> int:
        """Has the next `train` begin with what `save` wrote; returns the number that `save` returned.

        path: of a file of `save`, or a `folder` with the shards' checkpoints, as a program that died has left
        them; then returns the number of pushes that the newest have. The number of workers and shards may be
        another. Raises InvalidArgumentError for a file of something else, NotFoundError or DataLossError for
        what is missing or damaged, FailedPreconditionError while training.
        """
        if self._processes is not None:
            raise FailedPreconditionError("restore: this Replicator trains; end that loop first")
        if Path(path).is_dir():
            self._state, pushes = state_in(Path(path))
            self._goes_on = self._folder is not None and self._folder.resolve() == Path(path).resolve()
            return pushes
        arrays, metadata = load_arrays(Path(path))
        if metadata.get("kind") != "asynchronous":
            raise InvalidArgumentError(
                f"restore: expected a file of MultiWorkerAsyncReplicator.save, got {path}, which is not one"
            )
        self._state, self._goes_on = {name: np.asarray(value) for name, value in arrays.items()}, False
        return int(metadata["steps"])

    def __enter__(self) -> MultiWorkerAsyncReplicator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        staleness, _ = self._limits
        bound = "" if staleness is None else f"; staleness at most {staleness}"
        return f"<tb.MultiWorkerAsyncReplicator {self.num_workers} workers, {self.num_shards} shards{bound}>"


def _without_processes(workers: int, shards: int) -> MultiWorkerAsyncReplicator:
    """The Replicator as a worker has it: it wraps optimisers."""
    return MultiWorkerAsyncReplicator(workers, shards)
