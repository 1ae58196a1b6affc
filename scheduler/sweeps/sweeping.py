"""`tb.sweep`: many configurations and seeds of a model in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scheduler.sweeps.folder import BEST, ENSEMBLE
from scheduler.sweeps.members import Member
from scheduler.sweeps.options import SweepOptions
from scheduler.sweeps.search_space import Range, read_range
from scheduler.sweeps.summary import ConfigurationSummary
from scheduler.sweeps.sweep import Sweep
from scheduler.training.models.trained_model import TrainedModel
from scheduler.training.running.fitting import named_data, stopped_by_interrupt
from scheduler.workers.find import worker_group
from tensorbow.errors import FailedPreconditionError
from tensorbow.kinds import Anything, AsPath, Count, Flag, Mapped, checked
from tensorbow.specs import Array
from tensorbow.training import TrainingProgress


class SweepResult:
    """Members trained by `tb.sweep`.

    folder: with results.csv, curves.jsonl, pictures and models. members: all, in order, with their choices,
    seed, status and figures. summaries: a summary of each configuration over its seeds, the best first.
    best: the member that is best on validation data, or None. interrupted: whether it was stopped before its
    end, by Ctrl-C. pictures: their files, if matplotlib is installed.
    """

    def __init__(self, sweep: Sweep, interrupted: bool):
        """sweep: that has run, before it is closed."""
        joint = sweep.joint
        self.folder = sweep.path
        self.members: list[Member] = sweep.members
        self.summaries: list[ConfigurationSummary] = sweep.summaries
        self.best: Member | None = sweep.best
        self.interrupted = interrupted
        self.pictures: list[Path] = joint.by_first(sweep.draw)
        self._kept = joint.by_first(sweep.kept_values)

    def __repr__(self) -> str:
        best = "none trained to its end" if self.best is None else f"the best is {self.best.number}"
        ended = ", interrupted" if self.interrupted else ""
        return f"<SweepResult {self.folder}: {len(self.members)} members, {best}{ended}>"

    def rows(self) -> list[dict[str, Any]]:
        """The rows of results.csv: member, choices, seed, status, epochs and figures by name."""
        return [member.row() for member in self.members]

    @checked
    def values(self, member: Count) -> dict[str, Array]:
        """The variables of a member by name. member: its number.

        Raises FailedPreconditionError for one that is not among the best, as many as `keep` says.
        """
        if member not in self._kept:
            raise FailedPreconditionError(
                f"values: the weights of member {member} were not kept, but those of "
                f"{', '.join(map(str, self._kept)) or 'none'}; give a larger keep"
            )
        return self._kept[member]

    def model(self) -> TrainedModel:
        """The best member, for inference. Raises FailedPreconditionError if none trained to its end."""
        if self.best is None:
            raise FailedPreconditionError("model: no member trained to its end; see the status of `members`")
        return TrainedModel(self.folder / BEST)

    def ensemble(self) -> TrainedModel:
        """The mean of the best members' probabilities, for inference. Needs the option `ensemble`."""
        if not (self.folder / ENSEMBLE).exists():
            raise FailedPreconditionError("ensemble: it was not exported; sweep with ensemble=True")
        return TrainedModel(self.folder / ENSEMBLE)


@checked
def sweep(
    model: Anything = "lenet",
    data: Anything = None,
    *,
    grid: Mapped | None = None,
    ranges: Mapped | None = None,
    random: int | None = None,
    seeds: int = 1,
    output: AsPath | None = None,
    resume: Flag = False,
    progress: Flag = True,
    **options: Any,
) -> SweepResult:
    """Trains a model with many configurations and seeds, many side by side in one process.

        result = tb.sweep("lenet", "digits", grid={"learning_rate": [1e-3, 3e-3, 1e-2]}, seeds=8, epochs=5)
        print(result.best.choices, result.best.figures["test_accuracy"])

    Each member is a run of one replica, and has the bits of `tb.fit(..., replicas=1)` with its options and
    seed. The best is chosen on validation data, by default a tenth of the training examples. A member that
    diverges ends alone.

    model, data: see `tb.fit`. grid: lists of values by option, of which all combinations are trained; an
        option of the model is "model.width". ranges, random: that many configurations are drawn from ranges:
        texts such as "log:1e-4:1e-1" or "0.5:0.99", or lists of values. seeds: of each configuration.
    output: folder; by default a new one below runs. resume: go on with the sweep of this folder.
    progress: whether to print lines on standard output.
    options: all others of `SweepOptions`, such as `halving`, `at_once`, `keep` and `ensemble`, and of
        `TrainingConfig`, such as `epochs`, for all members.

    Workers of a job (`tensorbow launch`, `mpirun`) share the members out; all call this with the same
    arguments, and all get the result. Ctrl-C ends the sweep with a checkpoint; `result.interrupted` is True
    then.
    Raises InvalidArgumentError for options that do not exist or do not fit, FailedPreconditionError for a
    folder that holds another sweep.
    """
    known = SweepOptions.__dataclass_fields__
    own = {name: options.pop(name) for name in [*options] if name in known}
    named, arrays = named_data(data)
    base = {"model": model, **options, **named}
    drawn = {name: _range_of(name, given) for name, given in (ranges or {}).items()}
    chosen = SweepOptions(random=random, seeds=seeds, **own)
    shown = TrainingProgress.on_standard_output() if progress else TrainingProgress()
    folder, workers = None if output is None else Path(output), worker_group()
    made = Sweep(
        base, grid or {}, drawn, chosen, folder, resume=resume, data=arrays, say=shown.line, workers=workers
    )
    with made as running, stopped_by_interrupt(running.request_stop):
        finished = running.run()
        return SweepResult(running, not finished)


def _range_of(name: str, given: str | Range | Sequence[Any]) -> Range | Sequence[Any]:
    return read_range(f"{name}={given}")[1] if isinstance(given, str) else given
