"""What a batch is made of, in place of the batch: enough for whoever has the data to make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.augmentation import BatchKey, CropAndFlip
from tensorbow.data.dataset import Dataset
from tensorbow.program.examples import PICK, ExampleArrays
from tensorbow.specs import Array


class BatchRecipe:
    """A batch to train on: examples `indices`, int64 [batch_size], of a data set, augmented as `key` says.

    Many are made together, and few ever asked for all that they say: so it is a place in `RoundRecipes`.
    """

    __slots__ = ("_place", "_replica", "_rounds")

    def __init__(self, dataset: Dataset, indices: NDArray[np.int64], key: BatchKey):
        picks = plain_picks(indices[None, None])
        self._rounds, self._place, self._replica = RoundRecipes(dataset, picks, lambda *where: key), 0, 0

    @classmethod
    def of(cls, rounds: RoundRecipes, place: int, replica: int) -> BatchRecipe:
        """The recipe of a replica's batch in one of some rounds."""
        recipe = cls.__new__(cls)
        recipe._rounds, recipe._place, recipe._replica = rounds, place, replica
        return recipe

    @property
    def dataset(self) -> Dataset:
        """Of whose examples it is."""
        return self._rounds.dataset

    @property
    def batch_size(self) -> int:
        """Its examples."""
        return self._rounds.batch_size

    @property
    def indices(self) -> NDArray[np.int64]:
        """Which, in order."""
        indices: NDArray[np.int64] = self._rounds.picks_before(0)[self._place, self._replica]["row"]
        return indices

    @property
    def key(self) -> BatchKey:
        """What its augmentation is drawn by."""
        return self._rounds.key_of(self._place, self._replica)

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The batch, made here: float32 [batch_size, height, width, channels] and int64 [batch_size]."""
        indices = self.indices
        images = np.empty((indices.size, *self.dataset.image_shape), np.float32)
        labels = np.empty(indices.size, np.int64)
        self.dataset.fill(indices, images, labels, key=self.key)
        return images, labels

    def placeholders(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Arrays of the batch's shapes and dtypes that take no memory."""
        count = self.batch_size
        images = np.broadcast_to(np.float32(0), (count, *self.dataset.image_shape))
        return images, np.broadcast_to(np.int64(0), (count,))

    def picks(self) -> NDArray[Any]:
        """The same for a device that keeps the data set: `PICK` [batch_size], the caller's own."""
        return np.array(self._rounds.picks_before(self._place + 1)[self._place, self._replica])


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


class RecipeRun(BatchRun):
    """A replica's recipes in some rounds; each is made when it is asked for."""

    def __init__(self, rounds: RoundRecipes, replica: int):
        self._rounds, self._replica = rounds, replica

    def __len__(self) -> int:
        return len(self._rounds)

    @overload
    def __getitem__(self, place: int) -> BatchInputs: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[BatchInputs]: ...
    def __getitem__(self, place: int | slice) -> BatchInputs | Sequence[BatchInputs]:
        if isinstance(place, slice):
            return [self[n] for n in range(len(self))[place]]
        return BatchRecipe.of(self._rounds, range(len(self))[place], self._replica)


class RoundRecipes:
    """The recipes of all replicas' batches in some rounds, by their picks."""

    def __init__(self, dataset: Dataset, picks: NDArray[Any], key_of: Callable[[int, int], BatchKey]):
        """picks: `PICK` [rounds, replicas, batch_size], for which nothing is drawn yet.

        key_of: the key of a batch, by its round's place here and its replica.
        """
        self.dataset, self.key_of = dataset, key_of
        self.replicas, self.batch_size = int(picks.shape[1]), int(picks.shape[2])
        draws = isinstance(dataset.augmentation, CropAndFlip)
        self._picks = picks.copy() if draws else picks
        self._drawn = 0 if draws else len(picks)  # rounds

    def __len__(self) -> int:
        return len(self._picks)

    def picks_before(self, stop: int) -> NDArray[Any]:
        """The picks of all; those of rounds from `stop` on need not be drawn by now."""
        augmentation = self.dataset.augmentation
        while self._drawn < stop and isinstance(augmentation, CropAndFlip):
            for replica, picks in enumerate(self._picks[self._drawn]):
                key = self.key_of(self._drawn, replica)
                moves, picks["mirrored"] = augmentation.draw(picks.size, key)
                picks["down"], picks["right"] = moves.T
            self._drawn += 1
        return self._picks


class RoundInputs:
    """What all replicas train on in one of the rounds of `recipes`, or (place None) in all of them."""

    __slots__ = ("place", "recipes")

    def __init__(self, recipes: RoundRecipes, place: int | None):
        self.recipes, self.place = recipes, place

    def of(self, replica: int) -> BatchInputs | BatchRun:
        """What a replica does."""
        if self.place is None:
            return RecipeRun(self.recipes, replica)
        return BatchRecipe.of(self.recipes, self.place, replica)


def plain_picks(indices: NDArray[np.int64]) -> NDArray[Any]:
    """The picks of examples that nothing is drawn for: `PICK`, of the shape of the indices."""
    picks = np.zeros(indices.shape, PICK)
    picks["row"] = indices
    return picks


class PinnedArrays(tuple[Array, ...]):
    """The inputs of a step in memory of a device's `host_array`: it copies them from where they are."""


BatchInputs: TypeAlias = "Sequence[Array] | BatchRecipe"
"""The inputs of a step, or what they are made of."""

AllInputs: TypeAlias = "RoundInputs | Sequence[BatchInputs | BatchRun]"
"""Those of all replicas in a round, or in several, by replica where they are not of one making."""


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
