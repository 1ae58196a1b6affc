"""`tensorbow explain`."""

from __future__ import annotations

import click

from scheduler import TrainingConfig, build_program
from scheduler.averaging import central_executable
from tensorbow.compiler import VariableLayout
from tensorbow.data import make_synthetic
from tensorbow.devices import get_device
from tensorbow.graph import Graph
from tensorbow.kernels import Region, backend_for
from tensorbow.models import MODELS, get_model
from tensorbow.runtime import Explanation
from tensorbow.specs import TensorSpec, float32, int64

DEFAULTS = TrainingConfig()


@click.command()
@click.argument("model", metavar="{" + ",".join(MODELS) + "}")
@click.option(
    "--batch-size", default=DEFAULTS.batch_size, show_default=True, help="Examples per replica and step."
)
@click.option(
    "--replicas-per-gpu",
    "--replicas-per-device",
    "replicas",
    default=DEFAULTS.replicas_per_device,
    show_default=True,
    help="Replicas on the device.",
)
@click.option("--staleness", default=DEFAULTS.staleness, show_default=True, help="Averagings that z may lag.")
def explain(model: str, batch_size: int, replicas: int, staleness: int) -> None:
    """Show what a training step of MODEL is compiled to: segments, order, addresses, memory, reasons."""
    data, _ = make_synthetic(train_examples=10, test_examples=10)
    config = TrainingConfig(
        model=model, batch_size=batch_size, replicas_per_device=replicas, staleness=staleness
    )
    graph = Graph()
    with graph.as_default():
        program = build_program(get_model(model), data, DEFAULTS.momentum, 0.01, 0.0)
    device = get_device("/cpu:0")
    layout = VariableLayout.of_graph(graph)
    shapes = [TensorSpec((batch_size, *data.image_shape), float32), TensorSpec((batch_size,), int64)]
    slots = staleness + 1 if config.synchronisation.averages(replicas) else 0
    step = program.compile(shapes, layout, backend_for(device), slots)
    click.echo(f"a learning task of {model}, batch {batch_size}, one of {replicas} replicas")
    click.echo(str(Explanation(step, {}, str(device.name))))
    if slots:
        central = central_executable(layout, backend_for(device), replicas, slots)
        click.echo(f"\nthe synchronisation of {replicas} replicas, on a stream of its own")
        click.echo(str(Explanation(central, {}, str(device.name))))
    own = (Region.WEIGHTS, Region.GRADIENTS, Region.SLOTS, Region.STATISTICS, Region.SLAB, Region.INPUT)
    total = sum(step.region_nbytes.get(region, 0) for region in own)
    click.echo(f"\nmemory of a replica: {total:,} bytes")
