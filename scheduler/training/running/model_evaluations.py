"""Evaluations of a run's models: of z, or with sync `none` of every replica's."""

from __future__ import annotations

from collections.abc import Callable, Collection

from scheduler.engine.learning_engine import LearningEngine
from scheduler.training.configuration.config import DEFAULT_REPLICAS, TrainingConfig
from scheduler.training.measures.classification_metrics import ClassificationReport
from scheduler.training.models.evaluation import Evaluation, Evaluator
from scheduler.training.running.outcome import models_of
from scheduler.workers.joint_calls import JointCalls
from scheduler.workers.pulse import doing
from tensorbow.data import TrainingData
from tensorbow.devices import get_device
from tensorbow.specs import Array


class ModelEvaluations:
    """Evaluates the models of all workers on worker 0; every worker gets the results. Close it at the end."""

    def __init__(self, config: TrainingConfig, data: TrainingData, engine: LearningEngine, joint: JointCalls):
        """data: the evaluated split."""
        self._config, self._engine, self._joint = config, engine, joint
        threads = len(config.devices) * DEFAULT_REPLICAS if config.tunes else config.replicas
        self._evaluator = self._evaluator_of(data, threads)
        self.models: list[dict[str, Array]] = []  # the last result of `models_of`

    def _evaluator_of(self, data: TrainingData, threads: int) -> Evaluator:
        config = self._config
        device = get_device(config.devices[0])
        return Evaluator(config.source, data, device, threads, config.model_options, config.metrics)

    @property
    def figures(self) -> Collection[str]:
        """Names of the figures that an evaluation has."""
        return self._evaluator.figures

    def models_of(self, round: int) -> list[dict[str, Array]]:
        """Variables of the models after a round; with sync `none` of every worker's replicas."""
        models = models_of(self._engine, round)
        self.models = self._joint.gathered(models) if self._config.sync == "none" else models
        return self.models

    def after(
        self, round: int, stops: Callable[[], bool]
    ) -> tuple[list[Evaluation], Evaluation | None, ClassificationReport | None] | None:
        """Evaluations of the models after a round, and of the moving average, and the report of the first.

        None if `stops()` becomes true meanwhile.
        """
        models = self.models_of(round)
        ema = None if self._config.ema is None else self._engine.ema_values(round)

        def evaluated() -> tuple[list[Evaluation], Evaluation | None, ClassificationReport | None] | None:
            results, report = list[Evaluation](), None
            for values in models:
                result = self._evaluator.evaluate(values, stops)
                if result is None:
                    return None
                report = report if results else self._evaluator.report
                results.append(result)
            average = None if ema is None else self._evaluator.evaluate(ema, stops)
            return None if average is None and ema is not None else (results, average, report)

        with doing("evaluating"):
            return self._joint.agreed(evaluated() if self._joint.leads else None)

    def on_test_set(self, data: TrainingData, round: int) -> tuple[Evaluation, ClassificationReport | None]:
        """Mean evaluation of the models after a round on another split, and the report of the first."""
        evaluator = self._evaluator_of(data, self._config.replicas)
        try:
            models = reversed(self.models_of(round))  # the report is of the first
            with doing("evaluating"):
                found = [evaluator.evaluate(values) for values in models if self._joint.leads]
                found, report = self._joint.agreed((found, evaluator.report))
        finally:
            evaluator.close()
        return Evaluation.mean([each for each in reversed(found) if each is not None]), report

    def close(self) -> None:
        """Frees the evaluator's memory; idempotent."""
        self._evaluator.close()
