"""Draws the pictures of "Why averaging works" from runs of some seconds, and the README's picture.

    python docs/pictures/averaging.py      (with the extras data and plot; writes *-light.svg, *-dark.svg)

Each picture is drawn once for pages on white and once for dark pages, on a transparent ground.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tensorbow as tb

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
THEMES = {
    "light": {"ink": "#24292f", "faint": "#8c959f", "lines": "#d0d7de"},
    "dark": {"ink": "#d7dde3", "faint": "#8b949e", "lines": "#3d444d"},
}
CENTRAL = "#e5534b"
CONTESTANTS = {"TensorBow": "#3a8fd6", "PyTorch": "#f0883e", "JAX": "#57ab5a"}
REPLICAS = ["#3a8fd6", "#57ab5a", "#c69026", "#986ee2"]

pyplot.rcParams |= {
    "font.size": 11,
    "svg.hashsalt": "tensorbow",
    "svg.fonttype": "path",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw(
    name: str, size: tuple[float, float], panels: int, fill: Callable[[Any, dict[str, str]], None]
) -> None:
    """Writes a picture for both themes; `fill` draws it into its axes."""
    for theme, colours in THEMES.items():
        style = {
            "text.color": colours["ink"],
            "axes.labelcolor": colours["ink"],
            "axes.edgecolor": colours["faint"],
            "xtick.color": colours["ink"],
            "ytick.color": colours["ink"],
        }
        with matplotlib.rc_context(style):
            figure, axes = pyplot.subplots(1, panels, figsize=size, layout="constrained")
            fill(axes, colours)
            save(figure, HERE / f"{name}-{theme}.svg")


def save(figure: Figure, path: Path) -> None:
    """Writes the figure without a date, so that the same runs give the same file."""
    figure.savefig(path, transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    print(path)


# Paths of two weights --------------------------------------------------------------------------------

ROUNDS, SHOWN = 600, 70
TRUTH = np.array([1.0, 2.0], np.float32)


def noisy_line(examples: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [examples, 2] and targets [examples] of a linear function with much noise."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(examples, 2)).astype(np.float32) * np.array([1.0, 0.55], np.float32)
    return inputs, inputs @ TRUTH + rng.normal(size=examples).astype(np.float32) * 1.2


def paths(replicas: int, sync: str, batch_size: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The two weights after each round: of all replicas [rounds, replicas, 2], and of z [rounds, 2]."""
    inputs, targets = noisy_line()
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=replicas, sync=sync)
    with replicator.context():
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.12))

    def step_fn(x: Any, y: Any) -> Any:
        w = tb.get_variable("w", initializer=np.array([-1.4, -1.2], np.float32))
        loss = tb.reduce_mean(tb.square(tb.reduce_sum(x * w, 1) - y))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)

    def input_fn(replica_id: int) -> Iterator[Any]:
        rng = np.random.default_rng(replica_id + 10)
        while True:
            chosen = rng.integers(0, len(inputs), batch_size)
            yield inputs[chosen], targets[chosen]

    own, central = [], []
    for _ in replicator.train(step_fn, input_fn, rounds, steps_per_launch=1):
        own.append([replicator.replica_values(i)["w"] for i in range(replicas)])
        central.append(np.mean(own[-1], 0) if sync == "none" else replicator.central_values()["w"])
    return np.array(own), np.array(central)


def landscape(axis: Axes, colours: dict[str, str]) -> None:
    """Contours of the mean squared error over the two weights."""
    inputs, targets = noisy_line()
    first, second = np.meshgrid(np.linspace(-1.8, 2.6, 120), np.linspace(-1.6, 4.1, 120))
    errors = np.mean(
        np.square(first[..., None] * inputs[:, 0] + second[..., None] * inputs[:, 1] - targets), axis=-1
    )
    levels = errors.min() + np.array([0.03, 0.12, 0.3, 0.6, 1.1, 1.9, 3.0, 4.6])
    axis.contour(first, second, errors, levels=levels, colors=colours["lines"], linewidths=1)
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    axis.plot(*best, "+", color=colours["ink"], markersize=11, markeredgewidth=2, zorder=5)
    axis.set(xticks=[], yticks=[], xlabel="weight 1", ylabel="weight 2")


def trails(axis: Axes, own: np.ndarray, central: np.ndarray | None, colours: dict[str, str]) -> None:
    """One line for each replica, and a wide one for z."""
    landscape(axis, colours)
    own = own[:SHOWN]
    for number in range(own.shape[1]):
        axis.plot(*own[:, number].T, color=REPLICAS[number], linewidth=0.9, alpha=0.75)
        axis.plot(*own[-1, number], "o", color=REPLICAS[number], markersize=4.5)
    if central is not None:
        central = central[:SHOWN]
        axis.plot(*central.T, color=CENTRAL, linewidth=2)
        axis.plot(*central[-1], "o", color=CENTRAL, markersize=7)


def draw_paths() -> tuple[np.ndarray, np.ndarray]:
    """The picture `paths`; returns the paths of averaged replicas."""
    alone = paths(1, "none", 2, ROUNDS)
    independent = paths(4, "none", 2, ROUNDS)
    averaged = paths(4, "sma", 2, ROUNDS)

    def fill(axes: Any, colours: dict[str, str]) -> None:
        trails(axes[0], alone[0], None, colours)
        trails(axes[1], independent[0], None, colours)
        trails(axes[2], *averaged, colours)
        titles = ("one model", "four independent models", "four replicas and z (red)")
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title, fontsize=11)
        for axis in axes[1:]:
            axis.set_ylabel("")

    draw("paths", (9.6, 3.5), 3, fill)
    best = np.linalg.lstsq(*noisy_line(), rcond=None)[0]
    settled = {"one": alone[0], "each averaged replica": averaged[0], "z": averaged[1]}
    for label, points in settled.items():
        distance = np.sqrt(np.mean(np.sum(np.square(points[100:] - best), -1)))
        print(f"rounds 101 to 600: distance from the minimum (root mean square): {label} {distance:.3f}")
    return averaged


# Accuracy of z and of the replicas, and the loss between two replicas ---------------------------------


class Digits:
    """A small network on the handwritten digits, trained by four replicas, and its test set."""

    def __init__(self, sync: str, rate: float, seeds: list[int] | None = None) -> None:
        self.train, self.test = tb.data.load("digits")
        self.replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=4, sync=sync, seeds=seeds)
        with self.replicator.context():
            tb.set_random_seed(0)
            self.optimizer = self.replicator.wrap_optimizer(tb.train.MomentumOptimizer(rate, 0.9))
        self.evaluation = tb.Graph()
        with self.evaluation.as_default():
            self.x, self.y = tb.placeholder(tb.float32, [None, 28, 28, 1]), tb.placeholder(tb.int64, [None])
            logits = self.logits(self.x)
            self.loss = self.loss_of(logits, self.y)
            right = tb.equal(tb.argmax(logits, 1), self.y)
            self.accuracy = tb.reduce_mean(tb.cast(right, tb.float32))
            self.session = tb.Session()

    @staticmethod
    def logits(images: Any) -> Any:
        """Logits [batch, 10] of a network with 64 hidden units."""
        with tb.variable_scope("net", reuse=tb.AUTO_REUSE):
            hidden = tb.layers.dense(tb.reshape(images, [-1, 784]), 64, tb.nn.relu, name="hidden")
            return tb.layers.dense(hidden, 10, name="out")

    @staticmethod
    def loss_of(logits: Any, labels: Any) -> Any:
        """Mean cross-entropy."""
        return tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def rounds(self, number: int, batch_size: int) -> Iterator[int]:
        """Trains; yields the number of each round."""

        def step_fn(images: Any, labels: Any) -> Any:
            loss = self.loss_of(self.logits(images), labels)
            with tb.control_dependencies([self.optimizer.minimize(loss)]):
                return tb.identity(loss)

        def input_fn(replica_id: int) -> Iterator[Any]:
            rng = np.random.default_rng(replica_id)
            while True:
                yield self.train.batch(rng.integers(0, len(self.train), batch_size))

        for count, _ in enumerate(self.replicator.train(step_fn, input_fn, number, steps_per_launch=1), 1):
            yield count

    def evaluate(self, values: dict[str, Any], data: Any = None) -> tuple[float, float]:
        """Loss and accuracy with these weights, on the test set or another one."""
        feeds = dict(zip((self.x, self.y), (data or self.test).batch(), strict=True))
        with self.evaluation.as_default():
            self.session.load_variables({v.op.name: values[v.op.name] for v in tb.trainable_variables()})
            loss, accuracy = self.session.run([self.loss, self.accuracy], feeds)
        return float(loss), float(accuracy)


def own_values(digits: Digits) -> list[dict[str, Any]]:
    """Weights of all replicas."""
    return [digits.replicator.replica_values(i) for i in range(4)]


def draw_accuracy() -> None:
    """The picture `accuracy`: test errors of z and of its replicas during training."""
    digits = Digits("sma", 0.02)
    steps, own, central = [], [], []
    for count in digits.rounds(480, 4):
        if count % 12 == 0:
            steps.append(count)
            own.append([100 - 100 * digits.evaluate(values)[1] for values in own_values(digits)])
            central.append(100 - 100 * digits.evaluate(digits.replicator.central_values())[1])
    errors = np.array(own)
    print(f"last ten checks: replicas {errors[-10:].mean():.2f} % wrong, z {np.mean(central[-10:]):.2f} %")

    def fill(axis: Axes, colours: dict[str, str]) -> None:
        for number, colour in enumerate(REPLICAS):
            label = "each of four replicas" if number == 0 else None
            axis.plot(steps, errors[:, number], color=colour, linewidth=1, alpha=0.8, label=label)
        axis.plot(steps, central, color=CENTRAL, linewidth=2.6, label="central model z")
        axis.set(xlabel="rounds (batches of 4)", ylabel="wrong on the test set, %", ylim=(0, 25))
        axis.grid(color=colours["lines"], linewidth=0.6)
        axis.legend()

    draw("accuracy", (9.0, 3.6), 1, fill)


def between(digits: Digits, positions: np.ndarray) -> list[float]:
    """Training loss on the straight line from the weights of one replica (at 0) to another's (at 1)."""
    first, second = own_values(digits)[:2]
    return [
        digits.evaluate({name: (1 - t) * first[name] + t * second[name] for name in first}, digits.train)[0]
        for t in positions.astype(np.float32)
    ]


def draw_line() -> None:
    """The picture `line`: the loss between two replicas, averaged and independent."""
    positions = np.linspace(-0.6, 1.6, 45)
    lines = {}
    for sync, seeds in (("sma", None), ("none", [1, 2, 3, 4])):
        digits = Digits(sync, 0.005, seeds)
        for count in digits.rounds(600, 4):
            if count == 600:
                lines[sync] = between(digits, positions)
    middle = len(positions) // 2
    for sync, losses in lines.items():
        ends = [losses[int(np.argmin(abs(positions - end)))] for end in (0, 1)]
        print(f"{sync}: loss at the replicas {ends[0]:.3f}, {ends[1]:.3f}, half-way {losses[middle]:.3f}")

    def fill(axes: Any, colours: dict[str, str]) -> None:
        titles = {"sma": "averaged every round", "none": "independent, from other initial values"}
        for axis, (sync, losses) in zip(axes, lines.items(), strict=True):
            axis.plot(positions, losses, color=REPLICAS[0], linewidth=2)
            for end in (0, 1):
                axis.axvline(end, color=colours["faint"], linewidth=1, linestyle=":")
            axis.set_title(titles[sync], fontsize=11)
            axis.set(xticks=[0, 0.5, 1], ylim=(0, 0.75))
            axis.set_xticklabels(["replica 1", "half-way", "replica 2"])
        axes[0].set_ylabel("training loss")

    draw("line", (8.6, 3.3), 2, fill)


# README ----------------------------------------------------------------------------------------------


def draw_overview(own: np.ndarray, central: np.ndarray) -> None:
    """The picture `overview`: four replicas around z, and the best times to 99 % of `one_cycle.py`."""
    cells = json.loads((RESULTS / "one_cycle.json").read_text())["details"]["summary"]
    best = {}
    for side in CONTESTANTS:
        times = [c["seconds"]["median"] for c in cells if c["side"] == side and c["seconds"]["median"]]
        if times:
            best[side] = min(times)
    print("seconds to 99 %", best)

    def fill(axes: Any, colours: dict[str, str]) -> None:
        trails(axes[0], own, central, colours)
        axes[0].set_title("four replicas, kept together by z (red)", fontsize=11)
        bars = [*best][::-1]
        colour = [CONTESTANTS[side] for side in bars]
        axes[1].barh(bars, [best[side] for side in bars], color=colour, height=0.6)
        for row, side in enumerate(bars):
            axes[1].text(best[side] + 0.2, row, f"{best[side]:.1f} s", va="center")
        axes[1].set_title("LeNet to 99 % on MNIST, two cores", fontsize=11)
        axes[1].set(xticks=[], xlim=(0, max(best.values()) * 1.18))
        axes[1].spines[["bottom", "left"]].set_visible(False)
        axes[1].tick_params(left=False)

    draw("overview", (9.6, 3.1), 2, fill)


def main() -> None:
    """Draws all pictures."""
    draw_overview(*draw_paths())
    draw_accuracy()
    draw_line()


if __name__ == "__main__":
    main()
