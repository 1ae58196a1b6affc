"""Calls of a step's `input_fn`: options, arguments, results and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from scheduler.workers.group import WorkerGroup
from tensorbow.errors import AbortedError, InvalidArgumentError, OutOfRangeError, TensorBowError
from tensorbow.graph import Tensor
from tensorbow.graph.user_lines import raising_line
from tensorbow.kinds import FUNCTION, Kind, Positive, checked, one_of, with_remedy

PER_REPLICA, PER_WORKER = "per_replica", "per_worker"
REPLICATIONS = (PER_REPLICA, PER_WORKER)
SMALLER_BATCHES = ("error", "drop", "pad", "compile")
CONTEXT_NAMES = ("context", "ctx", "input_context")  # optional parameters of these names get the context

SmallerBatch: TypeAlias = Annotated[str, one_of(*SMALLER_BATCHES)]
Replication: TypeAlias = Annotated[str, Kind("tb.PER_REPLICA or tb.PER_WORKER", one_of(*REPLICATIONS).read)]
InputFunction: TypeAlias = Annotated[
    Callable[..., Any],
    with_remedy(Kind("a function that gives batches", FUNCTION.read), "write input_fn=lambda: ... around it"),
]
SplitFunction: TypeAlias = "Callable[[Any, int], Sequence[Any]]"


@dataclass(frozen=True)
class InputOptions:
    """Options of a step's inputs, which `Replicator.run` describes."""

    input_fn: Callable[..., Any] | None = None
    replication: str = PER_REPLICA
    split: SplitFunction | None = None
    smaller_batch: str = "error"
    prefetch: int = 1
    data_on_device: str = "auto"


@dataclass(frozen=True)
class InputContext:
    """Argument of `input_fn`: the replica that it makes input for.

    replica_id: number of the replica; with PER_WORKER of the worker's first. num_input_pipelines: number of
    calls of `input_fn`, by all workers. num_replicas: number of replicas that run the step, of all workers.
    worker_id, num_workers: of the process, with a `MultiWorkerReplicator`.
    """

    replica_id: int
    num_input_pipelines: int
    num_replicas: int
    worker_id: int = 0
    num_workers: int = 1

    @checked
    def per_replica_batch_size(self, global_batch_size: Positive) -> int:
        """global_batch_size / num_replicas. Raises InvalidArgumentError when it does not divide."""
        if global_batch_size % self.num_replicas:
            raise InvalidArgumentError(
                f"per_replica_batch_size: a global_batch_size of {global_batch_size} does not split over "
                f"{self.num_replicas} replicas"
            )
        return global_batch_size // self.num_replicas


@dataclass(frozen=True)
class ReplicaShare:
    """The replicas of a process: `count` from number `first` on, of `total` replicas of all workers."""

    first: int
    count: int
    total: int
    worker: int = 0
    workers: int = 1

    @classmethod
    def of(cls, workers: WorkerGroup, count: int) -> ReplicaShare:
        """The share of a worker with so many replicas; collective."""
        counts = workers.all_gather(count)
        return cls(sum(counts[: workers.rank]), count, sum(counts), workers.rank, workers.size)


class _WatchedContext(InputContext):
    """InputContext that records whether `replica_id` was read."""

    told_the_replica = False

    def __getattribute__(self, name: str) -> Any:
        if name == "replica_id":
            object.__setattr__(self, "told_the_replica", True)
        return super().__getattribute__(name)


_WatchedContext.__name__ = _WatchedContext.__qualname__ = InputContext.__name__  # in the user's errors


class InputCalls:
    """Results of `input_fn`, called for each replica or once, each when it is first asked for."""

    def __init__(self, input_fn: Callable[..., Any], per_worker: bool, share: ReplicaShare):
        self._input_fn, self._per_worker, self.share = input_fn, per_worker, share
        pipelines = share.workers if per_worker else share.total
        self._contexts = [
            _WatchedContext(share.first + number, pipelines, share.total, share.worker, share.workers)
            for number in range(1 if per_worker else share.count)
        ]
        self._given: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    def __getitem__(self, number: int) -> Any:
        """Raises AbortedError for an exception of `input_fn`, OutOfRangeError for one without batches."""
        if number not in self._given:
            context = self._contexts[number]
            of = "" if self._per_worker else f" of replica {self.share.first + number}"
            try:
                given = called_with(self._input_fn, context)
                self._given[number] = CalledForEachStep(given) if _is_called_for_each_step(given) else given
            except StopIteration:
                raise no_batch(of) from None
            except TensorBowError:
                raise
            except Exception as error:
                raise failure(error, f"input_fn{of}", self.hint) from error
        return self._given[number]

    def __setitem__(self, number: int, given: Any) -> None:
        """Replaces what `input_fn` has given."""
        self._given[number] = given

    @property
    def told_the_replica(self) -> bool:
        """True if the first call has read the replica's number."""
        return self._contexts[0].told_the_replica

    @cached_property
    def hint(self) -> str:
        """Hint for error messages if the parameter's name does not tell that it gets a context."""
        names = _required(inspect.signature(self._input_fn).parameters)
        if len(names) != 1 or names[0] in ("replica_id", *CONTEXT_NAMES):
            return ""
        return f" ({names[0]} is an InputContext; a parameter of the name replica_id gets the number)"


def failure(error: Exception, what: str, hint: str) -> AbortedError:
    """The error for an exception of the user's code, with the user's line."""
    line = raising_line(error)
    where = "" if line is None else f" (at {line})"
    return AbortedError(f"{what} failed: {type(error).__name__}: {error}{where}{hint}")


def no_batch(of: str) -> OutOfRangeError:
    """The error for an input that ends before its first batch. of: which one."""
    return OutOfRangeError(
        f"the input{of} has ended after 0 batches; input_fn must give one at least, to know its shape"
    )


class CalledForEachStep:
    """Batches of a function that is called for each step, until it raises StopIteration."""

    def __init__(self, function: Callable[[], Any]):
        self._function = function
        self.first = function()
        self._is_first = True

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._is_first:
            self._is_first = False
            return self.first
        return self._function()


def _is_called_for_each_step(given: Any) -> bool:
    """True for a function of no arguments that `input_fn` gave in place of batches."""
    return callable(given) and not isinstance(given, (Tensor, type)) and not hasattr(given, "__iter__")


def called_with(input_fn: Callable[..., Any], context: InputContext) -> Any:
    """Calls `input_fn` with the argument that its signature asks for: none, `replica_id` or the context."""
    taken = inspect.signature(input_fn).parameters
    if "replica_id" in taken and taken["replica_id"].kind != inspect.Parameter.POSITIONAL_ONLY:
        others = [name for name in _required(taken) if name != "replica_id"]
        if not others:
            return input_fn(replica_id=context.replica_id)
    names = _required(taken) or [name for name in CONTEXT_NAMES if name in taken]
    if not names:
        return input_fn()
    if len(names) > 1:
        raise InvalidArgumentError(
            f"input_fn takes nothing, `replica_id` or a context; it asks for {', '.join(names)}"
        )
    only = taken[names[0]]
    if only.kind == only.KEYWORD_ONLY:
        return input_fn(**{only.name: context})
    return input_fn(context.replica_id if only.name == "replica_id" else context)


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Names of the parameters without a default."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, p in parameters.items() if p.default is p.empty and p.kind not in variadic]
