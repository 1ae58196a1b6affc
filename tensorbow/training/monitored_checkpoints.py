"""Checkpoints of a monitored session, saved periodically and restored at its begin (TensorFlow 1's names)."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import AsGraph, get_default_graph
from tensorbow.kinds import (
    ITEMS,
    AsPath,
    Flag,
    Kind,
    NonNegative,
    Positive,
    PositiveNumber,
    Text,
    checked,
    instance,
)
from tensorbow.runtime import (
    AsConfig,
    MonitoredSession,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    get_global_step,
)
from tensorbow.runtime.monitored import Hooks
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.recording_hooks import StepCounterHook, SummarySaverHook
from tensorbow.training.saver import Saver
from tensorbow.training.scaffold import AsSaver, Scaffold
from tensorbow.training.session_creators import AsScaffold, ChiefSessionCreator, WorkerSessionCreator
from tensorbow.variables import Variable, global_variables


class KeepsState(Protocol):
    """Something beside the graph's variables that has a state to be saved, such as a Replicator."""

    def save_newest(self, folder: Path) -> None:
        """Saves the state as the newest checkpoint of a folder."""

    def restore_newest(self, folder: Path) -> bool:
        """Restores the newest checkpoint of a folder; False if there is none."""


class CheckpointSaverListener:
    """Base of what a `CheckpointSaverHook` calls around each save; every method here does nothing.

    The step is the global step, or the number of runs where the graph has none.
    """

    def begin(self) -> None:
        """Called before the session is made; may add to the graph."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Called before each save."""

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Called after each save; True ends the loop."""
        return None

    def end(self, session: Session, global_step_value: int) -> None:
        """Called at the end of a loop that did not end with an error, after the last save."""


def _read_listeners(value: Any) -> list[CheckpointSaverListener]:
    return [_LISTENER.read(each) for each in ITEMS.read(value)]


_LISTENER = instance(CheckpointSaverListener, expected="a tb.train.CheckpointSaverListener")
Listeners: TypeAlias = Annotated[Any, Kind("a list of tb.train.CheckpointSaverListener", _read_listeners)]


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
        scaffold: AsScaffold | None = None,
        listeners: Listeners = (),
        save_graph_def: Flag = True,
    ):
        """saver: by default the scaffold's, or one of all variables. listeners: called around each save, in
        their order. save_graph_def: writes the graph with each checkpoint, see `Saver.save`.

        Raises InvalidArgumentError unless exactly one of save_secs and save_steps is given, and for both a
        saver and a scaffold.
        """
        if saver is not None and scaffold is not None:
            raise InvalidArgumentError("CheckpointSaverHook: expected saver or scaffold, got both; give one")
        if (save_secs is None) == (save_steps is None):
            raise InvalidArgumentError(
                f"CheckpointSaverHook: expected save_secs or save_steps, got {save_secs} and {save_steps}"
            )
        self.folder = Path(checkpoint_dir)
        self._every_s, self._every, self._saver, self._scaffold = save_secs, save_steps, saver, scaffold
        self._path = self.folder / checkpoint_basename
        self._listeners: list[CheckpointSaverListener] = list(listeners)
        self._saves_graph = save_graph_def
        self._states: list[tuple[KeepsState, Path]] = []
        self._global_step: Variable | None = None
        self._steps = self._saved = 0  # steps run, and steps at the last save
        self._saved_s = 0.0

    def begin(self) -> None:
        """Makes the saver, if the graph has variables, and finds the global step."""
        if self._saver is None and self._scaffold is None and global_variables():
            self._saver = Saver()
        self._global_step = get_global_step()
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Session) -> None:
        """Starts counting steps and seconds."""
        if self._scaffold is not None:
            self._saver = self._scaffold.saver
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
        if due and self._save(run_context.session):
            run_context.request_stop()

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
        for listener in self._listeners:
            listener.end(session, self._step(session))

    def _step(self, session: Session) -> int:
        return self._steps if self._global_step is None else int(session.run(self._global_step))

    def _save(self, session: Session) -> bool:
        """Saves; True if a listener asks for the end of the loop."""
        step = self._step(session)
        for listener in self._listeners:
            listener.before_save(session, step)
        for state, folder in self._states:
            self._save_state(state, folder)
        if self._saver is not None:
            self._saver.save(session, self._path, step, write_meta_graph=self._saves_graph)
        self._saved, self._saved_s = self._steps, time.monotonic()
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)

    @staticmethod
    def _save_state(state: KeepsState, folder: Path) -> None:
        make_folder(folder)
        state.save_newest(folder)


class SingularMonitoredSession(MonitoredSession):
    """Monitored session of one process: `raw_session` gives its session, and no fault is recovered from."""

    @checked
    def __init__(
        self,
        hooks: Hooks = (),
        scaffold: AsScaffold | None = None,
        master: Text = "",
        config: AsConfig | None = None,
        checkpoint_dir: AsPath | None = None,
        stop_grace_period_secs: NonNegative = 120.0,
        checkpoint_filename_with_path: AsPath | None = None,
    ):
        """The arguments of a `tb.train.ChiefSessionCreator`, and those of `tb.train.MonitoredSession`."""
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks=hooks, stop_grace_period_secs=stop_grace_period_secs)

    @property
    def _is_remote(self) -> bool:
        return False

    def raw_session(self) -> Session:
        """The session itself, without hooks. Raises FailedPreconditionError once it is closed."""
        return self._open()


@checked
def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name
    master: Text = "",
    is_chief: Flag = True,
    checkpoint_dir: AsPath | None = None,
    scaffold: AsScaffold | None = None,
    hooks: Hooks = (),
    chief_only_hooks: Hooks = (),
    *,
    save_checkpoint_secs: PositiveNumber | None = None,
    save_checkpoint_steps: Positive | None = None,
    save_summaries_steps: Positive | None = None,
    save_summaries_secs: PositiveNumber | None = None,
    log_step_count_steps: Positive | None = None,
    summary_dir: AsPath | None = None,
    max_wait_secs: NonNegative = 7200.0,
    stop_grace_period_secs: NonNegative = 120.0,
    target: Text = "",
    graph: AsGraph | None = None,
    **options: Any,
) -> MonitoredSession:
    """A MonitoredSession that restores the newest checkpoint of a folder, and saves into it.

    With a checkpoint_dir it saves every 600 s, or as given; `save_checkpoint_steps` counts steps. Replicators
    that are initialised with the session, `replicator.init(session)`, are restored then and saved with it.
    master: TensorFlow's name of target. is_chief: the worker of a cluster that initialises the variables,
    restores and saves; the others wait for it. scaffold: how variables are initialised and saved.
    chief_only_hooks: hooks of the chief, which are called first, then those of the options, then the others.
    save_summaries_steps, save_summaries_secs: the chief writes the scaffold's summaries into summary_dir, by
    default checkpoint_dir, every so many steps or seconds. log_step_count_steps: the chief logs the rate
    of steps, and writes it beside summaries. After a task has failed, the session begins anew from the last
    checkpoint; max_wait_secs: how long it waits for that. stop_grace_period_secs: how long the threads of
    queue runners may take to end with it. options: of the session, as of `tb.Session`.
    """
    graph = graph if graph is not None else get_default_graph()
    if master and target:
        raise InvalidArgumentError("MonitoredTrainingSession: expected master or target, got both; give one")
    if checkpoint_dir is None and (save_checkpoint_secs is not None or save_checkpoint_steps is not None):
        raise InvalidArgumentError(
            "MonitoredTrainingSession: save_checkpoint_secs and save_checkpoint_steps need a "
            "checkpoint_dir; give it, or leave them out"
        )
    summary_dir = checkpoint_dir if summary_dir is None else summary_dir
    saves_summaries = save_summaries_steps is not None or save_summaries_secs is not None
    if saves_summaries and summary_dir is None:
        raise InvalidArgumentError(
            "MonitoredTrainingSession: save_summaries_steps and save_summaries_secs need a checkpoint_dir or "
            "a summary_dir; give one, or leave them out"
        )
    scaffold = Scaffold() if scaffold is None else scaffold
    given: dict[str, Any] = {**options, "max_wait_secs": max_wait_secs}
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, target or master, **given)
        return MonitoredSession(
            worker, hooks=hooks, graph=graph, stop_grace_period_secs=stop_grace_period_secs
        )
    every = [*chief_only_hooks]
    if log_step_count_steps is not None:
        folder = summary_dir if saves_summaries else None
        every.append(StepCounterHook(log_step_count_steps, output_dir=folder))
    if saves_summaries:
        every.append(
            SummarySaverHook(save_summaries_steps, save_summaries_secs, summary_dir, scaffold=scaffold)
        )
    if checkpoint_dir is not None:
        if save_checkpoint_secs is None and save_checkpoint_steps is None:
            save_checkpoint_secs = 600
        steps = save_checkpoint_steps
        every.append(CheckpointSaverHook(checkpoint_dir, save_checkpoint_secs, steps, scaffold=scaffold))
    chief = ChiefSessionCreator(scaffold, target or master, checkpoint_dir=checkpoint_dir, **given)
    return MonitoredSession(
        chief, hooks=[*every, *hooks], graph=graph, stop_grace_period_secs=stop_grace_period_secs
    )
