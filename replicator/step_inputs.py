"""Interface of a replicated step's inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from tensorbow.data import BatchInputs, BatchRun, KeptData
from tensorbow.nest import flatten
from tensorbow.specs import Dims, TensorSpec

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
"""Shapes of the leaves of one replica's batch, in order."""


class StepInputs(ABC):
    """Inputs of a replicated step, by round and replica. One thread at a time takes them."""

    structure: Any = None  # nest of the first batch, with specs as leaves
    # Nests that contain tensors, if input_fn returned some: one for all replicas, or one per replica.
    tensors: list[Any] | None = None
    compiles_smaller = False  # steps are compiled for smaller batches too
    dataset: KeptData | None = None  # of which devices that keep it can make the batches
    data_on_device = "never"  # whether they are to; see `Replicator.run`
    taken = 0  # rounds
    ended_early = False  # one replica's input has ended, another's has not
    are_equal = False  # all replicas have the same first batch, though input_fn makes one anew for each
    hint = ""  # for errors: what the inputs may have been meant to be
    packed: frozenset[str] = frozenset()  # paths of leaves that are strings, as rows of bytes

    @property
    def specs(self) -> list[TensorSpec]:
        """Specs of the leaves of one replica's batch, in order."""
        return [] if self.structure is None else flatten(self.structure)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the leaves of one replica's full batch, in order."""
        return tuple(spec.extents for spec in self.specs)

    @property
    def round_nbytes(self) -> int:
        """Bytes that the inputs of a round take while they are kept."""
        return 0

    def declared_shape(self, spec: TensorSpec) -> Dims:
        """Shape of a leaf in the step: the number of examples is None if it may be smaller."""
        return spec.extents

    @property
    def why_one_by_one(self) -> str:
        """Reason why rounds are drawn when each begins; "" if those of a launch may be drawn before it."""
        return ""

    @abstractmethod
    def take(self, most: int, ahead: int = 1, keeps: bool = False) -> list[Any]:
        """The next rounds, at least one and at most `most`, which one launch can have: for `joined`.

        They are fewer in front of an end, an error, or a batch of another size. ahead: rounds that the next
        call will ask for, as far as it is known. keeps: they may be used again when others are drawn.
        Raises OutOfRangeError when an input has ended, InvalidArgumentError for a batch whose structure,
        shapes or dtypes differ from the first, AbortedError for an exception in the user's input code.
        """

    @abstractmethod
    def joined(self, rounds: Sequence[Any]) -> Sequence[BatchInputs | BatchRun]:
        """Inputs of a launch by replica: of one round, or runs of batches."""

    @abstractmethod
    def give_back(self, rounds: Sequence[Any], error: Exception | None = None) -> None:
        """Takes back the last rounds that were taken: the next `take` begins with them.

        error: raised by `take` behind them, which raises it again.
        """

    @abstractmethod
    def skip_to(self, taken: int) -> None:
        """Draws rounds, and leaves them out, until so many are taken.

        Inputs that are known for every round can also go back. Raises InvalidArgumentError if more are taken
        already, OutOfRangeError when an input ends before.
        """

    @abstractmethod
    def draw_here_if_shared(self, other: StepInputs) -> None:
        """Draws no more ahead where another step draws from the same iterator: its order would be chance."""

    @abstractmethod
    def close(self) -> None:
        """Ends the thread that draws ahead, if any; the inputs that it has drawn come first afterwards."""
