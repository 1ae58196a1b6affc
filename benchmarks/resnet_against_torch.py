"""Loss curve of averaged replicas of ResNet-32 on CIFAR-10 beside PyTorch's, with the same settings.

    python benchmarks/resnet_against_torch.py --data DIR [--rounds 500] [--output FOLDER] [--curves FILE]
    python benchmarks/resnet_against_torch.py --from-curves FILE [--output FOLDER]

PyTorch trains the same model from the same initial values on the same batches (order, crops and mirrored
pictures), with a few lines of synchronous model averaging written here. The two differ in the order of their
float32 sums, and training magnifies this difference until only the trend of the curves agrees. Therefore each
trains four times, after the first from initial values changed by one part in a million. The curves, smoothed
over 50 rounds, agree within noise when the mean of our runs is no further from the mean of PyTorch's than the
furthest of PyTorch's runs is from the mean of its other three, at the worst round and on average. The losses
of the first rounds of the first runs must agree one by one, within a tolerance that grows by the round.

Needs torch; matplotlib for the picture.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as functional
from drawing import CONTESTANTS, NotDrawableError, finish_axes, finish_figure, lighter
from experiments import TITLES
from harness import parser, positive_int, save
from results_page import MISSED, Table

import tensorbow as tb
from scheduler import RoundResults
from scheduler.training.models.classifier_step import build_program
from tensorbow.data import ImageDataset, Prefetcher
from tensorbow.models import get_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "resnet_against_torch"
WINDOW = 50  # rounds that a curve is smoothed over
RUNS, MOVED = 4, 1e-6  # of each, and the relative change of the initial values of all but the first
FIRST_TOLERANCE = (1e-4, 1e-2, 0.1)  # of the losses of the first rounds
SETTINGS = ("model", "batch_size", "seed")  # stored with the curves
MOMENTUM, BATCH_NORM_EPSILON = 0.9, 1e-5


Values = dict[str, Any]  # of variables by name


def moved(initial: Values, run: int) -> Values:
    """Initial values of a run: those given, of all runs but the first moved."""
    random, share = np.random.default_rng(run), MOVED if run else 0.0
    return {
        n: (v * (1 + share * random.standard_normal(v.shape))).astype(v.dtype) for n, v in initial.items()
    }


def ours(data: ImageDataset, options: argparse.Namespace) -> tuple[Any, Values, float]:
    """Losses [runs, rounds, replicas] of TensorBow, the initial values of the first run, and seconds."""
    model = get_model(options.model)
    rate = model.default_learning_rate(options.replicas)
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(options.seed)
        program = build_program(model, data, MOMENTUM, rate, model.defaults.weight_decay)
    initial = program.initial_values()
    losses = np.zeros((RUNS, options.rounds, options.replicas))
    started = time.perf_counter()
    for run in range(RUNS):
        batches = tb.DatasetBatches(data, options.batch_size, options.replicas, options.seed)
        with tb.LearningEngine(program, options.batch_size, options.devices, options.replicas) as engine:
            engine.initialize(moved(initial, run))

            def keep(results: RoundResults, run: int = run) -> None:
                round = results.rounds.start
                losses[run, round] = results.losses
                if round % 50 == 0:
                    print(
                        f"  tensorbow run {run}, round {round}: loss {losses[run, round, 0]:.4f}", flush=True
                    )

            engine.run(batches.open, 0, options.rounds, keep)
    return losses, initial, time.perf_counter() - started


class TorchReplica:
    """The same network in PyTorch, with tensors by the names of our variables."""

    def __init__(self, initial: dict[str, Any], model: str):
        self.blocks = get_model(model).blocks  # type: ignore[attr-defined]
        self.values = {n: torch.tensor(np.array(v)) for n, v in initial.items() if "/Momentum" not in n}
        self.weights = {n: t.requires_grad_() for n, t in self.values.items() if "moving" not in n}
        self.velocity = {n: torch.zeros_like(t) for n, t in self.weights.items()}

    def normalized(self, x: torch.Tensor, scope: str) -> torch.Tensor:
        value = {
            n: self.values[f"{scope}/norm/{n}"] for n in ("gamma", "beta", "moving_mean", "moving_variance")
        }
        return functional.batch_norm(
            x, value["moving_mean"], value["moving_variance"], value["gamma"], value["beta"],
            training=True, momentum=0.1, eps=BATCH_NORM_EPSILON,
        )  # fmt: skip

    def convolved(self, x: torch.Tensor, scope: str, stride: int) -> torch.Tensor:
        kernel = self.values[f"{scope}/conv/kernel"].permute(3, 2, 0, 1)
        size, extent = kernel.shape[-1], x.shape[-1]
        total = max(0, (-(-extent // stride) - 1) * stride + size - extent)  # SAME
        before, after = total // 2, total - total // 2
        return functional.conv2d(functional.pad(x, (before, after, before, after)), kernel, stride=stride)

    def loss(self, images: Any, labels: Any) -> torch.Tensor:
        x = torch.from_numpy(np.array(images)).permute(0, 3, 1, 2)
        x = functional.relu(self.normalized(self.convolved(x, "conv1", 1), "conv1"))
        for stage in (1, 2, 3):
            for block in range(1, self.blocks + 1):
                scope = f"stage{stage}_block{block}"
                stride = 2 if stage > 1 and block == 1 else 1
                y = functional.relu(
                    self.normalized(self.convolved(x, f"{scope}/conv1", stride), f"{scope}/conv1")
                )
                y = self.normalized(self.convolved(y, f"{scope}/conv2", 1), f"{scope}/conv2")
                if f"{scope}/projection/conv/kernel" in self.values:
                    x = self.normalized(
                        self.convolved(x, f"{scope}/projection", stride), f"{scope}/projection"
                    )
                x = functional.relu(x + y)
        logits = x.mean((2, 3)) @ self.values["fc/kernel"] + self.values["fc/bias"]
        return functional.cross_entropy(logits, torch.from_numpy(np.array(labels)))

    def step(self, images: Any, labels: Any, rate: float, decay: float) -> float:
        """The local update: v = momentum v + g + decay w; w -= rate v."""
        loss = self.loss(images, labels)
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
                if weight.ndim >= 2:
                    gradient = gradient + decay * weight
                velocity = self.velocity[name]
                velocity.mul_(MOMENTUM).add_(gradient)
                weight.sub_(velocity, alpha=rate)
        return float(loss.detach())


def theirs(data: ImageDataset, initial: Values, options: argparse.Namespace, run: int) -> tuple[Any, float]:
    """Losses [rounds, replicas] of PyTorch, and seconds; runs after the first start from perturbed values."""
    model = get_model(options.model)
    rate, decay = model.default_learning_rate(options.replicas), model.defaults.weight_decay
    start = moved(initial, run)
    replicas = [TorchReplica(start, options.model) for _ in range(options.replicas)]
    central = {n: torch.tensor(start[n]) for n in replicas[0].weights}
    batches = tb.DatasetBatches(data, options.batch_size, options.replicas, options.seed)
    losses = np.zeros((options.rounds, options.replicas))
    started = time.perf_counter()
    with Prefetcher(data, batches.order, options.replicas, max_rounds=options.rounds) as prefetcher:
        for round in range(options.rounds):
            before = [{n: w.detach().clone() for n, w in r.weights.items()} for r in replicas]
            for index, replica in enumerate(replicas):
                batch = prefetcher.take(index)
                losses[round, index] = replica.step(batch.images, batch.labels, rate, decay)
                prefetcher.release(batch)
            if len(replicas) > 1:
                average(replicas, before, central)
            if round % 50 == 0:
                print(f"  torch run {run}, round {round}: loss {losses[round, 0]:.4f}", flush=True)
    return losses, time.perf_counter() - started


def average(
    replicas: list[TorchReplica], before: list[dict[str, torch.Tensor]], central: dict[str, torch.Tensor]
) -> None:
    """c_i = alpha (s_i - z); w_i -= c_i; z += sum of c_i, with alpha = 1 / replicas and mu = 0."""
    with torch.no_grad():
        for name, z in central.items():
            corrections = [(old[name] - z) / len(replicas) for old in before]
            for replica, correction in zip(replicas, corrections, strict=True):
                replica.weights[name].sub_(correction)
            z.add_(sum(corrections))


def smoothed(curve: Any) -> Any:
    """Moving average over WINDOW rounds of the means over replicas."""
    width = min(WINDOW, len(curve))
    return np.convolve(curve, np.full(width, 1 / width), mode="valid")


def compare(mine: Any, torchs: Any) -> dict[str, Any]:
    """mine, torchs: [runs, rounds, replicas], the first runs from the same initial values."""
    ours, theirs = (np.stack([smoothed(run.mean(1)) for run in runs]) for runs in (mine, torchs))
    first = np.abs(mine[0] - torchs[0])[: len(FIRST_TOLERANCE)].max(1)
    distance = np.abs(ours.mean(0) - theirs.mean(0))
    of_runs = np.abs(ours - theirs.mean(0))
    others = [np.delete(theirs, index, 0).mean(0) for index in range(len(theirs))]
    noise = np.stack([np.abs(run - rest) for run, rest in zip(theirs, others, strict=True)])
    worst, mean = noise.max(1).max(), noise.mean(1).max()
    return {
        "first_rounds_difference": [float(f"{d:.3g}") for d in first],
        "first_rounds_agree": bool(np.all(first <= FIRST_TOLERANCE[: len(first)])),
        "worst_difference": round(float(distance.max()), 4),
        "mean_difference": round(float(distance.mean()), 4),
        "worst_of_runs": round(float(of_runs.max()), 4),
        "mean_of_runs": round(float(of_runs.mean(1).max()), 4),
        "worst_noise": round(float(worst), 4),
        "mean_noise": round(float(mean), 4),
        "last_loss": [round(float(run[-1]), 4) for run in ours],
        "torch_last_loss": [round(float(run[-1]), 4) for run in theirs],
        "within_noise": bool(distance.max() <= worst and distance.mean() <= mean),
    }


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws the losses; PyTorch's other runs start from values moved by 1e-6."""
    details = result["details"]
    if "curves" not in details:
        raise NotDrawableError("its result holds no curves; --from-curves stores them")
    axes = figure.subplots()
    runs = []
    for name, key in (("PyTorch", "torch"), ("TensorBow", "tensorbow")):
        first, *others = details["curves"][key]
        pale = lighter(CONTESTANTS[name], 0.45)
        labels = [f"{name}, start moved by {MOVED:g}", *[None] * len(others)]
        runs += [(label, pale, run) for label, run in zip(labels, others, strict=False)]
        runs.append((name, CONTESTANTS[name], first))
    seen: list[float] = []
    for label, colour, losses in runs:
        curve = smoothed(np.array(losses))
        rounds = np.arange(len(curve)) + len(losses) - len(curve)
        axes.plot(rounds, curve, color=colour, linewidth=1, label=label)
        seen += [curve.min(), curve.max()]
    setting = f"{details['replicas']} replicas, b={details['batch_size']}"
    finish_axes(axes, "", "round", "training loss, mean of the replicas")
    margin = 0.05 * (max(seen) - min(seen))
    axes.set_ylim(min(seen) - margin, max(seen) + margin)
    title = f"{TITLES[details['model']]} on CIFAR-10, {setting}"
    finish_figure(figure, title, 4.4, f"means of {WINDOW} rounds; the losses do not begin at 0")


def table(details: dict[str, Any]) -> Table:
    rows = [
        [whose, details[f"worst_{figure}"], details[f"mean_{figure}"]]
        for whose, figure in (
            ("mean of TensorBow's runs", "difference"),
            ("each of TensorBow's runs, at most", "of_runs"),
            ("each of PyTorch's runs from the others, at most", "noise"),
        )
    ]
    setting = f"{details['rounds']} rounds, {details['replicas']} replicas, b={details['batch_size']}"
    first = ", ".join(f"{difference:g}" for difference in details["first_rounds_difference"])
    last, torch_last = (
        ", ".join(f"{loss:g}" for loss in details[key]) for key in ("last_loss", "torch_last_loss")
    )
    within, agree = ("yes" if details[key] else MISSED for key in ("within_noise", "first_rounds_agree"))
    runs = f"{len(details['last_loss'])} runs of TensorBow, {len(details['torch_last_loss'])} of PyTorch"
    remarks = [
        f"{TITLES[details['model']]}, {setting}; {runs}; within noise: {within}.",
        f"Largest difference of a loss in the first rounds, one by one: {first}; within tolerance: {agree}.",
        f"The last losses of the runs: {last}; PyTorch's: {torch_last}.",
    ]
    return Table(["distance of the smoothed loss", "largest", "mean"], rows, remarks)


def main() -> None:
    made = parser(__doc__, NAME)
    made.add_argument(
        "--data", type=Path, help="folder of CIFAR-10; default: environment variable TENSORBOW_DATA"
    )
    made.add_argument("--model", default="resnet32")
    made.add_argument("--rounds", type=positive_int, help="rounds to train; default 500, small 20")
    made.add_argument("--replicas", type=positive_int, default=2)
    made.add_argument("--batch-size", type=positive_int, default=32)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--curves", type=Path, help="NumPy file to write all losses to, for --from-curves")
    made.add_argument("--from-curves", type=Path, help="read the losses from this file instead of training")
    options = made.parse_args()
    options.rounds = options.rounds or (20 if options.small else 500)
    seconds: dict[str, float] = {}
    if options.from_curves:
        saved = np.load(options.from_curves)
        if missing := [name for name in SETTINGS if name not in saved]:
            made.error(f"--from-curves: {options.from_curves} lacks {', '.join(missing)}; write it anew")
        mine, torchs = saved["tensorbow"], saved["torch"]
        _, options.rounds, options.replicas = mine.shape
        for name in SETTINGS:
            setattr(options, name, saved[name].item())
    else:
        data, _ = tb.data.load("cifar10", options.data)
        mine, initial, seconds["seconds"] = ours(data, options)
        runs, torch_seconds = zip(*(theirs(data, initial, options, run) for run in range(RUNS)), strict=True)
        torchs, seconds["torch_seconds"] = np.stack(runs), sum(torch_seconds)
    if options.curves:
        kept = {name: getattr(options, name) for name in SETTINGS}
        np.savez(options.curves, tensorbow=mine, torch=torchs, **kept)
    details = {
        **{key: getattr(options, key) for key in (*SETTINGS, "rounds", "replicas")},
        **{name: round(value, 1) for name, value in seconds.items()},
        **compare(mine, torchs),
        "curves": {
            "tensorbow": [run.mean(1).round(4).tolist() for run in mine],
            "torch": [run.mean(1).round(4).tolist() for run in torchs],
        },
    }
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
