"""TensorBoard's event files of a training run: figures, histograms of weights, the step's graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from scheduler.training.measures.classification_metrics import CONFUSION
from scheduler.training.measures.tally import TrainingResult
from scheduler.training.running.callbacks import Callback, Record, RoundReport, TrainingRun
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import PATH, Positive, checked, optional
from tensorbow.ops.summaries import event_protocol
from tensorbow.pictures import has_matplotlib
from tensorbow.training.event_files import graph_message

FOLDER = "tensorboard"
OFFLINE = ("round", "epoch", "images")  # figures of a record that need no curve

AsFolder: TypeAlias = Annotated[str | Path | None, optional(PATH)]


class TensorBoard(Callback):
    """Writes a run for TensorBoard: `tensorboard --logdir runs` shows all runs below a folder.

    Mean loss and metrics of training, and the learning rate; the figures of each evaluation; a histogram of
    each variable of z; the graph of one replica's step; with the metric `confusion` and matplotlib, the
    confusion matrix of each evaluation as an image. A resumed run goes on where it was.
    """

    @checked
    def __init__(self, folder: AsFolder = None, every: Positive = 50):
        """folder: of the event files; by default `tensorboard` in the run's output folder.

        every: rounds over which figures of training are averaged.
        Raises FailedPreconditionError without tensorboardX; `on_begin` raises InvalidArgumentError for a run
        without an output folder if none is given.
        """
        event_protocol()
        self._folder, self._every = folder, every
        self._writer: Any = None
        self._sums: dict[str, float] = {}  # of the rounds since the last point
        self._rounds = 0

    def on_begin(self, run: TrainingRun) -> None:
        """Opens the file, and writes the graph and the options."""
        from tensorboardX import SummaryWriter
        from tensorboardX.proto.event_pb2 import Event

        folder = self._folder or (None if run.folder is None else run.folder / FOLDER)
        if folder is None:
            raise InvalidArgumentError("tensorboard: the run has no output folder; give TensorBoard(folder)")
        self._writer = SummaryWriter(
            str(folder), purge_step=run.round or None, filename_suffix=f".{run.round}"
        )
        if run.engine is not None:
            event = Event(graph_def=graph_message(run.engine.program.graph).SerializeToString())
            self._writer.file_writer.add_event(event)
        options = "\n".join(f"    {name}: {value}" for name, value in run.config.to_dict().items())
        self._writer.add_text("options", options, run.round)

    def on_round(self, run: TrainingRun, report: RoundReport) -> None:
        """Sums figures of all replicas; writes a point every so many rounds."""
        sums, replicas = self._sums, len(report.losses)
        for name, values in (("loss", report.losses), *report.metrics.items()):
            sums[name] = sums.get(name, 0.0) + float(sum(values)) / replicas
        self._rounds += 1
        if self._rounds == self._every:
            for name, total in sums.items():
                self._writer.add_scalar(f"training/{name}", total / self._rounds, report.round + 1)
            self._writer.add_scalar("training/learning_rate", report.learning_rate, report.round + 1)
            self._sums, self._rounds = {}, 0

    def on_epoch(self, run: TrainingRun, record: Record) -> None:
        """Writes the figures of an evaluation, histograms of the weights, and the confusion matrix."""
        for name, value in record.items():
            if isinstance(value, int | float) and name not in OFFLINE:
                self._writer.add_scalar(f"evaluation/{name}", value, run.round)
        for name, value in run.central_values().items():
            self._writer.add_histogram(name, value, run.round)
        if run.report is not None and CONFUSION in run.config.metrics and has_matplotlib():
            png = run.report.png(f"{run.config.source.name}, {run.split}, round {run.round:,}")
            self._add_image(f"evaluation/{run.split}_{CONFUSION}", png, run.round)
        self._writer.flush()

    def _add_image(self, name: str, png: bytes, round: int) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        value = Summary.Value(tag=name, image=Summary.Image(encoded_image_string=png))
        self._writer.file_writer.add_summary(Summary(value=[value]), round)

    def on_end(self, run: TrainingRun, result: TrainingResult | None) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
