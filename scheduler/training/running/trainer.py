"""Trainer of a whole run: data, replicas, evaluation of z after each epoch, checkpoints, resuming."""

from __future__ import annotations

import logging
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from scheduler.batches.sources import DatasetBatches
from scheduler.engine.engine_arguments import AsWorkers
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.option_kinds import MODEL
from scheduler.training.configuration.precision import PrecisionSetting
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.folders.run_data import GIVEN, load_data, warn_of_data
from scheduler.training.folders.run_folder import RunFolder
from scheduler.training.measures.classification_metrics import CONFUSION
from scheduler.training.measures.tally import Tally, TrainingResult
from scheduler.training.measures.tuning_result import TuningResult
from scheduler.training.models.classifier_step import build_engine
from scheduler.training.models.evaluation import ACCURACY, Evaluation
from scheduler.training.models.given_weights import given_weights
from scheduler.training.models.inference_graph import description_of, stored_inference
from scheduler.training.models.model_inputs import summary_of
from scheduler.training.running.callbacks import (
    BestMetric,
    CallbackCaller,
    Callbacks,
    EarlyStopping,
    TrainingRun,
    require_watched,
)
from scheduler.training.running.checkpoint_marks import CheckpointMarks
from scheduler.training.running.joint_run import COUNTS, JointRun, average_of, model_of, without_sums
from scheduler.training.running.milestones import Milestones
from scheduler.training.running.model_evaluations import ModelEvaluations
from scheduler.training.running.notices import (
    LossWatch,
    dispatch_notice,
    epoch_line,
    metric_text,
    with_last_checkpoint,
    with_way_on,
)
from scheduler.training.running.outcome import (
    metrics_record,
    result_of,
    save_models,
)
from scheduler.training.running.replica_changes import ReplicaChanges
from scheduler.training.running.resuming import (
    changed_code,
    changed_since,
    code_facts,
    counts_of,
    made_with,
    restored,
    with_rates_of,
)
from scheduler.training.running.run_trace import RunTrace
from scheduler.training.running.tensorboard import TensorBoard
from scheduler.training.tuning.auto import tuning_of
from scheduler.training.tuning.launch_pace import LaunchPace
from scheduler.workers.find import worker_group
from scheduler.workers.joint_calls import JointCalls
from scheduler.workers.pulse import doing
from scheduler.workers.watch_client import tell_folder
from tensorbow.devices import GpuMonitor, get_device
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import (
    InvalidArgumentError,
    NumericsError,
)
from tensorbow.kinds import Flag, Mapped, checked, instance
from tensorbow.models import ModelSummary
from tensorbow.optimizers import SLOT_FORM, Schedule
from tensorbow.specs import Array
from tensorbow.torch_weights import TORCH_NAMES, names_described
from tensorbow.training import Checkpoint, TrainingProgress

_logger = logging.getLogger("tensorbow.training")

AsConfig: TypeAlias = Annotated[TrainingConfig, instance(TrainingConfig, expected="a tb.TrainingConfig")]
AsModel: TypeAlias = Annotated[Any, MODEL]
AsProgress: TypeAlias = Annotated[TrainingProgress, instance(TrainingProgress, expected="a TrainingProgress")]


class Trainer:
    """Trains a model with the options of a `TrainingConfig`. Use it with `with`, or close it."""

    @checked
    def __init__(
        self,
        config: AsConfig,
        progress: AsProgress | None = None,
        *,
        model: AsModel | None = None,
        data: Any = None,
        weights: Mapped | None = None,
        callbacks: Callbacks = (),
        numbered: Flag = False,
        workers: AsWorkers | None = None,
    ):
        """Loads the data, builds all replicas on their devices, and restores the checkpoint of a resumed run.

        model: a callable `model(inputs, labels, training)` that returns (loss, outputs, metrics), or a class
            of such; instead of `config.model`. data: (train, test) or (train, validation, test), each
            (inputs, labels) of arrays or a data set, see `tb.data.splits_of`; instead of the config's.
        weights: a mapping of arrays by name, as a state dict of PyTorch or the values of a trained model;
            instead of `config.weights`.
        callbacks: called in this order, after those of the options.
        numbered: `config.output` is a default, which may get another number; see RunFolder.
        workers: processes that train together, each with the config's devices and replicas; by default those
            of the MPI job that this process is of. Worker 0 evaluates, prints, writes the files of the run,
            and calls the callbacks; every worker adds its replicas to the checkpoints.
        Raises a TensorBowError for options, data or files that do not work; files of earlier runs are
        unchanged then.
        """
        if model is not None:
            config = replace(config, model=model)
        self.config, self._given_data, self._given_weights = config, data, weights
        self._joint = JointCalls(worker_group() if workers is None else workers)
        self._joint_run = JointRun(self._joint)
        if not self._joint.leads:
            config = self.config = replace(config, trace=None, trace_rounds=None, tensorboard=False)
            progress, callbacks = None, ()
        self._progress = progress or TrainingProgress()
        self._stopping = False
        self._engine: LearningEngine | None = None
        self._model_evaluations: ModelEvaluations | None = None
        self._monitor: GpuMonitor | None = None
        self._precision: PrecisionSetting | None = None
        self._began: float | None = None  # time at which the current `_train_rounds` began
        self._trace = RunTrace(config.trace, config.trace_rounds, config.batch_size)
        self.run = TrainingRun(config)
        self._best = None if config.best_metric is None else BestMetric(config.best_metric)
        own = [self._best] if self._best is not None else []
        early = [EarlyStopping(*config.early_stopping)] if config.early_stopping is not None else []
        events = [TensorBoard()] if config.tensorboard else []
        watching = [*early, *own, *events] if self._joint.leads else []
        self._callbacks = CallbackCaller([*watching, *callbacks], self.run)
        self._weights_line = ""  # about given weights
        self._torch_names: dict[str, str] = {}  # by variables' names, of weights that came from PyTorch
        folder: RunFolder | None = None

        def open_folder() -> None:
            nonlocal folder
            folder = RunFolder(config, numbered, data_given=data is not None)

        self._joint.by_first(open_folder)
        self.folder = folder or RunFolder(replace(config, output=None, resume=None))
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        config = self.config
        self._trace.claim_early(self.folder.path)
        devices = [get_device(name) for name in config.devices]
        self._monitor = GpuMonitor(devices)
        self._precision = PrecisionSetting(devices, config.compute)
        self._made_with = made_with(devices)
        say = self._progress.line
        self.data = load_data(config, self._given_data, say)
        if self._joint.leads:
            warn_of_data(config, self.data.train, self.data.validation, self.data.test)
        self._train_set, self._evaluated_set = self.data.train, self.data.evaluated
        self._progress.unit = self._trace.unit = self._train_set.unit
        self._of_numbers = self._train_set.numbers is not None
        self._data_name = config.data_name if self._given_data is None else GIVEN
        self.run.split = "test" if self.data.validation is None else "validation"
        checkpoint, self._only_z = self._joint_run.restored(self.folder.checkpoint)
        batches = len(self._train_set) // config.batch_size
        self._tuning = tuning = tuning_of(
            config,
            batches,
            checkpoint,
            say,
            self.folder.save_tuning,
            self._share_done,
            self._joint.size,
            self._train_set.unit,
        )
        if tuning is not None and self._only_z:
            raise InvalidArgumentError(
                f"{self._only_z}; with --replicas-per-gpu auto a run goes on with all parts of a checkpoint, "
                "on as many workers; start as many, or anew in another --output"
            )
        own = config.replicas if tuning is None else tuning.current * len(devices)
        first, total = self._joint_run.replicas(own)
        counts = counts_of(checkpoint, config.replicas, total) if tuning is None else tuning.replica_counts
        (_, replicas), *changes = counts
        self._batches = DatasetBatches(
            self._train_set,
            config.batch_size,
            replicas,
            config.seed,
            config.batches_ahead,
            changes,
            steps_per_launch=config.steps_per_launch or 1,
            earlier=None if tuning is None else tuning.earlier_positions(len(self._train_set)),
            share=None if self._joint.size == 1 else (first, own),
        )
        positions = self._batches.positions
        self.schedule = build_schedule(config, positions.replicas, positions, self._of_numbers)
        averaging, current_config = config.synchronisation_for(positions.first_round), config
        if tuning is not None:
            current_config = replace(config, replicas_per_device=tuning.current)
            averaging = replace(averaging, replica_mode=tuning.mode or averaging.replica_mode)
        self._engine = build_engine(
            current_config, self._train_set, self.schedule, averaging, self._joint.workers
        )
        if self._joint.agreed(self._callbacks.reads_state):
            self._engine.launch_ahead = 1
        chooses = config.steps_per_launch is None
        self._pace = LaunchPace(self._engine, self._batches, chooses, agreed=self._joint.agreed)
        if tuning is not None:
            self._pace.before_run = tuning.begin_run
        self._model_evaluations = ModelEvaluations(config, self._evaluated_set, self._engine, self._joint)
        evaluated = self._evaluations.figures
        require_watched(config, self.run.split, self._engine.program.metrics, evaluated)
        self.described = description_of(config, self._train_set, self._data_name)
        self._graph_text: bytes | None = None
        if not config.source.is_ours:
            self.described, self._graph_text = stored_inference(self.described, config)
        notice = self._batches.keep_on_devices(self.engine.learners, config.data_on_device)
        if notice:
            self._progress.line(notice)
        self._changes = None
        if tuning is not None:
            self._changes = ReplicaChanges(
                config, tuning, self._engine, self._batches, self._pace, self._joint
            )
            self._changes.limit()
        self.engine.initialize(known=self._known_values(checkpoint))
        self._marks = CheckpointMarks(
            self.folder, self._joint, self._best, self.described, self._train_set.classes, self.run.split
        )
        self._begin(checkpoint)
        self.folder.checkpoint = None  # its arrays are copied

    def _known_values(self, checkpoint: Checkpoint | None) -> dict[str, Array] | None:
        """Values of the given weights, of worker 0; None for a run that has none, or is resumed."""
        config, graph, state = self.config, self.engine.program.graph, self._given_weights
        self._given_weights, found = None, None
        if checkpoint is None:
            found = self._joint.by_first(lambda: given_weights(config, graph, state))
            self._torch_names = {} if found is None else found.entries
            self._weights_line = "" if found is None else found.line
            if found is not None and found.warning and self._joint.leads:
                _logger.warning("%s", found.warning)
        else:
            self._torch_names = names_described(checkpoint.metadata)
            if state is not None or config.weights is not None:
                self._weights_line = "weights are not read: the checkpoint has the run's own"
        if self._torch_names:
            self.described = {**self.described, TORCH_NAMES: self._torch_names}
        return None if found is None else found.values

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        """Restores the checkpoint, opens the folder, and prints the first lines of the run."""
        code = code_facts(self.config.source)
        self._facts = {"data": self._train_set.facts(), "made_with": self._made_with, "code": code}
        if self._torch_names:
            self._facts[TORCH_NAMES] = self._torch_names
        batches = self._batches  # a lambda that captured self would make a reference cycle
        self._watch = LossWatch(self._train_set.classes, lambda round: batches.positions.at(round).epoch)
        self._tally = tally = self._restore(checkpoint)
        self._milestones = Milestones(self.config, lambda: batches.positions, tally)
        done = None if checkpoint is None else self._milestones.nothing_left
        self._joint.by_first(lambda: self.folder.begin(tally.evaluated_at, keep_config=done is not None))
        self._saved_in = self._joint.agreed(self.folder.path and self.folder.path.absolute())
        if self._joint.leads and self._saved_in is not None:
            tell_folder(str(self._saved_in))
        if self._graph_text is not None:
            self.folder.save_graph(self._graph_text, self.config.source)
        self.run.history = self.folder.records()
        self.run.folder = self.folder.path
        self._trace.begin(tally.round)
        if self._tuning is not None and done is None:
            self._tuning.save()
        if self._weights_line:
            self._progress.line(self._weights_line)
        if checkpoint is not None:
            self._progress.line(f"resumed from {checkpoint.path} at round {tally.round}")
            if self._only_z:
                self._progress.line(f"{self._only_z}: all replicas go on from z, and optimisers begin anew")
            for name in self._callbacks.load_states(checkpoint.metadata.get("callbacks", {})):
                self._progress.line(f"the checkpoint has a state of callback {name}, which this run has not")
            for change in (
                changed_since(checkpoint, self._made_with),
                changed_code(checkpoint, self.config.source),
            ):
                if done is None and change is not None:
                    self._progress.line(change)
            if self._tuning is not None and done is None:
                self._tuning.say_where(tally.round, self._batches.positions)
        if done is not None:
            self._progress.line(done)
        elif notice := dispatch_notice(self.config):
            self._progress.line(notice)

    def summary(self) -> ModelSummary:
        """Layers of the model: shapes, parameters, and operations of the forward pass of one example."""
        return summary_of(self.config.source, self.config.model_options, self._train_set)

    @property
    def engine(self) -> LearningEngine:
        """The engine, which holds the replicas and z."""
        assert self._engine is not None
        return self._engine

    @property
    def _evaluations(self) -> ModelEvaluations:
        assert self._model_evaluations is not None
        return self._model_evaluations

    @property
    def tuning(self) -> TuningResult | None:
        """Result of the tuning so far; None if the number of replicas is given or nothing is measured yet."""
        interrupted = self._stopping and not self._milestones.is_complete
        return None if self._tuning is None else self._tuning.result(self._tally.seconds, interrupted)

    def _restore(self, checkpoint: Checkpoint | None) -> Tally:
        for warning in self.folder.warnings:
            self._progress.line(warning)
        if checkpoint is None:
            return Tally()
        learners, target = self.engine.learners, self.config.target_accuracy
        positions = self._batches.positions
        before = with_rates_of(checkpoint, self.config)
        schedule = build_schedule(before, positions.replicas, positions, self._of_numbers)
        if not self._only_z:
            return restored(checkpoint, learners, self._train_set, schedule, target)
        tally = restored(without_sums(checkpoint, self._joint.leads), None, self._train_set, schedule, target)
        (_, count), *_ = reversed(counts_of(checkpoint, self.config.replicas, 0)[:-1])
        layout, options = learners.layout, self.config.synchronisation
        self.engine.initialize(self._joint.by_first(lambda: model_of(checkpoint, layout, options, count)))
        if self.config.ema is not None:
            learners.values.set_average(self._joint.agreed(average_of(checkpoint)))
        return tally

    # Running ----------------------------------------------------------------------------------

    def train(self) -> TrainingResult:
        """Trains to the last epoch, the target accuracy, the time limit or a request to stop.

        Each epoch ends with an evaluation, a line of metrics and a checkpoint. An interrupted run also
        writes a checkpoint and the model. Raises NumericsError for a NaN loss, naming a sound checkpoint to
        resume from, CudaError for a GPU that fails, naming the last checkpoint, and AbortedError for a
        callback that fails, after the checkpoint.
        """
        result: TrainingResult | None = None
        try:
            with self._callbacks.reading(self.engine):
                self._follow_run()
                self._callbacks.begin()
            result = self._trained_to_the_end()
        finally:
            self._follow_run()
            with self._callbacks.reading(self.engine):
                self._callbacks.end(result)
        self._joint.by_first(self._raise_failure)
        return result

    def _raise_failure(self) -> None:
        """Raises the error of a callback that has ended the run."""
        if (failure := self._callbacks.failure) is not None:
            saved = self.folder.last_checkpoint
            kept = "" if saved is None else f"; the last checkpoint is of step {saved[0]}, {saved[1]}"
            raise type(failure)(f"{failure}{kept}") from failure.__cause__

    def _trained_to_the_end(self) -> TrainingResult:
        """Trains, evaluates and saves. Raises as `train`, but for a failed callback, which only ends it."""
        config, tally = self.config, self._tally
        self._progress.start(config.epochs, self._batches.rounds_per_epoch, tally.round)
        rounds = self._batches.positions.first_round(config.epochs)
        self._progress.expect(rounds)
        if config.tau > rounds and config.synchronisation.averages(2) and not config.tunes:
            self._progress.line(
                f"warning: --tau {config.tau} is more than the run's {rounds} rounds: z stays as it began"
            )
        try:
            while not self._ended():
                if not self._milestones.evaluation_is_due:
                    self._train_rounds()
                if self._milestones.evaluation_is_due and not self._stopping:
                    self._evaluate_and_record()
                self._checkpoint()
            if (reason := self.run.stop_reason) is not None:
                self._progress.line(f"stopped by a callback: {reason}")
            if not self._stopping and tally.evaluated_at != tally.round:
                self._evaluate_and_record()
                self._checkpoint()
            if tally.round:
                models = self._evaluations.models_of(tally.round)
                save_models(self.folder, config, self.described, tally, self.engine, models, self.run.split)
            return self._result()
        except CudaError as error:
            raise with_last_checkpoint(error, self.folder.last_checkpoint) from error
        except NumericsError as error:
            classes, rate = self._train_set.classes, self.schedule(0)
            raise with_way_on(error, self.folder, tally, classes, rate) from error
        finally:
            self._progress.stop()
            self._trace.save(self._progress.line, failing=sys.exc_info()[0] is not None)

    def request_stop(self) -> None:
        """Ends `train` after the current round, with a checkpoint; callable from a signal handler."""
        self._stopping = True
        if self._engine is not None:
            self._engine.request_stop()

    def _halts(self) -> bool:
        """True after a request to stop, a callback's wish to stop, or its failure, which requests a stop."""
        if self._callbacks.failure is not None and not self._stopping:
            self.request_stop()
        return self._stopping or self.run.stop_reason is not None

    def _agree_to_halt(self) -> bool:
        """`_halts`, if some worker does; all know the reason then."""
        halts = self._halts()
        if self._joint.size == 1:
            return halts
        self._stopping = self._joint.any(self._stopping)
        reason = self._joint.first_of(self.run.stop_reason)
        if reason is not None:
            self.run.stop(reason)
        return self._halts()

    def _follow_run(self) -> None:
        """Tells the callbacks' view of the run where it is."""
        self.run.round, self.run.epoch = self._tally.round, self._milestones.epoch
        self.run.replicas = self._batches.positions.replicas

    def _ended(self) -> bool:
        milestones = self._milestones
        return self._agree_to_halt() or (
            milestones.nothing_left is not None and not milestones.evaluation_is_due
        )

    def _share_done(self, earlier: int, seconds_before: float, round: int) -> float:
        """See `Milestones.share_done`."""
        running_s = 0.0 if self._began is None else time.perf_counter() - self._began
        return self._milestones.share_done(earlier, seconds_before, round, running_s)

    def _resized(self, schedule: Schedule) -> None:
        """Takes over the learning rates of another number of replicas."""
        self.schedule = schedule
        self._tally.test_accuracies = None  # they were of the old replicas
        self._progress.expect(self._batches.positions.first_round(self.config.epochs))

    def _train_rounds(self) -> None:
        """Trains until a checkpoint or an evaluation is due."""
        config, tally, progress, tuning = self.config, self._tally, self._progress, self._tuning
        begins = self._batches.positions.begins_epoch(tally.round)
        if begins if config.evaluation_epochs == 1 else tally.evaluated_at == tally.round:
            tally.begin_epoch()
        skipped = self.engine.skipped_updates
        started = self._began = time.perf_counter()
        deadline = math.inf
        if self._joint.leads:
            deadline = started + (config.max_seconds or math.inf) - tally.seconds
        since, total, count = tally.round, 0.0, 0
        names = list(self.engine.program.metrics)
        progress.resume_clock()

        def on_results(results: RoundResults) -> None:
            losses, metrics = results.losses, dict(zip(names, results.metrics, strict=True))
            tally.add(losses, metrics, config.batch_size)
            nonlocal total, count
            total, count = total + sum(losses), count + len(losses)
            for warning in self._watch.warnings(results):
                progress.line(warning)
            self._trace.on_results(results)
            progress.tasks(losses, metrics, config.batch_size * self._joint.size)
            progress.set(self.schedule(results.rounds.stop - 1), self._batches.positions.replicas)
            progress.rounds(results.rounds.stop)
            stops = tuning is not None and self._joint.leads and tuning.on_results(results)
            positions = self._batches.positions
            self._callbacks.rounds(results, names, self.schedule, positions, self.engine)
            if stops or self._halts() or time.perf_counter() >= deadline:
                self.engine.request_stop()

        assert self._monitor is not None
        with self._monitor.sampling():
            while True:
                if self._changes is not None:
                    self._changes.follow(tally.round, self._of_numbers, self._resized)
                if self._milestones.evaluation_is_due:  # a change of the replicas has ended the epoch
                    break
                for end, recording in self._trace.pieces(
                    tally.round, stop := self._milestones.next_stop(since)
                ):
                    with recording:
                        tally.round = self._pace.run(tally.round, end, on_results)
                    halts = self._agree_to_halt() or self._joint.agreed(time.perf_counter() >= deadline)
                    if tally.round < end or halts:
                        break
                if tally.round >= stop or halts:
                    break
        elapsed, self._began = self._joint.agreed(time.perf_counter() - started), None
        tally.seconds += elapsed
        tally.epoch_seconds += elapsed
        tally.skipped_updates += self.engine.skipped_updates - skipped
        self._marks.trained = (since, total / count) if count else None

    # Evaluation -------------------------------------------------------------------------------

    def _evaluate_and_record(self) -> None:
        """Evaluates and writes a line of metrics, unless a stop is requested meanwhile."""
        tally, config = self._tally, self.config
        self._progress.evaluating(len(self._evaluated_set))
        done = self._evaluations.after(tally.round, lambda: self._stopping)
        if done is None:
            return
        results, average, self.run.report = done
        if average is not None:
            tally.ema_accuracy = average.accuracy
        found = Evaluation.mean(results)
        loss, accuracy = found.loss, found.accuracy
        if not math.isfinite(loss) and config.on_nan == "stop":
            raise NumericsError(
                f"the {self.run.split} loss of the central model is {loss} after step {tally.round}; lower "
                f"the learning rate ({self.schedule(max(0, tally.round - 1)):g}), mu or staleness"
            )
        tally.test_accuracy, tally.evaluated_at = accuracy, tally.round
        tally.test_metrics = {"loss": loss, **found.metrics}
        self._marks.test_loss = loss
        if config.sync == "none" and accuracy is not None:
            tally.test_accuracies = [result.metrics[ACCURACY] for result in results]
        target = config.target_accuracy
        reached = target is not None and accuracy is not None and accuracy >= target
        if reached and tally.seconds_to_target is None:
            tally.seconds_to_target = tally.seconds
        self._record(average)

    def _record(self, ema: Evaluation | None) -> None:
        tally, epoch = self._joint_run.tally(self._tally), self._milestones.epoch
        rate = self.schedule(max(0, tally.round - 1))
        replicas = self._batches.positions.replicas
        record = metrics_record(self.engine, tally, epoch, ema, rate, self.run.split, replicas)
        if self._monitor is not None and (figures := self._monitor.take()):
            record["devices"] = figures
        for warning in self._joint.by_first(lambda: self.folder.record(record)):
            self._progress.line(warning)
        self.run.history.append(record)
        self._progress.line(epoch_line(self.config, tally, epoch, self.run.split, self._train_set.unit))
        self._follow_run()
        with self._callbacks.reading(self.engine):
            self._callbacks.epoch(record)
        if self._progress.failure is not None:
            self.request_stop()

    # Saving -----------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        if self._saved_in is None:
            return
        with doing("writing a checkpoint"):
            self._save_checkpoint(self._saved_in)

    def _save_checkpoint(self, folder: Path) -> None:
        tally, arrays = self._tally, self.engine.learners.values.state_arrays()
        self._marks.mark(tally, self.engine, arrays, self._evaluations.models)
        metadata = {**tally.to_metadata(), **SLOT_FORM, **self._facts}
        if self._tuning is not None:
            metadata["tuning"] = self._tuning.checkpoint()
        with doing(""):  # what a program does has the usual limit
            states = self._callbacks.states()
        if states:
            metadata["callbacks"] = states
        if len(counts := self._batches.positions.counts) > 1 and self._tuning is None:
            metadata[COUNTS] = [list(each) for each in counts]
        if self._joint.size == 1:
            self.folder.save_checkpoint(arrays, metadata)
        else:
            model = {} if self.config.sync == "none" else self.engine.central_values(tally.round)
            together = self._joint_run.tally(tally)
            self._joint_run.save(folder, arrays, model, metadata, together, self.folder.save_checkpoint)
        if self.folder.last_checkpoint is not None:
            self._follow_run()
            with doing(""), self._callbacks.reading(self.engine):
                self._callbacks.checkpoint(self.folder.last_checkpoint[1])

    def _result(self) -> TrainingResult:
        tally, interrupted = self._tally, self._stopping and not self._milestones.is_complete
        replicas, final = self._batches.positions.replicas, {} if interrupted else self._tested()
        if CONFUSION in self.config.metrics and self.run.report is not None:
            split = "test" if final else self.run.split
            self.folder.save_confusion(
                self.run.report, f"{self.config.source.name} on {self._data_name}, {split}"
            )
        return result_of(
            self.config,
            self._joint_run.tally(tally),
            replicas,
            self._milestones.epoch,
            interrupted,
            self._joint.agreed(self.tuning),
            self.run.stop_reason,
            self._data_name,
            self.run.split,
            final,
            self._joint.size,
        )

    def _tested(self) -> dict[str, float]:
        """Loss and metrics on the test split at the end of a run that is evaluated on a validation split."""
        if self.data.validation is None or not self._tally.round:
            return {}
        result, self.run.report = self._evaluations.on_test_set(self.data.test, self._tally.round)
        figures = {"test_loss": result.loss, **{f"test_{name}": v for name, v in result.metrics.items()}}
        texts = [f"{name.replace('_', ' ')} {metric_text(name, value)}" for name, value in figures.items()]
        self._progress.line(f"at the end  {'  '.join(texts)}")
        return figures

    def close(self) -> None:
        """Closes streams, frees memory and unlocks the folder; idempotent."""
        for owned in (self._engine, self._model_evaluations, self._monitor, self._precision):
            if owned is not None:
                owned.close()
        self._trace.close()
        self.folder.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
