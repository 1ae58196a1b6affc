"""Callbacks: what they see and when, stops, failures, states in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler import (
    Callback,
    EarlyStopping,
    RoundReport,
    Trainer,
    TrainingConfig,
    TrainingResult,
    TrainingRun,
)
from scheduler.training.folders.run_curves import RunRecord
from scheduler.training.measures.metric_order import lower_is_better
from scheduler.training.measures.tally import Tally
from scheduler.training.running.callbacks import BestMetric, CallbackCaller, require_watched
from tensorbow.errors import AbortedError, DataLossError, InvalidArgumentError
from tensorbow.specs import Array
from tensorbow.training import load_arrays
from tests.scheduler_rig.interrupted import StopsAt

Options = Callable[..., TrainingConfig]
Run = Callable[..., TrainingResult]
Metrics = Callable[[Path], list[dict[str, Any]]]
METHODS = ("on_begin", "on_round", "on_epoch", "on_checkpoint", "on_end")


class Watching(Callback):
    """Keeps all that it is told, and z's values at each round."""

    reads_state = True

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Any]] = []
        self.values: list[dict[str, Array]] = []
        self.count = 0

    def on_begin(self, run: TrainingRun) -> None:
        self.told.append(("begin", run.round, run.epoch))

    def on_round(self, run: TrainingRun, report: RoundReport) -> None:
        self.count += 1
        self.told.append(("round", run.round, report))
        assert run.epoch == pytest.approx(run.round / 7)
        assert run.replicas == len(report.losses)
        self.values.append(run.central_values())
        assert run.replica_values(1).keys() > self.values[-1].keys()

    def on_epoch(self, run: TrainingRun, record: Mapping[str, Any]) -> None:
        assert run.history[-1] == record
        self.told.append(("epoch", run.round, record["test_loss"]))
        self.values.append(run.central_values())

    def on_checkpoint(self, run: TrainingRun, path: Path) -> None:
        self.told.append(("checkpoint", run.round, path.name))

    def on_end(self, run: TrainingRun, result: TrainingResult | None) -> None:
        self.told.append(("end", run.round, result))

    def state(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


def train(config: TrainingConfig, *callbacks: Callback) -> TrainingResult:
    with Trainer(config, callbacks=callbacks) as trainer:
        return trainer.train()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"devices": ("cpu:0", "cpu:1"), "replicas_per_device": 1}], ids=str)
def test_what_a_callback_sees(tmp_path: Path, options: Options, run: Run, more: dict[str, Any]) -> None:
    """Rounds come in order, each once; values are those of the launch's end. Training does not change."""
    watching = {}
    for steps in (1, 3):
        callback = watching[steps] = Watching()
        folder = tmp_path / str(steps)
        train(options(output=folder, epochs=2, steps_per_launch=steps, **more), callback)
        rounds = [what for kind, _, what in callback.told if kind == "round"]
        assert [report.round for report in rounds] == [*range(14)]
        assert all(len(report.losses) == len(report.replicas) == 2 for report in rounds)
        assert all(len(column) == 2 for report in rounds for column in report.metrics.values())
        assert [(kind, at) for kind, at, _ in callback.told if kind != "round"] == [
            ("begin", 0),
            *[(kind, at) for at in (7, 14) for kind in ("epoch", "checkpoint")],
            ("end", 14),
        ]
    ends = [at for kind, at, _ in watching[3].told if kind == "round"]
    assert ends == [3, 3, 3, 6, 6, 6, 7, 10, 10, 10, 13, 13, 13, 14]
    by_round = {at: values for (kind, at, _), values in told(watching[1]) if kind == "round"}
    for (_, end, _), values in told(watching[3]):
        assert all(np.array_equal(values[name], by_round[end][name]) for name in values)
    run(output=tmp_path / "plain", epochs=2, **more)
    saved = (tmp_path / "plain" / "model.safetensors").read_bytes()
    assert saved == (tmp_path / "1" / "model.safetensors").read_bytes()


def told(watching: Watching) -> list[tuple[tuple[str, int, Any], dict[str, Array]]]:
    seen = [each for each in watching.told if each[0] in ("round", "epoch")]
    return list(zip(seen, watching.values, strict=True))


def test_values_of_rounds_in_flight_are_refused(options: Options) -> None:
    class Careless(Callback):
        def on_round(self, run: TrainingRun, report: RoundReport) -> None:
            run.central_values()

    with pytest.raises(
        AbortedError, match=r"on_round failed at round .*rounds are in flight; set `reads_state"
    ):
        train(options(), Careless())
    with pytest.raises(InvalidArgumentError, match=r"callbacks to be a list of tb.Callback objects"):
        Trainer(options(), callbacks=[Careless])


class Failing(Callback):
    def __init__(self, method: str, at: int):
        self.at = at
        setattr(self, method, self._fail)
        self.ended: list[TrainingResult | None] = []

    def on_round(self, run: TrainingRun, report: RoundReport) -> None:
        """Replaced in the instance for one method."""

    def on_end(self, run: TrainingRun, result: TrainingResult | None) -> None:
        self.ended.append(result)

    def _fail(self, run: TrainingRun, *_: Any) -> None:
        if run.round >= self.at:
            raise ZeroDivisionError("no luck")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", METHODS)
def test_a_failure_ends_the_run_with_a_checkpoint(
    method: str, tmp_path: Path, options: Options, run: Run
) -> None:
    """The error names the callback; the run goes on from the checkpoint, with the same bits."""
    at = 0 if method == "on_begin" else 4 if method == "on_round" else 7
    failing, watching = Failing(method, at), Watching()
    config = options(output=tmp_path / "run", epochs=3)
    with pytest.raises(
        AbortedError, match=f"callback Failing.{method} failed at round .*: no luck"
    ) as caught:
        train(config, failing, watching)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [kind for kind, *_ in watching.told].count("end") == (0 if method == "on_begin" else 1)
    if method not in ("on_begin", "on_end"):
        assert "the last checkpoint is of step" in str(caught.value)
    run(output=tmp_path / "run", resume="auto", epochs=3)
    run(output=tmp_path / "whole", epochs=3)
    saved = (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert saved == (tmp_path / "run" / "model.safetensors").read_bytes()


def test_a_stop_is_a_usual_end(tmp_path: Path, options: Options) -> None:
    class Enough(Callback):
        def on_round(self, run: TrainingRun, report: RoundReport) -> None:
            if report.round == 9:
                run.stop("enough")

    result = train(options(output=tmp_path, steps_per_launch=1, epochs=4), Enough(), watching := Watching())
    assert (result.stop_reason, result.interrupted) == ("enough", False)
    assert 10 <= result.steps < 14
    assert result.to_dict()["stop_reason"] == "enough"
    assert watching.told[-3][0] == "epoch"
    assert watching.told[-1] == ("end", result.steps, result)
    assert load_arrays(tmp_path / "model.safetensors")[1]["test_accuracy"] == result.test_accuracy


def test_states_are_in_checkpoints(tmp_path: Path, options: Options) -> None:
    def part(resume: str | None, stop: int, *callbacks: Callback) -> list[str]:
        lines: list[str] = []
        progress = StopsAt(stop)
        progress.line = lines.append  # type: ignore[method-assign]
        config = options(output=tmp_path, epochs=3, resume=resume, steps_per_launch=1)
        with Trainer(config, progress, callbacks=callbacks) as trainer:
            progress.trainer = trainer
            trainer.train()
        return lines

    part(None, 9, first := Watching(), other := Watching())
    assert 9 <= first.count == other.count < 21
    lines = part("auto", 99, second := Watching())
    assert second.count == 21
    assert second.told[0] == ("begin", first.count, pytest.approx(first.count / 7))
    assert "the checkpoint has a state of callback Watching 2, which this run has not" in lines


@pytest.mark.slow
@pytest.mark.parametrize("stop", [8, 15])
def test_early_stopping_and_the_best_model(
    stop: int, tmp_path: Path, options: Options, metrics: Metrics
) -> None:
    """The same with an interruption; the best is before the end, since the learning rate is too great."""
    chosen = {"early_stopping": "test_loss:2:0.001", "best_metric": "test_loss", "learning_rate": 3.0}
    whole = train(options(output=tmp_path / "whole", epochs=40, **chosen))
    assert whole.stop_reason is not None
    assert "test_loss was not better than" in whole.stop_reason
    records = metrics(tmp_path / "whole")
    losses = [record["test_loss"] for record in records]
    assert len(losses) < 40
    best = min(losses[:-2])
    assert min(losses[-2:]) >= best - 0.001
    progress = StopsAt(stop)
    pieces = options(output=tmp_path / "pieces", epochs=40, **chosen)
    with Trainer(pieces, progress) as trainer:
        progress.trainer = trainer
        assert trainer.train().interrupted
    result = train(options(output=tmp_path / "pieces", resume="auto", epochs=40, **chosen))
    assert result.stop_reason == whole.stop_reason
    assert metrics(tmp_path / "pieces") == records
    for name in ("model.safetensors", "model-best.safetensors"):
        assert (tmp_path / "pieces" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    _, about = load_arrays(tmp_path / "whole" / "model-best.safetensors")
    by_round = {record["round"]: record["test_loss"] for record in records}
    assert by_round[about["round"]] == min(by_round.values())
    again = train(options(output=tmp_path / "pieces", resume="auto", epochs=40, **chosen))
    assert (again.steps, again.stop_reason) == (result.steps, whole.stop_reason)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["on_round", "on_epoch", "on_checkpoint"])
def test_a_killed_run_goes_on_with_the_same_bits(
    method: str, tmp_path: Path, options: Options, metrics: Metrics
) -> None:
    """Whatever was written since the last checkpoint: schedule, optimiser, best model, states, history."""
    chosen = {
        "schedule": "cosine",
        "warmup_epochs": 0.5,
        "optimizer": "adam",
        "clip_norm": 0.5,
        "evaluate_every": 0.5,
        "early_stopping": "test_loss:6",
        "best_metric": "test_loss",
        "devices": ("cpu:0", "cpu:1"),
        "replicas_per_device": 1,
        "epochs": 4,
    }

    class Killed(BaseException):
        pass

    class Kills(Watching):
        reads_state = False

        def on_round(self, run: TrainingRun, report: RoundReport) -> None:
            self.count += 1

        def on_epoch(self, run: TrainingRun, record: Mapping[str, Any]) -> None:
            """Replaced in an instance."""

        def die(self, run: TrainingRun, *_: Any) -> None:
            self.count += method == "on_round"
            if run.round > 20:
                raise Killed

    train(options(output=tmp_path / "whole", **chosen), whole := Kills())
    callback = Kills()
    setattr(callback, method, callback.die)
    with pytest.raises(Killed):
        train(options(output=tmp_path / "killed", **chosen), callback)
    with Trainer(
        options(output=tmp_path / "killed", resume="auto", **chosen), callbacks=[again := Kills()]
    ) as (trainer):
        trainer.train()
        history = trainer.run.history
    assert again.count == whole.count
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")
    assert [record["round"] for record in history] == [r["round"] for r in metrics(tmp_path / "whole")]
    for name in ("model.safetensors", "model-best.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_callbacks_see_a_change_of_the_number_of_replicas(
    options: Options, made_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counts(Callback):
        def __init__(self) -> None:
            self.replicas: list[int] = []

        def on_round(self, run: TrainingRun, report: RoundReport) -> None:
            assert report.round == len(self.replicas)
            assert run.replicas == len(report.losses)
            self.replicas.append(run.replicas)

    monkeypatch.setattr(made_up, "curve", {1: 100.0, 2: 200.0, 3: 100.0})
    result = train(options(replicas_per_device="auto", epochs=6), counts := Counts())
    assert result.steps == len(counts.replicas)
    assert counts.replicas[0] == 1
    assert {1, 2, 3} <= set(counts.replicas)


def test_which_metrics_are_better_if_lower() -> None:
    lower = ("loss", "test_loss", "test_mean_error", "validation_nll", "test_rmse", "test_word_errors")
    assert all(map(lower_is_better, lower))
    assert not any(map(lower_is_better, ("accuracy", "test_auc", "test_f1", "test_r2", "loss_scale")))


def test_the_best_of_equal_ones_has_the_lower_loss_in_every_place() -> None:
    """Of equal losses too, the first: for checkpoints, with and without an option, and for comparisons."""
    pairs = [(0.5, 2.0), (0.75, 1.0), (0.75, 0.5), (0.75, 0.5), (0.75, float("nan")), (0.5, 0.1)]
    records = [
        {"round": n, "epoch": n, "test_accuracy": accuracy, "test_loss": loss}
        for n, (accuracy, loss) in enumerate(pairs)
    ]
    tally, best, found = Tally(), BestMetric("test_accuracy"), []
    for record in records:
        tally.round, tally.test_accuracy = int(record["round"]), record["test_accuracy"]
        tally.mark_best(record["test_loss"], is_there=True)
        best.on_epoch(TrainingRun(TrainingConfig(model="logreg")), record)
        found += [record["round"]] if best.is_best else []
        again = BestMetric("test_accuracy")
        again.load_state(best.state())
        best = again
    run = RunRecord(Path("run"), {}, records)
    assert (tally.best, found[-1], run.best("test_accuracy", lower=False)) == (2, 2, (0.75, 2))


def test_a_metric_whose_direction_is_given(tmp_path: Path, options: Options, metrics: Metrics) -> None:
    """Upside down: a falling loss ends the run, and the first model is the best."""
    chosen = options(output=tmp_path, epochs=6, early_stopping="test_loss:2:max", best_metric="test_loss:max")
    assert TrainingConfig.from_dict(chosen.to_dict()) == chosen
    result = train(chosen)
    first, *others = metrics(tmp_path)
    assert result.stop_reason == (
        f"early stopping: test_loss was not better than {first['test_loss']:.6g} in 2 evaluations"
    )
    assert len(others) == 2
    assert load_arrays(tmp_path / "model-best.safetensors")[1]["round"] == first["round"]
    with pytest.raises(InvalidArgumentError, match="expected mode to be 'min' or 'max'"):
        EarlyStopping("test_loss", 2, mode="least")


def test_a_method_that_is_misspelt(options: Options) -> None:
    class Misspelt(Callback):
        def on_ronud(self, run: TrainingRun, report: RoundReport) -> None: ...

    words = r"^callback Misspelt: expected methods on_begin, .*, got on_ronud, .*; did you mean on_round\?"
    with pytest.raises(InvalidArgumentError, match=words):
        Trainer(options(), callbacks=[Misspelt()])


def test_a_target_accuracy_needs_a_model_that_has_one(options: Options) -> None:
    require_watched(options(target_accuracy=0.9), "test", [], ["loss", "accuracy"])
    with pytest.raises(InvalidArgumentError, match=r"got one with loss, mse; .* as validation_loss:3$"):
        require_watched(options(target_accuracy=0.9), "validation", ["mse"], ["loss", "mse"])
    with pytest.raises(InvalidArgumentError, match=r"got 'test_accuracy'$"):  # which test_r2 is not like
        require_watched(options(best_metric="test_accuracy"), "test", [], ["loss", "r2"])


@pytest.mark.slow
def test_an_unknown_metric_and_an_odd_state(tmp_path: Path, options: Options) -> None:
    known = "expected one of loss, accuracy, test_loss, test_accuracy, got 'test_acuracy'; did you mean"
    with pytest.raises(InvalidArgumentError, match="got 'val_loss'; did you mean test_loss"):
        Trainer(options(early_stopping="val_loss:3"))
    for option, value in (("early_stopping", "test_acuracy:3"), ("best_metric", "test_acuracy")):
        with pytest.raises(InvalidArgumentError, match=f"^{option}: {known} test_accuracy"):
            Trainer(options(**{option: value}))
    with pytest.raises(AbortedError, match="early_stopping: expected one of round, epoch"):
        train(options(), EarlyStopping("test_acuracy", 3))
    for wrong in (
        "test_loss",
        "test_loss:0",
        "test_loss:1:2:3",
        "test_loss:1:least",
        "1x:2",
        ["test_loss"],
        7,
    ):
        with pytest.raises(InvalidArgumentError, match=r"^early_stopping: expected METRIC:PATIENCE"):
            options(early_stopping=wrong)

    class Odd(Callback):
        def state(self) -> dict[str, Any]:
            return {"x": object()}

    with pytest.raises(AbortedError, match=r"callback Odd.state failed: TypeError"):
        train(options(output=tmp_path), Odd())
    with pytest.raises(DataLossError, match="callbacks: expected states by name"):
        CallbackCaller([], TrainingRun(options())).load_states([1])
