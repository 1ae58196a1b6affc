"""Processes of asynchronous training: each part as an actor of Ray, started and watched from here."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from replicator.asynchronous.async_worker import AsyncWorker
from replicator.asynchronous.coordinator import GO, WAIT, StepCoordinator
from replicator.asynchronous.parameter_shard import ParameterShard, first_sequence, shared_out
from replicator.asynchronous.pushes import SharedStep
from replicator.asynchronous.sent_functions import pickled
from replicator.asynchronous.shard_files import shard_folders
from replicator.input_functions import InputOptions
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    OutOfRangeError,
    TensorBowError,
    UnimplementedError,
)
from tensorbow.specs import Array

LOOK_S = 0.2  # time after which a worker that waits asks anew, as another may have died
TAKE_S = 0.5  # longest wait of `take`
GATHER_S = 0.005  # then more results may come with the first
RAYS_NEWS = (
    r"A worker died or was killed while|infinite retries remaining|actor died unexpectedly"  # told here
)
MESSAGE_NBYTES = 1 << 20  # pushes and values up to this size are sent directly, greater ones by shared memory
FOR_EVER = -1  # Ray's number of restarts and retries
MOST_STARTS = 3  # processes of a worker that may die before one has traced the step

_logger = logging.getLogger("tensorbow.replicator")


def ray_library(address: str | None) -> Any:
    """The module ray, connected to a cluster, by default to one of this process's own.

    That one listens on the loopback address alone, and asks for a token that only its processes have. A
    cluster at an address must ask for one too, unless RAY_AUTH_MODE says "disabled". Raises
    UnimplementedError without Ray, AbortedError for a cluster that cannot be reached, FailedPreconditionError
    for another one than this process is connected to.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # else it listens on all addresses
        os.environ.setdefault("RAY_worker_niceness", "0")  # else 15: they yield to all else
        # Else 100 KB. Shared memory costs several messages to its server for each object.
        os.environ.setdefault("RAY_max_direct_call_object_size", str(MESSAGE_NBYTES))
        if os.environ["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", RAYS_NEWS)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UnimplementedError(
            f"MultiWorkerAsyncReplicator: expected Ray, which carries its workers: {error}; "
            "pip install 'tensorbow[async]'"
        ) from None
    if ray.is_initialized():
        _require_connection(ray, address)
        return ray
    own: dict[str, Any] = {} if address is not None else {"include_dashboard": False, "num_cpus": 1}
    try:
        ray.init(address=address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
    except Exception as error:
        raise AbortedError(
            f"MultiWorkerAsyncReplicator: Ray at {address or 'this machine'}: {type(error).__name__}: "
            f"{error}; start it by `ray start --head` with RAY_AUTH_MODE=token, and give its address and, in "
            "RAY_AUTH_TOKEN, its token"
        ) from error
    return ray


def _require_connection(ray: Any, address: str | None) -> None:
    """Raises FailedPreconditionError if this process is connected to a cluster elsewhere than expected."""
    if address is None or address == "auto":
        return
    found = str(ray.get_runtime_context().gcs_address)
    if address != found and _resolved(address).isdisjoint(_resolved(found)):
        raise FailedPreconditionError(
            f"MultiWorkerAsyncReplicator: expected Ray at address {address}, but this process is connected "
            f"to Ray at {found} since an earlier training or ray.init; leave out address to use that one, or "
            "call ray.shutdown() before"
        )


def _resolved(address: str) -> set[tuple[str, str]]:
    """A cluster's address as numbers, all that its name has, and port; an unknown name stays."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        return {(str(entry[4][0]), port) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return {(host, port)}


class CoordinatorActor:
    """The coordinator, asked by all workers at once; keeps what actors need that begin, or begin again."""

    def __init__(self, *arguments: Any):
        """arguments: of `StepCoordinator`."""
        self._state = StepCoordinator(*arguments)
        self._kept: dict[str, Any] = {}
        self._changed = asyncio.Condition()
        self._lives: dict[int, int] = {}  # of each worker: how often it has begun
        self._starts: dict[int, int] = {}  # of each worker that has not traced its step: of its process
        self._shards: set[str] = set()  # that have begun
        self._news: list[str] = []

    async def keep(self, name: str, value: Any) -> None:
        """Keeps a value for actors."""
        self._kept[name] = value

    async def begin_shard(self, name: str) -> None:
        """Takes note that a shard begins, or begins again."""
        if name in self._shards:
            self._news.append(f"{name} has died, and begins again with its newest checkpoint")
        self._shards.add(name)

    async def start_worker(self, worker: int) -> int:
        """Counts processes of a worker that have begun to trace the step; returns how many in vain so far."""
        self._starts[worker] = self._starts.get(worker, 0) + 1
        return self._starts[worker]

    async def has_traced(self, worker: int) -> None:
        """A worker has traced the step: from now on it may die as often as it likes."""
        self._starts[worker] = -sys.maxsize

    async def kept(self, name: str) -> Any:
        """A value that is kept."""
        return self._kept[name]

    async def join(self, worker: int) -> int:
        """Lets a worker begin; the number of its life, which its later calls give."""
        async with self._changed:
            self._state.join(worker, time.monotonic())
            self._lives[worker] = self._lives.get(worker, 0) + 1
            self._changed.notify_all()
            return self._lives[worker]

    async def next(self, worker: int, life: int, result: Any) -> bool:
        """Takes the result of a worker's step, if it is not None; True when it may begin another."""
        async with self._changed:
            if result is not None and self._lives[worker] == life:
                self._state.finish(worker, result[0], time.monotonic())
                self._changed.notify_all()
            while self._lives[worker] == life:
                answer = self._state.ask(worker, time.monotonic())
                if answer != WAIT:
                    self._changed.notify_all()
                    return answer == GO
                await self._wait(LOOK_S)
            return False  # the process counts as ended, or a new one has begun

    async def _wait(self, longest_s: float) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), longest_s)
        except asyncio.TimeoutError:
            return

    async def leave(self, worker: int) -> None:
        """A worker has no more inputs."""
        async with self._changed:
            self._state.leave(worker)
            if self._state.lacks_steps:
                own = self._state.steps_by_worker[worker]
                self._news.append(f"the inputs of worker {worker} have ended after {own} steps; others go on")
            self._changed.notify_all()

    async def lose(self, worker: int) -> None:
        """A worker's process has ended: others take over its step, and do not wait until it begins again."""
        async with self._changed:
            self._state.leave(worker)
            self._lives[worker] = self._lives.get(worker, 0) + 1
            self._news.append(f"worker {worker} has died, and is started again")
            self._changed.notify_all()

    async def is_current(self, worker: int, life: int) -> bool:
        """False if a worker with this life was taken for lost."""
        return self._lives[worker] == life

    async def take(self) -> tuple[list[tuple[int, Any]], bool, list[int], list[str]]:
        """Results that are there, True if no more come, the steps that each worker has done, and news."""
        async with self._changed:
            if not self._state.results and not self._state.is_over:
                await self._wait(TAKE_S)
        await asyncio.sleep(GATHER_S)
        async with self._changed:
            taken = [*self._state.results]
            self._state.results.clear()
            news, self._news = self._news, []
            self._changed.notify_all()
            return taken, self._state.is_over, self._state.steps_by_worker, news

    async def process(self) -> int:
        """Number of its process."""
        return os.getpid()

    async def end(self) -> None:
        """No step begins any more."""
        async with self._changed:
            self._state.end()
            self._changed.notify_all()


def _kept_by(coordinator: str, *names: str) -> list[Any]:
    """Values that the coordinator keeps, also for actors that begin again."""
    import ray

    actor = ray.get_actor(coordinator)
    kept: list[Any] = ray.get([actor.kept.remote(name) for name in names])
    return kept


def _begin_shard(coordinator: str, name: str) -> None:
    import ray

    ray.get(ray.get_actor(coordinator).begin_shard.remote(name))


class ShardActor(ParameterShard):
    """A shard with the process that it lives in."""

    def __init__(self, coordinator: str, *arguments: Any):
        """coordinator: its name; it has step and state. arguments: others of `ParameterShard`."""
        names, folder, *others = arguments
        step, state = _kept_by(coordinator, "step", "state")
        _begin_shard(coordinator, folder.name.replace("-", " "))
        super().__init__(step, names, state, folder, *others)

    def process(self) -> int:
        """Number of its process."""
        return os.getpid()


class WorkerActor:
    """A worker with the process that it lives in."""

    def __init__(self, coordinator: str, *arguments: Any):
        """coordinator: its name; it has step_fn and inputs, pickled. arguments: others of `AsyncWorker`.

        Calls raise what goes wrong here, with its class: Ray makes text of an error of a constructor.
        """
        self._number: int = arguments[0]
        self._made: AsyncWorker | Exception
        try:
            self._made = self._traced(coordinator, *arguments)
        except Exception as error:
            self._made = error

    def _traced(self, coordinator: str, *arguments: Any) -> AsyncWorker:
        """The worker. Raises AbortedError where MOST_STARTS processes before this one have died in it."""
        import ray

        actor = ray.get_actor(coordinator)
        before = ray.get(actor.start_worker.remote(self._number)) - 1
        if before >= MOST_STARTS:
            raise AbortedError(
                f"its process has died {before} times while it traced the step: step_fn, input_fn or what "
                "they import ends it, as a crash of native code does; call step_fn in a process of its own "
                "to see how"
            )
        (functions,) = _kept_by(coordinator, "functions")
        step_fn, _, inputs = pickle.loads(functions)  # of the process that owns this one
        worker = AsyncWorker(step_fn, inputs, *arguments)
        ray.get(actor.has_traced.remote(self._number))
        return worker

    def _worker(self) -> AsyncWorker:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made

    def shared_step(self) -> SharedStep:
        """See AsyncWorker."""
        return self._worker().shared_step

    def process(self) -> int:
        """Number of its process."""
        return os.getpid()

    def stay(self) -> None:
        """Ends with the process."""
        threading.Event().wait()

    def run(self, coordinator: Any, shards: Sequence[Any], owned: Sequence[Sequence[str]]) -> bool:
        """Does steps until there are enough, or its inputs end; False if it was taken for lost meanwhile."""
        import ray

        worker, number = self._worker(), self._number
        life = ray.get(coordinator.join.remote(number))
        sequence = first_sequence(max(ray.get([shard.last_of.remote(number) for shard in shards])))
        values = _joined(ray.get([shard.pull.remote() for shard in shards]))
        may_begin = ray.get(coordinator.next.remote(number, life, None))
        while may_begin:
            try:
                result, contribution = worker.step(values)
            except OutOfRangeError:
                ray.get(coordinator.leave.remote(number))
                return True
            pushed = [
                shard.push.remote(number, sequence, contribution.of(names))
                for shard, names in zip(shards, owned, strict=True)
            ]
            answer = coordinator.next.remote(number, life, (result,))
            *parts, may_begin = ray.get([*pushed, answer])
            values = _joined(parts)
            sequence += 1
        is_current: bool = ray.get(coordinator.is_current.remote(number, life))
        return is_current


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: value for part in parts for name, value in part.items()}


class AsyncProcesses:
    """The actors of one training."""

    def __init__(
        self,
        ray: Any,
        step_fn: Callable[..., Any],
        inputs: InputOptions,
        workers: int,
        shards: int,
        limits: tuple[Any, ...],
        folder: Path,
        save_every: int,
        state: Mapping[str, Array] | None,
        seed: int | None,
        device: str,
        gpus: float,
    ):
        """limits: steps, staleness and timeout of the `StepCoordinator`. Raises as building it does."""
        self._ray = ray
        self._actors: list[Any] = []
        named = {"step_fn": step_fn, "input_fn": inputs.input_fn}
        sent = pickled(ray.cloudpickle.dumps, named, inputs)
        spread = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        lasting = {**spread, "max_restarts": FOR_EVER, "max_task_retries": FOR_EVER}
        try:
            name = f"tensorbow-{secrets.token_hex(8)}"
            coordinating = ray.remote(num_cpus=0)(CoordinatorActor).options(name=name)
            self.coordinator = self._kept(coordinating.remote(workers, *limits))
            ray.get(self.coordinator.keep.remote("functions", sent))
            worker_class = ray.remote(**lasting, num_gpus=gpus, max_concurrency=3)(WorkerActor)
            self.workers = [
                self._kept(worker_class.remote(name, number, workers, seed, device))
                for number in range(workers)
            ]
            steps = self._got([worker.shared_step.remote() for worker in self.workers])
            self.step: SharedStep = steps[0]
            owned = shared_out(self.step, shards)
            shard_class = ray.remote(**lasting)(ShardActor)
            given = {"step": self.step, "state": state}
            ray.get([self.coordinator.keep.remote(*each) for each in given.items()])
            self.shards = [
                self._kept(shard_class.remote(name, names, path, save_every))
                for names, path in zip(owned, shard_folders(folder, shards), strict=True)
            ]
            self._got([shard.last_of.remote(0) for shard in self.shards])
            self._owned = owned
            self._runs = {self._run_of(number): number for number in range(workers)}
            # Calls by which a worker's process is followed: (its number, whether the call lasts as long).
            self._watches = {self._stay_of(number): (number, True) for number in range(workers)}
        except BaseException:
            self.close()
            raise

    def _run_of(self, number: int) -> Any:
        return self.workers[number].run.remote(self.coordinator, self.shards, self._owned)

    def _stay_of(self, number: int) -> Any:
        """A call that ends when the worker's process does; others are made again by Ray."""
        return self.workers[number].stay.options(max_task_retries=0).remote()

    def _follow(self, watch: Any) -> None:
        """Tells the coordinator of a worker's process that has ended, and waits for its next one."""
        number, lasted = self._watches.pop(watch)
        try:
            self._ray.get(watch)
        except self._ray.exceptions.RayActorError:
            if number not in self._runs.values():
                return
            self._answer(self.coordinator.lose.remote(number))
            self._watches[self.workers[number].process.remote()] = number, False
        else:
            if not lasted:
                self._watches[self._stay_of(number)] = number, True

    def _kept(self, actor: Any) -> Any:
        self._actors.append(actor)
        return actor

    def _got(self, references: Sequence[Any]) -> list[Any]:
        """Values of calls of one actor each. Raises the first error, naming the actor by its number."""
        values = []
        for number, reference in enumerate(references):
            try:
                values.append(self._ray.get(reference))
            except Exception as error:
                raise told(error, number) from error
        return values

    def take(self) -> tuple[list[tuple[int, Any]], bool, list[int]]:
        """See CoordinatorActor.

        Raises the error of a worker whose step has failed, naming the worker, and AbortedError if the
        coordinator has died.
        """
        taken = self.coordinator.take.remote()
        while True:
            ready, _ = self._ray.wait([taken, *self._runs, *self._watches], num_returns=1)
            for run in ready:
                if run in self._watches:
                    self._follow(run)
                elif run in self._runs:
                    try:
                        is_done = self._ray.get(run)
                    except Exception as error:
                        self._answer(self.coordinator.process.remote())
                        raise told(error, self._runs[run]) from error
                    number = self._runs.pop(run)
                    if not is_done:
                        self._runs[self._run_of(number)] = number
            if taken in ready:
                results, is_over, steps, news = self._answer(taken)
                for line in news:
                    _logger.warning("MultiWorkerAsyncReplicator: %s", line)
                return results, is_over or (not self._runs and not results), steps

    def _answer(self, asked: Any) -> Any:
        """The coordinator's answer. Raises AbortedError if it has died."""
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayActorError:
            for run in self._runs:  # Ray prints what nobody has asked for
                with suppress(Exception):
                    self._ray.get(run, timeout=TAKE_S)
            raise AbortedError(
                "MultiWorkerAsyncReplicator: the coordinator of the training has died: it was killed, has "
                "crashed, or its machine is down; start the program again, with the folder given and "
                "restore(folder) before train it goes on from the newest checkpoints of the shards"
            ) from None

    def end(self) -> None:
        """Lets the steps that have begun end; no other begins."""
        self._answer(self.coordinator.end.remote())
        if self._runs:
            self._ray.wait([*self._runs], num_returns=len(self._runs), timeout=TAKE_S)

    def state(self) -> dict[str, Array]:
        """Values of all variables by name, slots too; counters that each shard has: those of the first."""
        parts: list[dict[str, Array]] = self._ray.get([shard.state.remote() for shard in self.shards])
        return _joined(parts[::-1])

    def end_shards(self) -> None:
        """Has each shard write its last checkpoint. Raises ResourceExhaustedError for one that cannot."""
        self._ray.get([shard.close.remote() for shard in self.shards])

    @property
    def process_numbers(self) -> list[int]:
        """Numbers of the processes of workers and shards, workers first."""
        found: list[int] = self._ray.get([actor.process.remote() for actor in (*self.workers, *self.shards)])
        return found

    def close(self) -> None:
        """Ends all processes."""
        for actor in self._actors:
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()


def told(error: Exception, worker: int) -> Exception:
    """An error of a worker as one of this process, which names the worker."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, TensorBowError):
        return type(cause)(f"worker {worker}: {cause}")
    return AbortedError(f"worker {worker}: {type(cause).__name__}: {cause}")
