"""Rounds that are launched as a whole: from what `LockstepState` says to launches, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from scheduler.batches.sources import ReadyBatch, ReadyRound
from scheduler.decisions.messages import RoundFailed, RoundFinished, RoundReady, SchedulerEvent
from scheduler.engine.fetching import Fetching
from scheduler.engine.results import EngineRun, RoundResults
from scheduler.replicas.round_launcher import LaunchedRounds, RoundLauncher
from tensorbow.data import AllInputs, BatchInputs, BatchRun, RoundInputs
from tensorbow.errors import AbortedError, InternalError, InvalidArgumentError
from tensorbow.specs import Array


class WholeRounds(Fetching):
    """What `LearningEngine` does with launches of all replicas; the fields are the engine's."""

    @property
    def _launcher(self) -> RoundLauncher:
        launcher = self.learners.launcher
        if launcher is None:
            raise InternalError("rounds as a whole: the replicas have no launcher of them")
        return launcher

    def _gather(self, run: EngineRun, batch: ReadyBatch) -> list[SchedulerEvent]:
        """Takes one replica's batch; says that the round is there, when it is."""
        launch, count = batch.round, self.learners.count
        if (batch.replica, launch) in run.batches:
            raise InternalError(f"the batch of replica {batch.replica} in round {launch} came again")
        run.batches[batch.replica, launch] = batch
        if any((place, launch) not in run.batches for place in range(count)):
            return []
        batches = [run.batches.pop((place, launch)) for place in range(count)]

        def release() -> None:
            for each in batches:
                each.release()

        return self._take_round(run, ReadyRound(launch, [each.inputs for each in batches], release))

    def _take_round(self, run: EngineRun, message: ReadyRound) -> list[SchedulerEvent]:
        if self.learners.launcher is None:
            raise InvalidArgumentError(
                "a source gave a whole round, but the engine launches its tasks one by one; call "
                "keep_on_devices(engine.learners) of the source with this engine's learners"
            )
        run.ready[message.round] = message
        return [RoundReady(message.round)]

    def _launch_rounds(self, run: EngineRun, launch: int) -> None:
        inputs = run.ready[launch].inputs
        if run.steps == 1:
            rounds, state = range(launch, launch + 1), self._state_of(launch, 0)
        else:
            rounds = run.rounds(launch)
            state = dict.fromkeys(self._counters, rounds)
            if self._rate is not None:
                state["learning_rate"] = [self._rate(round) for round in rounds]
            if self.on_nan == "skip":
                state["status"] = 0
        self._require_inputs(run, rounds, inputs)
        self._launcher.launch(launch, rounds, inputs, state, run.inbox.put)

    def _require_inputs(self, run: EngineRun, rounds: range, inputs: AllInputs) -> None:
        """Raises InvalidArgumentError for batches of another number of replicas or rounds."""
        if isinstance(inputs, RoundInputs):
            recipes, is_one = inputs.recipes, inputs.place is not None
            if recipes.replicas != self.learners.count:
                raise InvalidArgumentError(
                    f"a round came for {recipes.replicas} replicas, but the engine has "
                    f"{self.learners.count}; give the source the same number"
                )
            if is_one if run.steps == 1 else not is_one and len(recipes) == len(rounds):
                return
        for place in range(self.learners.count):
            batch = inputs.of(place) if isinstance(inputs, RoundInputs) else inputs[place]
            if run.steps > 1:
                self._require_run(run, place, rounds, batch)
            elif isinstance(batch, BatchRun):
                raise self._not_one_batch(place, rounds.start, batch)

    def _not_one_batch(self, replica: int, round: int, inputs: BatchRun) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"steps_per_launch=1: expected a batch for replica {replica} and round {round}, got a "
            f"BatchRun of {len(inputs)}; give the engine the source's steps_per_launch"
        )

    def _require_run(
        self, run: EngineRun, replica: int, rounds: range, inputs: BatchInputs | BatchRun
    ) -> None:
        if not isinstance(inputs, BatchRun) or len(inputs) != len(rounds):
            raise InvalidArgumentError(
                f"steps_per_launch={run.steps}: expected a BatchRun of {len(rounds)} batches for replica "
                f"{replica} and the launch at round {rounds.start}, got {inputs!r:.60}; open the source with "
                "gathered(), or make DatasetBatches(steps_per_launch=...)"
            )

    def _rounds_ended(self, run: EngineRun, tasks: LaunchedRounds) -> SchedulerEvent:
        """Takes note of the end of a launch."""
        launcher, launch = self._launcher, tasks.number
        launcher.ended(tasks)
        if run.on_results is not None or self.on_nan == "skip" or launcher.stopped:
            known, error = len(run.bad), tasks.error
            self._hand_out(run, tasks, error is None)
            if error is not None:
                if run.error is None or isinstance(run.error, AbortedError):  # that only follows on another
                    run.error = error
                tasks.forget()
                return RoundFailed(launch, str(error))
            if len(run.bad) > known:
                return RoundFailed(launch, f"not finite in round {min(run.bad)[0]}")
        run.ready.pop(launch).release()
        return RoundFinished(launch)

    def _hand_out(self, run: EngineRun, tasks: LaunchedRounds, whole: bool) -> None:
        """Gives results on, of the rounds before the first that some task failed in. whole: no task has."""
        if whole and run.steps == 1:
            results = self._round_of(run, tasks)
        else:
            results = self._rounds_of(run, tasks)
        if results is None or run.on_results is None or run.awaited != tasks.rounds.start:
            return  # nobody asks, or the launch before was not done to its end
        run.awaited += len(results.rounds)
        run.on_results(results)

    def _round_of(self, run: EngineRun, tasks: LaunchedRounds) -> RoundResults | None:
        """Those of one round, as `_rounds_of`: for the shortest steps that takes more than they do."""
        fetched = [replica.results(tasks.number) for replica in self.learners.replicas]
        *columns, statuses = zip(*fetched, strict=True)
        if any(statuses):
            good = [
                self._good(run, index, tasks.rounds, [[value] for value in values])
                for index, values in enumerate(fetched)
            ]
            if not all(good):
                return None
        else:
            self._skipped_in_a_row = [0] * len(fetched)
        losses = columns.pop(0) if self._has_loss else [math.nan] * len(fetched)
        return RoundResults(tasks.rounds, range(len(fetched)), losses, columns, tasks.times_s)

    def _rounds_of(self, run: EngineRun, tasks: LaunchedRounds) -> RoundResults | None:
        """Those of whole rounds; None where there is none. What is to end the run is in `run.bad` then."""
        fetched = [self._columns_of(replica, tasks) for replica in range(self.learners.count)]
        whole = min(self._good(run, replica, tasks.rounds, own) for replica, own in enumerate(fetched))
        if not whole:
            return None
        most = whole * len(fetched)
        by_round = [chain.from_iterable(zip(*each, strict=False)) for each in zip(*fetched, strict=True)]
        return self._in_columns(tasks, [[*islice(values, most)] for values in by_round])

    def _in_columns(self, tasks: LaunchedRounds, columns: Sequence[Sequence[Any]]) -> RoundResults:
        """columns: of tasks by round and replica, each value that they fetched; the last is the status."""
        statuses, times_s = columns[-1], tasks.times_s
        rounds = tasks.rounds[: len(statuses) // len(times_s)]
        losses = columns[0] if self._has_loss else [math.nan] * len(statuses)
        return RoundResults(rounds, range(len(times_s)), losses, columns[self._has_loss : -1], times_s)

    def _columns_of(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """What a replica's tasks fetched, as far as they were done."""
        done = slice(0 if tasks.failed(replica) else None)
        fetched = self._launcher.fetched(replica, tasks)
        return [column[done].tolist() if column.ndim == 1 else column[done] for column in fetched]
