"""Recipes of batches: indices and augmentation, from which a device that has the data makes the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from tensorbow.data.array_rows import ArrayRows, KeptData
from tensorbow.data.augmentation import BatchKey, CropAndFlip, PictureChanges
from tensorbow.data.image_dataset import ImageDataset
from tensorbow.ops.examples import PICK, ROW, WIDE_PICK
from tensorbow.program import DATA
from tensorbow.specs import Array

DRAWN = (CropAndFlip, PictureChanges)  # augmentations that picks describe


class BatchRecipe:
    """Recipe of a training batch: examples `indices`, int64 [batch_size], of a data set, augmented by `key`.

    Recipes are made in bulk and rarely read one by one, so each is only a reference into `RoundRecipes`.
    """

    __slots__ = ("_index", "_replica", "_rounds")

    def __init__(self, dataset: KeptData, indices: NDArray[np.int64], key: BatchKey):
        rows = indices[None, None]
        picks = rows if dataset.affine is None else plain_picks(rows, pick_columns(dataset))
        self._rounds, self._index, self._replica = RoundRecipes(dataset, picks, lambda *where: key), 0, 0

    @classmethod
    def of(cls, rounds: RoundRecipes, index: int, replica: int) -> BatchRecipe:
        """Recipe of a replica's batch in the round of this index in `rounds`."""
        recipe = cls.__new__(cls)
        recipe._rounds, recipe._index, recipe._replica = rounds, index, replica
        return recipe

    @property
    def dataset(self) -> KeptData:
        """Data set of the examples."""
        return self._rounds.dataset

    @property
    def batch_size(self) -> int:
        """Number of examples."""
        return self._rounds.batch_size

    @property
    def indices(self) -> NDArray[np.int64]:
        """Indices of the examples in the data set, int64 [batch_size]."""
        picks: NDArray[np.int64] = self._rounds.picks_drawn_to(0)[self._index, self._replica]
        return picks if picks.ndim == 1 else picks[:, ROW]

    @property
    def key(self) -> BatchKey:
        """Key of the augmentation."""
        return self._rounds.key_of(self._index, self._replica)

    def arrays(self) -> tuple[Array, ...]:
        """Makes the batch on the host: of pictures float32 [batch_size, height, width, channels] and labels
        int64 [batch_size], or of rows of arrays.
        """
        return self.dataset.made(self.indices, self.key)

    def zeros_like_batch(self) -> list[Array]:
        """Zeros of the batch's shapes and dtypes, which take no memory."""
        specs = self.dataset.batch_specs(self.batch_size)
        return [np.broadcast_to(np.zeros((), spec.dtype.as_numpy_dtype), spec.extents) for spec in specs]

    def picks(self) -> NDArray[np.int64]:
        """The recipe for a device that keeps the data set, new: picks of MakeBatch, int64 [batch_size,
        columns], or rows, int64 [batch_size]."""
        return np.array(self._rounds.picks_drawn_to(self._index + 1)[self._index, self._replica])


class BatchRun(Sequence["BatchInputs"]):
    """Inputs of one replica in consecutive rounds."""

    def __init__(self, batches: Sequence[BatchInputs]):
        self._batches = tuple(batches)

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> BatchInputs: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BatchInputs]: ...
    def __getitem__(self, index: int | slice) -> BatchInputs | Sequence[BatchInputs]:
        return self._batches[index]


class RoundRecipes:
    """Recipes of the batches of all replicas in consecutive rounds."""

    def __init__(self, dataset: KeptData, picks: NDArray[np.int64], key_of: Callable[[int, int], BatchKey]):
        """picks: int64 [rounds, replicas, batch_size, columns] of MakeBatch, whose augmentation is drawn on
        demand, or [rounds, replicas, batch_size], rows of arrays.

        key_of: (index of the round, replica) -> key of the batch.
        """
        self.dataset, self.key_of = dataset, key_of
        self.replicas, self.batch_size = int(picks.shape[1]), int(picks.shape[2])
        draws = isinstance(dataset.augmentation, DRAWN)
        self._picks = picks.copy() if draws else picks
        self._drawn = 0 if draws else len(picks)  # number of rounds whose augmentation is drawn

    @classmethod
    def side_by_side(cls, parts: Sequence[RoundRecipes], of: Sequence[int]) -> RoundRecipes:
        """Recipes of several replicas, each with a part's, whose augmentation is drawn once for all of them.

        parts: of one replica each. of: by replica, the number of its part.
        """
        picks = np.concatenate([part.picks_drawn_to(len(part)) for part in parts], axis=1)[:, list(of)]
        joined = cls(parts[0].dataset, picks, lambda index, replica: parts[of[replica]].key_of(index, 0))
        joined._drawn = len(picks)
        return joined

    def of_replicas(self, first: int, count: int) -> RoundRecipes:
        """The recipes of some of the replicas, which follow one another."""
        if count == self.replicas:
            return self
        key_of, own = self.key_of, self._picks[:, first : first + count]
        return RoundRecipes(self.dataset, own, lambda index, replica: key_of(index, first + replica))

    def __len__(self) -> int:
        return len(self._picks)

    def picks_drawn_to(self, stop: int) -> NDArray[np.int64]:
        """All picks, int64 [rounds, replicas, batch_size, ...]; those before round `stop` are augmented."""
        augmentation = self.dataset.augmentation
        if self._drawn < stop and isinstance(augmentation, DRAWN):
            new = self._picks[self._drawn : stop]
            keys = (self.key_of(self._drawn + round, replica) for round, replica in np.ndindex(new.shape[:2]))
            shape = self.dataset.arrays[0].shape[1:]
            augmentation.write_picks(new.reshape(-1, *new.shape[2:]), keys, shape)
            self._drawn = stop
        return self._picks


class LaunchRecipes(Sequence["BatchInputs | BatchRun"]):
    """Recipes by replica of round `round_index` of `recipes`; with None a BatchRun of all rounds for each."""

    __slots__ = ("recipes", "round_index")

    def __init__(self, recipes: RoundRecipes, round_index: int | None):
        self.recipes, self.round_index = recipes, round_index

    def __len__(self) -> int:
        return self.recipes.replicas

    @overload
    def __getitem__(self, replica: int) -> BatchInputs | BatchRun: ...
    @overload
    def __getitem__(self, replica: slice) -> Sequence[BatchInputs | BatchRun]: ...
    def __getitem__(self, replica: int | slice) -> BatchInputs | BatchRun | Sequence[BatchInputs | BatchRun]:
        if isinstance(replica, slice):
            return [self[each] for each in range(len(self))[replica]]
        replica = range(len(self))[replica]
        if self.round_index is not None:
            return BatchRecipe.of(self.recipes, self.round_index, replica)
        return BatchRun([BatchRecipe.of(self.recipes, index, replica) for index in range(len(self.recipes))])


def pick_columns(dataset: KeptData) -> int:
    """Columns of the picks of MakeBatch for a data set of pictures, by its augmentation."""
    return WIDE_PICK if isinstance(dataset.augmentation, PictureChanges) else PICK


def plain_picks(indices: NDArray[np.int64], columns: int = PICK) -> NDArray[np.int64]:
    """Picks of examples without augmentation: int64, of the shape of the indices and [columns]."""
    picks = np.zeros((*indices.shape, columns), np.int64)
    picks[..., ROW] = indices
    return picks


class PinnedArrays(tuple[Array, ...]):
    """Inputs of a step in memory from a device's `host_array`, from which the device copies directly."""


BatchInputs: TypeAlias = "Sequence[Array] | BatchRecipe"
"""Inputs of one step of one replica: arrays, or a recipe for them."""


def why_host_only(dataset: KeptData) -> str:
    """Reason why devices cannot make the batches of a data set; "" if they can."""
    if isinstance(dataset, ArrayRows):
        most = f"it has {len(dataset.arrays)} arrays, of which devices keep at most {len(DATA)}"
        return most if len(dataset.arrays) > len(DATA) else ""
    augmentation = dataset.augmentation
    if type(dataset).fill is not ImageDataset.fill:
        return f"{type(dataset).__name__} fills batches in its own way"
    if augmentation is not None and type(augmentation) not in DRAWN:
        return f"its augmentation {type(augmentation).__name__} works on the host"
    return ""
