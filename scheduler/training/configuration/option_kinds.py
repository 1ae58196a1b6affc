"""Kinds of a run's options that are lists; command line and files may give them as text."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from scheduler.options import NOT_NEGATIVE, POSITIVE, shortened
from scheduler.replicas.replica_counts import MOST_REPLICAS
from tensorbow.data.augmentation_names import augmentation_of
from tensorbow.devices import DeviceName, device_kinds, gpu_status
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import TEXT, Kind, RefusedError, number, whole
from tensorbow.models import ModelSource

LONGEST_NAME = 1000  # characters of a column's name
AUTO = "auto"  # value of replicas_per_device: tuned during training for throughput

WHOLE_EPOCHS = whole(1, 1_000_000)
_COUNT = whole(1, MOST_REPLICAS)


def _read_devices(value: Any) -> tuple[str, ...]:
    """Names of devices. Raises InvalidArgumentError for a name of no device that a run can train on."""
    names = tuple(TEXT.read(item) for item in (value.split(",") if isinstance(value, str) else value))
    if not names:
        raise InvalidArgumentError("devices: expected at least one, as cpu:0; got none")
    parsed = [_device(name) for name in names]
    if len(set(map(str, parsed))) != len(names):
        raise InvalidArgumentError(f"devices: expected different ones, got {', '.join(names)}")
    return names


def _device(text: str) -> DeviceName:
    try:
        name, reason = DeviceName.parse(text), ""
    except InvalidArgumentError as error:
        raise _no_device(text, "it is no name of a device") from error
    kind = (name.kind or "").lower()
    if not kind:
        reason = "it names no device"
    elif name.job is not None or name.task is not None:
        reason = "a run trains on this process's devices"
    elif kind not in device_kinds():
        gpu = "; a GPU is gpu:0" if kind == "cuda" else ""
        reason = f"this version has no {kind.upper()} device{gpu}"
    elif kind == "gpu" and gpu_status().problem:
        reason = gpu_status().problem
    elif kind == "null":
        reason = "it records launches and computes nothing"
    elif name.index is None:
        reason = f"it has no number; write {kind}:0"
    if reason:
        raise _no_device(text, reason)
    return name


def _no_device(text: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"devices: expected names such as cpu:0,cpu:1; got {shortened(text)}: {reason}"
    )


def _read_replicas(value: Any) -> int | tuple[int, ...] | str:
    if isinstance(value, str):
        if value == AUTO:
            return AUTO
        counts = tuple(int(item) for item in value.split(","))
        value = counts if len(counts) > 1 else counts[0]
    if isinstance(value, (list, tuple)):
        return tuple(_COUNT.read(item) for item in value)
    count: int = _COUNT.read(value)
    return count


def _read_traced_rounds(value: Any) -> tuple[int, int]:
    if isinstance(value, str):
        value = [int(round) for round in value.split(":")]
    first, stop = (whole(0).read(round) for round in value)
    if first >= stop:
        raise RefusedError
    return first, stop


def _read_drops(value: Any) -> tuple[tuple[float, float], ...]:
    if isinstance(value, str):
        pairs = [item.split(":") for item in filter(None, value.split(","))]
        value = [(float(epoch), float(factor)) for epoch, factor in pairs]
    drops = tuple((_read_epochs(epoch), POSITIVE.read(factor)) for epoch, factor in value)
    if any(later <= epoch for (epoch, _), (later, _) in pairwise(drops)):
        raise RefusedError
    return drops


def _read_early_stopping(value: Any) -> tuple[Any, ...]:
    """Arguments of `EarlyStopping`; its mode only if it is given."""
    mode: list[str] = []
    if isinstance(value, str):
        text, mode = _metric_parts(value)
        metric, patience, *delta = text.split(":")
        value = [metric, int(patience), *map(float, delta)]
    metric, patience, *rest = value
    delta, mode = rest[:1], mode + rest[1:]
    if len(mode) > 1 or not set(mode) <= {*MODES}:
        raise RefusedError
    return _read_name(metric), WHOLE_EPOCHS.read(patience), _DELTA.read(delta[0] if delta else 0.0), *mode


def _read_name(value: Any) -> str:
    name: str = TEXT.read(value)
    if not name.isidentifier() or len(name) > 100:
        raise RefusedError
    return name


def _read_metric(value: Any) -> str:
    name, mode = _metric_parts(TEXT.read(value))
    return ":".join([_read_name(name), *mode])


def _metric_parts(text: str) -> tuple[str, list[str]]:
    metric, _, mode = text.rpartition(":")
    return (metric, [mode]) if mode in MODES else (text, [])


def metric_and_mode(text: str) -> tuple[str, str | None]:
    """Name and mode of a `best_metric`: of `test_score:min` these two parts; None if it names no mode."""
    name, mode = _metric_parts(text)
    return name, mode[0] if mode else None


_DELTA = number(0)
MODES = ("min", "max")  # which values of a metric are better
METRIC = Kind(
    "the name of a number of metrics.jsonl, as test_loss, with :min or :max if its direction is to be given",
    _read_metric,
)
EARLY_STOPPING = Kind(
    "METRIC:PATIENCE, as test_loss:3, METRIC:PATIENCE:MIN_DELTA, or one of them with :min or :max",
    _read_early_stopping,
)


def _read_model(value: Any) -> Any:
    if isinstance(value, str):
        return TEXT.read(value)
    if not callable(value) and not isinstance(value, ModelSource):
        raise RefusedError
    return value


def _read_options_by_name(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise RefusedError
    return dict(value)


def _read_image_size(value: Any) -> tuple[int, int]:
    height, width = (int(each) for each in value.lower().split("x")) if isinstance(value, str) else value
    return _EXTENT.read(height), _EXTENT.read(width)


def _read_column(value: Any) -> str:
    name: str = TEXT.read(value)
    if not 0 < len(name) <= LONGEST_NAME:
        raise RefusedError
    return name


def _read_columns(value: Any) -> tuple[str, ...]:
    return tuple(map(_read_column, _read_patterns(value)))


def _read_augmentation(value: Any) -> str:
    text: str = TEXT.read(value)
    augmentation_of(text)
    return text


def _read_class_weights(value: Any) -> str | tuple[float, ...]:
    if value == BALANCED:
        return BALANCED
    items = [float(item) for item in value.split(",")] if isinstance(value, str) else value
    weights = tuple(NOT_NEGATIVE.read(item) for item in items)
    if not any(weights):
        raise RefusedError
    return weights


def _read_epochs(value: Any) -> float:
    epochs = number(1e-6, 1_000_000).read(value)
    return int(epochs) if epochs.is_integer() else epochs


def _read_patterns(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    patterns = tuple(TEXT.read(item).strip() for item in items)
    if not all(patterns):
        raise RefusedError
    return patterns


def _read_name_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(value, str):
        value = [item.split("=") for item in value.split(",")]
    items = value.items() if isinstance(value, Mapping) else value
    pairs = tuple((TEXT.read(own).strip(), TEXT.read(theirs).strip()) for own, theirs in items)
    if not all(name for pair in pairs for name in pair) or len(dict(pairs)) < len(pairs):
        raise RefusedError
    return pairs


def _read_flattened_sizes(value: Any) -> tuple[tuple[str, tuple[int, int, int]], ...]:
    if isinstance(value, str):
        value = dict(item.split("=") for item in value.split(","))
    items = value.items() if isinstance(value, Mapping) else value
    found = []
    for name, size in items:
        height, width, channels = map(int, size.lower().split("x")) if isinstance(size, str) else size
        found.append((TEXT.read(name).strip(), tuple(map(_FEATURES.read, (height, width, channels)))))
    if not all(name for name, _ in found) or len(dict(found)) < len(found):
        raise RefusedError
    return tuple(found)


PATTERNS = Kind("names or patterns, as fc.*,head/*", _read_patterns)
NAME_PAIRS = Kind("pairs of names, as conv1=features.0,fc=classifier", _read_name_pairs)
FLATTENED_SIZES = Kind(
    "height, width and channels by names of kernels, as fc/kernel=7x7x64", _read_flattened_sizes
)
COLUMN = Kind("the name of a column", _read_column)
COLUMNS = Kind("names of columns, separated by commas", _read_columns)
AUGMENTATION = Kind("names of augmentations, as flip,crop", _read_augmentation)
BALANCED = "balanced"  # value of class_weights
_EXTENT = whole(1, 1 << 14)
_FEATURES = whole(1, (1 << 31) - 1)  # extents of shapes are below 2**31
MODEL = Kind("a model's name, FILE.py:NAME, or a callable (inputs, labels, training)", _read_model)
OPTIONS_BY_NAME = Kind("options by name", _read_options_by_name)
FRACTION = Kind("a fraction in (0, 1), as 0.1", number(0, 1, above=True, below=True).read)
IMAGE_SIZE = Kind("a height and a width, as 28x28", _read_image_size)
CLASS_WEIGHTS = Kind("balanced, or a weight for each class, as 1,2.5", _read_class_weights)
DEVICES = Kind("names of devices, as cpu:0,cpu:1", _read_devices)
REPLICAS = Kind(f"{_COUNT.expected}, or one for each device, as 3,1, or auto", _read_replicas)
TRACED_ROUNDS = Kind("two rounds A:B with 0 <= A < B, as 10:60", _read_traced_rounds)
DROPS = Kind(
    "EPOCH:FACTOR pairs, as 10:0.1,15.5:0.01 or [[10, 0.1]], of rising epochs above 0, up to 1000000, and "
    "positive factors",
    _read_drops,
)

SCHEDULES = ("piecewise", "constant", "cosine", "one_cycle", "exponential", "polynomial")
FINAL_RATE = Kind("a fraction above 0, up to 1", number(0, 1, above=True).read)
LABEL_SMOOTHING = Kind("a fraction in [0, 1)", number(0, 1, below=True).read)
MIXUP = Kind("a number from 0 to 8", number(0, 8).read)
EPOCHS = Kind("a number of epochs above 0, as 10 or 0.8", _read_epochs)
EPOCH_COUNT = Kind("a number of epochs of at least 0", number(0, 1_000_000).read)
EVALUATE_EVERY = Kind("a number of epochs above 0, as 0.25", number(1e-6, 1_000_000).read)
