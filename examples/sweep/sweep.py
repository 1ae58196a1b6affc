"""Sweep of learning rates and seeds: all members train side by side, each with the bits of its run alone.

    python examples/sweep/sweep.py                                                  # handwritten digits
    python examples/sweep/sweep.py --data-dir FOLDER --epochs 5 --output runs/sweep  # MNIST's IDX files

A member is a network of 784-128-10 units with a learning rate and a seed of its own; the seed chooses initial
values and the order of the examples. Members are independent replicas of one Replicator (`sync="none"`).
Every tenth training example is held out to choose the best member, which is exported; the last line is the
accuracy of the average of all members' probabilities. Writes `sweep.json`, `accuracy.png` (with
`tensorbow[plot]`), and the best member in `best/`, for `tb.train.SavedModel`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tensorbow as tb
from tensorbow.data import ImageDataset

BATCH_SIZE, MOMENTUM, HIDDEN = 16, 0.9, 128
RATES = (0.0001, 0.0003, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03)
HELD_OUT = 10  # every so many examples of the training split choose the best member

Values = dict[str, Any]
"""Arrays by the name of their variable."""


class Member(NamedTuple):
    """Learning rate and seed of one run."""

    learning_rate: float
    seed: int


def logits_of(images: tb.Tensor) -> tb.Tensor:
    """Scores `[batch, 10]` of pictures `[batch, 28, 28, 1]`."""
    hidden = tb.layers.dense(tb.reshape(images, [-1, 784]), HIDDEN, tb.nn.relu, name="hidden")
    return tb.layers.dense(hidden, 10, name="logits")


def train(members: Sequence[Member], data: ImageDataset, steps: int) -> tuple[list[Values], Any]:
    """Variables of each member after so many steps, and all losses `[steps, members]`."""
    with tb.Graph().as_default():
        tb.set_random_seed(0)
        replicator = tb.MultiGpuReplicator(
            ["/cpu:0"], len(members), sync="none", seeds=[member.seed for member in members]
        )

        def step_fn(images: tb.Tensor, labels: tb.Tensor) -> Any:
            losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits_of(images))
            rate = tb.per_replica([member.learning_rate for member in members])
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, MOMENTUM))
            loss = tb.reduce_mean(losses)
            return loss, optimizer.minimize(loss)

        def input_fn(replica_id: int) -> tb.DatasetBatches:  # in an order of the member's own
            return tb.DatasetBatches(data, BATCH_SIZE, replicas=1, seed=members[replica_id].seed)

        losses = [loss for loss, _ in replicator.train(step_fn, input_fn, steps)]
    return [replicator.replica_values(replica) for replica in range(len(members))], np.array(losses)


class Classifier:
    """Network that takes the variables of one member after another."""

    def __init__(self) -> None:
        with tb.Graph().as_default() as self._graph:
            self._images = tb.placeholder(tb.float32, [None, 28, 28, 1])
            self._probabilities = tb.nn.softmax(logits_of(self._images))
            self._names = [variable.op.name for variable in tb.global_variables()]

    def probabilities(self, members: Iterable[Values], images: Any) -> Any:
        """Probabilities `[members, examples, 10]`."""
        with tb.Session(graph=self._graph) as session:
            found = []
            for values in members:
                session.load_variables({name: values[name] for name in self._names})
                found.append(session.run(self._probabilities, {self._images: images}))
        return np.stack(found)

    def export(self, folder: Path, values: Values, member: Member) -> None:
        """Writes a member to a folder: graph and weights, as safetensors."""
        inputs, outputs = {"images": self._images}, {"probabilities": self._probabilities}
        tb.train.save_model(folder, inputs, outputs, values, member._asdict())


def accuracy(probabilities: Any, labels: Any) -> Any:
    """Share of right answers, over the last two axes `[examples, 10]`."""
    return (probabilities.argmax(-1) == labels).mean(-1)


def sweep(members: Sequence[Member], at_once: int, epochs: int, data: str | None, output: Path) -> Values:
    """Trains, evaluates and exports; returns the results that `sweep.json` has."""
    dataset = "digits" if data is None else "mnist"
    training, test = tb.data.load(dataset, data)
    held_out = np.arange(len(training)) % HELD_OUT == 0
    images, labels = training.images[~held_out], training.labels[~held_out]
    kept = replace(training, images=images, labels=labels)
    steps = epochs * (len(kept) // BATCH_SIZE)
    trained: list[Values] = []
    for first in range(0, len(members), at_once):
        group = members[first : first + at_once]
        values, losses = train(group, kept, steps)
        trained += values
        print(f"members {first} to {first + len(group) - 1}: last losses", losses[-20:].mean(0).round(4))
    classifier = Classifier()
    images, labels = training.batch(np.flatnonzero(held_out))
    chosen = int(accuracy(classifier.probabilities(trained, images), labels).argmax())
    classifier.export(output / "best", trained[chosen], members[chosen])
    images, labels = test.batch()
    probabilities = classifier.probabilities(trained, images)
    accuracies = accuracy(probabilities, labels)
    by_rate = []
    for rate in sorted({member.learning_rate for member in members}):
        own = [number for number, member in enumerate(members) if member.learning_rate == rate]
        ensemble = float(accuracy(probabilities[own].mean(0), labels))
        by_rate.append({"learning_rate": rate, "accuracies": accuracies[own].tolist(), "ensemble": ensemble})
    return {
        "dataset": dataset,
        "epochs": epochs,
        "steps": steps,
        "best": {**members[chosen]._asdict(), "accuracy": float(accuracies[chosen])},
        "ensemble_of_all": float(accuracy(probabilities.mean(0), labels)),
        "by_rate": by_rate,
    }


def show(results: Values) -> None:
    """Prints a table of accuracies."""
    print("learning rate   median  lowest highest  average of probabilities")
    for row in results["by_rate"]:
        each = row["accuracies"]
        figures = statistics.median(each), min(each), max(each), row["ensemble"]
        print(f"{row['learning_rate']:13g} ", *(f"{100 * figure:7.2f}" for figure in figures))
    best = results["best"]
    print(f"best member: rate {best['learning_rate']:g}, seed {best['seed']}: {100 * best['accuracy']:.2f} %")
    print(f"average of all members: {100 * results['ensemble_of_all']:.2f} %")


def draw(results: Values, file: Path) -> None:
    """Draws accuracy over learning rate, with a band over the seeds."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: matplotlib is not installed; pip install 'tensorbow[plot]'")
        return
    rates = [row["learning_rate"] for row in results["by_rate"]]
    each = np.array([row["accuracies"] for row in results["by_rate"]]) * 100
    ensembles = [100 * row["ensemble"] for row in results["by_rate"]]
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.fill_between(rates, each.min(1), each.max(1), color="#1f5fa8", alpha=0.2, label="range of the seeds")
    axes.plot(rates, np.median(each, 1), "o-", color="#1f5fa8", label="median of the seeds")
    axes.plot(rates, ensembles, "s--", color="#d9622b", label="average of their probabilities")
    axes.set_xscale("log")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set_xlabel("learning rate")
    axes.set_ylabel("test accuracy, %")
    epochs = f"{results['epochs']} epoch{'s' * (results['epochs'] > 1)}"
    axes.set_title(f"{results['dataset']}, {each.size} members, {epochs}, b={BATCH_SIZE}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e3e3e3")
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)
    print(f"wrote {file}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sweep with the options of a command line, by default those of this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; default: handwritten digits")
    parser.add_argument("--epochs", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--learning-rates", type=float, nargs="+", default=RATES, help="default: eight, 0.0001 to 0.03"
    )
    parser.add_argument("--seeds", type=int, default=8, help="members of each learning rate; default: 8")
    parser.add_argument("--at-once", type=int, default=64, help="replicas trained side by side; default: 64")
    parser.add_argument("--output", type=Path, default=Path("runs/sweep"), help="default: runs/sweep")
    options = parser.parse_args(arguments)
    if min(options.epochs, options.seeds, options.at_once, *options.learning_rates) <= 0:
        parser.error("epochs, seeds, --at-once and learning rates must be above 0")
    members = [Member(rate, seed) for rate in options.learning_rates for seed in range(options.seeds)]
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        results = sweep(members, options.at_once, options.epochs, options.data_dir, options.output)
        show(results)
        (options.output / "sweep.json").write_text(json.dumps(results, indent=1) + "\n")
        draw(results, options.output / "accuracy.png")
    except tb.TensorBowError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except OSError as error:
        why = f"cannot write {error.filename}: {error.strerror}; give another folder by --output"
        parser.exit(2, f"{parser.prog}: error: {why}\n")


if __name__ == "__main__":
    main()
