"""Assignment of examples to batches: a pure function of (seed, epoch, number of the batch)."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.random_words import Purpose, permutation
from tensorbow.errors import InvalidArgumentError, OutOfRangeError
from tensorbow.kinds import WORD, Positive, Word, checked, read_as, whole

_CACHED_EPOCHS = 4  # replicas and launches of many rounds work on several epochs at once
_NUMBER = whole()


class BatchOrder:
    """Splits a shuffled epoch into batches.

    Epoch e is a permutation of the examples, drawn from Philox keyed by (seed, e); batch n has its
    entries n * batch_size .. (n+1) * batch_size - 1. Batches of an epoch are therefore disjoint. The last,
    incomplete batch of an epoch is dropped; it has different examples in each epoch. Thread-safe.

    In a round of k replicas, round r of an epoch takes the batches r * k .. r * k + k - 1, and batch n goes
    to replica n mod k.
    """

    @checked
    def __init__(self, examples: Positive, batch_size: Positive, seed: Word) -> None:
        """Raises InvalidArgumentError for fewer examples than one batch needs, or numbers out of range."""
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        if self.examples < self.batch_size:
            raise InvalidArgumentError(
                f"{self.examples} examples do not fill one batch of {self.batch_size}; "
                "use a smaller batch_size"
            )
        self._lock = threading.Lock()
        self._permutations: OrderedDict[int, NDArray[np.int64]] = OrderedDict()

    def __repr__(self) -> str:
        return f"BatchOrder(examples={self.examples}, batch_size={self.batch_size}, seed={self.seed})"

    @property
    def batches_per_epoch(self) -> int:
        """Complete batches in one epoch."""
        return self.examples // self.batch_size

    @checked
    def rounds_per_epoch(self, replicas: Positive) -> int:
        """Complete rounds of `replicas` batches in one epoch; left-over batches are dropped.

        Raises InvalidArgumentError when an epoch has too few batches for one round.
        """
        rounds = self.batches_per_epoch // replicas
        if rounds == 0:
            batches = "1 batch" if self.batches_per_epoch == 1 else f"{self.batches_per_epoch} batches"
            raise InvalidArgumentError(
                f"{self.examples} examples make {batches} of {self.batch_size}, fewer "
                f"than the {replicas} that one round of {replicas} replicas needs; use a smaller "
                "batch_size or fewer replicas"
            )
        return rounds

    def indices(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Indices of the examples of batch `number` of `epoch`: int64 [batch_size], read-only.

        Raises OutOfRangeError if the epoch has no such batch, InvalidArgumentError for an invalid epoch.
        """
        epoch = read_as(WORD, epoch, "BatchOrder.indices", "epoch")
        number = read_as(_NUMBER, number, "BatchOrder.indices", "number")
        if not 0 <= number < self.batches_per_epoch:
            raise OutOfRangeError(
                f"batch number: an epoch has the batches 0..{self.batches_per_epoch - 1} "
                f"({self.examples} examples, batch_size {self.batch_size}); got {number}"
            )
        begin = number * self.batch_size
        return self._permutation(epoch)[begin : begin + self.batch_size]

    def batches(self, epoch: int) -> NDArray[np.int64]:
        """Indices of all batches of an epoch: int64 [batches_per_epoch, batch_size], read-only."""
        epoch = read_as(WORD, epoch, "BatchOrder.batches", "epoch")
        examples = self._permutation(epoch)[: self.batches_per_epoch * self.batch_size]
        return examples.reshape(-1, self.batch_size)

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        with self._lock:  # held while drawing: a second thread waits for the same result
            found = self._permutations.get(epoch)
            if found is None:
                found = permutation(self.examples, Purpose.BATCH_ORDER, key=(self.seed, epoch))
                found.flags.writeable = False
                self._permutations[epoch] = found
                while len(self._permutations) > _CACHED_EPOCHS:
                    self._permutations.popitem(last=False)
            else:
                self._permutations.move_to_end(epoch)
            return found
