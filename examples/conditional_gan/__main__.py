"""Trains the GAN with several numbers of replicas, and writes scores and pictures of its samples.

    python -m examples.conditional_gan --replicas 1 2 4 --output runs/conditional_gan

The batch size is that of all replicas together, so that all runs take the same steps, up to rounding.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import tensorbow as tb
from examples.conditional_gan.quality import Classifier, frechet_distance
from examples.conditional_gan.training import ConditionalGan, balanced_samples, scaled

REFERENCE = 2000  # real images whose features samples are compared with


def main(arguments=None):
    """The program; `arguments` replace those of the command line. Returns the scores by replicas."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    try:
        return run(options)
    except tb.TensorBowError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except OSError as error:
        why = f"cannot write {error.filename}: {error.strerror}; give another folder by --output"
        parser.exit(2, f"{parser.prog}: error: {why}\n")


def run(options):
    """Trains with each number of replicas, and writes scores and, given matplotlib, pictures."""
    options.output.mkdir(parents=True, exist_ok=True)
    train, test = tb.data.load("mnist" if options.data_dir else "digits", options.data_dir)
    classifier = Classifier(scaled(train.images), train.labels, options.classifier_steps)
    real, _ = classifier.features_and_classes(scaled(train.images[:REFERENCE]))

    def scores(images, labels):
        features, classes = classifier.features_and_classes(images)
        accuracy = float(np.mean(classes == labels))
        return {"accuracy": accuracy, "frechet": frechet_distance(real, features)}

    held_out = scores(scaled(test.images[:REFERENCE]), test.labels[:REFERENCE])
    print(f"held-out images: accuracy {held_out['accuracy']:.1%}, distance {held_out['frechet']:.1f}")
    noise_and_labels = balanced_samples(options.samples)
    history, pictures = {"held_out": held_out}, {}
    for replicas in options.replicas:
        history[replicas] = []
        with tb.Graph().as_default():
            gan = ConditionalGan(replicator_of(replicas, options.devices), options.rates, options.seed)
            for step, losses, images in gan.train(
                train, options.batch_size, options.steps, options.sample_every, noise_and_labels, options.seed
            ):
                history[replicas].append({"step": step, **scores(images, noise_and_labels[1])})
                pictures[step] = images[:60]
                print(
                    "{} replicas, step {step}: losses {:.2f} {:+.2f}, accuracy {accuracy:.1%}, "
                    "distance {frechet:.1f}".format(replicas, *losses, **history[replicas][-1]),
                    flush=True,
                )
    classifier.close()
    (options.output / "scores.json").write_text(json.dumps(history, indent=1))
    if find_spec("matplotlib"):
        draw_curves(history, options.output / "curves.png")
        draw_samples(pictures, options.output / "samples.png")
    else:
        print("no pictures: matplotlib is not installed; pip install 'tensorbow[plot]'")
    return history


def positive(text):
    """A whole number of at least 1. Raises ValueError."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def parser_of_options():
    """Parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.conditional_gan",
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--replicas", type=positive, nargs="+", default=[1, 2, 4], help="numbers of replicas, of a run each")
    add("--devices", nargs="+", default=["/cpu:0"], help="the replicas are spread over these devices")
    add("--steps", type=positive, default=1500, help="updates of both networks")
    add("--batch-size", type=positive, default=64, help="examples per step, of all replicas together")
    add("--rates", type=float, nargs=2, default=(2e-3, 2e-3), help="learning rates: discriminator, generator")
    add(
        "--samples",
        type=positive,
        default=2000,
        help="images per score, divisible by each number of replicas",
    )
    add("--sample-every", type=positive, default=100, help="steps between two scores")
    add("--classifier-steps", type=positive, default=1500, help="steps of the classifier that scores")
    add("--seed", type=int, default=0, help="of initial values, batches and noise")
    add("--data-dir", type=Path, help="folder of MNIST's IDX files; without it, the digits of scikit-learn")
    add(
        "--output", type=Path, default=Path("runs/conditional_gan"), help="folder of scores.json and pictures"
    )
    return parser


def replicator_of(replicas, devices):
    """A Replicator whose replicas are spread evenly over devices, and step on the mean of their gradients."""
    devices = devices[:replicas]
    counts = [len(range(first, replicas, len(devices))) for first in range(len(devices))]
    return tb.MultiGpuReplicator(devices, counts, sync="ssgd")


def draw_curves(history, file):
    """Accuracy and distance over steps, a line for each number of replicas."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, score in zip(axes, ("accuracy", "frechet"), strict=True):
        for replicas, points in history.items():
            if replicas != "held_out":
                label = f"{replicas} replica{'s' * (replicas > 1)}"
                axis.plot([p["step"] for p in points], [p[score] for p in points], label=label, linewidth=1)
        axis.axhline(history["held_out"][score], color="grey", linestyle=":", label="held-out images")
        axis.set_xlabel("step")
    axes[0].set_ylabel("classifier's accuracy on samples")
    axes[1].set_ylabel("Fréchet distance of features")
    axes[1].set_yscale("log")
    axes[1].legend()
    figure.savefig(file, dpi=80)


def draw_samples(pictures, file):
    """Samples of the first, an early and the last step of the last run; a column for each class."""
    steps = sorted(pictures)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.1), layout="constrained")
    shown = steps[0], steps[round(len(steps) / 5)], steps[-1]
    for axis, step in zip(figure.subplots(1, 3), shown, strict=True):
        framed = np.pad(pictures[step][..., 0], [(0, 0), (1, 1), (1, 1)])
        grid = framed.reshape(-1, 10, 30, 30).swapaxes(1, 2).reshape(-1, 300)
        axis.imshow(grid, cmap="gray", vmin=-1, vmax=1)
        axis.set_title(f"step {step}")
        axis.axis("off")
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    main()
