"""Splits of a sweep's data, and evaluation of its members on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from scheduler.sweeps.members import Member
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.folders.run_data import load_data
from scheduler.training.models.evaluation import Evaluation, Evaluator
from scheduler.training.models.inference_graph import description_of, stored_inference
from tensorbow.data import TrainingData
from tensorbow.devices import get_device, usable_cores
from tensorbow.specs import Array
from tensorbow.torch_weights import TORCH_NAMES


class SweepData:
    """Training, validation and test split; members are chosen by the second, and tested on the third.

    evaluated: the latter two, by name. torch_names: of members that begin with weights of PyTorch, the names
    of these.
    """

    def __init__(self, config: TrainingConfig, data: Any, data_name: str, say: Callable[[str], None]):
        """data: given by a program, instead of the options, under this name.

        Raises what loading the data raises.
        """
        splits = load_data(config, data, say)
        self.train, self._name = splits.train, data_name
        self.has_validation = splits.validation is not None
        self.evaluated = {"validation": splits.evaluated, "test": splits.test}
        self.torch_names: dict[int, dict[str, str]] = {}  # by members' numbers and variables' names

    def evaluators(self, config: TrainingConfig) -> MemberEvaluators:
        """Evaluations of members of one model with its options."""
        return MemberEvaluators(config, self.evaluated)

    def figures(self, config: TrainingConfig) -> list[str]:
        """Names of the loss and the metrics of an evaluation of a configuration's model."""
        device, options = get_device(config.devices[0]), config.model_options
        evaluator = Evaluator(config.source, self.evaluated["validation"], device, 1, options)
        try:
            return evaluator.figures
        finally:
            evaluator.close()

    def about(self, member: Member) -> dict[str, Any]:
        """Facts that a trained model must know about a member's weights, beside its inference graph."""
        about = {
            **description_of(member.config, self.train, self._name),
            "round": member.rounds,
            "test_accuracy": member.figures.get("test_accuracy"),
        }
        names = self.torch_names.get(member.number)
        return {**about, TORCH_NAMES: names} if names else about

    def described(self, member: Member) -> tuple[dict[str, Any], bytes | None]:
        """`about`, of a user's model with its inference graph, as its code need not be there later."""
        return (self.about(member), None) if member.config.source.is_ours else self.stored(member)

    def stored(self, member: Member) -> tuple[dict[str, Any], bytes]:
        """`about` with the inference graph, and this as a file."""
        return stored_inference(self.about(member), member.config)


class MemberEvaluators:
    """Evaluates several members at a time, each in one thread."""

    def __init__(self, config: TrainingConfig, splits: dict[str, TrainingData]):
        device = get_device(config.devices[0])
        self._free: dict[str, SimpleQueue[Evaluator]] = {}
        self._all: list[Evaluator] = []
        for split, data in splits.items():
            self._free[split] = SimpleQueue()
            for _ in range(usable_cores()):
                evaluator = Evaluator(config.source, data, device, 1, config.model_options)
                self._all.append(evaluator)
                self._free[split].put(evaluator)

    def evaluate(self, split: str, models: Sequence[dict[str, Array]]) -> list[Evaluation]:
        """Loss and metrics of models on the split `validation` or `test`."""
        free = self._free[split]

        def evaluated(values: dict[str, Array]) -> Evaluation:
            evaluator = free.get()
            try:
                found = evaluator.evaluate(values)
                assert found is not None  # nothing stops it
                return found
            finally:
                free.put(evaluator)

        with ThreadPoolExecutor(usable_cores(), "tensorbow-evaluation") as pool:
            return list(pool.map(evaluated, models))

    def close(self) -> None:
        """Closes the sessions; idempotent."""
        while self._all:
            self._all.pop().close()
