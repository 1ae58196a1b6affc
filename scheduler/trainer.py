"""A whole training run: data, replicas, evaluation of z each epoch, checkpoints, resume."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scheduler.batches import DatasetBatches
from scheduler.classifier import build_engine
from scheduler.computing import Computing
from scheduler.config import TrainingConfig
from scheduler.engine import LearningEngine
from scheduler.evaluation import Evaluation, Evaluator
from scheduler.notices import LossWatch, epoch_line, nothing_left, with_last_checkpoint
from scheduler.run_folder import RunFolder
from scheduler.run_trace import RunTrace
from scheduler.tally import Tally, TrainingResult
from scheduler.task_result import TaskResult
from tensorbow.data import load
from tensorbow.devices import GpuMonitor, get_device
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import DataLossError, InvalidArgumentError, NumericsError
from tensorbow.models import get_model
from tensorbow.optimizers import Constant, PiecewiseConstant, Schedule
from tensorbow.specs import Array
from tensorbow.training import Checkpoint, TrainingProgress


class Trainer:
    """Trains a model as a `TrainingConfig` says. Use it with `with`, or close it."""

    def __init__(self, config: TrainingConfig, progress: TrainingProgress | None = None):
        """Loads data, builds and places all replicas, restores a checkpoint if there is one to resume.

        Raises a TensorBowError with one clear line for anything that cannot work; nothing that an
        earlier run saved has been touched then.
        """
        self.config = config
        self.model = get_model(config.model)
        self._progress = progress or TrainingProgress()
        self._stopping = False
        self._engine: LearningEngine | None = None
        self._evaluator: Evaluator | None = None
        self._monitor: GpuMonitor | None = None
        self._computing: Computing | None = None
        self._trace = RunTrace(config.trace, config.trace_rounds, config.replicas, config.batch_size)
        self.folder = RunFolder(config)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        config = self.config
        self._trace.claim_early()
        devices = [get_device(name) for name in config.devices]
        self._monitor = GpuMonitor(devices)
        self._computing = Computing(devices, config.compute)
        self._train_set, self._test_set = load(config.dataset, config.data_dir)
        self._batches = DatasetBatches(
            self._train_set, config.batch_size, config.replicas, config.seed, depth=config.launch_ahead + 1
        )
        self.schedule = self._make_schedule()
        self._engine = build_engine(
            config,
            self._train_set,
            self.schedule,
            config.synchronisation_for(self._batches.rounds_per_epoch),
        )
        self._evaluator = Evaluator(self.model, self._test_set, devices[0], threads=config.replicas)
        notice = self._batches.keep_on_devices(self.engine.learners, config.data_on_device)
        if notice:
            self._progress.line(notice)
        self.engine.initialize()
        self._begin(self.folder.checkpoint)
        self.folder.checkpoint = None  # its arrays are copied

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        """Restores what there is, then opens the folder, and says so once it is ours."""
        rounds = self._batches.rounds_per_epoch
        self._watch = LossWatch(self._train_set.classes, rounds)
        self._tally = tally = self._restore(checkpoint)
        done = None if checkpoint is None else nothing_left(self.config, tally, rounds)
        self.folder.begin(tally.evaluated_at, keep_config=done is not None)
        self._trace.begin(tally.round)
        if checkpoint is not None:
            self._progress.line(f"resumed from {checkpoint.path} at round {tally.round}")
        if done is not None:
            self._progress.line(done)

    @property
    def engine(self) -> LearningEngine:
        """The engine, with replicas and z."""
        assert self._engine is not None
        return self._engine

    def _make_schedule(self) -> Schedule:
        config = self.config
        rate = config.learning_rate or self.model.default_learning_rate(config.replicas)
        if not config.learning_rate_drops:
            return Constant(rate)
        rounds = self._batches.rounds_per_epoch
        boundaries = [epoch * rounds - 1 for epoch, _ in config.learning_rate_drops]
        return PiecewiseConstant(
            boundaries, [rate, *(rate * factor for _, factor in config.learning_rate_drops)]
        )

    def _data_facts(self) -> dict[str, Any]:
        """What tells one data set of a name from another."""
        data = self._train_set
        return {"examples": len(data), "mean": data.mean, "std": data.std}

    def _restore(self, checkpoint: Checkpoint | None) -> Tally:
        for warning in self.folder.warnings:
            self._progress.line(f"passed over a damaged checkpoint: {warning}")
        if checkpoint is None:
            return Tally()
        facts = self._data_facts()
        if checkpoint.metadata.get("data") != facts:
            raise InvalidArgumentError(
                f"{checkpoint.path} is of a run on other data than {self._train_set.name} "
                f"({facts['examples']} examples); give the same --data-dir"
            )
        try:
            self.engine.learners.load_state_arrays(checkpoint.arrays)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{checkpoint.path}: {error}") from error
        tally = Tally.from_metadata(checkpoint.metadata)
        if checkpoint.metadata["config"].get("target_accuracy") != self.config.target_accuracy:
            tally.seconds_to_target = None
        if tally.test_accuracies is not None and len(tally.test_accuracies) != self.config.replicas:
            raise DataLossError(f"{checkpoint.path} has not one test accuracy for each replica")
        return tally

    # Running ----------------------------------------------------------------------------------

    def train(self) -> TrainingResult:
        """Trains to the end, the target accuracy, the time limit or a request to stop.

        Each epoch ends with an evaluation, a line of metrics and a checkpoint. An interrupted run ends
        with a checkpoint, and with no final model. Raises NumericsError for a NaN loss, CudaError for a GPU
        that fails, naming the last checkpoint; those written before stay usable.
        """
        config, tally, rounds = self.config, self._tally, self._batches.rounds_per_epoch
        self._progress.start(config.epochs, rounds, tally.round)
        try:
            while not self._ended():
                stop = min(config.epochs * rounds, (tally.round // rounds + 1) * rounds)
                if config.checkpoint_rounds is not None:
                    stop = min(stop, tally.round + config.checkpoint_rounds)
                if not self._evaluation_is_due():
                    self._train_rounds(stop)
                if self._evaluation_is_due() and not self._stopping:
                    self._evaluate_and_record()
                self._checkpoint()
            if not self._stopping and tally.evaluated_at != tally.round:
                self._evaluate_and_record()
                self._checkpoint()
            if self._complete():
                self._save_model()
            return self._result()
        except CudaError as error:
            raise with_last_checkpoint(error, self.folder.last_checkpoint) from error
        finally:
            self._progress.stop()
            self._trace.save(self._progress.line, failing=sys.exc_info()[0] is not None)

    def request_stop(self) -> None:
        """Ends `train` after the current round, with a checkpoint; callable from a signal handler."""
        self._stopping = True
        if self._engine is not None:
            self._engine.request_stop()

    def _ended(self) -> bool:
        if self._stopping:
            return True
        return self._finished() and not self._evaluation_is_due()

    def _finished(self) -> bool:
        """Whether the training itself has come to its end."""
        return nothing_left(self.config, self._tally, self._batches.rounds_per_epoch) is not None

    def _complete(self) -> bool:
        """Whether it has, and its last model is evaluated."""
        return self._finished() and self._tally.evaluated_at == self._tally.round

    def _evaluation_is_due(self) -> bool:
        tally = self._tally
        return tally.round % self._batches.rounds_per_epoch == 0 and tally.evaluated_at < tally.round

    def _train_rounds(self, stop: int) -> None:
        """Trains up to a round."""
        config, tally, progress = self.config, self._tally, self._progress
        if tally.round % self._batches.rounds_per_epoch == 0:
            tally.begin_epoch()
        skipped = self.engine.skipped_updates
        started = time.perf_counter()
        deadline = started + (config.max_seconds or math.inf) - tally.seconds
        last_replica = config.replicas - 1
        progress.resume_clock()

        def on_result(result: TaskResult) -> None:
            tally.add(result.loss, result.metrics[0], config.batch_size)
            warning = self._watch.warning(result.loss, result.round, result.replica)
            if warning is not None:
                progress.line(warning)
            self._trace.on_result(result)
            progress.task(result.loss, result.metrics[0] / config.batch_size, config.batch_size)
            if result.replica == last_replica:
                progress.round(result.round + 1)
                if self._stopping or time.perf_counter() >= deadline:
                    self.engine.request_stop()

        assert self._monitor is not None
        with self._monitor.sampling():
            for end, recording in self._trace.pieces(tally.round, stop):
                with recording:
                    tally.round = self.engine.run(self._batches.open, tally.round, end, on_result)
                if tally.round < end or self._stopping or time.perf_counter() >= deadline:
                    break
        elapsed = time.perf_counter() - started
        tally.seconds += elapsed
        tally.epoch_seconds += elapsed
        tally.skipped_updates += self.engine.skipped_updates - skipped

    # Evaluation -------------------------------------------------------------------------------

    def _models(self) -> list[dict[str, Array]]:
        """The values of z; without averaging, of every replica's model."""
        learners = self.engine.learners
        if self.config.sync != "none":
            return [self.engine.central_values(self._tally.round)]
        slots = {op.name for op in learners.layout.variables if op.attrs["role"] == "slots"}
        every = [learners.replica_values(index) for index in range(learners.count)]
        return [{n: v for n, v in values.items() if n not in slots} for values in every]

    def _evaluate_and_record(self) -> None:
        """Evaluates, and writes a line of metrics; neither when a stop is requested meanwhile."""
        assert self._evaluator is not None
        tally, config = self._tally, self.config
        self._progress.evaluating(len(self._test_set))
        results: list[Evaluation] = []
        for values in self._models():
            result = self._evaluator.evaluate(values, lambda: self._stopping)
            if result is None:
                return
            results.append(result)
        loss = math.fsum(result.loss for result in results) / len(results)
        accuracy = math.fsum(result.accuracy for result in results) / len(results)
        if not math.isfinite(loss) and config.on_nan == "stop":
            raise NumericsError(
                f"the test loss of the central model is {loss} after step {tally.round}; lower the learning "
                f"rate ({self.schedule(max(0, tally.round - 1)):g}), mu or staleness; "
                "checkpoints of before are usable"
            )
        tally.test_accuracy, tally.evaluated_at = accuracy, tally.round
        if config.sync == "none":
            tally.test_accuracies = [result.accuracy for result in results]
        target = config.target_accuracy
        if target is not None and accuracy >= target and tally.seconds_to_target is None:
            tally.seconds_to_target = tally.seconds
        self._record(loss)

    def _record(self, test_loss: float) -> None:
        tally, config = self._tally, self.config
        epoch = tally.round / self._batches.rounds_per_epoch
        record: dict[str, Any] = {
            "round": tally.round,
            "epoch": int(epoch) if epoch == int(epoch) else round(epoch, 4),
            "seconds": tally.seconds,
            "images": tally.images,
            "images_per_second": tally.epoch_images_per_second,
            "loss": tally.loss,
            "accuracy": tally.accuracy,
            "test_loss": test_loss,
            "test_accuracy": tally.test_accuracy,
            "learning_rate": self.schedule(max(0, tally.round - 1)),
            "alpha": self.engine.learners.alpha,
            "skipped_updates": tally.skipped_updates,
        }
        if tally.test_accuracies is not None:
            record["test_accuracies"] = tally.test_accuracies
        if self._monitor is not None and (figures := self._monitor.take()):
            record["devices"] = figures
        self.folder.record(record)
        self._progress.line(epoch_line(config, tally, epoch, test_loss))
        if self._progress.failure is not None:
            self.request_stop()

    # Saving -----------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        if self.folder.path is not None:
            metadata = {**asdict(self._tally), "data": self._data_facts()}
            self.folder.save_checkpoint(self.engine.learners.state_arrays(), metadata)

    def _save_model(self) -> None:
        """Writes z; without averaging every replica's model. The same run gives the same bytes."""
        data, tally = self._train_set, self._tally
        metadata = {
            "model": self.config.model,
            "dataset": self.config.dataset,
            "classes": data.classes,
            "image_shape": list(data.image_shape),
            "mean": data.mean,
            "std": data.std,
            "round": tally.round,
        }
        accuracies: Sequence[float | None] = tally.test_accuracies or [tally.test_accuracy]
        for index, (values, accuracy) in enumerate(zip(self._models(), accuracies, strict=True)):
            metadata["test_accuracy"] = accuracy
            self.folder.save_model(values, metadata, suffix=f"-replica{index}" if index else "")

    def _result(self) -> TrainingResult:
        config, tally = self.config, self._tally
        return TrainingResult(
            model=config.model,
            dataset=config.dataset,
            devices=list(config.devices),
            replicas=config.replicas,
            batch_size=config.batch_size,
            sync=config.sync,
            epochs=round(tally.round / self._batches.rounds_per_epoch, 3),
            steps=tally.round,
            images_per_second=round(tally.images_per_second, 1),
            seconds=round(tally.seconds, 3),
            test_accuracy=tally.test_accuracy,
            seconds_to_target=None if tally.seconds_to_target is None else round(tally.seconds_to_target, 3),
            interrupted=self._stopping and not self._complete(),
            skipped_updates=tally.skipped_updates,
        )

    def close(self) -> None:
        """Closes streams, gives memory back and lets go of the folder; idempotent."""
        for owned in (self._engine, self._evaluator, self._monitor, self._computing):
            if owned is not None:
                owned.close()
        self._trace.close()
        self.folder.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
