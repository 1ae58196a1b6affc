"""Offline tuning: measures images per second while training with 1, 2, 3, ... replicas per device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from scheduler.averaging.synchronisation import alpha_bound, modes_on
from scheduler.batches.sources import DatasetBatches
from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.decisions.replica_tuner import THRESHOLD, Decision, Measure, Measurement
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.options import POSITIVE, documents_options, option, read_options
from scheduler.replicas.device_plans import DevicePlans
from scheduler.replicas.replica_counts import MOST_REPLICAS
from scheduler.replicas.round_launcher import why_not_fused
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.precision import PrecisionSetting
from scheduler.training.configuration.schedule_choice import initial_rate
from scheduler.training.folders.run_data import load_data, warn_of_data
from scheduler.training.measures.tuning_result import TuningResult
from scheduler.training.models.classifier_step import build_engine, build_step
from scheduler.training.tuning.launch_pace import LaunchPace
from scheduler.training.tuning.throughput_windows import ThroughputWindows
from scheduler.workers.group import LoneWorker, WorkerGroup
from scheduler.workers.joint_calls import JointCalls
from tensorbow.devices import get_device
from tensorbow.errors import (
    AbortedError,
    CancelledError,
    ResourceExhaustedError,
    TensorBowError,
    UnimplementedError,
)
from tensorbow.kinds import Kind, number, whole
from tensorbow.optimizers import Constant


@documents_options
@dataclass(frozen=True)
class TuningOptions:
    """Options of the auto-tuner. Raises InvalidArgumentError for values out of range."""

    max_replicas: int = option(
        16,
        "Largest number of replicas per device to try; memory and data may allow fewer.",
        whole(1, MOST_REPLICAS),
    )
    threshold: float = option(
        THRESHOLD,
        "Smallest gain in throughput, as a fraction, that justifies more replicas.",
        Kind("a fraction in (0, 1), as 0.05", number(0, 1, above=True, below=True).read),
    )
    windows: int = option(
        3,
        "Number of timed windows for each count, of which the median is used; up to 36 times as many where "
        "counts are too close together.",
        whole(1, 1_000_000),
    )
    window_seconds: float = option(
        0.3, "Shortest length in seconds of a window, and of the warm-up before the first.", POSITIVE
    )
    max_seconds: float | None = option(
        None,
        "Decide after this many seconds, from the windows so far; of two replica modes, the first has half.",
        POSITIVE,
        shown="no limit",
    )

    def __post_init__(self) -> None:
        read_options(self)


def modes_of(config: TrainingConfig) -> tuple[str | None, ...]:
    """Modes of replicas to measure on a run's devices; see `modes_on`."""
    return modes_on({str(kind).lower() for kind in config.device_kinds}, config.synchronisation)


def limit_before_memory(
    config: TrainingConfig, batches: int, max_replicas: int, least_rounds: int = 1, workers: int = 1
) -> tuple[int, str]:
    """Greatest number of replicas per device to try, regardless of memory, and the reason for this limit.

    batches: batches per epoch. least_rounds: rounds that an epoch must have. workers: each with the config's
    devices.
    """
    devices = workers * len(config.devices)
    filled = f"the data set fills {batches} batch{'' if batches == 1 else 'es'}"
    limits = [(max_replicas, "max_replicas"), (max(1, batches // (devices * least_rounds)), filled)]
    if config.synchronisation.averages(2) and config.alpha is not None:
        by_alpha = _limit_by_alpha(config, config.alpha, max_replicas, devices)
        limits.append((by_alpha, f"alpha is {config.alpha:g}"))
    return min(limits, key=lambda limit: limit[0])


def _limit_by_alpha(config: TrainingConfig, alpha: float, most: int, devices: int) -> int:
    count = 1
    while count < most and alpha < alpha_bound((count + 1) * devices, config.mu, config.staleness):
        count += 1
    return count


class ThroughputTuning:
    """Measures the counts of replicas that a `ModeTuner` asks for, with the options of a training run.

    All devices get the same count. Each count gets a `LearningEngine` like that of a run with this count: the
    same plans, streams, batches, averaging and steps per launch. `steps_per_launch` has the numbers measured
    by number of replicas and whether they are fused, if none is given. On GPUs, with `replica_mode` "auto",
    counts are measured with captured replicas and then with fused ones, where the step's can be fused.
    The workers of a job tune one number for all of them: worker 0 measures and decides.
    """

    def __init__(
        self,
        config: TrainingConfig,
        options: TuningOptions | None = None,
        on_window: Callable[[Measurement], None] = lambda measurement: None,
        *,
        data: Any = None,
        workers: WorkerGroup | None = None,
    ):
        """data: instead of the config's, as for a `Trainer`. workers: of the job; default: this process.
        on_window: called after each window, in the thread of `run`, with all windows of its count.

        Raises a TensorBowError for data that cannot be read, or too little for one replica on each device.
        """
        self.config = config
        self.options = options or TuningOptions()
        self._on_window, self._joint = on_window, JointCalls(workers or LoneWorker())
        self._dataset = load_data(config, data).train
        if self._joint.leads:
            warn_of_data(config, self._dataset)
        self._batches(1)
        self._why_not_fused = ""
        self.most, self.why_no_more = self._limit()
        self.tuner = ModeTuner(
            modes_of(config),
            self.most,
            self.options.threshold,
            self.options.windows,
            why_no_more=self.why_no_more,
            unit=self._dataset.unit,
        )
        if self._joint.size > 1:
            self._why_not_fused = self._why_not_fused or NOT_FUSED_OVER_WORKERS
        if self.tuner.has_more and (why := self._why_not_fused):
            self.tuner.leave_out(why)
        self.steps_per_launch: dict[tuple[int, bool], int] = {}  # measured
        self._engine: LearningEngine | None = None
        self._stopping = False

    def _batches(self, replicas_per_device: int) -> DatasetBatches:
        config, joint = self.config, self._joint
        own = replicas_per_device * len(config.devices)
        replicas = own * joint.size
        return DatasetBatches(
            self._dataset,
            config.batch_size,
            replicas,
            config.seed,
            config.batches_ahead,
            steps_per_launch=config.steps_per_launch or 1,
            share=None if joint.size == 1 else (own * joint.workers.rank, own),
        )

    @property
    def _rate(self) -> float:
        """Learning rate of one replica, the lowest: the rate does not affect throughput."""
        return initial_rate(self.config, 1)

    # Limits -------------------------------------------------------------------------------------

    def _limit(self) -> tuple[int, str]:
        """Greatest count to try, and the reason for this limit."""
        config = self.config
        batches = len(self._dataset) // config.batch_size
        workers = self._joint.size
        most, why = limit_before_memory(config, batches, self.options.max_replicas, workers=workers)
        fit, device = min(self._joint.gathered([self._fit(name, most) for name in config.devices]))
        # If not even one fits, the engine raises the error.
        return (max(fit, 1), f"more do not fit into the memory of {device}") if fit < most else (most, why)

    def _fit(self, name: str, most: int) -> tuple[int, str]:
        """Replicas, up to `most`, that fit on a device, by a dry run of their allocations; and its name."""
        config, devices = self.config, len(self.config.devices) * self._joint.size
        program, specs = build_step(config, self._dataset, self._rate)
        options, device = config.synchronisation, get_device(name)
        plans = DevicePlans(program, specs, device, options, most * devices, config.results_kept)
        self._why_not_fused = why_not_fused(plans.step, device, options, most * devices)
        return plans.most_that_fit(most), name

    # Measuring ----------------------------------------------------------------------------------

    def run(self) -> TuningResult:
        """Measures until the tuner has decided, `max_seconds` are over, or a stop is requested.

        Before the end of the first window, raises AbortedError when the time is over and CancelledError for
        a stop. Also raises what training raises.
        """
        started = time.perf_counter()
        seconds = self.options.max_seconds or math.inf
        self._deadline = self._deadline_of_mode = started + seconds
        if self.tuner.has_more:
            self._deadline_of_mode = started + seconds / 2
        devices = [get_device(name) for name in self.config.devices]
        with closing(PrecisionSetting(devices, self.config.compute)):
            while not isinstance(step := self._agreed_step(), Decision):
                self._measure(step)
        seconds, decision = time.perf_counter() - started, step
        return self._joint.by_first(
            lambda: TuningResult(
                decision,
                self.tuner.measurements,
                self.most,
                self.why_no_more,
                seconds,
                self._stopping and not decision.complete,
                self.tuner.left_out,
                self._dataset.unit,
            )
        )

    def _agreed_step(self) -> Decision | Measure:
        """`_next_step` of worker 0, which knows the windows."""
        self._stopping = self._joint.any(self._stopping)
        return self._joint.by_first(self._next_step)

    def request_stop(self) -> None:
        """Ends `run` within a step, with a result from the windows so far; callable from a signal handler."""
        self._stopping = True
        if self._engine is not None:
            self._engine.request_stop()

    def _next_step(self) -> Decision | Measure:
        """The decision, or what to measure next. Ends the tuner when time is over or on a stop."""
        reason, now = None, time.perf_counter()
        if self._stopping:
            reason = "interrupted"
        elif now >= self._deadline:
            reason = f"max_seconds {self.options.max_seconds:g} are over"
        elif self.tuner.has_more and self.tuner.measurements and now >= self._deadline_of_mode:
            self.tuner.end_mode(f"half of max_seconds {self.options.max_seconds:g} was over")
        if reason is not None:
            if not self.tuner.measurements:
                raise self._nothing_known(reason)
            self.tuner.end(reason)
        return self.tuner.next_step()

    def _nothing_known(self, reason: str) -> CancelledError | AbortedError:
        text = f"tuning ended before one window of {self.config.source.name} was measured: {reason}"
        if self._stopping:
            return CancelledError(text)
        return AbortedError(f"{text}; give more max_seconds, or fewer window_seconds")

    def _measure(self, step: Measure) -> None:
        """Trains with a number of replicas per device until the tuner asks for another number or decides."""
        count, mode = step.replicas, step.mode or self.config.replica_mode
        config = replace(self.config, replicas_per_device=count, replica_mode=mode)
        batches = self._batches(count)
        schedule = Constant(self._rate)
        joint, replicas = self._joint, config.replicas * self._joint.size
        windows = ThroughputWindows(replicas, config.batch_size, config.tau, self.options.window_seconds)
        try:
            engine = build_engine(
                config, self._dataset, schedule, config.synchronisation, workers=joint.workers
            )
        except (UnimplementedError, ResourceExhaustedError) as error:
            failure = error
            joint.by_first(lambda: self._go_on_without(step, failure))
            return
        self._engine, over = engine, False

        def on_results(results: RoundResults) -> None:
            nonlocal over
            if not joint.leads:
                return
            rate = windows.add(results)
            if rate is not None and not over:
                self._on_window(self.tuner.record(count, rate))
                following = self._next_step()
                over = (following.replicas, following.mode) != (count, step.mode)
                over |= isinstance(following, Decision)
            if over or time.perf_counter() >= self._deadline:
                engine.request_stop()

        with engine:
            batches.keep_on_devices(engine.learners, config.data_on_device)
            chooses = config.steps_per_launch is None
            pace = LaunchPace(engine, batches, chooses, self.steps_per_launch, joint.agreed)
            pace.before_run = windows.begin
            engine.initialize()
            if self._stopping:  # requested before the engine existed
                engine.request_stop()
            pace.run(0, _ENDLESS, on_results)
            self._engine = None

    def _go_on_without(self, step: Measure, error: TensorBowError) -> None:
        """Leaves out fused replicas that cannot be had, or so many of them; raises any other error."""
        measured = [known.replicas for known in self.tuner.current.measurements]
        if self.tuner.mode == self.tuner.modes[0] or step.replicas in measured:
            raise error
        if measured and isinstance(error, ResourceExhaustedError):
            self.tuner.current.limit(step.replicas - 1, f"{step.replicas} fused did not fit into memory")
        else:
            self.tuner.leave_out(str(error))


NOT_FUSED_OVER_WORKERS = "GPUs of several workers launch their replicas one by one"
_ENDLESS = 1 << 40  # rounds
