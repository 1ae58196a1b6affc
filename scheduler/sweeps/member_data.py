"""Splits of a sweep's data set, and evaluation of its members on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scheduler.sweeps.members import Member
from scheduler.training.config import TrainingConfig
from scheduler.training.evaluation import Evaluation, Evaluator
from tensorbow.data import load
from tensorbow.devices import get_device, usable_cores
from tensorbow.models import get_model
from tensorbow.specs import Array


class SweepData:
    """Training, validation and test split; members are chosen by the second, and tested on the third."""

    def __init__(self, config: TrainingConfig, say: Callable[[str], None]):
        """Raises what loading the data set raises."""
        self.train, test = load(config.dataset, config.data_dir)
        model, device = get_model(config.model), get_device(config.devices[0])
        self._test = Evaluator(model, test, device, usable_cores())
        self._validation = self._test
        self._tests_validate = True

    def validate(self, models: Sequence[dict[str, Array]]) -> list[Evaluation]:
        """Evaluates members on the validation split."""
        return [self._evaluated(self._validation, values) for values in models]

    def test(self, models: Sequence[dict[str, Array]]) -> list[Evaluation]:
        """Evaluates members on the test split."""
        return [self._evaluated(self._test, values) for values in models]

    def _evaluated(self, evaluator: Evaluator, values: dict[str, Array]) -> Evaluation:
        found = evaluator.evaluate(values)
        assert found is not None  # nothing stops it
        return found

    def about(self, member: Member) -> dict[str, Any]:
        """What a classifier must know about a member's weights."""
        data = self.train
        return {
            "model": member.config.model,
            "dataset": member.config.dataset,
            "classes": data.classes,
            "image_shape": list(data.image_shape),
            "mean": data.mean,
            "std": data.std,
            "round": member.rounds,
            "test_accuracy": member.figures.get("test_accuracy"),
        }

    def close(self) -> None:
        """Closes the evaluations."""
        self._test.close()
        self._validation.close()
