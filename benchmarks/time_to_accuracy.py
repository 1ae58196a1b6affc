"""Courses of training: test accuracy against epochs and training time, until a target is reached.

A `Learner` trains: TensorBow's replicas (below) or a peer. For each seed all learners start from the same
initial values and take the same shuffled batches in the same order (`BatchOrder`), without augmentation. They
are evaluated at the same numbers of examples by the same `Evaluator`. Only training is timed; evaluation is
not, and setting up is reported separately.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import harness

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, Synchronisation
from scheduler.replicas.step_program import StepProgram
from scheduler.training.models.classifier_step import build_program
from scheduler.training.models.evaluation import Evaluator
from scheduler.training.running.outcome import models_of
from scheduler.training.tuning.launch_pace import LaunchPace
from tensorbow.data import BatchOrder, ImageDataset
from tensorbow.devices import Device, get_device
from tensorbow.errors import TensorBowError
from tensorbow.models import get_model
from tensorbow.specs import Array

MODEL = "lenet"
MOMENTUM = 0.9
DEPTH = 4  # batches held ready per replica
LAST_RATE = 0.01  # of a one-cycle schedule, as a fraction of its peak
CHECK = ("epochs", "seconds", "training_loss", "test_loss", "test_accuracy")


@dataclass(frozen=True)
class RunSetting:
    """Setting of a learner. `batch_size` is per replica, or of a peer's step."""

    batch_size: int
    learning_rate: float
    replicas: int = 1
    sync: str = "sma"
    tau: int = 1
    side: str = "TensorBow"


@dataclass(frozen=True)
class Goal:
    """Data set, target accuracy and length of a training: to `target` (None: the end), at most `epochs`.

    checks: evaluations per epoch, at equal numbers of examples. model: by name. devices: names, of all
    settings. median_of: the target is reached by the median of so many last evaluations. replica_mode: of
    `tb.Synchronisation`. schedule: `one_cycle` of the learning rate over all epochs, or `constant`.
    """

    train: ImageDataset
    test: ImageDataset
    target: float | None
    epochs: float
    checks: int
    model: str = MODEL
    devices: tuple[str, ...] = harness.CPU
    median_of: int = 1
    replica_mode: str = "auto"
    schedule: str = "constant"

    def rate(self, setting: RunSetting, steps_per_epoch: int) -> tb.train.Schedule | None:
        """Learning rate by round or step; None for the constant one."""
        if self.schedule == "constant":
            return None
        peak, steps = setting.learning_rate, round(self.epochs * steps_per_epoch)
        return tb.train.OneCycle(peak, steps, end=LAST_RATE * peak)

    @property
    def weight_decay(self) -> float:
        """Weight decay of the model's recipe; LeNet's is 0, for all sides of a comparison."""
        return 0.0 if self.model == MODEL else get_model(self.model).defaults.weight_decay

    def is_of_the_thesis(self) -> bool:
        """True for LeNet on MNIST to 99 %, and ResNet-32 on CIFAR-10 to 80 %."""
        what = self.model, self.train.name.partition("/")[0], self.target
        return what in ((MODEL, "mnist", 0.99), ("resnet32", "cifar10", 0.8))

    def to_the_end(self) -> Goal:
        """The same goal without a target."""
        return replace(self, target=None)

    def facts(self) -> dict[str, Any]:
        """Values that identify the goal in a result."""
        more: dict[str, Any] = {} if self.devices == harness.CPU else {"devices": [*self.devices]}
        more |= {} if self.replica_mode == "auto" else {"replica_mode": self.replica_mode}
        more |= {} if self.schedule == "constant" else {"schedule": self.schedule}
        if self.model != MODEL:
            more |= {"weight_decay": self.weight_decay, "median_of": self.median_of}
        return {
            "model": self.model,
            "dataset": self.train.name.partition("/")[0],
            "examples": [len(self.train), len(self.test)],
            "augmentation": "none" if self.train.augmentation is None else str(self.train.augmentation),
            "momentum": MOMENTUM,
            "target": self.target,
            "most_epochs": self.epochs,
            "checks_per_epoch": self.checks,
            "check": list(CHECK),
            **more,
        }


def add_goal_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `goal_of` and `Cells` read."""
    parser.add_argument(
        "--data", type=Path, help="folder of MNIST's IDX files; default: train on scikit-learn's digits"
    )
    parser.add_argument(
        "--target", type=_fraction, help="target accuracy on the test split; default: 0.99, digits 0.97"
    )
    parser.add_argument(
        "--epochs", type=harness.positive_float, help="epochs after which a run ends without the target"
    )
    parser.add_argument("--seeds", type=harness.positive_int, help="runs of each setting")
    parser.add_argument(
        "--fresh", action="store_true", help="discard earlier results and measure everything again"
    )


def _fraction(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"expected a fraction in (0, 1], as 0.99, got {text}")
    return float(text)


def goal_of(options: argparse.Namespace, epochs: float = 4) -> Goal:
    """Goal of a command line. epochs: default for MNIST of the most epochs."""
    checks = 8
    if options.data is None:  # 1437 pictures: an epoch is little work
        target, epochs, checks, name = 0.97, 6 * epochs, 1, "digits"
        if options.small:
            target, epochs = 0.9, 8
    else:
        target, name = 0.99, "mnist"
        if options.small:
            target, epochs = 0.95, 0.5
    try:
        train, test = tb.data.load(name, options.data)
    except TensorBowError as error:
        raise SystemExit(f"--data: {error}") from error
    target = target if options.target is None else options.target
    epochs = epochs if options.epochs is None else options.epochs
    more = {"devices": options.devices, "replica_mode": getattr(options, "replica_mode", None) or "auto"}
    return Goal(replace(train, augmentation=None), test, target, epochs, checks, **more)


class Learner(Protocol):
    """Interface of a model in training."""

    setup_seconds: float

    def train_until(self, epochs: float) -> tuple[float, float]:
        """Trains until so many epochs of the whole run are done.

        Returns the epochs actually done (whole rounds or steps), and the mean loss of the batches since the
        last call.
        """
        ...

    def models(self) -> Sequence[Mapping[str, Array]]:
        """Trained values by our names: one model, or several independent ones."""
        ...

    def close(self) -> None:
        """Ends the learner."""
        ...


def seeded_program(
    data: ImageDataset, learning_rate: float, seed: int, model: str = MODEL, weight_decay: float = 0.0
) -> StepProgram:
    """Training step in a graph of its own; all learners of the seed start from its initial values."""
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(seed)
        return build_program(get_model(model), data, MOMENTUM, learning_rate, weight_decay)


class Replicas:
    """TensorBow: replicas on the goal's devices, trained by the product's scheduler."""

    def __init__(self, setting: RunSetting, goal: Goal, seed: int, devices: Sequence[Device] = ()):
        """devices: in place of those that the goal names."""
        started = time.perf_counter()
        program = seeded_program(goal.train, setting.learning_rate, seed, goal.model, goal.weight_decay)
        order = BatchOrder(len(goal.train), setting.batch_size, seed)
        self.engine = LearningEngine(
            program,
            setting.batch_size,
            devices or goal.devices,
            replicas_per_device=setting.replicas,
            synchronisation=Synchronisation(setting.sync, tau=setting.tau, replica_mode=goal.replica_mode),
            schedule=goal.rate(setting, order.rounds_per_epoch(setting.replicas * len(goal.devices))),
            steps_per_launch=None,
        )
        self.engine.initialize()
        replicas = self.engine.learners.count
        self.batches = DatasetBatches(goal.train, setting.batch_size, replicas, seed, depth=DEPTH)
        self.batches.keep_on_devices(self.engine.learners)
        self._pace = LaunchPace(self.engine, self.batches, True)  # as the trainer does
        self.setup_seconds = time.perf_counter() - started

    def train_until(self, epochs: float) -> tuple[float, float]:
        losses: list[float] = []
        rounds = self.batches.rounds_per_epoch
        stop = max(round(epochs * rounds), self.engine.round + 1)
        self._pace.run(self.engine.round, stop, lambda results: losses.extend(results.losses))
        return stop / rounds, sum(losses) / len(losses)

    def models(self) -> Sequence[Mapping[str, Array]]:
        return models_of(self.engine, self.engine.round)

    def close(self) -> None:
        self.engine.close()


def course(learner: Learner, goal: Goal) -> dict[str, Any]:
    """Trains a learner to the target or the end, and closes it; its checks, and where it reached the target.

    A check has the columns of `CHECK`; its training loss is the mean since the check before. For several
    independent models the mean counts.
    """
    device = get_device(goal.devices[0])
    judge = Evaluator(get_model(goal.model), goal.test, device, threads=harness.cores())
    checks: list[list[float]] = []
    reached: list[float] | None = None
    epochs = seconds = 0.0
    try:
        for number in range(1, max(1, round(goal.epochs * goal.checks)) + 1):
            started = time.perf_counter()
            epochs, loss = learner.train_until(number / goal.checks)
            seconds += time.perf_counter() - started
            judged = [judge.evaluate(values) for values in learner.models()]
            test_loss = sum(one.loss for one in judged if one is not None) / len(judged)
            accuracy = sum(one.accuracy for one in judged if one is not None) / len(judged)
            figures = round(epochs, 4), round(seconds, 3), round(loss, 5), round(test_loss, 5)
            checks.append([*figures, accuracy])
            last = [check[-1] for check in checks[-goal.median_of :]]
            steady = len(last) == goal.median_of and statistics.median(last)
            if goal.target is not None and steady >= goal.target:
                reached = checks[-1]
                break
    finally:
        learner.close()
        judge.close()
    return {
        "epochs_to_target": None if reached is None else reached[0],
        "seconds_to_target": None if reached is None else reached[1],
        "best_accuracy": max(check[-1] for check in checks),
        "examples_per_second": round(epochs * len(goal.train) / seconds, 1),
        "setup_seconds": round(learner.setup_seconds, 3),
        "checks": checks,
    }


def described(setting: RunSetting) -> dict[str, Any]:
    """Setting as JSON values, for a result."""
    return asdict(setting)
