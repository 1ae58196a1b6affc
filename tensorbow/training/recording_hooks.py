"""Hooks of monitored sessions that write files: summaries, rates of steps, traces (TensorFlow 1's names)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import get_default_graph
from tensorbow.kinds import AsPath, Flag, Kind, Positive, PositiveNumber, RefusedError, checked
from tensorbow.ops.summaries import event_protocol, is_summary, merge_all
from tensorbow.runtime import (
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    get_global_step,
)
from tensorbow.runtime.loop_hooks import Timer
from tensorbow.timeline import TraceFile, Tracer
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.event_files import AsFileWriter, FileWriterCache
from tensorbow.training.session_creators import AsScaffold
from tensorbow.variables import Variable

SAVING = ("save_steps", "save_secs")

_logger = logging.getLogger("tensorbow")


def _read_summaries(value: Any) -> list[Any]:
    summaries = list(value) if isinstance(value, (list, tuple)) else [value]
    if not summaries or not all(map(is_summary, summaries)):
        raise RefusedError
    return summaries


SummaryOrList: TypeAlias = Annotated[Any, Kind("a summary of tb.summary, or a list of them", _read_summaries)]


def _current_step(run_context: SessionRunContext, runs: int) -> int:
    """The global step, or the number of runs where the graph has none."""
    step = get_global_step(run_context.session.graph)
    return runs if step is None else int(run_context.session.run(step))


class SummarySaverHook(SessionRunHook):
    """Writes summaries of the first run, and every so many runs or seconds (TensorFlow 1's name)."""

    @checked
    def __init__(
        self,
        save_steps: Positive | None = None,
        save_secs: PositiveNumber | None = None,
        output_dir: AsPath | None = None,
        summary_writer: AsFileWriter | None = None,
        scaffold: AsScaffold | None = None,
        summary_op: SummaryOrList | None = None,
    ):
        """output_dir: of the process's writer of that folder, see `FileWriterCache`. summary_op: a summary,
        or a list; by default the scaffold's, or all of the graph, merged, if it has any.

        Raises InvalidArgumentError unless exactly one of save_steps and save_secs is given, and one of
        output_dir and summary_writer, and for both a summary_op and a scaffold.
        """
        if summary_op is not None and scaffold is not None:
            raise InvalidArgumentError(
                "SummarySaverHook: expected summary_op or scaffold, got both; give one"
            )
        if (output_dir is None) == (summary_writer is None):
            raise InvalidArgumentError(
                "SummarySaverHook: expected output_dir or summary_writer, "
                f"got {'neither' if output_dir is None else 'both'}"
            )
        self._timer = Timer("SummarySaverHook", save_steps, save_secs, SAVING)
        self._folder, self._writer = output_dir, summary_writer
        self._summaries, self._scaffold = summary_op or [], scaffold
        self._runs, self._is_due = 0, False

    def begin(self) -> None:
        """Finds the summaries, and opens the file."""
        if not self._summaries and self._scaffold is None and (merged := merge_all()) is not None:
            self._summaries = [merged]
        self._timer.reset()
        if self._folder is not None:
            self._writer = FileWriterCache.get(self._folder)
            self._writer.add_graph(get_default_graph())

    def after_create_session(self, session: Session) -> None:
        """Takes the scaffold's summary, which is made with the session."""
        if self._scaffold is not None and self._scaffold.summary_op is not None:
            self._summaries = [self._scaffold.summary_op]

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetches the summaries where they are due."""
        self._is_due = bool(self._summaries) and self._timer.is_due(self._runs)
        return SessionRunArgs(self._summaries) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes them, as of the global step, or of the number of runs if there is none."""
        if self._is_due and self._writer is not None:
            self._timer.happened(self._runs)
            step = _current_step(run_context, self._runs)
            for summary in run_values.results:
                self._writer.add_summary(summary, step)
        self._runs += 1

    def end(self, session: Session) -> None:
        """Writes what waits."""
        if self._writer is not None:
            self._writer.flush()


class StepCounterHook(SessionRunHook):
    """Logs the steps per second, of the global step if the graph has one, and writes them as a summary."""

    @checked
    def __init__(
        self,
        every_n_steps: Positive | None = 100,
        every_n_secs: PositiveNumber | None = None,
        output_dir: AsPath | None = None,
        summary_writer: AsFileWriter | None = None,
    ):
        """output_dir, summary_writer: folder of the process's writer, or a writer, of the summaries; without
        both there is only the log.

        Raises InvalidArgumentError unless one of both first is given (write every_n_steps=None beside
        seconds), and for both a folder and a writer.
        """
        if output_dir is not None and summary_writer is not None:
            raise InvalidArgumentError(
                "StepCounterHook: expected output_dir or summary_writer, got both; give one"
            )
        self._timer = Timer("StepCounterHook", every_n_steps, every_n_secs)
        self._folder, self._writer = output_dir, summary_writer
        self._runs = 0
        self._global_step: Variable | None = None

    def begin(self) -> None:
        """Finds the global step, and opens the file."""
        self._global_step = get_global_step()
        self._runs = 0
        self._timer.reset()
        if self._folder is not None:
            self._writer = FileWriterCache.get(self._folder)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetches the global step."""
        return None if self._global_step is None else SessionRunArgs(self._global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Counts the run, and logs if it is due."""
        self._runs += 1
        step = self._runs if run_values.results is None else int(run_values.results)
        if self._timer.is_due(step) and (passed := self._timer.happened(step)) is not None:
            label, rate = "global_step/sec", passed[0] / max(passed[1], 1e-9)
            _logger.info("%s: %g", label, rate)
            if self._writer is not None:
                protocol, _ = event_protocol()
                value = protocol.Summary.Value(tag=label, simple_value=rate)
                self._writer.add_summary(protocol.Summary(value=[value]), step)

    def end(self, session: Session) -> None:
        """Writes what waits."""
        if self._writer is not None:
            self._writer.flush()


class ProfilerHook(SessionRunHook):
    """Traces a run every so many runs or seconds, into a file `timeline-STEP.json` (TensorFlow 1's name).

    The first trace is of the run save_steps after the first one, or of the first after save_secs. A trace has
    the work of all streams of the process, of replicas and tasks, too, as `tb.profiler.trace` writes it; open
    it in https://ui.perfetto.dev.
    """

    @checked
    def __init__(
        self,
        save_steps: Positive | None = None,
        save_secs: PositiveNumber | None = None,
        output_dir: AsPath = "",
        show_dataflow: Flag = True,
        show_memory: Flag = False,
    ):
        """output_dir: of the files; by default the current folder. show_dataflow, show_memory: TensorFlow's;
        have no effect.

        Raises InvalidArgumentError unless exactly one of save_steps and save_secs is given.
        """
        self._timer = Timer("ProfilerHook", save_steps, save_secs, SAVING)
        self._folder = Path(output_dir)
        self._runs = 0
        self._tracer: Tracer | None = None

    def begin(self) -> None:
        """Makes the folder."""
        make_folder(self._folder)
        self._runs = 0
        self._timer.reset()
        self._timer.happened(0)

    def before_run(self, run_context: SessionRunContext) -> None:
        """Begins a trace where one is due.

        Raises FailedPreconditionError while another trace of the process runs.
        """
        self._tracer = Tracer() if self._runs and self._timer.is_due(self._runs) else None
        if self._tracer is not None:
            self._tracer.start()
            run_context.during.callback(self._tracer.stop)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the trace, with the global step after the run, or the number of runs, in its name."""
        self._runs += 1
        if self._tracer is not None:
            self._timer.happened(self._runs - 1)
            step = _current_step(run_context, self._runs)
            TraceFile(self._folder / f"timeline-{step}.json").save(self._tracer)
            self._tracer = None
