"""Members of a sweep have the bits of their runs alone, in any company, and whatever interrupts them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorbow as tb
from scheduler import TrainedModel, Trainer
from scheduler.sweeps.folder import SweepFolder
from scheduler.sweeps.members import FINISHED, members_of, ranked
from scheduler.sweeps.pictures import draw_sweep
from scheduler.sweeps.pool import MemberPool
from scheduler.sweeps.summary import summaries
from tensorbow.data import load
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from tensorbow.training import load_arrays, save_arrays
from tests.picture_faults import faults
from tests.scheduler.sweeps.conftest import content
from tests.scheduler_rig.running import same_bits


class OwnModel:
    """A user's model, whose step draws random numbers."""

    def __init__(self, width: int = 4):
        self.width = width

    def __call__(self, inputs, labels, training):
        hidden = tb.layers.dense(tb.layers.flatten(inputs), self.width, tb.nn.relu)
        logits = tb.layers.dense(tb.nn.dropout(hidden, rate=0.3) if training else hidden, 10)
        losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        right = tb.equal(tb.argmax(logits, 1, output_type=tb.int64), labels)
        return tb.reduce_mean(losses), logits, {"accuracy": tb.reduce_mean(tb.cast(right, tb.float32))}


GRIDS = {
    "own model": ({"model.width": [4, 6], "learning_rate": [0.01, 0.03]}, {"model": OwnModel, "epochs": 2}),
    "rates": ({"learning_rate": [0.01, 0.05], "momentum": [0.9, 0.0]}, {}),
    "decay": ({"weight_decay": [0.0, 0.01, 0.1]}, {}),
    "drops": ({"learning_rate": [0.01, 0.03]}, {"learning_rate_drops": ((1, 0.5), (2, 0.1))}),
    "schedules": ({"schedule": ["cosine", "one_cycle"], "epochs": [2, 3]}, {}),
    "mixup": ({"mixup": [0.2, 0.4]}, {"epochs": 2}),
    "programs": ({"batch_size": [8, 16], "optimizer": ["adam", "adamw"]}, {"weight_decay": 0.01}),
}


def test_of_equal_configurations_the_table_begins_with_the_one_that_is_best() -> None:
    members = members_of({"model": "logreg"}, [{"learning_rate": rate} for rate in (0.01, 0.02, 0.03)], 1)
    for member, loss in zip(members, (0.3, 0.1, 0.2), strict=True):
        member.status = FINISHED
        member.figures = {"validation_accuracy": 1.0, "validation_loss": loss}
    assert [found.choices["learning_rate"] for found in summaries(members)] == [0.02, 0.03, 0.01]
    assert ranked(members)[0] is members[1]


def require_bits_of_runs_alone(sweep, folder):
    """Trains each member alone, as the command line does, and compares weights and test accuracy."""
    for member in sweep.members:
        config = replace(member.config, output=str(folder / f"alone-{member.number}"))
        with Trainer(config) as trainer:
            result = trainer.train()
        alone, about = load_arrays(Path(config.output) / "model.safetensors")
        own, described = load_arrays(sweep.folder.member_file(member.number))
        assert alone.keys() == own.keys()
        for name, value in alone.items():
            np.testing.assert_array_equal(own[name], value, err_msg=f"{member.choices}: {name}")
        assert described["round"] == about["round"]
        assert member.figures["test_accuracy"] == result.metrics["test_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("name", GRIDS)
def test_members_have_the_bits_of_their_runs_alone(name, sweep, tmp_path):
    grid, base = GRIDS[name]
    with sweep(grid=grid, base=base, seeds=2, at_once=3) as running:
        assert running.run()
        require_bits_of_runs_alone(running, tmp_path)


@pytest.mark.slow
def test_members_on_two_devices_have_the_bits_of_their_runs_alone(sweep, tmp_path):
    base = {"devices": ("cpu:0", "cpu:1"), "epochs": 1}
    with sweep(grid={"learning_rate": [0.01, 0.02, 0.03]}, base=base) as running:
        assert running.run()
        for member in running.members:
            member.config = replace(member.config, devices=("cpu:0",))
        require_bits_of_runs_alone(running, tmp_path)


class KilledError(Exception):
    """Stands in for SIGKILL: nothing that the sweep does afterwards is written."""


@pytest.mark.slow
@pytest.mark.parametrize("halving", [True, False])
def test_a_killed_sweep_goes_on_with_the_same_bits(halving, sweep, tmp_path, monkeypatch):
    options = {
        "grid": {"learning_rate": [0.001, 0.01, 0.1], "batch_size": [8, 16]},
        "base": {"learning_rate_drops": ((1, 0.5),)},
        **{"seeds": 2, "at_once": 4, "halving": halving, "keep": 3},
    }
    with sweep("whole", **options) as running:
        assert running.run()
    save, kills = SweepFolder.save_state, iter([2, 1, 3, 1])

    def dying(after):
        left = [after]

        def save_state(folder, arrays, metadata):
            left[0] -= 1
            if not left[0]:
                raise KilledError
            save(folder, arrays, metadata)

        return save_state

    for number, after in enumerate(kills):
        monkeypatch.setattr(SweepFolder, "save_state", dying(after))
        with pytest.raises(KilledError), sweep("killed", resume=number > 0, **options) as running:
            running.run()
    monkeypatch.setattr(SweepFolder, "save_state", save)
    with sweep("killed", resume=True, **options) as running:
        assert running.run()
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    with sweep("killed", resume=True, **options) as running:  # there is nothing left to do
        assert running.run()
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.usefixtures("native_kernels")
def test_the_number_of_steps_in_a_launch_follows_the_time_of_launches(monkeypatch):
    """Also where the first rounds were slow; members keep their bits."""
    (train, _), values = load("synthetic"), []
    base = {"model": "logreg", "dataset": "synthetic", "replicas_per_device": 1, "epochs": 9}
    for given in (None, 1):
        members = members_of({**base, "steps_per_launch": given}, [{"learning_rate": 0.01}], 2)
        with closing(MemberPool(members[0].config, train, 2, print)) as pool:
            steps = []
            for member in members:
                pool.add(member)
            for seconds in (1e-9, 1e9, 1e9, 1e-9, 1e-9):
                monkeypatch.setattr("scheduler.sweeps.pool.LAUNCH_S", seconds)
                assert pool.train()
                pool.end_epoch()
                steps.append(pool.steps_per_launch)
            values.append([pool.values(member) for member in members])
        assert steps == ([1, 10, 10, 1, 1] if given is None else [1] * 5)
    assert all(map(same_bits, *values))


@pytest.mark.slow
def test_a_sweep_that_is_asked_to_stop_within_an_epoch_goes_on_with_the_same_bits(
    sweep, tmp_path, monkeypatch
):
    options = {"grid": {"learning_rate": [0.01, 0.1]}, "base": {"steps_per_launch": 3}, "seeds": 2}
    with sweep("whole", **options) as running:
        assert running.run()
    whole = MemberPool._sum
    for stops in (2, 4):
        with sweep("stopped", resume=stops != 2, **options) as running:
            left = [stops]

            def counted(pool, results, running=running, left=left):
                whole(pool, results)
                left[0] -= 1
                if not left[0]:
                    running.request_stop()

            monkeypatch.setattr(MemberPool, "_sum", counted)
            assert not running.run()
    monkeypatch.setattr(MemberPool, "_sum", whole)
    with sweep("stopped", resume=True, **options) as running:
        assert running.run()
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")


def test_a_stop_that_comes_when_all_members_have_ended_is_no_interruption(sweep, monkeypatch):
    save_best = SweepFolder.save_best
    with sweep(base={"epochs": 1}, seeds=2) as running:

        def stopped(folder, *arguments):
            running.request_stop()
            return save_best(folder, *arguments)

        monkeypatch.setattr(SweepFolder, "save_best", stopped)
        assert running.run()


@pytest.mark.slow
def test_a_member_that_diverges_ends_alone(sweep, tmp_path):
    with sweep(grid={"learning_rate": [0.01, 3e38, 0.02]}, at_once=2) as running:
        assert running.run()
        assert [member.status for member in running.members] == ["finished", "diverged", "finished"]
        assert running.members[1].epochs == 0
        assert running.members[1].rounds < 3
        assert running.best is not running.members[1]
        del running.members[1]
        require_bits_of_runs_alone(running, tmp_path)


@pytest.mark.slow
def test_halving_gives_the_places_of_the_worst_to_new_members(sweep, tmp_path):
    rates = [0.0001, 0.0002, 0.0003, 0.01, 0.02, 0.03]
    base = {"epochs": 9}
    with sweep(grid={"learning_rate": rates}, base=base, halving=True, at_once=3) as running:
        assert running.run()
        stopped = [member for member in running.members if member.status == "stopped"]
        finished = [member for member in running.members if member.status == "finished"]
        assert len(stopped) + len(finished) == len(rates)
        assert stopped
        assert {member.epochs for member in stopped} <= {1, 3}
        assert {member.epochs for member in finished} == {9}
        # What a member is compared with does not change its bits.
        running.members[:] = finished
        require_bits_of_runs_alone(running, tmp_path)


def dimmed(inputs, labels, training, dropout: float = 0.0):
    """A classifier whose argument is part of the compiled step."""
    seen = tb.layers.flatten(inputs)
    logits = tb.layers.dense(tb.nn.dropout(seen, rate=dropout) if training and dropout else seen, 10)
    return tb.reduce_mean(
        tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    ), logits


@pytest.mark.usefixtures("reference_kernels")
def test_halving_compares_members_of_several_compiled_steps(sweep, tmp_path):
    """Also the first one, which is the worst, and comes to each rung alone."""
    grid, base = {"model.dropout": [0.99, 0.9, 0.0, 0.5]}, {"model": dimmed, "epochs": 4}
    with sweep(grid=grid, base={**base, "learning_rate": 0.003}, halving=True) as running:
        said = []
        running._say = said.append
        assert running.run()
        statuses = {member.choices["model.dropout"]: member.status for member in running.members}
        epochs = [member.epochs for member in running.members]
        assert all("test_loss" in member.figures for member in running.members)
    assert said[0] == (
        "4 members in 4 compiled steps, one after the other; at epoch 1, 3 all wait to be compared"
    )
    assert statuses.pop(0.99) == "stopped"
    assert sorted(statuses.values()) == ["finished", "stopped", "stopped"]
    assert sorted(epochs) == [1, 1, 1, 4]
    assert not (tmp_path / "sweep" / "paused").exists()


@pytest.mark.slow
def test_members_that_waited_for_others_have_the_bits_of_their_runs_alone(sweep, tmp_path):
    grid = {"batch_size": [8, 16], "learning_rate": [0.01, 0.02], "optimizer": ["momentum", "adam"]}
    base = {"epochs": 4}
    with sweep(grid=grid, base=base, halving=True, halving_factor=2, at_once=2) as running:
        assert running.run()
        finished = [member for member in running.members if member.status == "finished"]
        assert len(finished) == 2  # of 8 and 4 at epochs 1 and 2, one goes on of each two
        running.members[:] = finished
        require_bits_of_runs_alone(running, tmp_path)


@pytest.mark.slow
def test_only_the_best_members_are_kept(sweep, tmp_path):
    with sweep(grid={"learning_rate": [0.0001, 0.001, 0.01, 0.1]}, at_once=1, keep=2) as running:
        assert running.run()
        kept = {member.number for member in running.kept}
        files = {file.name for file in (tmp_path / "sweep" / "members").iterdir()}
    assert files == {f"member-{number:05d}.safetensors" for number in kept}
    assert len(kept) == 2


def test_another_sweep_in_the_folder_is_kept(sweep):
    with sweep(grid={"learning_rate": [0.01]}) as running:
        running.run()
    with pytest.raises(FailedPreconditionError, match="holds a sweep already"):
        sweep(grid={"learning_rate": [0.01]})
    with pytest.raises(FailedPreconditionError, match=r"learning_rate was \[0.01\], is \[0.02\]"):
        sweep(grid={"learning_rate": [0.02]}, resume=True)
    with pytest.raises(NotFoundError, match="holds no sweep"):
        sweep("elsewhere", resume=True)


def test_options_of_single_runs_are_refused(sweep):
    with pytest.raises(InvalidArgumentError, match="sync: expected none in a sweep"):
        sweep(base={"sync": "sma"})
    with pytest.raises(InvalidArgumentError, match=r"epochs: expected a whole number .* got 0\.5"):
        sweep(base={"epochs": 0.5})


def test_an_ensemble_that_cannot_be_is_refused_before_training(sweep):
    def hidden(inputs, labels, training):
        outputs = tb.layers.dense(tb.layers.flatten(inputs), 1)[:, 0]
        return tb.reduce_mean(tb.square(outputs - tb.cast(labels, tb.float32))), tb.floor(outputs)

    with pytest.raises(InvalidArgumentError, match="at least two members that trained to their end, got 1"):
        sweep(ensemble=True)
    words = (
        "expected a loss that is made of the model's outputs, .* got variable dense/kernel read beside them"
    )
    with pytest.raises(UnimplementedError, match=words):
        sweep(base={"model": hidden}, seeds=2, ensemble=True)
    with sweep() as running:  # the folder is free
        assert running.run()


@pytest.mark.slow
def test_regressions_of_a_needed_argument_are_swept_and_averaged(sweep, tmp_path):
    def regression(inputs, labels, training, width: int):
        hidden = tb.layers.dense(tb.layers.flatten(inputs), width, tb.tanh)
        outputs, labels = tb.layers.dense(hidden, 1)[:, 0], tb.cast(labels, tb.float32)
        error = tb.reduce_mean(tb.abs(outputs - labels))
        return tb.reduce_mean(tb.square(outputs - labels)), {"y": outputs}, {"mae": error}

    grid, base = {"model.width": [3, 4]}, {"model": regression, "on_nan": "freeze", "learning_rate": 0.001}
    with pytest.raises(InvalidArgumentError, match=r"model\.width: .*regression needs it"):
        sweep(base=base)
    with sweep(grid=grid, base=base, ensemble=True) as running:
        running.run()
        test = running.data.evaluated["test"]
    each = []
    for name in ("best", "ensemble"):
        with tb.train.load_model(tmp_path / "sweep" / name) as model:
            each.append(model.predict(test.images)["y"])
            found = model.evaluate(test)
        assert found.loss == pytest.approx(np.mean((each[-1] - test.labels) ** 2), rel=1e-4)
        assert found.metrics["mae"] == pytest.approx(np.mean(abs(each[-1] - test.labels)), rel=1e-4)
    assert not np.array_equal(*each)


def test_a_sweep_with_one_member_left_ends_without_its_ensemble(sweep, tmp_path):
    """The other member diverges."""
    with sweep(grid={"learning_rate": [0.01, 3e38]}, ensemble=True) as running:
        assert running.run()
        assert [member.status for member in running.members] == ["finished", "diverged"]
    assert (tmp_path / "sweep" / "best").exists()
    assert not (tmp_path / "sweep" / "ensemble").exists()


@pytest.mark.slow
def test_labels_of_a_sweeps_pictures_do_not_overlap(sweep, tmp_path, monkeypatch):
    figures = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda own, *a, **k: (save(own, *a, **k), figures.append(own)))
    rates = [0.001102, 0.00188, 0.005933, 0.02598]
    with sweep(grid={"learning_rate": rates}, base={"epochs": 2}, halving=True, seeds=2) as running:
        assert running.run()
        assert [file.name for file in running.draw()] == ["options.png", "curves.png"]
    assert [fault for drawn in figures for fault in faults(drawn)] == []


@pytest.mark.slow
def test_whole_and_other_numbers_are_drawn_in_their_order(sweep, monkeypatch):
    figures = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr(figure, "savefig", lambda own, *_, **__: figures.append(own))
    with sweep(grid={"momentum": [0, 0.5, 0.9, 0.25]}, base={"epochs": 1}, seeds=2) as running:
        assert running.run()
        running.draw()
    _, options = figures
    (median,) = [line for line in options.axes[0].lines if line.get_label() == "median"]
    assert [*median.get_xdata()] == [0, 0.25, 0.5, 0.9]


@pytest.mark.parametrize("ends", [(0.0013, 0.021), (0.00013, 0.021)])
def test_options_of_random_configurations_are_drawn_without_a_median(ends, tmp_path, monkeypatch):
    """Each value has one member; a logarithmic axis has few labels, but more than one."""
    figures = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda own, *a, **k: (save(own, *a, **k), figures.append(own)))
    rates = np.geomspace(*ends, 9).tolist()
    members = members_of(
        {"model": "logreg", "dataset": "synthetic", "epochs": 1},
        [{"learning_rate": rate} for rate in rates],
        1,
    )
    for member in members:
        member.status, member.epochs = "finished", 1
        member.figures = {"validation_accuracy": 0.5 + member.number / 100, "validation_loss": 1.0}
    curves = [{"member": each.number, "epoch": 1, **each.figures} for each in members]
    assert len(draw_sweep(members, curves, ["learning_rate"], tmp_path, "logreg")) == 2
    (options,) = (each for each in figures if each.axes[0].get_xlabel() == "learning rate")
    axes = options.axes[0]
    assert [line.get_label() for line in axes.lines] == ["trained to the end"]
    (drawn,) = (each for each in figures if each is not options)
    assert [text.get_text() for text in drawn.legends[0].get_texts()][6:] == ["3 other configurations"]
    low, high = axes.get_xlim()
    labels = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert 2 <= len(labels) <= 5
    assert not axes.get_xminorticklabels()
    assert faults(options) == []


@pytest.mark.slow
def test_members_are_ranked_by_best_metric_in_its_direction(sweep, tmp_path):
    grid = {"learning_rate": [0.0001, 0.01, 0.05]}
    for metric in ("validation_loss", "validation_loss:max"):
        with sweep(metric.replace(":", "-"), grid=grid, base={"best_metric": metric}) as running:
            running.run()
            chosen = max if metric.endswith("max") else min
            values = [member.figures["validation_loss"] for member in running.members]
            assert running.best.figures["validation_loss"] == chosen(values)
            first = running.summaries[0]
            assert (first.measure, first.members[0]) == ("loss", running.best)
    for refused in ("test_loss", "validation_f1"):
        words = f"best_metric: expected one of validation_loss, validation_accuracy, got '{refused}'"
        with pytest.raises(InvalidArgumentError, match=words):
            sweep("refused", base={"best_metric": refused})


@pytest.mark.slow
def test_members_begin_with_given_weights(tmp_path: Path) -> None:
    """One compiled step serves members of different weights; each begins with its own, whatever its seed."""
    files = [str(tmp_path / f"{number}.safetensors") for number in (1, 2)]
    for number, file in enumerate(files, 1):
        state = {"weights": np.full((784, 10), number, np.float32), "biases": np.zeros(10, np.float32)}
        save_arrays(Path(file), state, {})
    result = tb.sweep(
        "logreg",
        "synthetic",
        grid={"weights": files},
        seeds=2,
        epochs=1,
        learning_rate=1e-30,
        keep=4,
        output=tmp_path / "sweep",
        progress=False,
    )
    for member in result.members:
        expected = 1 + files.index(member.choices["weights"])
        assert (result.values(member.number)["weights"] == expected).all()
    save_arrays(Path(files[0]), {**state, "x": state["biases"]}, {})
    with pytest.raises(InvalidArgumentError, match=r"^weights: .*the model has no such variable"):
        tb.sweep("logreg", "synthetic", grid={"weights": files}, output=tmp_path / "other", progress=False)
    assert not (tmp_path / "other" / "sweep.json").exists()


@pytest.mark.usefixtures("reference_kernels")
def test_the_best_member_keeps_the_names_of_pytorch(tmp_path: Path) -> None:
    """As a run does; each member those of its own weights, and none in an ensemble."""
    files, modules = [str(tmp_path / f"{number}.safetensors") for number in (1, 2)], ("head", "classifier.6")
    for module, file in zip(modules, files, strict=True):
        state = {f"{module}.weight": np.zeros((10, 784), np.float32)}
        save_file({**state, f"{module}.bias": np.zeros(10, np.float32)}, file)
    result = tb.sweep(
        "logreg",
        "synthetic",
        grid={"weights": files},
        epochs=1,
        keep=2,
        ensemble=True,
        output=tmp_path / "sweep",
        progress=False,
    )
    assert result.best is not None
    module = modules[files.index(result.best.choices["weights"])]
    with result.model() as model:
        names = {f"{module}.weight", f"{module}.bias"}
        assert tb.interop.torch.state_of(model.session).keys() == names
        model.export(tmp_path / "export")
    with TrainedModel(tmp_path / "export") as model:
        file = tb.interop.torch.save_weights(tmp_path / "back.safetensors", model.session)
        assert tb.interop.torch.read_state(file).keys() == names
    with result.ensemble() as model:
        assert len(tb.interop.torch.state_of(model.session)) == 4
