"""A good call of data sets, their batches, models and traces, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

ARRAYS = frozenset({"true", "1.5", "nan", "empty list", "array", "nan array", "-1", "2**40", "bytes"})
ARRAY = {"-1", "2**40", "empty list"}
PATHS = frozenset({"text", "empty text", "str subclass"})
SIZES = ("train_examples", "test_examples", "height", "width", "channels", "classes")
SMALL = dict.fromkeys(SIZES, 8)


def dataset() -> tb.data.ImageDataset:
    return tb.data.make_synthetic(16, 8, height=4, width=4, classes=4)[0]


def order() -> tb.data.BatchOrder:
    return tb.data.BatchOrder(16, 4, 1)


def of_order(method: str) -> Callable[[], Any]:
    return lambda: getattr(order(), method)


def with_prefetcher(method: str) -> Callable[[], Any]:
    def target() -> Any:
        prefetcher = tb.data.Prefetcher(dataset(), order(), 1, max_rounds=1)
        called = getattr(prefetcher, method)

        def call(**arguments: Any) -> Any:
            with prefetcher:
                return called(**arguments)

        return call

    return target


def without_files(**arguments: Any) -> Any:
    return tb.data.load(**{"name": "synthetic", **arguments})


def registered(**arguments: Any) -> None:
    before = dict(tb.data.DATASETS)
    try:
        tb.data.register_dataset(**arguments)
    finally:
        tb.data.DATASETS.clear()
        tb.data.DATASETS.update(before)


def computing(**arguments: Any) -> None:
    try:
        tb.configure_cpus(**arguments)
    finally:
        tb.configure_cpus()


def configured(**arguments: Any) -> None:
    try:
        tb.configure_gpus(**arguments)
    finally:
        tb.configure_gpus()


def images() -> Any:
    return tb.placeholder(tb.float32, [None, 16, 16, 1], name="images")


TENSOR = frozenset({"tensor"})
BUILT = ("variable", "placeholder", "ResourceExhausted", "constant", "initializer", "images", "MatMul")


def logits_of(make: Callable[[], tb.models.Model], side: int = 0) -> Call:
    return Call(
        lambda: {
            "images": tb.placeholder(tb.float32, [None, side, side, 3]) if side else images(),
            "classes": 10,
        },
        {"images": "object", "classes": "object", "training": "flag"},
        {"images": TENSOR},
        target=lambda: make().logits,
        names=BUILT,
    )


def of_pipeline(method: str, parameter: str, good: Any, sort: str, **more: str) -> Call:
    return Call(
        lambda: {parameter: good},
        {parameter: sort, **more},
        target=lambda: getattr(tb.data.Dataset.range(3), method),
    )


CALLS: Mapping[str, Call] = {
    "Dataset.from_tensor_slices": Call(
        lambda: {"tensors": np.zeros((3, 2))},
        {"tensors": "value"},
        {"tensors": frozenset({"empty list", "generator", "tensor"})},
        names=("tensors",),
    ),
    "Dataset.from_generator": Call(
        lambda: {"generator": lambda: iter(())},
        {
            **{"generator": "function", "output_types": "anything", "output_shapes": "nothing"},
            **{"args": "anything"},
        },
    ),
    "Dataset.range": Call(lambda: {"count": 3}, {"count": "count"}),
    "Dataset.batch": of_pipeline("batch", "batch_size", 2, "count", drop_remainder="flag"),
    "Dataset.padded_batch": of_pipeline(
        *("padded_batch", "batch_size", 2, "count"),
        padded_shapes="anything",  # looked at with the elements
        padding_values="anything",
        drop_remainder="flag",
    ),
    "Dataset.shuffle": of_pipeline(
        "shuffle", "buffer_size", 2, "count", seed="count or none", reshuffle_each_iteration="flag"
    ),
    "Dataset.repeat": of_pipeline("repeat", "count", 2, "count or none"),
    "Dataset.take": of_pipeline("take", "count", 2, "count"),
    "Dataset.skip": of_pipeline("skip", "count", 2, "count"),
    "Dataset.shard": Call(
        lambda: {"num_shards": 2, "index": 1},
        {"num_shards": "count", "index": "count"},
        target=lambda: tb.data.Dataset.range(3).shard,
    ),
    "Dataset.map": Call(
        lambda: {"function": abs},
        {"function": "function", "num_parallel_calls": "count or none"},
        {"num_parallel_calls": frozenset({"-1"})},
        target=lambda: tb.data.Dataset.range(3).map,
    ),
    "Dataset.filter": of_pipeline("filter", "predicate", bool, "function"),
    "Dataset.interleave": of_pipeline(
        "interleave", "function", abs, "function", cycle_length="count", block_length="count"
    ),
    "Dataset.flat_map": of_pipeline("flat_map", "function", abs, "function"),
    "Dataset.apply": of_pipeline("apply", "transformation_func", list, "function"),
    "Dataset.concatenate": Call(
        lambda: {"dataset": tb.data.Dataset.range(2)},
        {"dataset": "object"},
        target=lambda: tb.data.Dataset.range(3).concatenate,
    ),
    "Dataset.from_tensors": Call(
        lambda: {"tensors": np.zeros((3, 2))},
        {"tensors": "anything"},
        names=("tensors",),
    ),
    "Dataset.list_files": Call(
        lambda: {"file_pattern": __file__},
        {"file_pattern": "anything", "shuffle": "flag", "seed": "count or none"},
    ),
    "Dataset.make_initializable_iterator": Call(
        dict, {"shared_name": "name"}, target=lambda: tb.data.Dataset.range(3).make_initializable_iterator
    ),
    "data.experimental.map_and_batch": Call(
        lambda: {"map_func": abs, "batch_size": 2},
        {
            **{"map_func": "function", "batch_size": "count", "num_parallel_batches": "count or none"},
            **{"drop_remainder": "flag", "num_parallel_calls": "count or none"},
        },
        {"num_parallel_calls": frozenset({"-1"})},
    ),
    "data.experimental.shuffle_and_repeat": Call(
        lambda: {"buffer_size": 2},
        {"buffer_size": "count", "count": "count or none", "seed": "count or none"},
    ),
    **{
        f"data.{kind}": Call(
            lambda more=more: {"filenames": __file__, **more},
            {
                **{"filenames": "anything", "buffer_size": "anything", "num_parallel_reads": "anything"},
                **{"compression_type": "choice", "record_bytes": "count"},
                **{"header_bytes": "count", "footer_bytes": "count"},
            },
            {"compression_type": frozenset({"none", "empty text"})},
        )
        for kind, more in (
            ("TextLineDataset", {}),
            ("TFRecordDataset", {}),
            ("FixedLengthRecordDataset", {"record_bytes": 2}),
        )
    },
    "DatasetIterator.from_structure": Call(
        lambda: {"output_types": tb.int64},
        {"output_types": "anything", "output_shapes": "anything", "shared_name": "name"}
        | {"output_classes": "anything"},
    ),
    "DatasetIterator.from_string_handle": Call(
        lambda: {"string_handle": "a", "output_types": tb.int64},
        dict.fromkeys(("string_handle", "output_types", "output_shapes", "output_classes"), "anything"),
    ),
    "DatasetIterator.make_initializer": Call(
        lambda: {"dataset": tb.data.Dataset.range(2)},
        {"dataset": "object"},
        target=lambda: tb.data.Iterator.from_structure(tb.int64).make_initializer,
    ),
    **{
        f"DatasetIterator.{method}": Call(
            target=lambda method=method: getattr(tb.data.Dataset.range(3).make_one_shot_iterator(), method)
        )
        for method in ("get_next", "string_handle")
    },
    "Dataset.prefetch": Call(
        lambda: {"buffer_size": 2},
        {"buffer_size": "count or none"},
        {"buffer_size": frozenset({"-1"})},
        target=lambda: tb.data.Dataset.range(3).prefetch,
    ),
    "data.BatchOrder": Call(
        lambda: {"examples": 16, "batch_size": 4, "seed": 1},
        {"examples": "count", "batch_size": "count", "seed": "count"},
        names=("examples",),
    ),
    "BatchOrder.batches": Call(lambda: {"epoch": 0}, {"epoch": "count"}, target=of_order("batches")),
    "BatchOrder.indices": Call(
        lambda: {"epoch": 0, "number": 1},
        {"epoch": "count", "number": "axis"},
        target=of_order("indices"),
        names=("epoch",),
    ),
    "BatchOrder.rounds_per_epoch": Call(
        lambda: {"replicas": 2}, {"replicas": "count"}, target=of_order("rounds_per_epoch"), names=("round",)
    ),
    "data.CropAndFlip": Call(dict, {"padding": "count", "flip": "flag"}),
    "data.PictureChanges": Call(
        dict,
        {
            "moves": "object",
            "flip_vertical": "flag",
            **dict.fromkeys(("brightness", "contrast", "saturation", "erase"), "fraction"),
            "rotation": "positive",
            **dict.fromkeys(("cutout", "level"), "count"),
        },
    ),
    "data.ImageDataset": Call(
        lambda: {
            "name": "made-up",
            "images": np.zeros((3, 4, 4, 1), np.uint8),
            "labels": np.zeros(3, np.int64),
            "classes": 2,
            "mean": 0.5,
            "std": 1.0,
        },
        {
            "name": "text",
            "images": "tensor",
            "labels": "tensor",
            "classes": "count",
            "mean": "number",
            "std": "positive",
            "augmentation": "nothing",
            "class_names": "list of texts",
        },
        {"augmentation": frozenset({"function", "class"})},
    ),
    "data.ArrayDataset": Call(
        lambda: {"inputs": np.zeros((3, 4), np.float32)},
        {
            "inputs": "tensor",
            "labels": "tensor or none",
            "name": "text",
            "classes": "count or none",
            **dict.fromkeys(("class_names", "feature_names"), "list of texts"),
            "standardisation": "object or none",
            "label_scale": "anything",
        },
        {"labels": frozenset({"empty dict"})},
        names=("arrays",),
    ),
    "data.splits_of": Call(
        lambda: {"data": (np.zeros((4, 3)), np.zeros(4))},
        {
            "data": "tensor",
            "name": "text",
            "validation_split": "object or none",
            "test_split": "object",
            "seed": "count",
            "task": "choice",
            "say": "function",
        },
    ),
    "ImageDataset.batch": Call(
        lambda: {"indices": np.arange(3)},
        {"indices": "tensor or none"},
        target=lambda: dataset().batch,
        names=("fill",),
    ),
    "ImageDataset.fill": Call(
        lambda: {
            "indices": np.arange(3),
            "images_out": np.empty((3, 4, 4, 1), np.float32),
            "labels_out": np.empty(3, np.int64),
        },
        {
            "indices": "object",
            "images_out": "object",
            "labels_out": "object",
            "scratch": "nothing",
            "key": "anything",
        },
        target=lambda: dataset().fill,
    ),
    "data.Prefetcher": Call(
        lambda: {"dataset": dataset(), "order": order(), "replicas": 1},
        {
            "dataset": "object",
            "order": "object",
            "replicas": "count",
            "depth": "object",
            "start": "object",
            "on_ready": "nothing",
            "share": "nothing",
            "on_error": "nothing",
            "max_rounds": "count or none",
            "epochs": "count or none",
            "slots": "nothing",
            "skipped": "object",
        },
        {name: frozenset({"function", "class"}) for name in ("on_ready", "on_error")},
        names=("round", "prefetch"),
    ),
    "Prefetcher.take": Call(
        lambda: {"replica": 0},
        {"replica": "object", "timeout": "positive or none"},
        target=with_prefetcher("take"),
    ),
    "Prefetcher.close": Call(dict, {"timeout": "positive"}, target=with_prefetcher("close")),
    "data.load": Call(
        lambda: {"name": "synthetic"},
        {"name": "text", "data_dir": "nothing"},
        {"data_dir": PATHS},
        target=lambda: without_files,
    ),
    "data.load_digits": Call(dict, {"data_dir": "nothing"}, {"data_dir": PATHS}),
    "data.load_synthetic": Call(dict, {"data_dir": "nothing"}, {"data_dir": PATHS}),
    "data.make_synthetic": Call(
        lambda: SMALL, {**dict.fromkeys(SIZES, "count"), "classes": "count"}, names=("synthetic",)
    ),
    "data.make_word_text": Call(
        lambda: {"vocabulary": 9, "train_words": 40, "test_words": 20},
        dict.fromkeys(("vocabulary", "train_words", "test_words", "steps"), "count"),
    ),
    "data.pixel_statistics": Call(lambda: {"images": np.zeros((2, 3), np.uint8)}, {"images": "tensor"}),
    "data.resize_bilinear": Call(
        lambda: {"images": np.zeros((1, 3, 4), np.uint8), "height": 5, "width": 6},
        {"images": "object", "height": "object", "width": "object", "maximum": "object"},
    ),
    "data.register_dataset": Call(
        lambda: {"name": f"odd {len(tb.data.DATASETS)}", "loader": lambda folder: None},
        {"name": "text", "loader": "object"},
        {"loader": frozenset({"function", "class"})},
        target=lambda: registered,
        names=("data set",),
    ),
    "models.get_model": Call(lambda: {"name": "lenet"}, {"name": "text"}, names=("model",)),
    "models.summarize": Call(
        lambda: {"outputs": [tb.placeholder(tb.float32, [2])]},
        {"outputs": "object", "depth": "count or none"},
    ),
    "models.ResNet": Call(dict, {"blocks": "object"}),
    "models.Defaults": Call(
        lambda: {"learning_rate": 0.1},
        {
            "learning_rate": "positive",
            "dataset": "text",
            "batch_size": "count",
            "learning_rate_drops": "extents",
            "weight_decay": "positive",
            "epochs": "count",
            "optimizer": "text",
            "schedule": "text",
            "learning_rates": "extents",
            "dataset_drops": "extents",
            "image_size": "list or none",
        },
    ),
    "Model.default_learning_rate": Call(
        lambda: {"replicas": 4},
        {
            "replicas": "count",
            "dataset": "text or none",
            "batch_size": "count or none",
            "of_numbers": "flag",
        },
        target=lambda: tb.models.LeNet().default_learning_rate,
    ),
    "Model.__call__": Call(
        lambda: {"inputs": images(), "labels": tb.placeholder(tb.int64, [None]), "classes": 10},
        {
            "inputs": "object",
            "labels": "object",
            "classes": "object",
            "training": "flag",
            "class_weights": "tensor or none",
            "label_smoothing": "fraction",
            "label_scale": "anything",
            "mixed_labels": "nothing",
        },
        {"inputs": TENSOR, "labels": TENSOR},
        target=tb.models.LogisticRegression,
        names=BUILT,
    ),
    "LSTMLanguageModel.__call__": Call(
        lambda: {
            "inputs": tb.placeholder(tb.int32, [None, 3]),
            "labels": tb.placeholder(tb.int64, [None, 3]),
            "training": True,
            "classes": 10,
        },
        {
            "inputs": "object",
            "labels": "object",
            "classes": "object",
            "training": "flag",
            "class_weights": "nothing",
            "label_smoothing": "fraction",
            "label_scale": "anything",
            "mixed_labels": "nothing",
        },
        {"inputs": TENSOR, "labels": TENSOR},
        target=lambda: tb.models.LSTMLanguageModel(8, 1, softmax="sampled"),
        names=("lstm-lm", "lookup", "expected tokens", *BUILT),
    ),
    "LeNet.logits": logits_of(tb.models.LeNet),
    "LogisticRegression.logits": logits_of(tb.models.LogisticRegression),
    "ResNet.logits": logits_of(lambda: tb.models.ResNet(1)),
    **{
        f"{make.__name__}.logits": logits_of(make)
        for make in (
            tb.models.FastResNet,
            tb.models.ImageNetResNet,
            tb.models.MLP,
            tb.models.MobileNet,
            tb.models.ResNet9,
            tb.models.VGG,
            tb.models.VisionTransformer,
        )
    },
    "PlainConvNet.logits": logits_of(tb.models.OxfordNet, side=32),
    "GoogLeNet.logits": logits_of(tb.models.GoogLeNet, side=32),
    "InceptionV3.logits": logits_of(tb.models.InceptionV3, side=75),
    **{
        f"models.{make.__name__}": Call(dict, {"dropout": "fraction"})
        for make in (
            tb.models.AlexNet,
            tb.models.GoogLeNet,
            tb.models.InceptionV3,
            tb.models.Overfeat,
            tb.models.OxfordNet,
        )
    },
    **{
        f"{make.__name__}.logits": Call(
            lambda: {"tokens": tb.placeholder(tb.int32, [None, 3]), "classes": 5},
            {"tokens": "object", "classes": "count", "training": "flag"},
            target=lambda make=make: make().logits,
            names=("expected tokens",),
        )
        for make in (tb.models.CharacterRNN, tb.models.LSTMLanguageModel, tb.models.TinyTransformer)
    },
    "models.ImageNetResNet": Call(dict, {"depth": "object"}),
    "models.FastResNet": Call(dict, {"width": "positive"}),
    "models.ResNet9": Call(dict, {"width": "positive"}),
    "models.VGG": Call(dict, {"depth": "object"}),
    "models.MLP": Call(
        dict, {"hidden": "object", "dropout": "fraction"}, {"hidden": frozenset({"empty list", "2**40"})}
    ),
    "models.MobileNet": Call(dict, {"width": "positive", "dropout": "fraction"}),
    **{
        f"models.{name}": Call(
            dict,
            {
                **dict.fromkeys(("width", "depth", "num_heads", "units", "embedding"), "count"),
                **dict.fromkeys(("num_sampled", "shards"), "count"),
                "patch": "count or none",
                **dict.fromkeys(("cell", "softmax"), "choice"),
                "dropout": "fraction",
            },
        )
        for name in ("CharacterRNN", "LSTMLanguageModel", "TinyTransformer", "VisionTransformer")
    },
    "profiler.Tracer": Call(dict, {"limit": "count"}),
    "profiler.Timeline": Call(lambda: {"tracer": tb.profiler.Tracer()}, {"tracer": "object"}),
    "Tracer.at_stop": Call(
        lambda: {"flush": lambda: None},
        {"flush": "object"},
        {"flush": frozenset({"function", "class"})},
        target=lambda: tb.profiler.Tracer().at_stop,
    ),
    "profiler.trace": Call(
        lambda: {"path": "trace.json"},
        {"path": "text", "limit": "count"},
    ),
    "configure_cpus": Call(dict, {"compute": "choice"}, target=lambda: computing),
    "configure_gpus": Call(
        dict,
        {
            "virtual_per_gpu": "count or none",
            "memory_limit_nbytes": "count or none",
            "allocator": "choice or none",
            "compute": "choice or none",
        },
        target=lambda: configured,
    ),
}
