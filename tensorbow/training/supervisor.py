"""Supervisor: prepares sessions, and saves checkpoints and summaries beside a loop (TensorFlow 1's name)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    UnavailableError,
)
from tensorbow.graph import AsGraph, GraphKeys, Tensor, get_default_graph
from tensorbow.kinds import (
    AsPath,
    Count,
    Flag,
    Function,
    Items,
    Mapped,
    NonNegative,
    Text,
    checked,
    instance,
)
from tensorbow.ops.summaries import merge_all
from tensorbow.queues import Coordinator, LooperThread, start_queue_runners
from tensorbow.runtime import AsConfig, Session, get_global_step
from tensorbow.runtime.long_wait import LongWait
from tensorbow.runtime.session_creators import PAUSE_S, local_initializer
from tensorbow.training.background_saving import BackgroundSaving
from tensorbow.training.event_files import AsFileWriter, FileWriter, FileWriterCache
from tensorbow.training.saver import Saver
from tensorbow.training.scaffold import AsPiece, AsSaver, InitFn, Scaffold, Summarised
from tensorbow.training.session_creators import closed_on_errors
from tensorbow.training.session_manager import AsRunOptions, SessionManager
from tensorbow.variable_lists import report_uninitialized_variables
from tensorbow.variables import Variable, global_variables, global_variables_initializer

AsStep: TypeAlias = Annotated[Any, instance((Variable, Tensor), expected="a variable or tensor")]
AsManager: TypeAlias = Annotated[
    SessionManager, instance(SessionManager, expected="a tb.train.SessionManager")
]


class _UseDefault:
    """Stands for a piece that the Supervisor makes, where None leaves it out."""

    def __repr__(self) -> str:
        return "Supervisor.USE_DEFAULT"


USE_DEFAULT: Any = _UseDefault()


class _CompletingManager(SessionManager):
    """Initialises also what a checkpoint leaves without a value, and nothing else while others train."""

    def __init__(self, unfilled: Tensor, *pieces: Any):
        super().__init__(*pieces)
        self._unfilled = unfilled

    def _complete(self, session: Session) -> None:
        if names := Scaffold.missing(session, self._unfilled):
            with session.graph.as_default():
                session.run([each.initializer for each in global_variables() if each.op.name in names])


class Supervisor:
    """Initialises or restores the variables, gives a session, and saves in the background beside its loop.

        supervisor = tb.train.Supervisor(is_chief=task_index == 0, logdir="checkpoints")
        with supervisor.managed_session(server.target) as session:
            while not supervisor.should_stop():
                session.run(train_op)

    `tb.train.MonitoredTrainingSession` does the same, and goes on by itself after a task has failed. Here a
    failed task ends the block with an error; when it is back, another block of `managed_session` goes on from
    the last checkpoint, with new threads.

    The pieces `init_op`, `local_init_op`, `ready_op`, `ready_for_local_init_op`, `summary_op`, `saver`,
    `global_step` and the `session_manager` that uses them are attributes.
    """

    USE_DEFAULT: Any = USE_DEFAULT

    @checked
    def __init__(
        self,
        graph: AsGraph | None = None,
        ready_op: AsPiece | None = USE_DEFAULT,
        ready_for_local_init_op: AsPiece | None = USE_DEFAULT,
        is_chief: Flag = True,
        init_op: AsPiece | None = USE_DEFAULT,
        init_feed_dict: Mapped | None = None,
        local_init_op: AsPiece | None = USE_DEFAULT,
        logdir: AsPath | None = None,
        summary_op: Summarised | None = USE_DEFAULT,
        saver: AsSaver | None = USE_DEFAULT,
        global_step: AsStep | None = USE_DEFAULT,
        save_summaries_secs: NonNegative = 120,
        save_model_secs: NonNegative = 600,
        recovery_wait_secs: NonNegative = PAUSE_S,
        stop_grace_secs: NonNegative = 120,
        checkpoint_basename: Text = "model.ckpt",
        session_manager: AsManager | None = None,
        summary_writer: AsFileWriter | None = USE_DEFAULT,
        init_fn: InitFn = None,
        local_init_run_options: AsRunOptions | None = None,
    ):
        """graph: by default the default graph, which must be complete. A piece that is None is left out, one
        that is not given is the first in its collection, as `tb.GraphKeys.READY_OP`, or else the default:

        ready_op: gives the names of variables without a value, strings `[n]`; the session is ready when there
            are none. By default `tb.report_uninitialized_variables()`.
        ready_for_local_init_op: the same, for what local_init_op reads; by default of the global variables.
        is_chief: this process initialises, restores and saves; others wait for it.
        init_op: run with init_feed_dict where no checkpoint is restored; by default initialises all
            variables, and what a checkpoint lacks, too.
        local_init_op: run in each session, with local_init_run_options; by default initialises local
            variables and lookup tables.
        logdir: folder of checkpoints and summaries; None saves none.
        summary_op: a summary; by default all of the graph, merged. It is run by itself: where it needs feeds,
            give None, and the values to `summary_computed`.
        saver: by default one of all variables.
        global_step: an integer scalar that numbers checkpoints and summaries; by default the graph's.
        save_summaries_secs: between two runs of summary_op, of which the first is at once; 0: none.
        save_model_secs: between two checkpoints; 0 saves only at the end.
        recovery_wait_secs: between two looks of a process that is no chief whether the session is ready.
        stop_grace_secs: how long the threads of queue runners may take to end with a session.
        session_manager: makes the sessions, in the place of one of these pieces.
        summary_writer: by default one of an event file in logdir.
        init_fn: called with the session after init_op.
        """
        self.graph = graph if graph is not None else get_default_graph()
        self.is_chief = is_chief
        self._folder = None if logdir is None else Path(logdir)
        self._path = None if self._folder is None else self._folder / checkpoint_basename
        self.save_summaries_secs, self.save_model_secs = save_summaries_secs, save_model_secs
        self.init_feed_dict, self._init_fn, self._grace_s = init_feed_dict, init_fn, stop_grace_secs
        with self.graph.as_default():
            fills = init_op is USE_DEFAULT and not self.graph.get_collection(GraphKeys.INIT_OP)
            unfilled = report_uninitialized_variables(global_variables())
            self.init_op = self._piece(init_op, GraphKeys.INIT_OP, global_variables_initializer)
            self.local_init_op = self._piece(local_init_op, GraphKeys.LOCAL_INIT_OP, local_initializer)
            self.ready_op = self._piece(ready_op, GraphKeys.READY_OP, report_uninitialized_variables)
            self.ready_for_local_init_op = self._piece(
                ready_for_local_init_op, GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: unfilled
            )
            self.summary_op = self._piece(summary_op, GraphKeys.SUMMARY_OP, merge_all)
            self.saver = self._piece(saver, GraphKeys.SAVERS, lambda: Saver() if global_variables() else None)
            self.global_step = get_global_step() if global_step is USE_DEFAULT else global_step
        if session_manager is None:
            pieces: tuple[Any, ...] = self.local_init_op, self.ready_op, self.ready_for_local_init_op
            pieces += self.graph, recovery_wait_secs, local_init_run_options
            made = _CompletingManager(unfilled, *pieces) if fills else SessionManager(*pieces)
            session_manager = made
        self.session_manager = session_manager
        self._writer = summary_writer
        self._threads: BackgroundSaving | None = None
        self._session: Session | None = None
        self.coord = Coordinator()  # of the queue runners' threads

    def _piece(self, given: Any, key: str, make: Callable[[], Any]) -> Any:
        """The piece that is given, the first of its collection, or a new one."""
        if given is not USE_DEFAULT:
            return given
        found = self.graph.get_collection(key)
        return found[0] if found else make()

    @property
    def save_path(self) -> str | None:
        """The path of the checkpoints, without their steps; None without a logdir."""
        return None if self._path is None else str(self._path)

    @property
    def summary_writer(self) -> FileWriter | None:
        """The writer of summaries; None without a logdir, and where this is not the chief.

        Raises FailedPreconditionError without tensorboardX.
        """
        if not self.is_chief:
            return None
        if self._writer is USE_DEFAULT:
            self._writer = None if self._folder is None else FileWriterCache.get(self._folder)
        writer: FileWriter | None = self._writer
        return writer

    @checked
    def prepare_or_wait_for_session(
        self,
        master: Text = "",
        config: AsConfig | None = None,
        wait_for_checkpoint: Flag = False,
        max_wait_secs: NonNegative = 7200,
        start_standard_services: Flag = True,
        **options: Any,
    ) -> Session:
        """A session whose variables have values: from the newest checkpoint, or initialised.

        Waits until all tasks of a cluster are there and, unless this is the chief, until it has initialised
        the variables. wait_for_checkpoint: the chief waits for one, too. start_standard_services: start the
        threads of queue runners, and save checkpoints and summaries in the background (the chief). options:
        of `tb.Session`. Raises DeadlineExceededError if the variables have no values in time.
        """
        if self.is_chief:
            session = self._prepared(master, config, wait_for_checkpoint, max_wait_secs, options)
        elif not master:
            raise InvalidArgumentError(
                "Supervisor: is_chief=False needs the target of a tb.train.Server, whose chief initialises "
                "the variables; leave it out"
            )
        else:
            session = self.session_manager.wait_for_session(
                master, config=config, max_wait_secs=max_wait_secs, **options
            )
        if self.coord.should_stop():
            self.coord = Coordinator()
        with closed_on_errors(session):
            if start_standard_services and self.is_chief:
                self.start_standard_services(session)
            if start_standard_services:
                self.start_queue_runners(session)
        self._session = session
        return session

    def _prepared(
        self, master: str, config: Any, waits: bool, max_wait_s: float, options: dict[str, Any]
    ) -> Session:
        """The chief's session. Tries again while tasks of a cluster are not there."""
        wait = LongWait(max_wait_s)
        while True:
            try:
                return self.session_manager.prepare_session(
                    master,
                    init_op=self.init_op,
                    saver=self.saver,
                    checkpoint_dir=self._folder,
                    wait_for_checkpoint=waits,
                    max_wait_secs=max_wait_s,
                    config=config,
                    init_feed_dict=self.init_feed_dict,
                    init_fn=self._init_fn,
                    **options,
                )
            except (UnavailableError, AbortedError) as error:
                wait.tell(f"Supervisor: {error}")
                if wait.left_s < 0:
                    raise
            time.sleep(PAUSE_S)

    def start_standard_services(self, sess: Session) -> list[LooperThread]:
        """Starts the threads of checkpoints, summaries and the rate of steps (`global_step/sec`, logged).

        There are none without a logdir or summary_writer. Raises FailedPreconditionError unless this is the
        chief.
        """
        if not self.is_chief:
            raise FailedPreconditionError(
                "start_standard_services: only the chief saves; call it where is_chief is True"
            )
        every_s, wants = self.save_summaries_secs, self._folder is not None or self._writer is not USE_DEFAULT
        writer = self.summary_writer if every_s and wants and self.summary_op is not None else None
        threads = BackgroundSaving(sess, self.coord, self.global_step)
        if writer is not None:
            threads.summarise(self.summary_op, writer, every_s)
        if every_s and wants and self.global_step is not None:
            threads.log_rate(writer, every_s)
        if self.save_model_secs and self._path is not None and self.saver is not None:
            threads.save(self._save, self.save_model_secs)
        self._threads = threads
        return threads.started

    @checked
    def start_queue_runners(self, sess: Any, queue_runners: Items | None = None) -> list[Any]:
        """Starts the threads of queue runners, by default of all of the graph, with `coord`; returns them."""
        with self.graph.as_default():
            if queue_runners is None:
                return start_queue_runners(sess, self.coord)
            return [
                thread
                for runner in queue_runners
                for thread in runner.create_threads(sess, self.coord, daemon=True, start=True)
            ]

    @checked
    def loop(
        self,
        timer_interval_secs: NonNegative | None,
        target: Function,
        args: Items | None = None,
        kwargs: Mapped | None = None,
    ) -> LooperThread:
        """A started thread that calls target every so many seconds until the stop; see `LooperThread`."""
        return LooperThread.loop(self.coord, timer_interval_secs, target, args, kwargs)

    @checked
    def summary_computed(self, sess: Any, summary: Any, global_step: Count | None = None) -> None:
        """Writes a summary that the program has fetched, as of a step, by default the present one.

        Raises FailedPreconditionError without a summary_writer.
        """
        writer = self.summary_writer
        if writer is None:
            raise FailedPreconditionError(
                "summary_computed: writing a summary requires a summary_writer; give the chief's Supervisor "
                "a logdir or a summary_writer, and call it on the chief alone"
            )
        writer.reopen()
        if global_step is None and self.global_step is not None:
            global_step = int(sess.run(self.global_step))
        writer.add_summary(summary, global_step)

    @checked
    def managed_session(
        self,
        master: Text = "",
        config: AsConfig | None = None,
        start_standard_services: Flag = True,
        close_summary_writer: Flag = True,
        **options: Any,
    ) -> AbstractContextManager[Session]:
        """Context of a session, the default one, which is stopped at its end; see `stop`.

        The end of the input (OutOfRangeError) ends it without an error, unless a thread has failed. Where the
        block has an error of its own, a thread's is its context. Other arguments: those of
        `prepare_or_wait_for_session`.
        """
        services: dict[str, Any] = {"start_standard_services": start_standard_services}
        return self._managed(
            lambda: self.prepare_or_wait_for_session(master, config, **services, **options),
            close_summary_writer,
        )

    @contextmanager
    def _managed(self, prepared: Callable[[], Session], closes_writer: bool) -> Iterator[Session]:
        session = prepared()
        try:
            with session.as_default():
                yield session
        except OutOfRangeError:
            pass
        except BaseException as error:
            try:
                self._end(False, closes_writer)
            except Exception as other:
                if other is not error:
                    raise error  # noqa: B904 - the other becomes its context
            raise
        self._end(True, closes_writer)

    def should_stop(self) -> bool:
        """True once `request_stop` or `stop` was called, or a thread of the coordinator has failed."""
        return self.coord.should_stop()

    def request_stop(self, ex: Any = None) -> None:
        """Ends the loop: `should_stop()` is True from now on. ex: the error that is the reason, see
        `Coordinator.request_stop`.
        """
        self.coord.request_stop(ex)

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """Context that requests a stop for an error of its block, and swallows it: `stop` raises it."""
        return self.coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Waits until a stop is requested."""
        self.coord.wait_for_stop()

    @checked
    def stop(
        self,
        threads: Any = None,
        close_summary_writer: Flag = True,
        ignore_live_threads: Flag = True,
    ) -> None:
        """Saves a last checkpoint (the chief), ends the threads and closes the session; idempotent.

        threads: a list of threads to wait for, besides the coordinator's. ignore_live_threads: see
        `Coordinator.join`.
        """
        self._end(True, close_summary_writer, threads, ignore_live_threads)

    def _end(
        self,
        saves: bool,
        closes_writer: bool,
        threads: Sequence[Any] | None = None,
        ignores_live: bool = True,
    ) -> None:
        self.coord.request_stop()
        threads_of_files, self._threads = self._threads, None
        if threads_of_files is not None:
            threads_of_files.end_saving()
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if saves:
                self._save(session)
            self.coord.join(threads, self._grace_s, ignores_live)
        finally:
            session.close()
            if closes_writer and isinstance(self._writer, FileWriter):
                self._writer.close()

    def _save(self, session: Session) -> None:
        if self.is_chief and self._path is not None and self.saver is not None:
            with self.graph.as_default():
                self.saver.save(session, self._path, self.global_step)
