"""A step that is bound to a replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from scheduler.replicas.device_dataset import BatchMaker
from scheduler.replicas.dynamic.replica_executor import ReplicaExecutor
from scheduler.replicas.mail import Mail
from tensorbow.compiler import Binding, Scratch
from tensorbow.devices import Access
from tensorbow.program import Executable, Ref, Region
from tensorbow.specs import Array


class ReplicaStep:
    """A step bound to a replica, with what its launches touch."""

    def __init__(
        self,
        executable: Executable,
        binding: Binding,
        index: int,
        ring: int,
        executor: ReplicaExecutor | None,
    ):
        """executor: of the part that is not planned, if there is one."""
        self.executable, self.binding, self.ring = executable, binding, ring
        self.executor: ReplicaExecutor | None = None  # that the replica runs, and closes
        self.take: Callable[[int], dict[str, Array]] | None = None  # what an executor has made for a result
        self.beside: Sequence[Access] = ()  # memory that the executor reads and writes elsewhere
        self.inputs = tuple(executable.inputs.items())
        if executor is not None:
            self.executor = executor
            self.follow(executor, 0)
        self.mail: Mail | None = None  # of a replica with several parts
        self.batch_maker: BatchMaker | None = None  # once a batch is made on the device
        self.labels = [f"replica {index} {segment.name}" for segment in executable.segments]
        self._find_accesses()

    def follow(self, executor: ReplicaExecutor, part: int) -> None:
        """Takes what an executor makes, which gets the batch. part: number of its planned part."""
        batch = executor.part.inputs.items()
        self.inputs = tuple((t.name, Ref(Region.INPUT, 0, s.extents, s.dtype)) for t, s in batch)
        self.take = partial(executor.take, reader=part)

    def _find_accesses(self) -> None:
        plan, bases, executable = self.binding.plan, self.binding.bases, self.executable
        self.accesses = [plan.accesses(segment) for segment in range(len(executable.segments))]
        fed_refs = (*executable.inputs.values(), *executable.state.values())
        self._fed = [Access(bases[ref.region] + ref.offset, ref.nbytes) for ref in fed_refs if ref.nbytes]
        self._with_inputs: dict[int, tuple[Sequence[Access], Sequence[Access]]] = {}

    def accesses_with_inputs(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """Reads and writes of a task's first segment; the writes include its inputs and step scalars."""
        found = self._with_inputs.get(segment)
        if found is None:
            reads, writes = self.accesses[segment]
            found = self._with_inputs[segment] = reads, [*writes, *self._fed]
        return found

    def move_to(self, scratch: Scratch) -> None:
        """See Binding.move_to."""
        self.binding.move_to(scratch)
        if self.executor is not None:
            self.executor.move_to(self.binding.bases)
        self.forget_batch_maker()
        self._find_accesses()

    def forget_batch_maker(self) -> None:
        """Unbinds the step that makes batches on the device, while it does not run."""
        if self.batch_maker is not None:
            self.batch_maker.close()
            self.batch_maker = None

    def close(self) -> None:
        """Gives the memory back."""
        self.forget_batch_maker()
        if self.executor is not None:
            self.executor.close()
        self.binding.close()
