"""Checkpoints of a monitored session, saved periodically and restored at its begin (TensorFlow 1's names)."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

from tensorbow.checkpoint_files.checkpoint_paths import latest_checkpoint
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import AsGraph, get_default_graph
from tensorbow.kinds import AsPath, Flag, NonNegative, Positive, PositiveNumber, Text, checked, instance
from tensorbow.runtime import (
    MonitoredSession,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    get_global_step,
)
from tensorbow.runtime.monitored import Hooks, RestoringHook
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.saver import Saver
from tensorbow.variables import Variable, global_variables

AsSaver: TypeAlias = Annotated[Saver, instance(Saver, expected="a tb.train.Saver")]


class KeepsState(Protocol):
    """Something beside the graph's variables that has a state to be saved, such as a Replicator."""

    def save_newest(self, folder: Path) -> None:
        """Saves the state as the newest checkpoint of a folder."""

    def restore_newest(self, folder: Path) -> bool:
        """Restores the newest checkpoint of a folder; False if there is none."""


class CheckpointSaverHook(SessionRunHook):
    """Saves the session's variables every so many steps or seconds, and at the end.

    The state of Replicators that are initialised with the session is saved with them, in sub-folders.
    """

    @checked
    def __init__(
        self,
        checkpoint_dir: AsPath,
        save_secs: PositiveNumber | None = None,
        save_steps: Positive | None = None,
        saver: AsSaver | None = None,
        checkpoint_basename: Text = "model.ckpt",
    ):
        """saver: by default one of all variables.

        Raises InvalidArgumentError unless exactly one of save_secs and save_steps is given.
        """
        if (save_secs is None) == (save_steps is None):
            raise InvalidArgumentError(
                f"CheckpointSaverHook: expected save_secs or save_steps, got {save_secs} and {save_steps}"
            )
        self.folder = Path(checkpoint_dir)
        self._every_s, self._every, self._saver = save_secs, save_steps, saver
        self._path = self.folder / checkpoint_basename
        self._states: list[tuple[KeepsState, Path]] = []
        self._global_step: Variable | None = None
        self._steps = self._saved = 0  # steps run, and steps at the last save
        self._saved_s = 0.0

    def begin(self) -> None:
        """Makes the saver, if the graph has variables, and finds the global step."""
        if self._saver is None and global_variables():
            self._saver = Saver()
        self._global_step = get_global_step()

    def after_create_session(self, session: Session) -> None:
        """Starts counting steps and seconds."""
        self._steps = self._saved = 0
        self._saved_s = time.monotonic()

    def add(self, state: KeepsState) -> None:
        """Saves a further state from now on; restores it first, if there is a checkpoint of it.

        States are told apart by the order in which they are added.
        """
        folder = self.folder / f"replicator{len(self._states)}"
        state.restore_newest(folder)
        self._states.append((state, folder))

    def remove(self, state: KeepsState) -> None:
        """Saves a state for the last time, if steps came after the last save, and then no more."""
        for own, folder in self._states:
            if own is state and self._steps > self._saved:
                self._save_state(state, folder)
        self._states = [(own, folder) for own, folder in self._states if own is not state]

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Counts the step, and saves if it is time."""
        self._steps += 1
        if self._steps == 1 and not self._states:
            self._warn_of_unsaved(run_context)
        if self._every is not None:
            due = self._steps - self._saved >= self._every
        else:
            due = time.monotonic() - self._saved_s >= (self._every_s or 0)
        if due:
            self._save(run_context.session)

    @staticmethod
    def _warn_of_unsaved(run_context: SessionRunContext) -> None:
        """Warns if a step of a Replicator is run whose state is not saved with the session."""
        if any(op.definition.name == "ReplicatedStep" for op in run_context.session.graph.get_operations()):
            warnings.warn(
                "CheckpointSaverHook: the graph has steps of a Replicator that was initialised without this "
                "session, so that its state is neither restored nor saved: call replicator.init(session)",
                stacklevel=2,
            )

    def end(self, session: Session) -> None:
        """Saves what came after the last save."""
        if self._steps > self._saved:
            self._save(session)

    def _save(self, session: Session) -> None:
        for state, folder in self._states:
            self._save_state(state, folder)
        if self._saver is not None:
            step = self._steps if self._global_step is None else self._global_step
            self._saver.save(session, self._path, step)
        self._saved, self._saved_s = self._steps, time.monotonic()

    @staticmethod
    def _save_state(state: KeepsState, folder: Path) -> None:
        make_folder(folder)
        state.save_newest(folder)


class _Restoring(RestoringHook):
    """Restores variables from the newest checkpoint of a folder."""

    def __init__(self, folder: str):
        self._folder = folder

    def restore(self, session: Session) -> bool:
        """Restores; False if there is no checkpoint."""
        newest = latest_checkpoint(self._folder)
        if newest is None:
            return False
        with session.graph.as_default():
            Saver().restore(session, newest)
        return True


@checked
def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name
    master: Text = "",
    is_chief: Flag = True,
    *,
    checkpoint_dir: AsPath | None = None,
    hooks: Hooks = (),
    save_checkpoint_secs: PositiveNumber | None = None,
    save_checkpoint_steps: Positive | None = None,
    max_wait_secs: NonNegative = 7200.0,
    target: Text = "",
    graph: AsGraph | None = None,
    **options: Any,
) -> MonitoredSession:
    """A MonitoredSession that restores the newest checkpoint of a folder, and saves into it.

    With a checkpoint_dir it saves every 600 s, or as given; `save_checkpoint_steps` counts steps. Replicators
    that are initialised with the session, `replicator.init(session)`, are restored then and saved with it.
    master: TensorFlow's name of target. is_chief: the worker of a cluster that initialises the variables,
    restores and saves; the others wait for it. After a task has failed, the session begins anew from the last
    checkpoint; max_wait_secs: how long it waits for that. options: of the session, as of `tb.Session`.
    """
    graph = graph if graph is not None else get_default_graph()
    if master and target:
        raise InvalidArgumentError("MonitoredTrainingSession: expected master or target, got both; give one")
    given: dict[str, Any] = {**options, "target": target or master, "graph": graph}
    given |= {"is_chief": is_chief, "max_wait_secs": max_wait_secs}
    if checkpoint_dir is None:
        if save_checkpoint_secs is not None or save_checkpoint_steps is not None:
            raise InvalidArgumentError(
                "MonitoredTrainingSession: save_checkpoint_secs and save_checkpoint_steps need a "
                "checkpoint_dir; give it, or leave them out"
            )
        return MonitoredSession(hooks=hooks, **given)
    if not is_chief:
        return MonitoredSession(hooks=hooks, **given)
    if save_checkpoint_secs is None and save_checkpoint_steps is None:
        save_checkpoint_secs = 600
    saving = CheckpointSaverHook(checkpoint_dir, save_checkpoint_secs, save_checkpoint_steps)
    every = [_Restoring(str(checkpoint_dir)), *hooks, saving]
    return MonitoredSession(hooks=every, **given)
