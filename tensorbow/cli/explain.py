"""`tensorbow explain`."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.status import Status

from allocators import format_nbytes
from scheduler import TrainingConfig, build_program
from scheduler.replicas.device_plans import DevicePlans
from scheduler.replicas.memory import planned_nbytes
from scheduler.replicas.step_summary import DYNAMIC_PART, calls_of, dynamic_part_of, execution_of, mode_of
from scheduler.training.configuration.precision import PrecisionSetting
from scheduler.training.folders.run_data import load_data
from scheduler.training.folders.run_folder import CONFIG
from scheduler.training.models.model_inputs import summary_of
from scheduler.training.running.notices import ignored_options
from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import OptionValueError, say
from tensorbow.cli.options import MODELS_HELP, add_options, checked, config_option, given_options
from tensorbow.data import SEQUENCES, TrainingData, make_synthetic
from tensorbow.devices import Device, get_device
from tensorbow.graph import Graph
from tensorbow.kernels import backend_for
from tensorbow.models import ModelSummary
from tensorbow.program import Executable
from tensorbow.runtime import Explanation

PICTURES = {"cifar10": (32, 32, 3)}  # picture shapes of data sets whose pictures are not 28x28x1
MOST_KERNELS = 12  # kinds that are shown


@dataclass(frozen=True)
class Plans:
    """Plans compiled for one device: the step, the synchronisation (None without), and their memory.

    layers: of the model, with what each computes for an example.
    """

    layers: ModelSummary
    replicas: int
    step: Executable
    central: Executable | None
    replica_nbytes: int
    central_nbytes: int


EXAMPLES = (
    ("explain lenet", "Its layers, parameters and memory, and what each replica runs."),
    ("explain my_model.py:MyModel --data my_data.npz --replicas-per-gpu 4", "A model and data of your own."),
    ("explain resnet32 --full", "Every call of the compiled step."),
    ("explain --config runs/demo/config.yaml", "The step of a run."),
)


@click.command(cls=grouped(EXAMPLES), epilog=MODELS_HELP)
@click.argument("model", required=False, metavar="[MODEL]")
@add_options(
    TrainingConfig,
    *(
        "dataset",
        "data",
        "target",
        "ignore_columns",
        "task",
        "image_size",
        "batch_size",
        "replicas_per_device",
        "devices",
        "sync",
        "tau",
        "dispatch",
        "replica_mode",
        "compute",
        "recompute",
        "swap",
    ),
    "staleness",
    dataset="Only the size of its pictures is used; its files are not read.",
    devices="Shows the plan of the first.",
)
@config_option()
@click.option("--full", is_flag=True, help="Also show the plan: segments, order, addresses, reasons.")
@click.pass_context
def explain(context: click.Context, /, config_file: Path | None, full: bool, **_: Any) -> None:
    """Show the training step of MODEL: layers, memory, kernels, and with --full the compiled plan."""
    given = given_options(context)
    if os.path.isfile(os.path.join(str(given.get("model")), CONFIG)):  # false for what is no path at all
        raise OptionValueError(
            "MODEL: expected a model, as lenet or my_model.py:MyModel, got the folder of a run, "
            f"{given['model']}; --config {os.path.join(given['model'], CONFIG)} shows its step"
        )
    config = checked(given, config_file)
    for warning in ignored_options(config, names=given):
        say(warning)
    device = get_device(config.devices[0])
    with closing(PrecisionSetting([device], config.compute)):
        click.echo("\n".join(_explained(config, device, full)))


def _explained(config: TrainingConfig, device: Device, full: bool) -> list[str]:
    """The parts of the text."""
    with Console(stderr=True).status(f"building the graph of {config.source.name}") as status:
        plans = _compiled(config, device, status)
        parts = [_summary(config, plans, device), "", str(plans.layers), "", *_kernels(plans.step, device)]
    if not full:
        return [*parts, "\nsegments, order, addresses and reasons: add --full"]
    if (dynamic := dynamic_part_of(plans.step, device)) is not None:
        parts += [f"\n{DYNAMIC_PART}", str(dynamic)]
    parts += [
        f"\na learning task of {config.source.name}, batch {config.batch_size}",
        str(Explanation.of_device(plans.step.for_replica, device)),
    ]
    if plans.central is not None:
        what = f"the synchronisation of {plans.replicas} replicas, on a stream of its own"
        parts += [
            f"\n{what}{', followed by a sum over the devices' if len(config.devices) > 1 else ''}",
            str(Explanation.of_device(plans.central, device)),
        ]
    return parts


def _compiled(config: TrainingConfig, device: Device, status: Status) -> Plans:
    """Compiles the plans of one device, and computes their memory as the check before training does."""
    data: TrainingData
    if config.data is not None or config.dataset in SEQUENCES:
        data = load_data(config).train
    else:
        height, width, channels = PICTURES.get(str(config.dataset), (28, 28, 1))
        data, _ = make_synthetic(10, 10, height=height, width=width, channels=channels)
    replicas = config.replica_counts[0]
    graph = Graph()
    with graph.as_default():
        program = build_program(
            config.source,
            data,
            config.momentum,
            0.01,
            config.weight_decay,
            model_options=config.model_options,
            recompute=config.recompute,
            swap=config.swap,
        )
    status.update(f"planning {len(graph.get_operations()):,} operations of {config.source.name}")
    batch = config.batch_size
    shapes = data.batch_specs(batch)
    kept = config.results_kept
    plans = DevicePlans(program, shapes, device, config.synchronisation, config.replicas, kept)
    return Plans(
        summary_of(config.source, config.model_options, data),
        replicas,
        plans.step,
        plans.step.for_device(0, replicas) if plans.step.shares_memory else None,
        planned_nbytes(plans.replica_blocks),
        planned_nbytes(plans.central_blocks(replicas)),
    )


def _kernels(step: Executable, device: Device) -> list[str]:
    """Lines on the kernels of a replica's step: the calls of each op, the most frequent first."""
    explained = Explanation.of_device(step.for_replica, device).executable
    calls = Counter(group.definition.name for segment in explained.segments for group in segment.groups)
    shown, others = calls.most_common(MOST_KERNELS), len(calls) - MOST_KERNELS
    width = max((len(op) for op, _ in shown), default=0)
    lines = [f"kernel calls of a step of a replica: {calls.total():,}"]
    lines += [f"  {op:<{width}} {number:>6,}" for op, number in shown]
    return [*lines, f"  and {others} more kinds"] if others > 0 else lines


def _summary(config: TrainingConfig, plans: Plans, device: Device) -> str:
    """Summary of replicas, synchronisation and memory, in a few lines."""
    step = plans.step
    slack = step.peak_nbytes / step.lower_bound_nbytes - 1 if step.lower_bound_nbytes else 0.0
    per_device = plans.replicas * plans.replica_nbytes + plans.central_nbytes
    there = device.memory.limit_nbytes
    wanting = f"; {device.name.short} has only {format_nbytes(there)}" if per_device > there else ""
    name, batch = config.source.name, config.batch_size
    lines = [
        f"{name}, batch {batch}: {_replicas_by_device(config)}; {_rhythm(config, plans)}",
        f"  memory of a replica  {plans.replica_nbytes:>15,} bytes",
        f"  z and its inputs     {plans.central_nbytes:>15,} bytes",
        f"  the first device     {per_device:>15,} bytes ({format_nbytes(per_device)}), without the batches"
        f"{wanting}",
        f"  peak of a step       {step.peak_nbytes:>15,} bytes of intermediate values and scratch; "
        f"lower bound {step.lower_bound_nbytes:,} ({slack:.1%} above)",
        f"  kernels: {backend_for(device).title}",
        *(f"  {line}" for line in execution_of(step)),
        *(f"  {line}" for line in mode_of(step, device, config.synchronisation, config.replicas)),
        *(f"  {line}" for line in calls_of(step, device)),
    ]
    return "\n".join(lines)


def _replicas_by_device(config: TrainingConfig) -> str:
    """Number of replicas on each device, as text."""
    parts = [
        f"{count} on {device}" for count, device in zip(config.replica_counts, config.devices, strict=True)
    ]
    return f"{' and '.join(parts)} ({config.replicas} replicas)"


def _rhythm(config: TrainingConfig, plans: Plans) -> str:
    """Segments with which a step ends, as text."""
    if plans.central is None:
        return "nothing is averaged"
    if config.sync == "ssgd":
        return "every step ends with 'update, mean gradient'"
    if config.synchronisation.first_come:
        steps = config.tau * config.replicas
        return f"every step ends with 'update', and after {steps} steps 'averaging' follows on every replica"
    if config.tau == 1:
        return "every step ends with an 'update, averaging'"
    return f"one step in {config.tau} ends with an 'update, averaging', the others with 'update'"
