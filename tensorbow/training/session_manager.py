"""SessionManager: sessions whose variables are restored, initialised or waited for (TensorFlow 1's name)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from tensorbow.checkpoint_files.checkpoint_paths import latest_checkpoint
from tensorbow.errors import (
    AbortedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from tensorbow.graph import AsGraph, get_default_graph
from tensorbow.kinds import (
    AsPath,
    Flag,
    Kind,
    Mapped,
    NonNegative,
    RefusedError,
    Text,
    checked,
    instance,
    number,
)
from tensorbow.runtime import AsConfig, RunOptions, Session
from tensorbow.runtime.long_wait import LongWait
from tensorbow.training.saver import Saver
from tensorbow.training.scaffold import NAMED, AsPiece, AsSaver, InitFn, Scaffold
from tensorbow.training.session_creators import closed_on_errors

AsRunOptions: TypeAlias = Annotated[RunOptions, instance(RunOptions, expected="tb.RunOptions")]


def _read_endless(value: Any) -> float:
    if not isinstance(value, float) or value != math.inf:
        raise RefusedError
    return math.inf


Seconds: TypeAlias = Annotated[float, number(0) | Kind("infinity", _read_endless)]


class SessionManager:
    """Makes sessions whose variables have values: for a chief, which gives them, and for other workers.

        manager = tb.train.SessionManager(ready_op=tb.report_uninitialized_variables())
        if is_chief:
            session = manager.prepare_session(target, init_op, saver, checkpoint_dir="checkpoints")
        else:
            session = manager.wait_for_session(target)

    Saves no checkpoints and starts no threads: `tb.train.MonitoredTrainingSession` does both.
    """

    @checked
    def __init__(
        self,
        local_init_op: AsPiece | None = None,
        ready_op: AsPiece | None = None,
        ready_for_local_init_op: AsPiece | None = None,
        graph: AsGraph | None = None,
        recovery_wait_secs: NonNegative = 30,
        local_init_run_options: AsRunOptions | None = None,
        local_init_feed_dict: Mapped | None = None,
    ):
        """local_init_op: run in each session, with local_init_run_options and local_init_feed_dict.

        ready_op: gives the names of variables without a value, strings `[n]`; a session is ready if there are
        none, or without ready_op. ready_for_local_init_op: the same, for what local_init_op reads. graph: by
        default the default graph. recovery_wait_secs: between two looks whether a session is ready.
        """
        self._graph = graph if graph is not None else get_default_graph()
        self._local_init_op, self._ready_op = local_init_op, ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._wait_s = recovery_wait_secs
        self._local_options = local_init_run_options
        self._local_feeds = None if local_init_feed_dict is None else dict(local_init_feed_dict)

    @checked
    def prepare_session(
        self,
        master: Text,
        init_op: AsPiece | None = None,
        saver: AsSaver | None = None,
        checkpoint_dir: AsPath | None = None,
        checkpoint_filename_with_path: AsPath | None = None,
        wait_for_checkpoint: Flag = False,
        max_wait_secs: NonNegative = 7200,
        config: AsConfig | None = None,
        init_feed_dict: Mapped | None = None,
        init_fn: InitFn = None,
        **options: Any,
    ) -> Session:
        """A session that is ready: variables are restored, or else init_op and init_fn(session) are run.

        master: the session's target, "" in this process. saver, checkpoint_dir,
        checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs: as of `recover_session`. options:
        of `tb.Session`.

        Raises InvalidArgumentError without init_op, init_fn and local_init_op if nothing was restored;
        FailedPreconditionError if variables are without a value afterwards.
        """
        session, is_restored = self._restored(
            master,
            saver,
            _path_of("prepare_session", checkpoint_dir, checkpoint_filename_with_path),
            wait_for_checkpoint,
            max_wait_secs,
            config,
            options,
        )
        with closed_on_errors(session):
            if is_restored:
                self._complete(session)
            else:
                if init_op is None and init_fn is None and self._local_init_op is None:
                    raise InvalidArgumentError(
                        "prepare_session: no checkpoint was restored; give an init_op or an init_fn"
                    )
                if init_op is not None:
                    session.run(init_op, None if init_feed_dict is None else dict(init_feed_dict))
                if init_fn is not None:
                    init_fn(session)
            if missing := self._missing(session):
                raise FailedPreconditionError(
                    f"prepare_session: there is no value for {', '.join(missing[:NAMED])}; have the "
                    "checkpoint, init_op, init_fn or local_init_op give one"
                )
        return session

    @checked
    def recover_session(
        self,
        master: Text,
        saver: AsSaver | None = None,
        checkpoint_dir: AsPath | None = None,
        checkpoint_filename_with_path: AsPath | None = None,
        wait_for_checkpoint: Flag = False,
        max_wait_secs: NonNegative = 7200,
        config: AsConfig | None = None,
    ) -> tuple[Session, bool]:
        """A session, and True if its variables were restored and it is ready.

        checkpoint_dir: folder whose newest checkpoint the saver restores; checkpoint_filename_with_path: of a
        checkpoint, in place of a folder. wait_for_checkpoint: wait for up to max_wait_secs until the folder
        has one. Raises InvalidArgumentError for a folder and a checkpoint.
        """
        path = _path_of("recover_session", checkpoint_dir, checkpoint_filename_with_path)
        session, is_restored = self._restored(
            master, saver, path, wait_for_checkpoint, max_wait_secs, config, {}
        )
        with closed_on_errors(session):
            return session, is_restored and not self._missing(session)

    @checked
    def wait_for_session(
        self,
        master: Text,
        config: AsConfig | None = None,
        max_wait_secs: Seconds = math.inf,
        **options: Any,
    ) -> Session:
        """A session that is ready, once another one of the same cluster has given the variables values.

        options: of `tb.Session`. Raises DeadlineExceededError if it is not ready after max_wait_secs.
        """
        wait = LongWait(max_wait_secs)
        while True:
            session = Session(master, self._graph, config, **options)
            with closed_on_errors(session):
                try:
                    if not (missing := self._missing(session)):
                        return session
                    late = f"the chief has not initialised {', '.join(missing[:NAMED])}; start the chief"
                except (UnavailableError, AbortedError) as error:  # tasks that are not there yet
                    late = str(error)
            session.close()
            wait.tell(f"wait_for_session: {late}")
            if wait.left_s < self._wait_s:
                raise DeadlineExceededError(
                    f"wait_for_session: waited {max_wait_secs:g} s: {late}, or give max_wait_secs"
                )
            time.sleep(self._wait_s)

    def _restored(
        self,
        master: str,
        saver: Saver | None,
        path_of: Callable[[], str | None] | None,
        waits: bool,
        max_wait_s: float,
        config: Any,
        options: Mapping[str, Any],
    ) -> tuple[Session, bool]:
        """A new session, and True if a checkpoint was restored into it."""
        session = Session(master, self._graph, config, **options)
        if saver is None or path_of is None:
            return session, False
        deadline = time.monotonic() + max_wait_s
        with closed_on_errors(session):
            while (path := path_of()) is None:
                if not waits or time.monotonic() + self._wait_s > deadline:
                    return session, False
                time.sleep(self._wait_s)
            with self._graph.as_default():
                saver.restore(session, path)
        return session, True

    def _complete(self, session: Session) -> None:
        """Called after a checkpoint was restored, which may have left variables without a value."""

    def _missing(self, session: Session) -> list[str]:
        """Variables without a value after local_init_op, which is run if those that it reads have one."""
        if missing := Scaffold.missing(session, self._ready_for_local_init_op):
            return missing
        if self._local_init_op is not None:
            session.run(self._local_init_op, self._local_feeds, options=self._local_options)
        return Scaffold.missing(session, self._ready_op)


def _path_of(call: str, folder: Any, path: Any) -> Callable[[], str | None] | None:
    """Finds the checkpoint to restore; None if none is asked for."""
    if folder is not None and path is not None:
        raise InvalidArgumentError(
            f"{call}: expected checkpoint_dir or checkpoint_filename_with_path, got both"
        )
    if folder is not None:
        return lambda: latest_checkpoint(folder)
    return None if path is None else lambda: os.fspath(path)
