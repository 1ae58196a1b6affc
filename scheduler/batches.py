"""Where the scheduler's batches come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tensorbow.data import Batch, BatchOrder, Dataset, Prefetcher
from tensorbow.specs import Array


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    """The inputs of one task. They stay unchanged until `release` is called."""

    replica: int
    round: int
    inputs: Sequence[Array]
    release: Callable[[], None]


class BatchSource(Protocol):
    """Fills batches ahead of use, on threads of its own."""

    def close(self) -> None:
        """Stops it; no callback comes afterwards."""


OpenSource = Callable[[int, int, Callable[[ReadyBatch], None], Callable[[BaseException], None]], BatchSource]
"""(first round, round to stop before, on_ready, on_error) -> a source. Callbacks come from any thread."""


class DatasetBatches:
    """Batches of a data set: number r * replicas + i of an epoch goes to replica i in round r of it."""

    def __init__(self, dataset: Dataset, batch_size: int, replicas: int, seed: int, depth: int = 3):
        """depth: batches held ready per replica. Raises InvalidArgumentError for too little data."""
        self.dataset = dataset
        self.replicas = replicas
        self.depth = depth
        self.order = BatchOrder(len(dataset), batch_size, seed)
        self.rounds_per_epoch = self.order.rounds_per_epoch(replicas)

    def open(
        self,
        start: int,
        stop: int,
        on_ready: Callable[[ReadyBatch], None],
        on_error: Callable[[BaseException], None],
    ) -> BatchSource:
        """Starts filling rounds `start` to `stop` - 1, counted over all epochs."""
        holder: list[Prefetcher] = []

        def ready(replica: int, batch: Batch) -> None:
            round = batch.epoch * self.rounds_per_epoch + batch.round
            on_ready(
                ReadyBatch(replica, round, (batch.images, batch.labels), lambda: holder[0].release(batch))
            )

        prefetcher = Prefetcher(
            self.dataset,
            self.order,
            self.replicas,
            self.depth,
            start=divmod(start, self.rounds_per_epoch),
            on_ready=ready,
            on_error=on_error,
            max_rounds=stop - start,
        )
        holder.append(prefetcher)
        return prefetcher
