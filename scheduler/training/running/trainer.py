"""Trainer of a whole run: data, replicas, evaluation of z after each epoch, checkpoints, resuming."""

from __future__ import annotations

import logging
import math
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from scheduler.averaging.synchronisation import FUSED
from scheduler.batches.sources import DatasetBatches
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.replicas.resizing import most_that_fit
from scheduler.replicas.round_launcher import why_not_fused
from scheduler.training.configuration.config import DEFAULT_REPLICAS, TrainingConfig
from scheduler.training.configuration.option_kinds import MODEL, metric_and_mode
from scheduler.training.configuration.precision import PrecisionSetting
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.folders.run_data import GIVEN, load_data
from scheduler.training.folders.run_folder import RunFolder
from scheduler.training.measures.classification_metrics import CONFUSION, ClassificationReport
from scheduler.training.measures.tally import Tally, TrainingResult
from scheduler.training.measures.tuning_result import TuningResult
from scheduler.training.models.classifier_step import build_engine
from scheduler.training.models.evaluation import ACCURACY, Evaluation, Evaluator
from scheduler.training.models.given_weights import given_weights
from scheduler.training.models.inference_graph import description_of, stored_inference
from scheduler.training.models.model_inputs import summary_of
from scheduler.training.running.callbacks import (
    BestMetric,
    CallbackCaller,
    Callbacks,
    EarlyStopping,
    TrainingRun,
    require_figure,
)
from scheduler.training.running.joint_run import COUNTS, WORKERS, JointRun, average_of, model_of, without_sums
from scheduler.training.running.notices import (
    LossWatch,
    dispatch_notice,
    epoch_line,
    metric_text,
    nothing_left,
    with_last_checkpoint,
    with_way_on,
)
from scheduler.training.running.outcome import (
    has_exploded,
    metrics_record,
    models_of,
    result_of,
    save_best_model,
    save_models,
)
from scheduler.training.running.resuming import changed_code, changed_since, code_facts, made_with, restored
from scheduler.training.running.run_trace import RunTrace
from scheduler.training.running.tensorboard import TensorBoard
from scheduler.training.tuning.auto import OnlineTuning, tuning_of
from scheduler.training.tuning.launch_pace import LaunchPace
from scheduler.training.tuning.throughput_tuning import NOT_FUSED_OVER_WORKERS
from scheduler.workers.find import worker_group
from scheduler.workers.group import WorkerGroup
from scheduler.workers.joint_calls import JointCalls
from scheduler.workers.pulse import doing
from scheduler.workers.watch_client import tell_folder
from tensorbow.data import TrainingData
from tensorbow.data.picture_layout import warn_of_channels_first
from tensorbow.devices import GpuMonitor, get_device
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import (
    InvalidArgumentError,
    NumericsError,
    ResourceExhaustedError,
    UnimplementedError,
)
from tensorbow.kinds import Flag, Mapped, checked, instance
from tensorbow.models import ModelSummary
from tensorbow.optimizers import SLOT_FORM, Schedule
from tensorbow.specs import Array
from tensorbow.torch_weights import TORCH_NAMES, names_described
from tensorbow.training import Checkpoint, TrainingProgress

RATE_OPTIONS = ("learning_rate", "learning_rate_drops", "schedule", "final_rate", "warmup_epochs")
_logger = logging.getLogger("tensorbow.training")
LEAST = 1e-9  # lower bound of the remaining epochs or seconds: avoids division by zero

AsConfig: TypeAlias = Annotated[TrainingConfig, instance(TrainingConfig, expected="a tb.TrainingConfig")]
AsWorkers: TypeAlias = Annotated[WorkerGroup, instance(WorkerGroup, expected="what tb.worker_group() gives")]
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
        self._evaluator: Evaluator | None = None
        self._monitor: GpuMonitor | None = None
        self._precision: PrecisionSetting | None = None
        self._began: float | None = None  # time at which the current `_train_rounds` began
        # Since the last checkpoint: (its round, mean loss since then), and the test loss.
        self._trained: tuple[int, float] | None = None
        self._test_loss: float | None = None
        self._trace = RunTrace(config.trace, config.trace_rounds, config.batch_size)
        self.run = TrainingRun(config)
        self._best = None if config.best_metric is None else BestMetric(config.best_metric)
        own = [self._best] if self._best is not None else []
        early = [EarlyStopping(*config.early_stopping)] if config.early_stopping is not None else []
        events = [TensorBoard()] if config.tensorboard else []
        watching = [*early, *own, *events] if self._joint.leads else []
        self._callbacks = CallbackCaller([*watching, *callbacks], self.run)
        self._models: list[dict[str, Array]] = []  # that were evaluated last
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
            warn_of_channels_first(self.data.train)
        self._train_set, self._evaluated_set = self.data.train, self.data.evaluated
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
        )
        if tuning is not None and self._only_z:
            raise InvalidArgumentError(
                f"{self._only_z}; with --replicas-per-gpu auto a run goes on with all parts of a checkpoint, "
                "on as many workers; start as many, or anew in another --output"
            )
        own = config.replicas if tuning is None else tuning.current * len(devices)
        first, total = self._joint_run.replicas(own)
        counts = self._counts(checkpoint, total) if tuning is None else tuning.replica_counts
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
        threads = len(devices) * DEFAULT_REPLICAS if config.tunes else config.replicas
        self._evaluator = self._evaluator_of(self._evaluated_set, threads)
        self._require_watched()
        self.described = description_of(config, self._train_set, self._data_name)
        self._graph_text: bytes | None = None
        if not config.source.is_ours:
            self.described, self._graph_text = stored_inference(self.described, config)
        notice = self._batches.keep_on_devices(self.engine.learners, config.data_on_device)
        if notice:
            self._progress.line(notice)
        if tuning is not None:
            options, learners = self.engine.options, self.engine.learners
            most = tuning.tuner.current.most
            fit = self._joint.gathered([most_that_fit(learners, options, most)])
            tuning.limit(*min(fit, key=lambda each: each[0]))
            step = self._engine.executables_of(0)[0]
            why = why_not_fused(step, devices[0], options, learners.count)
            if self._joint.size > 1:
                why = why or NOT_FUSED_OVER_WORKERS
            if why:
                tuning.leave_out_fused(why)
        self.engine.initialize(known=self._known_values(checkpoint))
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

    def _counts(self, checkpoint: Checkpoint | None, total: int) -> list[tuple[int, int]]:
        """(first round, replicas from it on) of the run so far, and of the checkpoint's rounds before."""
        if checkpoint is None:
            return [(0, total)]
        metadata = checkpoint.metadata
        earlier = metadata.get(COUNTS) or [(0, self.config.replicas * metadata.get(WORKERS, 1))]
        counts = [(int(round), int(count)) for round, count in earlier]
        return counts if counts[-1][1] == total else [*counts, (metadata["round"], total)]

    def _require_watched(self) -> None:
        """Raises InvalidArgumentError for an option that watches a figure which evaluations will not have."""
        assert self._evaluator is not None
        config, evaluated = self.config, self._evaluator.figures
        known = ["loss", *self.engine.program.metrics, *(f"{self.run.split}_{name}" for name in evaluated)]
        known += [f"ema_{name}" for name in evaluated] if config.ema is not None else []
        stopping = None if config.early_stopping is None else config.early_stopping[0]
        best = None if config.best_metric is None else metric_and_mode(config.best_metric)[0]
        for option, metric in (("early_stopping", stopping), ("best_metric", best)):
            if metric is not None:
                require_figure(option, metric, known)

    def _evaluator_of(self, data: TrainingData, threads: int) -> Evaluator:
        device, options = get_device(self.config.devices[0]), self.config.model_options
        return Evaluator(self.config.source, data, device, threads, options, self.config.metrics)

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        """Restores the checkpoint, opens the folder, and prints the first lines of the run."""
        code = code_facts(self.config.source)
        self._facts = {"data": self._train_set.facts(), "made_with": self._made_with, "code": code}
        if self._torch_names:
            self._facts[TORCH_NAMES] = self._torch_names
        batches = self._batches  # a lambda that captured self would make a reference cycle
        self._watch = LossWatch(self._train_set.classes, lambda round: batches.positions.at(round).epoch)
        self._tally = tally = self._restore(checkpoint)
        done = None if checkpoint is None else nothing_left(self.config, tally, self._epoch)
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
    def tuning(self) -> TuningResult | None:
        """Result of the tuning so far; None if the number of replicas is given or nothing is measured yet."""
        interrupted = self._stopping and not self._complete()
        return None if self._tuning is None else self._tuning.result(self._tally.seconds, interrupted)

    @property
    def _epoch(self) -> float:
        """Number of epochs trained, including the fraction of the current one."""
        return self._batches.positions.epoch(self._tally.round)

    def _restore(self, checkpoint: Checkpoint | None) -> Tally:
        for warning in self.folder.warnings:
            self._progress.line(warning)
        if checkpoint is None:
            return Tally()
        learners, target = self.engine.learners, self.config.target_accuracy
        schedule = self._schedule_until(checkpoint)
        if not self._only_z:
            return restored(checkpoint, learners, self._train_set, schedule, target)
        tally = restored(without_sums(checkpoint, self._joint.leads), None, self._train_set, schedule, target)
        (_, before), *_ = reversed(self._counts(checkpoint, 0)[:-1])
        layout, options = learners.layout, self.config.synchronisation
        self.engine.initialize(self._joint.by_first(lambda: model_of(checkpoint, layout, options, before)))
        if self.config.ema is not None:
            learners.values.set_average(self._joint.agreed(average_of(checkpoint)))
        return tally

    def _schedule_until(self, checkpoint: Checkpoint) -> Schedule:
        """Learning rates of the checkpoint's run; this run may have others."""
        kept = checkpoint.metadata["config"]
        rates = {name: kept[name] for name in RATE_OPTIONS if name in kept}
        positions = self._batches.positions
        return build_schedule(replace(self.config, **rates), positions.replicas, positions, self._of_numbers)

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
                if not self._evaluation_is_due():
                    self._train_rounds()
                if self._evaluation_is_due() and not self._stopping:
                    self._evaluate_and_record()
                self._checkpoint()
            if (reason := self.run.stop_reason) is not None:
                self._progress.line(f"stopped by a callback: {reason}")
            if not self._stopping and tally.evaluated_at != tally.round:
                self._evaluate_and_record()
                self._checkpoint()
            if tally.round:
                models = self._models_of(tally.round)
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
        self.run.round, self.run.epoch = self._tally.round, self._epoch
        self.run.replicas = self._batches.positions.replicas

    def _ended(self) -> bool:
        if self._agree_to_halt():
            return True
        return self._finished() and not self._evaluation_is_due()

    def _finished(self) -> bool:
        """True if there is nothing left to train."""
        return nothing_left(self.config, self._tally, self._epoch) is not None

    def _complete(self) -> bool:
        """True if there is nothing left to train, and the last model is evaluated."""
        return self._finished() and self._tally.evaluated_at == self._tally.round

    def _period(self, round: int) -> int:
        """Number of the stretch of `evaluation_epochs` in which a round is."""
        epoch, number = self._batches.positions.at(round)
        share = number / self._batches.positions.order.batches_per_epoch
        return int((epoch + share) / self.config.evaluation_epochs + LEAST)

    def _evaluation_is_due(self) -> bool:
        tally = self._tally
        return self._period(tally.round) > self._period(tally.evaluated_at)

    def _due(self, since: int) -> int:
        """Round to stop before: that of the next evaluation, or the first checkpoint after round `since`."""
        round, every = self._tally.round, self.config.checkpoint_rounds
        later = range(round + 1, self._batches.positions.first_round(self.config.epochs))
        end = round + 1 + bisect_right(later, self._period(round), key=self._period)
        return end if every is None else min(end, since + every)

    def _share_done(self, earlier: int, seconds_before: float, round: int) -> float:
        """Fraction, over at `round`, of the epochs or seconds that remained at the round `earlier`."""
        config, epoch = self.config, self._batches.positions.epoch
        shares = [(epoch(round) - epoch(earlier)) / max(LEAST, config.epochs - epoch(earlier))]
        if config.max_seconds is not None:
            running = 0.0 if self._began is None else time.perf_counter() - self._began
            trained = self._tally.seconds + running - seconds_before
            shares.append(trained / max(LEAST, config.max_seconds - seconds_before))
        return max(shares)

    def _follow_tuning(self) -> None:
        """Changes to the replicas that the tuning wants; alpha and learning rate change with their number."""
        config, round, tuning = self.config, self._tally.round, self._tuning
        if tuning is None:
            return
        if self._joint.leads:
            tuning.end_in_time(round)
        while True:
            tuning.follow(*self._joint.agreed((tuning.wanted, tuning.wanted_mode)))
            if not tuning.wants_change:
                return
            if tuning.wanted == tuning.current:
                self._follow_mode(tuning)
                continue
            replicas = tuning.wanted * len(config.devices) * self._joint.size
            positions = self._batches.positions.resized(round, replicas)
            schedule = build_schedule(config, replicas, positions, self._of_numbers)
            ssgd_from = config.synchronisation_for(positions.first_round).ssgd_from
            try:
                with self._pace.changing():
                    self.engine.resize(tuning.wanted, round, schedule, ssgd_from)
            except ResourceExhaustedError as error:
                if self._joint.leads:
                    tuning.refused(str(error))
                continue
            self.schedule = schedule
            self._batches.resize(round, self.engine.learners)
            self._tally.test_accuracies = None  # they were of the old replicas
            self._progress.expect(positions.first_round(config.epochs))
            tuning.changed(round)

    def _follow_mode(self, tuning: OnlineTuning) -> None:
        """Changes to the mode of replicas that the tuning wants."""
        fused = tuning.wanted_mode == FUSED
        try:
            with self._pace.changing():
                self.engine.fuse(fused)
        except (UnimplementedError, ResourceExhaustedError) as error:
            if not fused:
                raise
            tuning.not_fused(str(error))
        else:
            tuning.changed_mode(self._tally.round)

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
                self._follow_tuning()
                if self._evaluation_is_due():  # changing the number of replicas has ended the epoch
                    break
                for end, recording in self._trace.pieces(tally.round, stop := self._due(since)):
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
        self._trained = (since, total / count) if count else None

    # Evaluation -------------------------------------------------------------------------------

    def _evaluate_and_record(self) -> None:
        """Evaluates and writes a line of metrics, unless a stop is requested meanwhile."""
        tally, config = self._tally, self.config
        self._progress.evaluating(len(self._evaluated_set))
        models = self._models_of(tally.round)
        ema = None if config.ema is None else self.engine.ema_values(tally.round)
        with doing("evaluating"):
            done = self._joint.agreed(self._evaluated(models, ema) if self._joint.leads else None)
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
        self._test_loss = loss
        if config.sync == "none" and accuracy is not None:
            tally.test_accuracies = [result.metrics[ACCURACY] for result in results]
        target = config.target_accuracy
        reached = target is not None and accuracy is not None and accuracy >= target
        if reached and tally.seconds_to_target is None:
            tally.seconds_to_target = tally.seconds
        self._record(average)

    def _models_of(self, round: int) -> list[dict[str, Array]]:
        """`models_of` for all workers: with sync `none` those of every worker's replicas."""
        models = models_of(self.engine, round)
        self._models = self._joint.gathered(models) if self.config.sync == "none" else models
        return self._models

    def _evaluated(
        self, models: Sequence[dict[str, Array]], ema: dict[str, Array] | None
    ) -> tuple[list[Evaluation], Evaluation | None, ClassificationReport | None] | None:
        """Evaluations of models and of the moving average, and the report of the first; None if stopped."""
        assert self._evaluator is not None
        results, report = list[Evaluation](), None
        for values in models:
            result = self._evaluator.evaluate(values, lambda: self._stopping)
            if result is None:
                return None
            report = report if results else self._evaluator.report
            results.append(result)
        average = None if ema is None else self._evaluator.evaluate(ema, lambda: self._stopping)
        return None if average is None and ema is not None else (results, average, report)

    def _record(self, ema: Evaluation | None) -> None:
        tally, epoch = self._joint_run.tally(self._tally), self._epoch
        rate = self.schedule(max(0, tally.round - 1))
        replicas = self._batches.positions.replicas
        record = metrics_record(self.engine, tally, epoch, ema, rate, self.run.split, replicas)
        if self._monitor is not None and (figures := self._monitor.take()):
            record["devices"] = figures
        for warning in self._joint.by_first(lambda: self.folder.record(record)):
            self._progress.line(warning)
        self.run.history.append(record)
        self._progress.line(epoch_line(self.config, tally, epoch, self.run.split))
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
        exploded = self._joint.any(has_exploded(self.engine, arrays))
        if not exploded and self._joint.leads:
            if self._trained is not None:
                tally.mark_sound(*self._trained, self._train_set.classes)
            if self._test_loss is not None and self._best is not None:
                tally.mark_best_by(self._best.is_best or not self.folder.holds(tally.best), self._test_loss)
            elif self._test_loss is not None:
                tally.mark_best(self._test_loss, is_there=self.folder.holds(tally.best))
            if self._test_loss is not None and tally.best == tally.round and self.config.sync != "none":
                save_best_model(self.folder, self.described, tally, self._models[0], self.run.split)
        self._trained = self._test_loss = None
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
        tally, interrupted = self._tally, self._stopping and not self._complete()
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
            self._epoch,
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
        evaluator = self._evaluator_of(self.data.test, self.config.replicas)
        try:
            models = reversed(self._models_of(self._tally.round))  # the report is of the first
            with doing("evaluating"):
                found = [evaluator.evaluate(values) for values in models if self._joint.leads]
                found, self.run.report = self._joint.agreed((found, evaluator.report))
        finally:
            evaluator.close()
        result = Evaluation.mean([each for each in reversed(found) if each is not None])
        figures = {"test_loss": result.loss, **{f"test_{name}": v for name, v in result.metrics.items()}}
        texts = [f"{name.replace('_', ' ')} {metric_text(name, value)}" for name, value in figures.items()]
        self._progress.line(f"at the end  {'  '.join(texts)}")
        return figures

    def close(self) -> None:
        """Closes streams, frees memory and unlocks the folder; idempotent."""
        for owned in (self._engine, self._evaluator, self._monitor, self._precision):
            if owned is not None:
                owned.close()
        self._trace.close()
        self.folder.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
