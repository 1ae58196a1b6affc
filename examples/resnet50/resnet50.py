"""Trains ResNet-50 on made-up pictures of ImageNet's shapes, and measures how it scales over devices.

    python examples/resnet50/resnet50.py --devices cpu:0,cpu:1 --steps 5
    python examples/resnet50/resnet50.py --devices cpu:0,cpu:1,cpu:2,cpu:3 --scaling weak

With --scaling the replicas of 1, 2, 4, ... of the devices train side by side and take turns step by step, so
that a slow spell of the machine affects all alike:

  weak    each replica has --batch-size pictures, so that more devices train larger global batches
  strong  the global batch stays that of one device, --batch-size for each of its replicas, and is shared out

Virtual CPU devices are threads of the same cores: more of them than cores bring no speed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from resnet50_recipe import (
    CLASSES,
    LABEL_SMOOTHING,
    MOMENTUM,
    WARM_UP_EPOCHS,
    WEIGHT_DECAY,
    learning_rates,
    loss_of,
)
from resnet50_report import Measured, write_report

import tensorbow as tb

FOLDER = Path(__file__).resolve().parent / "results"
BATCHES = 2  # of each replica, drawn before training
WARM_UP_STEPS = 2  # not timed


class Training:
    """ResNet-50 on the replicas of some devices, ready to run steps. Use it with `with`.

    build_s: seconds to build the graph. init_s: to compile the step and make the replicas. first_step_s: for
    the first step.
    """

    def __init__(self, options: argparse.Namespace, devices: Sequence[str], batch_size: int):
        """batch_size: per replica. Raises ResourceExhaustedError for more memory than there is."""
        begun = time.perf_counter()
        with tb.Graph().as_default() as graph:
            tb.set_random_seed(options.seed)
            self.replicator = tb.MultiGpuReplicator(devices, options.replicas_per_device, options.sync)
            self.replicas = self.replicator.num_replicas
            self.devices, self.batch_size = len(devices), batch_size
            self.sync = self.replicator.synchronisation.sync
            self._losses = self._built(options)
        built = time.perf_counter()
        self._session = tb.Session(graph=graph)
        self.replicator.init(self._session)
        ready = time.perf_counter()
        self.build_s, self.init_s = built - begun, ready - built
        self.first_loss, self.first_step_s, _ = self.step()

    def _built(self, options: argparse.Namespace) -> tb.Tensor:
        averaged = self.replicas if self.sync == "ssgd" else 1  # batches behind each update
        pictures = averaged * self.batch_size
        rate = (
            options.learning_rate or 0.1 * pictures / 256
        )  # linear in the batch (Goyal et al., section 2.1)
        with self.replicator.context():
            optimizer = self.replicator.wrap_optimizer(
                tb.train.MomentumOptimizer(
                    learning_rates(rate, self.replicas * self.batch_size, options.warm_up_epochs),
                    MOMENTUM,
                    use_nesterov=True,
                    weight_decay=options.weight_decay,
                )
            )

        def step_fn(images: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
            logits = tb.models.ImageNetResNet(50).logits(images, options.classes, training=True)
            loss = loss_of(logits, labels, options.label_smoothing)
            with tb.control_dependencies(tb.get_collection(tb.GraphKeys.UPDATE_OPS)):
                update = optimizer.minimize(loss)
            with tb.control_dependencies([update]):
                return tb.identity(loss)

        def input_fn(replica_id: int) -> Iterator[tuple[Any, Any]]:
            draw = np.random.default_rng([options.seed, replica_id])
            shape = (self.batch_size, options.image_size, options.image_size, 3)
            drawn = [
                (draw.standard_normal(shape, np.float32), draw.integers(0, options.classes, self.batch_size))
                for _ in range(BATCHES)
            ]
            return itertools.cycle(drawn)

        return self.replicator.run(step_fn, input_fn)

    def step(self) -> tuple[float, float, float]:
        """Runs a step on all replicas; returns their mean loss, its seconds, and those of all cores."""
        begun, cpu_begun = time.perf_counter(), time.process_time()
        losses = self._session.run(self._losses)
        return float(losses.mean()), time.perf_counter() - begun, time.process_time() - cpu_begun

    def __enter__(self) -> Training:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.replicator.shutdown()
        self._session.close()


def device_counts(devices: int) -> list[int]:
    """1, 2, 4, ... up to the number of devices, and that number."""
    return sorted({*(2**power for power in range(devices.bit_length())), devices})


def batch_sizes(options: argparse.Namespace) -> dict[int, int]:
    """Batch size of a replica for each number of devices.

    Raises InvalidArgumentError when strong scaling does not divide it among the devices.
    """
    counts = device_counts(len(options.devices))
    if options.scaling == "weak":
        return dict.fromkeys(counts, options.batch_size)
    uneven = [count for count in counts if options.batch_size % count]
    if uneven:
        raise tb.errors.InvalidArgumentError(
            f"--scaling strong: expected a --batch-size that {', '.join(map(str, counts))} devices can "
            f"share, got {options.batch_size}; give a multiple of {math.lcm(*counts)}"
        )
    return {count: options.batch_size // count for count in counts}


def measured(options: argparse.Namespace) -> list[Measured]:
    """Timed steps of 1, 2, 4, ... devices in turn."""
    with ExitStack() as stack:
        trainings: list[Training] = []
        for count, batch_size in batch_sizes(options).items():
            training = stack.enter_context(Training(options, options.devices[:count], batch_size))
            trainings.append(training)
            print(_described(training), flush=True)
        taken: list[list[tuple[float, float, float]]] = [[] for _ in trainings]
        for turn in range(WARM_UP_STEPS + options.steps):
            order = [*range(len(trainings))]
            for number in order[turn % len(order) :] + order[: turn % len(order)]:
                taken[number].append(trainings[number].step())
        return [
            Measured(
                devices=training.devices,
                replicas=training.replicas,
                batch_size=training.batch_size,
                seconds=[seconds for _, seconds, _ in steps[WARM_UP_STEPS:]],
                cpu_seconds=[seconds for *_, seconds in steps[WARM_UP_STEPS:]],
                build_s=training.build_s,
                init_s=training.init_s,
                first_step_s=training.first_step_s,
            )
            for training, steps in zip(trainings, taken, strict=True)
        ]


def train(options: argparse.Namespace) -> list[float]:
    """Trains all devices for --steps steps, prints losses and speed, and returns the losses."""
    with Training(options, options.devices, options.batch_size) as training:
        print(_described(training), flush=True)
        losses = [training.first_loss]
        pictures = training.replicas * training.batch_size
        print(f"step 1: loss {losses[0]:.4f}", flush=True)
        for number in range(2, options.steps + 1):
            loss, took, _ = training.step()
            losses.append(loss)
            print(f"step {number}: loss {loss:.4f}, {pictures / took:.2f} images/s", flush=True)
    return losses


def _described(training: Training) -> str:
    return (
        f"devices {training.devices}, replicas {training.replicas}, batch size {training.batch_size}, sync "
        f"{training.sync}: graph {training.build_s:.1f} s, compilation and replicas {training.init_s:.1f} s, "
        f"first step {training.first_step_s:.1f} s"
    )


def parser_of_options() -> argparse.ArgumentParser:
    """Parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--devices", type=lambda text: text.split(","), default=["cpu:0"], help="such as gpu:0,gpu:1; cpu:0")
    add("--replicas-per-device", type=_positive, default=1, help="default: 1")
    add("--batch-size", type=_positive, default=4, help="pictures per replica and step (default: 4)")
    add("--image-size", type=_positive, default=224, help="height and width of a picture (default: 224)")
    add("--classes", type=_positive, default=CLASSES, help=f"default: {CLASSES}")
    add("--steps", type=_positive, default=10, help="steps to train, or to time per number of devices")
    add("--scaling", choices=("weak", "strong", "none"), default="none", help="default: none, training only")
    add("--sync", choices=("ssgd", "sma", "easgd", "none"), help="default: that of MultiGpuReplicator")
    add("--learning-rate", type=_not_negative, default=0.0, help="default: 0.1 for 256 pictures per update")
    add("--warm-up-epochs", type=_not_negative, default=WARM_UP_EPOCHS, help=f"default: {WARM_UP_EPOCHS}")
    add("--weight-decay", type=_not_negative, default=WEIGHT_DECAY, help=f"default: {WEIGHT_DECAY}")
    add("--label-smoothing", type=_not_negative, default=LABEL_SMOOTHING, help=f"default: {LABEL_SMOOTHING}")
    add("--seed", type=int, default=0, help="of initial values and pictures (default: 0)")
    add("--output", type=Path, default=FOLDER, help="folder for SCALING.json and SCALING.png")
    return parser


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def _not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program."""
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    try:
        if options.scaling == "none":
            train(options)
        else:
            load = os.getloadavg()[0]
            write_report(options, measured(options), load)
    except tb.TensorBowError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except OSError as error:
        why = f"cannot write {error.filename}: {error.strerror}; give another folder by --output"
        parser.exit(2, f"{parser.prog}: error: {why}\n")


if __name__ == "__main__":
    main()
