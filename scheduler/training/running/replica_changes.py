"""Changes of a run's number of replicas, as its tuning asks for."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.averaging.synchronisation import FUSED
from scheduler.batches.sources import DatasetBatches
from scheduler.engine.learning_engine import LearningEngine
from scheduler.replicas.resizing import most_that_fit
from scheduler.replicas.round_launcher import why_not_fused
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.tuning.auto import OnlineTuning
from scheduler.training.tuning.launch_pace import LaunchPace
from scheduler.training.tuning.throughput_tuning import NOT_FUSED_OVER_WORKERS
from scheduler.workers.joint_calls import JointCalls
from tensorbow.errors import ResourceExhaustedError, UnimplementedError
from tensorbow.optimizers import Schedule


class ReplicaChanges:
    """Changes number and mode of the replicas between launches; the workers of a job do so together."""

    def __init__(
        self,
        config: TrainingConfig,
        tuning: OnlineTuning,
        engine: LearningEngine,
        batches: DatasetBatches,
        pace: LaunchPace,
        joint: JointCalls,
    ):
        self._config, self._tuning, self._engine = config, tuning, engine
        self._batches, self._pace, self._joint = batches, pace, joint

    def limit(self) -> None:
        """Tells the tuning how many replicas fit in memory, and why they cannot be fused."""
        options, learners, tuning = self._engine.options, self._engine.learners, self._tuning
        most = tuning.tuner.current.most
        fit = self._joint.gathered([most_that_fit(learners, options, most)])
        tuning.limit(*min(fit, key=lambda each: each[0]))
        step = self._engine.executables_of(0)[0]
        why = why_not_fused(step, learners.devices[0], options, learners.count)
        if self._joint.size > 1:
            why = why or NOT_FUSED_OVER_WORKERS
        if why:
            tuning.leave_out_fused(why)

    def follow(self, round: int, of_numbers: bool, resized: Callable[[Schedule], None]) -> None:
        """Makes the replicas what the tuning wants; alpha and learning rate change with their number.

        of_numbers: see `build_schedule`. resized: called with the new learning rates after each change of the
        number.
        """
        config, tuning = self._config, self._tuning
        if self._joint.leads:
            tuning.end_in_time(round)
        while True:
            tuning.follow(*self._joint.agreed((tuning.wanted, tuning.wanted_mode)))
            if not tuning.wants_change:
                return
            if tuning.wanted == tuning.current:
                self._follow_mode(round)
                continue
            replicas = tuning.wanted * len(config.devices) * self._joint.size
            positions = self._batches.positions.resized(round, replicas)
            schedule = build_schedule(config, replicas, positions, of_numbers)
            ssgd_from = config.synchronisation_for(positions.first_round).ssgd_from
            try:
                with self._pace.changing():
                    self._engine.resize(tuning.wanted, round, schedule, ssgd_from)
            except ResourceExhaustedError as error:
                if self._joint.leads:
                    tuning.refused(str(error))
                continue
            self._batches.resize(round, self._engine.learners)
            resized(schedule)
            tuning.changed(round)

    def _follow_mode(self, round: int) -> None:
        """Changes to the mode of replicas that the tuning wants."""
        fused = self._tuning.wanted_mode == FUSED
        try:
            with self._pace.changing():
                self._engine.fuse(fused)
        except (UnimplementedError, ResourceExhaustedError) as error:
            if not fused:
                raise
            self._tuning.not_fused(str(error))
        else:
            self._tuning.changed_mode(round)
