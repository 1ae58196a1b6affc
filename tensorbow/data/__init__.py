"""Data sets in memory, the order of their batches, and prefetching.

train, test = load("digits")
order = BatchOrder(len(train), batch_size=16, seed=1)
images, labels = train.batch(order.indices(epoch=0, number=3))

`scheduler.DatasetBatches` gives the replicas of an engine their batches in this order, filled ahead of use.
"""

from tensorbow.data import experimental
from tensorbow.data.array_dataset import ArrayDataset, TrainingData
from tensorbow.data.array_rows import ArrayRows, KeptData
from tensorbow.data.augmentation import Augmentation, BatchKey, CropAndFlip, PictureChanges
from tensorbow.data.batch_order import BatchOrder
from tensorbow.data.batch_recipes import (
    BatchInputs,
    BatchRecipe,
    BatchRun,
    LaunchRecipes,
    PinnedArrays,
    RoundRecipes,
    pick_columns,
    plain_picks,
    why_host_only,
)
from tensorbow.data.cifar10 import load_cifar10
from tensorbow.data.dataset_files import DATA_DIR_VARIABLE
from tensorbow.data.dataset_iterator import DatasetIterator as Iterator
from tensorbow.data.digits import load_digits
from tensorbow.data.file_datasets import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from tensorbow.data.idx import read_idx
from tensorbow.data.image_dataset import ImageDataset, pixel_statistics
from tensorbow.data.mnist import load_mnist
from tensorbow.data.pipeline import Dataset
from tensorbow.data.prediction_inputs import read_pictures
from tensorbow.data.prefetch import Batch, Prefetcher
from tensorbow.data.prefetch_slots import Claim, SlotRing
from tensorbow.data.registry import (
    DATASETS,
    DEFAULT_DATASET,
    SEQUENCES,
    WITHOUT_FILES,
    load,
    register_dataset,
)
from tensorbow.data.resize import resize_bilinear
from tensorbow.data.splits import DataSplits, splits_of
from tensorbow.data.synthetic import load_synthetic, make_synthetic
from tensorbow.data.word_text import make_word_text

__all__ = [
    "DATASETS",
    "DATA_DIR_VARIABLE",
    "DEFAULT_DATASET",
    "SEQUENCES",
    "WITHOUT_FILES",
    "ArrayDataset",
    "ArrayRows",
    "Augmentation",
    "Batch",
    "BatchInputs",
    "BatchKey",
    "BatchOrder",
    "BatchRecipe",
    "BatchRun",
    "Claim",
    "CropAndFlip",
    "DataSplits",
    "Dataset",
    "FixedLengthRecordDataset",
    "ImageDataset",
    "Iterator",
    "KeptData",
    "LaunchRecipes",
    "PictureChanges",
    "PinnedArrays",
    "Prefetcher",
    "RoundRecipes",
    "SlotRing",
    "TFRecordDataset",
    "TextLineDataset",
    "TrainingData",
    "experimental",
    "load",
    "load_cifar10",
    "load_digits",
    "load_mnist",
    "load_synthetic",
    "make_synthetic",
    "make_word_text",
    "pick_columns",
    "pixel_statistics",
    "plain_picks",
    "read_idx",
    "read_pictures",
    "register_dataset",
    "resize_bilinear",
    "splits_of",
    "why_host_only",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
