"""Creators of a monitored session's sessions, by a scaffold and checkpoints (TensorFlow 1's names)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

from tensorbow.checkpoint_files.checkpoint_paths import latest_checkpoint
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import get_default_graph
from tensorbow.kinds import AsPath, NonNegative, Text, checked, instance
from tensorbow.runtime import AsConfig, Session
from tensorbow.runtime.long_wait import LongWait
from tensorbow.runtime.session_creators import PAUSE_S, SessionCreator, await_variables
from tensorbow.training.scaffold import NAMED, Scaffold

AsScaffold: TypeAlias = Annotated[Scaffold, instance(Scaffold, expected="a tb.train.Scaffold")]


@contextmanager
def closed_on_errors(session: Session) -> Iterator[None]:
    """Context that closes a session if an error ends it."""
    try:
        yield
    except BaseException:
        session.close()
        raise


class ChiefSessionCreator(SessionCreator):
    """Makes sessions whose variables are restored from a checkpoint, or initialised, as a scaffold says."""

    @checked
    def __init__(
        self,
        scaffold: AsScaffold | None = None,
        master: Text = "",
        config: AsConfig | None = None,
        checkpoint_dir: AsPath | None = None,
        checkpoint_filename_with_path: AsPath | None = None,
        *,
        max_wait_secs: NonNegative = 7200.0,
        **options: Any,
    ):
        """checkpoint_dir: folder whose newest checkpoint is restored, if there is one.
        checkpoint_filename_with_path: of the checkpoint, in place of a folder. max_wait_secs: how long it
        waits for tasks of a cluster that have failed. options: of `tb.Session`.

        Raises InvalidArgumentError for a folder and a checkpoint.
        """
        if checkpoint_dir is not None and checkpoint_filename_with_path is not None:
            raise InvalidArgumentError(
                "ChiefSessionCreator: expected checkpoint_dir or checkpoint_filename_with_path, got both"
            )
        self.scaffold = Scaffold() if scaffold is None else scaffold
        self.target, self.max_wait_secs = master, max_wait_secs
        self._config, self._options = config, options
        self._folder, self._path = checkpoint_dir, checkpoint_filename_with_path

    def create_session(self) -> Session:
        """A new session over the default graph. Raises FailedPreconditionError if values are missing."""
        self.scaffold.finalize()
        session = Session(self.target, get_default_graph(), self._config, **self._options)
        with closed_on_errors(session):
            self.scaffold.prepare(session, lambda: self._restored(session))
        return session

    def _restored(self, session: Session) -> bool:
        """Restores the checkpoint; False if there is none."""
        path = self._path if self._folder is None else latest_checkpoint(self._folder)
        if path is None or self.scaffold.saver is None:
            return False
        with session.graph.as_default():
            self.scaffold.saver.restore(session, str(path))
        return True


class WorkerSessionCreator(SessionCreator):
    """Makes sessions of a worker of a cluster that is not the chief: they wait for the chief's values."""

    @checked
    def __init__(
        self,
        scaffold: AsScaffold | None = None,
        master: Text = "",
        config: AsConfig | None = None,
        max_wait_secs: NonNegative = 1800.0,
        **options: Any,
    ):
        """max_wait_secs: how long it waits for the chief, and for tasks that have failed. options: of
        `tb.Session`.
        """
        self.scaffold = Scaffold() if scaffold is None else scaffold
        self.target, self.max_wait_secs = master, max_wait_secs
        self._config, self._options = config, options

    def create_session(self) -> Session:
        """A new session over the default graph. Raises FailedPreconditionError if no values come in time."""
        self.scaffold.finalize()
        session = Session(self.target, get_default_graph(), self._config, **self._options)
        with closed_on_errors(session):
            if self.scaffold.ready_for_local_init_op is None:
                await_variables(session, self.max_wait_secs)
            else:
                self._await(session, self.scaffold.ready_for_local_init_op)
            self.scaffold.prepare_locals(session)
            self._await(session, self.scaffold.ready_op)
        return session

    def _await(self, session: Session, ready_op: Any) -> None:
        wait = LongWait(self.max_wait_secs)
        while missing := Scaffold.missing(session, ready_op):
            names = ", ".join(missing[:NAMED])
            wait.tell(f"WorkerSessionCreator: the chief has not initialised {names}; start the chief")
            if wait.left_s < 0:
                raise FailedPreconditionError(
                    f"WorkerSessionCreator: waited {self.max_wait_secs:g} s for the chief to initialise "
                    f"{names}; start the chief, with the same ClusterSpec and graph, or give max_wait_secs"
                )
            time.sleep(PAUSE_S)
