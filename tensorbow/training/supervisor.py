"""Supervisor: prepares sessions, and saves checkpoints beside a program's loop (TensorFlow 1's name)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from tensorbow.checkpoint_files.checkpoint_paths import latest_checkpoint
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    OutOfRangeError,
    TensorBowError,
    UnavailableError,
)
from tensorbow.graph import AsGraph, GraphKeys, Tensor, get_default_graph
from tensorbow.kinds import (
    AsPath,
    Flag,
    NonNegative,
    Text,
    checked,
    instance,
)
from tensorbow.queues import Coordinator, start_queue_runners
from tensorbow.runtime import AsConfig, Session, get_global_step
from tensorbow.runtime.long_wait import LongWait
from tensorbow.runtime.prepared_variables import prepare_variables
from tensorbow.training.saver import Saver
from tensorbow.training.scaffold import AsPiece, AsSaver, InitFn
from tensorbow.variables import Variable, global_variables, global_variables_initializer, local_variables

AsStep: TypeAlias = Annotated[Any, instance((Variable, Tensor), expected="a variable or tensor")]

PAUSE_S = 0.2  # between two looks whether the variables have values

_logger = logging.getLogger("tensorbow.training")


class Supervisor:
    """Initialises or restores the variables, gives a session, and saves checkpoints in the background.

        supervisor = tb.train.Supervisor(is_chief=task_index == 0, logdir="checkpoints")
        with supervisor.managed_session(server.target) as session:
            while not supervisor.should_stop():
                session.run(train_op)

    `tb.train.MonitoredTrainingSession` does the same, and goes on by itself after a task has failed. Here a
    failed task ends the block with an error; when it is back, another block of `managed_session` goes on from
    the last checkpoint, with new threads.
    """

    @checked
    def __init__(
        self,
        graph: AsGraph | None = None,
        is_chief: Flag = True,
        logdir: AsPath | None = None,
        saver: AsSaver | None = None,
        save_model_secs: NonNegative = 600,
        checkpoint_basename: Text = "model.ckpt",
        init_fn: InitFn = None,
        stop_grace_secs: NonNegative = 30,
        *,
        init_op: AsPiece | None = None,
        global_step: AsStep | None = None,
    ):
        """graph: by default the default graph, which must be complete. is_chief: this process initialises,
        restores and saves; others wait for it. logdir: folder of checkpoints; None saves none.

        save_model_secs: between two checkpoints; 0 saves only at the end. init_fn: called with the session
        after the variables were initialised, unless they were restored. stop_grace_secs: how long the threads
        of queue runners may take to end with a session. init_op: gives all variables initial values; by
        default `tb.global_variables_initializer()`. global_step: an integer scalar that numbers the
        checkpoints; by default the graph's global step, if it has one.
        """
        self.graph = graph if graph is not None else get_default_graph()
        self.is_chief = is_chief
        self._folder = None if logdir is None else Path(logdir)
        self._path = None if self._folder is None else self._folder / checkpoint_basename
        self._every_s, self._init_fn, self._grace_s = save_model_secs, init_fn, stop_grace_secs
        with self.graph.as_default():
            self._initializer = global_variables_initializer() if init_op is None else init_op
            self._saver = saver if saver is not None or not global_variables() else Saver()
            self._step = get_global_step() if global_step is None else global_step
        self._stopping = threading.Event()
        self._saving: threading.Thread | None = None
        self._session: Session | None = None
        self.coord = Coordinator()  # of the queue runners' threads

    @property
    def saver(self) -> Saver | None:
        """The saver of the checkpoints; None for a graph without variables."""
        return self._saver

    @property
    def save_path(self) -> str | None:
        """The path of the checkpoints, without their steps; None without a logdir."""
        return None if self._path is None else str(self._path)

    @checked
    def prepare_or_wait_for_session(
        self,
        master: Text = "",
        config: AsConfig | None = None,
        max_wait_secs: NonNegative = 7200,
        start_standard_services: Flag = True,
        **options: Any,
    ) -> Session:
        """A session whose variables have values: from the newest checkpoint, or initialised.

        Waits until all tasks of a cluster are there and, unless this is the chief, until it has initialised
        the variables. start_standard_services: start the threads of queue runners, and save checkpoints in
        the background (the chief). options: of `tb.Session`. Raises FailedPreconditionError if the variables
        have no values in time.
        """
        wait = LongWait(max_wait_secs)
        while True:
            session = Session(master, self.graph, config, **options)
            try:
                if self._prepared(session):
                    break
            except (UnavailableError, AbortedError):
                if wait.left_s < 0:
                    raise
            except BaseException:
                session.close()
                raise
            session.close()
            wait.tell("Supervisor: the chief has not initialised the variables; start the chief")
            if wait.left_s < 0:
                raise FailedPreconditionError(
                    f"Supervisor: waited {max_wait_secs:g} s for the chief to initialise the variables; "
                    "start it"
                )
            time.sleep(PAUSE_S)
        self._stopping.clear()
        self._session = session
        with self.graph.as_default():
            tables = self.graph.get_collection(GraphKeys.TABLE_INITIALIZERS)
            if local := [*(variable.initializer for variable in local_variables()), *tables]:
                session.run(local)
        if start_standard_services:
            self.coord = Coordinator()
            start_queue_runners(session, self.coord)
        if start_standard_services and self.is_chief and self._path is not None and self._every_s:
            self._saving = threading.Thread(target=self._save_often, args=(session,), daemon=True)
            self._saving.start()
        return session

    def _prepared(self, session: Session) -> bool:
        """True once the variables have values, which the chief gives them."""
        if not self.is_chief:
            without_value = getattr(session, "without_value", None)
            with self.graph.as_default():
                return without_value is None or not without_value([v.op for v in global_variables()])
        is_restored = prepare_variables(session, self._initializer, lambda: self._restored(session))
        if not is_restored and self._init_fn is not None:
            self._init_fn(session)
        return True

    def _restored(self, session: Session) -> bool:
        """Restores the newest checkpoint; False if there is none."""
        newest = None if self._folder is None else latest_checkpoint(self._folder)
        if newest is None or self._saver is None:
            return False
        with self.graph.as_default():
            self._saver.restore(session, newest)
        return True

    @checked
    def managed_session(
        self,
        master: Text = "",
        config: AsConfig | None = None,
        start_standard_services: Flag = True,
        **options: Any,
    ) -> AbstractContextManager[Session]:
        """Context of a session, the default one, which is stopped at its end; see `stop`.

        The end of the input (OutOfRangeError) ends it without an error, unless a thread has failed. Where the
        block has an error of its own, a thread's is its context. Other arguments: those of
        `prepare_or_wait_for_session`.
        """
        services: dict[str, Any] = {"start_standard_services": start_standard_services}
        return self._managed(lambda: self.prepare_or_wait_for_session(master, config, **services, **options))

    @contextmanager
    def _managed(self, prepared: Callable[[], Session]) -> Iterator[Session]:
        session = prepared()
        try:
            with session.as_default():
                yield session
        except OutOfRangeError:
            pass
        except BaseException as error:
            try:
                self._end(saves=False)
            except Exception as other:
                if other is not error:
                    raise error  # noqa: B904 - the other becomes its context
            raise
        self.stop()

    def should_stop(self) -> bool:
        """True once `request_stop` or `stop` was called, or a thread of a queue runner has failed."""
        return self._stopping.is_set() or self.coord.should_stop()

    def request_stop(self) -> None:
        """Ends the loop: `should_stop()` is True from now on."""
        self._stopping.set()

    def stop(self) -> None:
        """Saves a last checkpoint (the chief) and closes the session; idempotent."""
        self._end(saves=True)

    def _end(self, saves: bool) -> None:
        self._stopping.set()
        thread, self._saving = self._saving, None
        if thread is not None:
            thread.join()
        session, self._session = self._session, None
        if session is not None:
            try:
                if saves:
                    self._save(session)
                self.coord.request_stop()
                self.coord.join(stop_grace_period_secs=self._grace_s, ignore_live_threads=True)
            finally:
                session.close()

    def _save(self, session: Session) -> None:
        if self.is_chief and self._path is not None and self._saver is not None:
            with self.graph.as_default():
                self._saver.save(session, self._path, self._step)

    def _save_often(self, session: Session) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._save(session)
            except TensorBowError as error:
                _logger.warning("Supervisor: no checkpoint was saved: %s", error)
