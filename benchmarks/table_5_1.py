"""Models, and the size and memory of one replica of each (TensorBow thesis, table 5.1).

    python benchmarks/table_5_1.py [--small] [--data-dir DIR] [--output FOLDER]

For every model of the library, from its compiled training step: parameters, size of the model (weights and
moving averages), operations of the step's graph, kernel calls after fusion and the launches that make them,
memory of a replica, and the planned memory of its intermediate tensors against the lower bound, the largest
sum of live bytes. `allocated` is the largest growth that tracemalloc sees in 20 launches of a bound step
after warm-up, memory of NumPy and Python; a tensor-sized value there would be a bug.

MNIST and CIFAR-10 are counted where their files are in `--data-dir` or TENSORBOW_DATA. The thesis gives LeNet
and ResNet-32 in units of 2^20 bytes, logistic regression in units of 10^6; both are shown.
"""

from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import CONTESTANTS, SIZES, finish_axes, finish_figure, lighter
from experiments import case_of
from harness import CPU, parser, save
from ours import LEARNING_RATE, MOMENTUM, image_shape, made_up_data
from results_page import Table

import tensorbow as tb
from scheduler import Synchronisation
from scheduler.averaging.synchronisers import Synchroniser, averaging
from scheduler.replicas.device_plans import DevicePlans
from scheduler.replicas.step_program import StepProgram
from scheduler.training.models.classifier_step import build_program
from tensorbow.compiler import Binding, VariableLayout
from tensorbow.compiler.prune import prune
from tensorbow.devices import Device, get_device
from tensorbow.errors import NotFoundError
from tensorbow.kernels import backend_for
from tensorbow.models import MODELS, get_model
from tensorbow.pictures import GREY
from tensorbow.program import Region, SegmentKind
from tensorbow.runtime import Container

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "table_5_1"
IN_THE_THESIS = {"lenet": 4.24, "resnet32": 1.79, "logreg": 0.0314}  # MB
SMALL = ("logreg", "lenet", "resnet8", "resnet32")
WARM_LAUNCHES, COUNTED_LAUNCHES = 3, 20
REPLICAS, RESULTS = 2, 3  # on the device; memory of each replica, with two tasks launched ahead
PARTS = {  # of a replica's memory, by region
    "weights": Region.WEIGHTS,
    "gradients": Region.GRADIENTS,
    "optimiser": Region.SLOTS,
    "statistics": Region.STATISTICS,
    "intermediate tensors": Region.SLAB,
}
REGIONS = (*SIZES[:4], lighter(GREY, 0.4), SIZES[4])  # colours of the parts, and of the rest


def described(model: str, device_name: str = CPU[0]) -> dict[str, Any]:
    """Properties of a model's compiled step at its default batch size."""
    data, network = made_up_data(model), get_model(model)
    batch_size = network.defaults.batch_size
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        program = build_program(network, data, MOMENTUM, LEARNING_RATE, 0.0)
    device = get_device(device_name)
    plans = DevicePlans(program, program.specs(batch_size), device, Synchronisation(), REPLICAS, RESULTS)
    step = plans.step
    layout = VariableLayout.of_graph(program.graph)
    refs = layout.refs().values()
    elements = {
        region: sum(math.prod(ref.shape) for ref in refs if ref.region is region)
        for region in (Region.WEIGHTS, Region.STATISTICS)
    }
    nbytes = sum(ref.nbytes for ref in refs if ref.region in elements)
    own = [step.segments[place] for place in step.variants[averaging(0)]]
    segments = [segment for segment in own if segment.kind is SegmentKind.REPLICA]
    launches = [launch for segment in segments for launch in backend_for(device).launches(segment)]
    operations = prune([program.update, *(tensor.op for tensor in program.fetches)], program.inputs)
    parts = {name: step.region_nbytes.get(region, 0) for name, region in PARTS.items()}
    replica_nbytes = sum(plans.replica_blocks)
    return {
        "model": model,
        "batch_size": batch_size,
        "parameters": elements[Region.WEIGHTS],
        "statistics": elements[Region.STATISTICS],
        "model_nbytes": nbytes,
        "thesis_mb": IN_THE_THESIS.get(model),
        "operations": len(operations),
        "kernel_calls": sum(len(launch.groups) for launch in launches)
        or sum(len(s.groups) for s in segments),
        "launches": len(launches) or None,
        "replica_nbytes": replica_nbytes,
        "replica_parts_nbytes": {**parts, "input, output, other": replica_nbytes - sum(parts.values())},
        "central_nbytes": sum(plans.central_blocks(REPLICAS)),
        "slab_nbytes": step.peak_nbytes,
        "slab_lower_bound_nbytes": step.lower_bound_nbytes,
        "allocated_nbytes": allocated_nbytes(program, layout, batch_size, data, device),
    }


def allocated_nbytes(
    program: StepProgram,
    layout: VariableLayout,
    batch_size: int,
    data: tb.data.ImageDataset,
    device: Device,
) -> int:
    """Largest growth of the Python process's memory while a bound step is launched, in bytes."""
    executable = program.compile(program.specs(batch_size), layout, backend_for(device), Synchroniser())
    group = device.stream_group(f"{NAME} {batch_size}")
    container = Container(group)
    container.grow(layout.variables)
    container.load(program.initial_values())
    binding = Binding(executable, group, container.bases)
    batch = data.batch(np.arange(batch_size))
    binding.write(dict(zip(executable.inputs, batch, strict=True)), {})

    def launch(times: int) -> None:
        for _ in range(times):
            for segment in range(len(executable.segments)):
                binding.plan.launch(segment)

    launch(WARM_LAUNCHES)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    launch(COUNTED_LAUNCHES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    binding.close()
    container.close()
    group.close()
    return peak - before


def counted_examples(model: str, data_dir: str | None) -> dict[str, Any]:
    """Data set of a model's experiments, and its numbers of examples where its files are present."""
    name = "cifar10" if image_shape(model)[0] == 32 else "mnist"
    try:
        splits = tb.data.load(name, data_dir)
    except NotFoundError:
        return {"dataset": name, "training_examples": None, "test_examples": None, "input_nbytes": None}
    train, test = (len(split) for split in splits)
    picture_nbytes = math.prod(image_shape(model)) * np.dtype(np.float32).itemsize
    return {
        "dataset": name,
        "training_examples": train,
        "test_examples": test,
        "input_nbytes": train * picture_nbytes,
    }


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = result["details"]["rows"]
    sizes, memory = figure.subplots(1, 2, sharey=True)
    names = list(map(case_of, rows))
    in_mb = [row["model_nbytes"] / 1e6 for row in rows]
    thesis = [row["thesis_mb"] for row in rows]
    sizes.plot(in_mb, names, "o", color=CONTESTANTS["TensorBow"], markersize=7, label="TensorBow")
    style = {"markersize": 10, "markerfacecolor": "none", "color": CONTESTANTS["thesis"]}
    known = [(value, name) for value, name in zip(thesis, names, strict=True) if value is not None]
    sizes.plot(*zip(*known, strict=True), "s", label="the thesis", **style)
    beside = {"textcoords": "offset points", "va": "center", "fontsize": 8}
    for place, megabytes in enumerate(in_mb):
        sizes.annotate(f"{megabytes:.3g} MB", (megabytes, place), (9, 0), **beside)
    sizes.set_xscale("log")
    left = [0.0] * len(rows)
    for label, colour in zip(rows[0]["replica_parts_nbytes"], REGIONS, strict=True):
        widths = [row["replica_parts_nbytes"][label] / 2**20 for row in rows]
        memory.barh(names, widths, left=left, color=colour, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, mebibytes in enumerate(left):
        memory.annotate(f"{mebibytes:.3g} MiB", (mebibytes, place), (4, 0), **beside)
    finish_axes(sizes, "weights and moving averages", "MB (10^6 bytes), logarithmic", "")
    finish_axes(memory, "planned memory of a replica", "MiB", "")
    sizes.set_xlim(0.4 * min(in_mb), 12 * max(in_mb))
    sizes.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
    memory.set_xlim(right=1.3 * max(left))
    for axes in (sizes, memory):
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.4, -0.6)
    finish_figure(figure, "Models' size and memory", 0.4 * len(rows) + 1.8)


def table(details: dict[str, Any]) -> Table:
    columns = ["model", "parameters", "MB", "MiB", "thesis MB", "examples", "ops", "kernels", "launches"]
    columns += ["replica MiB", "slab MiB", "over the bound", "allocated B"]
    rows = [
        [
            case_of(row),
            row["parameters"],
            row["model_nbytes"] / 1e6,
            row["model_nbytes"] / 2**20,
            row["thesis_mb"],
            row["training_examples"] or "no files",
            row["operations"],
            row["kernel_calls"],
            row["launches"],
            row["replica_nbytes"] / 2**20,
            row["slab_nbytes"] / 2**20,
            f"{row['slab_nbytes'] / row['slab_lower_bound_nbytes'] - 1:.1%}",
            row["allocated_nbytes"],
        ]
        for row in details["rows"]
    ]
    return Table(columns, rows)


def main() -> None:
    arguments = parser(__doc__, NAME)
    arguments.add_argument("--data-dir", help="folder of the files of MNIST and CIFAR-10")
    options = arguments.parse_args()
    rows = []
    for model in SMALL if options.small else MODELS:
        rows.append({**described(model, options.devices[0]), **counted_examples(model, options.data_dir)})
        print(f"{model}: compiled", flush=True)
    del options.data_dir  # a path on this machine
    details = {"rows": rows}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
