"""What a batch is made of, in place of the batch: enough for whoever has the data to make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.augment import BatchKey, CropAndFlip
from tensorbow.data.dataset import Dataset
from tensorbow.kernels.examples import PICK, ExampleArrays
from tensorbow.specs import Array


@dataclass(frozen=True, eq=False)
class BatchRecipe:
    """A batch to train on: examples `indices`, int64 [batch_size], of a data set, augmented as `key` says."""

    dataset: Dataset
    indices: NDArray[np.int64]
    key: BatchKey
    drawn: NDArray[Any] | None = None  # its picks, where they were drawn together with those of others

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The batch, made here: float32 [batch_size, height, width, channels] and int64 [batch_size]."""
        images = np.empty((self.indices.size, *self.dataset.image_shape), np.float32)
        labels = np.empty(self.indices.size, np.int64)
        self.dataset.fill(self.indices, images, labels, key=self.key)
        return images, labels

    def placeholders(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Arrays of the batch's shapes and dtypes that take no memory."""
        count = self.indices.size
        images = np.broadcast_to(np.float32(0), (count, *self.dataset.image_shape))
        return images, np.broadcast_to(np.int64(0), (count,))

    def picks(self) -> NDArray[Any]:
        """The same for a device that keeps the data set: `PICK` [batch_size]."""
        if self.drawn is not None:
            return self.drawn
        picks = plain_picks(self.indices)
        augmentation = self.dataset.augmentation
        if isinstance(augmentation, CropAndFlip):
            moves, picks["mirrored"] = augmentation.draw(self.indices.size, self.key)
            picks["down"], picks["right"] = moves.T
        return picks


class BatchRun(Sequence["BatchInputs"]):
    """What a replica trains on in some rounds, one after the other."""

    def __init__(self, batches: Sequence[BatchInputs]):
        self._batches = tuple(batches)

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, place: int) -> BatchInputs: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[BatchInputs]: ...
    def __getitem__(self, place: int | slice) -> BatchInputs | Sequence[BatchInputs]:
        return self._batches[place]

    @property
    def recipe(self) -> BatchRecipe | None:
        """The first batch's recipe, where all are recipes of one data set."""
        first = self._batches[0]
        if not isinstance(first, BatchRecipe):
            return None
        if len(self._batches) == 1:
            return first
        same = (isinstance(each, BatchRecipe) and each.dataset is first.dataset for each in self._batches)
        return first if all(same) else None

    def picks(self) -> NDArray[Any]:
        """The picks of all batches, which are recipes: `PICK` [batches, batch_size]."""
        picks = [each.picks() for each in self._batches if isinstance(each, BatchRecipe)]
        return picks[0][None] if len(picks) == 1 else np.stack(picks)


class RecipeRun(BatchRun):
    """Recipes by their indices alone; each is made when it is asked for."""

    def __init__(
        self,
        dataset: Dataset,
        indices: NDArray[np.int64],
        key_of: Callable[[int], BatchKey],
        picks: NDArray[Any] | None = None,
    ):
        """indices: int64 [batches, batch_size]. key_of: the key of a batch, by its place in the run.

        picks: `PICK` [batches, batch_size], where they are known.
        """
        self._dataset, self._indices, self._key_of = dataset, indices, key_of
        self._picks = picks

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, place: int) -> BatchInputs: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[BatchInputs]: ...
    def __getitem__(self, place: int | slice) -> BatchInputs | Sequence[BatchInputs]:
        if isinstance(place, slice):
            return [self[n] for n in range(len(self))[place]]
        place = range(len(self))[place]
        drawn = None if self._picks is None else self._picks[place]
        return BatchRecipe(self._dataset, self._indices[place], self._key_of(place), drawn)

    @property
    def recipe(self) -> BatchRecipe:
        """The first batch's."""
        return BatchRecipe(self._dataset, self._indices[0], self._key_of(0))

    def picks(self) -> NDArray[Any]:
        """See BatchRun.picks."""
        if self._picks is None:
            recipes = (
                BatchRecipe(self._dataset, row, self._key_of(n)) for n, row in enumerate(self._indices)
            )
            self._picks = np.stack([recipe.picks() for recipe in recipes])
        return self._picks


def plain_picks(indices: NDArray[np.int64]) -> NDArray[Any]:
    """The picks of examples that nothing is drawn for: `PICK`, of the shape of the indices."""
    picks = np.zeros(indices.shape, PICK)
    picks["row"] = indices
    return picks


class PinnedArrays(tuple[Array, ...]):
    """The inputs of a step in memory of a device's `host_array`: it copies them from where they are."""


BatchInputs: TypeAlias = "Sequence[Array] | BatchRecipe"
"""The inputs of a step, or what they are made of."""


def example_arrays(dataset: Dataset) -> ExampleArrays:
    """What of a data set a device keeps."""
    return ExampleArrays(dataset.name, dataset.images, dataset.labels, dataset.scale, dataset.shift)


def why_host_only(dataset: Dataset) -> str:
    """Why a device could not make the batches of a data set; empty where it could."""
    augmentation = dataset.augmentation
    if type(dataset).fill is not Dataset.fill:
        return f"{type(dataset).__name__} fills batches in its own way"
    if augmentation is not None and type(augmentation) is not CropAndFlip:
        return f"its augmentation {type(augmentation).__name__} works on the host"
    return ""
