"""Outputs of a training run: metrics records, saved models, the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.engine.learning_engine import LearningEngine
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.folders.run_folder import BEST_MODEL, EMA_MODEL, RunFolder
from scheduler.training.measures.tally import Tally, TrainingResult
from scheduler.training.measures.tuning_result import TuningResult
from scheduler.training.models.evaluation import Evaluation
from tensorbow.specs import Array

LARGEST = 2.0**24  # largest plausible weight: above it, float32 has no fractional digits for a step to change


def has_exploded(engine: LearningEngine, arrays: Mapping[str, Array]) -> bool:
    """True if a weight among the arrays of a checkpoint is not finite, or larger than LARGEST.

    The loss does not always show it: a linear model with exploded weights may have loss 0.
    """
    names = {op.name for op in engine.learners.layout.variables if op.attrs["role"] == "weights"}
    weights = (array for name, array in arrays.items() if name.partition("/")[2] in names and array.size)
    return not all(array.min() >= -LARGEST and array.max() <= LARGEST for array in weights)


def models_of(engine: LearningEngine, round: int) -> list[dict[str, Array]]:
    """Variables of the models to evaluate and save after a round: z, or with sync `none` every replica's."""
    learners = engine.learners
    if engine.options.sync != "none":
        return [engine.central_values(round)]
    slots = {op.name for op in learners.layout.variables if op.attrs["role"] == "slots"}
    every = [learners.values.replica_values(index) for index in range(learners.count)]
    return [{n: v for n, v in values.items() if n not in slots} for values in every]


def save_models(
    folder: RunFolder,
    config: TrainingConfig,
    described: Mapping[str, Any],
    tally: Tally,
    engine: LearningEngine,
    models: Sequence[Mapping[str, Array]],
    split: str,
) -> None:
    """Writes each model, and the moving average of z, with the metadata that `TrainedModel` needs.

    described: the model and its data, see `description_of`. models: see `models_of`. split: the evaluated
    one, `test` or `validation`, whose accuracy is kept: None of a model that was not evaluated, because the
    run was interrupted.

    The same run gives the same bytes.
    """
    metadata = {**described, "round": tally.round}
    accuracies: Sequence[float | None] = tally.test_accuracies or [tally.test_accuracy]
    if tally.evaluated_at != tally.round or len(accuracies) != len(models):
        accuracies = [None] * len(models)
    if engine.options.ema is not None:
        metadata[f"{split}_accuracy"] = tally.ema_accuracy if tally.evaluated_at == tally.round else None
        folder.save_model(engine.ema_values(tally.round), metadata, kind=EMA_MODEL)
    for index, (values, accuracy) in enumerate(zip(models, accuracies, strict=True)):
        metadata[f"{split}_accuracy"] = accuracy
        folder.save_model(values, metadata, replica=index)
    folder.remove_models(len(models))


def save_best_model(
    folder: RunFolder, described: Mapping[str, Any], tally: Tally, model: Mapping[str, Array], split: str
) -> None:
    """Writes z, just evaluated on a split, as the best model so far. model: its variables."""
    metadata = {**described, "round": tally.round, f"{split}_accuracy": tally.test_accuracy}
    folder.save_model(model, metadata, kind=BEST_MODEL)


def metrics_record(
    engine: LearningEngine,
    tally: Tally,
    epoch: float,
    ema: Evaluation | None,
    learning_rate: float,
    split: str,
    replicas: int,
) -> dict[str, Any]:
    """Record of `metrics.jsonl`, without the devices' figures. split: the evaluated one. replicas: of all
    workers."""
    record: dict[str, Any] = {
        "round": tally.round,
        "epoch": int(epoch) if epoch == int(epoch) else round(epoch, 4),
        "seconds": tally.seconds,
        "images": tally.images,
        "images_per_second": tally.epoch_images_per_second,
        "loss": tally.loss,
        **tally.metrics,
        **{f"{split}_{name}": value for name, value in tally.test_metrics.items()},
        "learning_rate": learning_rate,
        "alpha": engine.learners.alpha,
        "replicas": replicas,
        "skipped_updates": tally.skipped_updates,
    }
    if tally.test_accuracies is not None:
        record[f"{split}_accuracies"] = tally.test_accuracies
    if ema is not None:
        record |= {"ema_loss": ema.loss, **{f"ema_{name}": value for name, value in ema.metrics.items()}}
    return record


def result_of(
    config: TrainingConfig,
    tally: Tally,
    replicas: int,
    epoch: float,
    interrupted: bool,
    tuning: TuningResult | None,
    stop_reason: str | None,
    data_name: str,
    split: str,
    final_metrics: Mapping[str, float],
    workers: int,
) -> TrainingResult:
    """Result of a run. replicas: the final number. stop_reason: of a callback. split: the evaluated one.
    final_metrics: on the test split, where this was not evaluated after each epoch.
    """
    return TrainingResult(
        model=config.source.name,
        dataset=data_name,
        devices=list(config.devices),
        replicas=replicas,
        batch_size=config.batch_size,
        sync=config.sync,
        epochs=round(epoch, 3),
        steps=tally.round,
        images_per_second=round(tally.images_per_second, 1),
        seconds=round(tally.seconds, 3),
        test_accuracy=tally.test_accuracy if split == "test" else final_metrics.get("test_accuracy"),
        seconds_to_target=None if tally.seconds_to_target is None else round(tally.seconds_to_target, 3),
        interrupted=interrupted,
        skipped_updates=tally.skipped_updates,
        tuning=tuning,
        workers=workers,
        ema_accuracy=tally.ema_accuracy,
        stop_reason=stop_reason,
        metrics={f"{split}_{name}": value for name, value in tally.test_metrics.items()}
        | dict(final_metrics),
    )
