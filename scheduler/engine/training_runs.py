"""Runs of a learning engine: begun, fed with messages, ended; and what they leave of the central model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scheduler.batches.sources import BatchSource, DatasetBatches, OpenSource
from scheduler.engine.dispatch import Dispatch
from scheduler.engine.results import EngineRun, RoundResults
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, raise_if_any
from tensorbow.kinds import Count, Function, checked
from tensorbow.specs import Array

RESTARTS_SOUGHT = 1 << 16  # rounds ahead: a run may be asked for more than it will ever train


class TrainingRuns(Dispatch):
    """What `LearningEngine` does between its beginning and its end; the fields are the engine's."""

    round: int
    host_copy: tuple[int, dict[str, Array]] | None
    _run: EngineRun | None
    _drained: bool
    _changing: threading.RLock

    @checked
    def run(
        self,
        open_source: Function,
        start: Count,
        stop: Count,
        on_results: Function | None = None,
    ) -> int:
        """Trains rounds `start` to `stop` - 1; returns the round it ended before.

        on_results is called in this thread, in the order of rounds, when all tasks of a launch's rounds have
        ended. When `run` returns nothing is in flight. It returns early after `request_stop`, with all
        replicas at the same round.
        Raises NumericsError for a loss that is not finite (unless `on_nan` is `skip`), the error of
        a failed op, of the batch source or of `on_results`. Replicas may then be some rounds apart, each as
        whole as its last finished task left it, but for statistics that another's error came behind: go on
        from a checkpoint.
        """
        source = getattr(open_source, "__self__", None)
        if isinstance(source, DatasetBatches) and source.replicas != self.learners.count:
            raise InvalidArgumentError(
                f"run: a source of batches for {source.replicas} replicas, but the engine has "
                f"{self.learners.count}; give the source the same number"
            )
        ended = start
        while True:
            end = self._restart_or_stop(ended, stop)
            ended, stopping = self._run_stretch(open_source, ended, end, on_results)
            if self.steps_per_launch > 1 and start < ended == end and self._restarts_before(end):
                self.restart(end)
            if stopping or ended == stop:
                return ended

    def _restart_or_stop(self, start: int, stop: int) -> int:
        """Up to where the machine sees to restarts: in launches of several rounds up to the next one."""
        if self.steps_per_launch == 1 or not (
            self.schedule or self._own_schedules or self.learners.gang_from
        ):
            return stop
        with self._idle("run"):
            self._make_ready(start)
        far = min(stop, start + RESTARTS_SOUGHT)
        return next((round for round in range(start + 1, far) if self._restarts_before(round)), far)

    def _run_stretch(
        self,
        open_source: OpenSource,
        start: int,
        stop: int,
        on_results: Callable[[RoundResults], None] | None,
    ) -> tuple[int, bool]:
        """Trains rounds; the round before which it ended, and whether it was asked to."""
        run = self.begin(start, stop, on_results)
        if self._stopping:
            run.inbox.put(None)
        source: BatchSource | None = None
        try:
            self._obey(run, run.state.begin())
            if run.finished_at is None:
                source = open_source(start, stop, run.inbox.put, run.inbox.put)
            while run.finished_at is None:
                self.take_all(run, run.inbox.get())
        finally:
            self._stopping = False
            try:
                if source is not None:
                    source.close()
            finally:
                self.end(run)
        self.raise_error(run)
        self.round = run.first_round(run.finished_at)
        return self.round, run.stopping

    # The pieces of a run, for `run` and for `Stepper` ---------------------------------------------

    def begin(self, start: int, stop: int, on_results: Callable[[RoundResults], None] | None) -> EngineRun:
        """Starts rounds `start` to `stop` - 1; nothing is launched yet. `end` must follow.

        Raises FailedPreconditionError while another is going on, or for variables without a value.
        """
        with self._idle("run"):
            self._make_ready(start)
            self._run = self._new_run(start, stop, on_results)
            return self._run

    def go_on(self, run: EngineRun, round: int) -> None:
        """Before `round` of a run that was settled: values may have been set."""
        with self._changing:
            run.settled = False
            self.follow_counts(round)

    @contextmanager
    def _idle(self, call: str, *, or_settled: bool = False) -> Iterator[None]:
        """Nothing is in flight and no run begins, while the caller changes what runs work on.

        or_settled: a stepper may have the engine, if it is settled.
        Raises FailedPreconditionError while a run is going on.
        """
        with self._changing:
            run = self._run
            if run is not None and not (or_settled and run.settled):
                raise FailedPreconditionError(
                    f"{call}: a run is going on; request_stop() it and wait for its end, or "
                    f"{'settle' if or_settled else 'close'} the stepper"
                )
            self._drain()
            yield

    def _make_ready(self, round: int) -> None:
        """Before rounds from `round` on. Raises as `begin`."""
        self._require_values()
        self.learners.prepare()
        self.follow_counts(round)

    def _require_values(self) -> None:
        for replica in self.learners.replicas:
            missing = sorted(replica.executable.reads_first - replica.container.initialized)
            if missing:
                raise FailedPreconditionError(
                    f"variables without a value: {', '.join(missing[:3])}"
                    f"{' and more' if len(missing) > 3 else ''}; call engine.initialize() first"
                )

    def end(self, run: EngineRun) -> None:
        """Waits until nothing is in flight and lets the engine go; a stream's error is kept in `run`."""
        with self._changing:
            self._run, self._drained = None, False
            run.keep(self.learners.drain())
            self._drained = True
        while not run.inbox.empty():  # launches, which know the replicas' memory
            run.inbox.get()

    def _drain(self) -> None:
        """Where the end of the last run was interrupted its tasks may still be at work."""
        if not self._drained:
            self.learners.drain()
            self._drained = True

    def raise_error(self, run: EngineRun) -> None:
        """Raises what went wrong in a run that is ended, if anything did."""
        try:
            if run.bad:
                raise self._numerics_error(run, *min(run.bad))
            if isinstance(run.error, CudaError) and run.error.sticky:
                raise self._with_host_copy(run.error) from run.error
            raise_if_any(run.error)
        finally:
            run.error = None  # see raise_if_any

    def request_stop(self) -> None:
        """Ends `run` at the next round that all replicas reach; callable from any thread or handler.

        Between two runs it ends the next one before its first round. A `Stepper` does as its caller says.
        """
        self._stopping = True
        run = self._run
        if run is not None:
            run.inbox.put(None)  # wakes it, wherever in the queue

    def restart(self, round: int) -> None:
        """Restarts averaging before `round`, where the last run ended: w_i = z, u = 0 (Crossbow, section 3).

        Raises FailedPreconditionError while a run is going on; it restarts by itself at the boundaries
        of a piecewise schedule.
        """
        with self._idle("restart"):
            self.learners.prepare()
            if self.learners.averages:
                self.learners.restart(round - 1)
                raise_if_any(self.learners.drain())

    # What is left of it ------------------------------------------------------------------------

    @checked
    def central_values(self, round: Count | None = None) -> dict[str, Array]:
        """The variables of the central model as the last run left them, by name; kept as `host_copy`.

        round: the rounds trained, where not all of them were by `run`.
        Raises CudaError when the GPU is lost, saying which round the last copy is of.
        """
        round = self.round if round is None else round
        try:
            values = self.learners.central_values(round)
        except CudaError as error:
            raise self._with_host_copy(error) from error
        self.host_copy = round, values
        return values

    def _with_host_copy(self, error: CudaError) -> CudaError:
        """The error of a lost GPU, and what is left of the central model."""
        kept = "there is no copy of the central model on the host"
        if self.host_copy is not None:
            kept = f"the last copy of the central model on the host is of round {self.host_copy[0]}"
        return CudaError(f"{error}; {kept}", error.status, error.sticky)
