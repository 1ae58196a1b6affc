"""Best fit with coalescing against one driver call per tensor (TensorBow thesis, figure 4.2: a factor of 4).

    python benchmarks/fig_4_2.py [--devices gpu:0] [--data FOLDER] [--small] [--output FOLDER]

The trace is that of real training steps of LeNet and ResNet-32: every output tensor of an op of the compiled,
unfused step is allocated before the op and freed after its last use, except where the op works in place.
Every eighth step has a smaller batch, like the last one of an epoch. (A planned step of the product makes
none of these calls, since it works in one slab: the trace is that of op-by-op execution.)

Without a GPU the driver is simulated: it hands out addresses and counts its calls, each of which is assumed
to take 10 microseconds to 1 millisecond. A cudaFree waits until the device is idle, so nothing overlaps, and
a step takes compute time + bookkeeping of the allocator (both measured here) + calls x cost. The compute time
is that of the native step of one replica on this CPU; the faster the device, the larger the factor.

With a GPU, the same traces also run on it, with cudaMalloc and cudaFree and with best fit. With
`--devices gpu:0` computing is timed on it as well, and the picture has the thesis's panels: (a) test accuracy
against epochs with both allocators, of LeNet on digits or on MNIST in FOLDER, and (b) images per second of
steps that allocate as the traces do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from drawing import MODELS, draw_baseline, finish_axes, finish_figure
from experiments import TITLES, case_of
from harness import CPU, Window, interleave, on_gpus, paced, parser, save
from learning_rates import chosen_rate
from ours import LEARNING_RATE, MOMENTUM, made_up_data, training_window
from results_page import Table
from time_to_accuracy import CHECK, Goal, Replicas, RunSetting, add_goal_options, course, goal_of

import tensorbow as tb
from allocators import Allocation, Allocator, BestFitAllocator, DriverAllocator, VirtualSource
from scheduler.averaging.synchronisers import Synchroniser
from scheduler.training.models.classifier_step import build_program
from tensorbow.compiler import VariableLayout
from tensorbow.devices import GpuDevice, gpu_status
from tensorbow.devices.cuda_runtime import CudaRuntime
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.models import get_model
from tensorbow.pictures import BLUE, GOLD
from tensorbow.program import Executable, Ref, Region

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_4_2"
CASES = (("lenet", 16, 5), ("resnet32", 4, 3))  # model, batch size, batch size of every eighth step
PERIOD = 8  # steps
DRIVER_US = (10, 20, 50, 100, 200, 500, 1000)  # per call
IN_THE_THESIS = 4.0
EPOCHS, SMALL_EPOCHS = 5.0, 1.0  # of panel (a)
TENSORS = (Region.SLAB, Region.GRADIENTS)
ALLOCATORS: dict[str, type[Allocator]] = {"best fit": BestFitAllocator, "driver calls": DriverAllocator}
ON_GPU = {"best fit": "bfc", "driver calls": "cuda_malloc"}


@dataclass(frozen=True)
class Event:
    """Allocation of a tensor, or its release where nbytes is None."""

    tensor: int
    nbytes: int | None


Trace = list[Event]


def trace_of(model: str, batch_size: int) -> Trace:
    """Allocations and frees of one training step, in order."""
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        program = build_program(get_model(model), made_up_data(model), MOMENTUM, LEARNING_RATE, 0.0)
    layout = VariableLayout.of_graph(program.graph)
    return events_of(program.compile(program.specs(batch_size), layout, ReferenceBackend(), Synchroniser()))


def events_of(step: Executable) -> Trace:
    """See `trace_of`. A tensor is identified by its buffer from the op that writes it to its last use."""
    groups = [group for segment in step.segments for group in segment.groups]
    at: dict[tuple[Region, int], int] = {}  # the tensor that is stored at an address now
    nbytes: list[int] = []
    first: list[int] = []
    last: list[int] = []

    def key(ref: Ref) -> tuple[Region, int]:
        return ref.region, ref.offset

    for place, group in enumerate(groups):
        used = {at[key(ref)] for ref in group.inputs if key(ref) in at}
        for ref in group.outputs:
            if ref.region not in TENSORS or not ref.nbytes or at.get(key(ref)) in used:
                continue  # a variable, an empty tensor, or one in the memory of an input
            at[key(ref)] = len(nbytes)
            nbytes.append(ref.nbytes)
            first.append(place)
            last.append(place)
        for tensor in used:
            last[tensor] = place
    for ref in step.fetch_sources:
        if key(ref) in at:
            last[at[key(ref)]] = len(groups) - 1
    events: Trace = []
    for place in range(len(groups)):
        events += [Event(tensor, nbytes[tensor]) for tensor in range(len(nbytes)) if first[tensor] == place]
        events += [Event(tensor, None) for tensor in range(len(nbytes)) if last[tensor] == place]
    return events


def follow(allocator: Allocator, trace: Trace, on_event: Callable[[], None] | None = None) -> None:
    """Replays a trace; on_event is called after each event."""
    held: dict[int, Allocation | None] = {}
    for event in trace:
        if event.nbytes is None:
            allocator.free(held.pop(event.tensor))
        else:
            held[event.tensor] = allocator.allocate(event.nbytes, owner="step")
        if on_event is not None:
            on_event()


def steps_of(full: Trace, smaller: Trace) -> list[Trace]:
    """Traces of the steps of one period, of which the last has the smaller batch."""
    return [full] * (PERIOD - 1) + [smaller]


class Contestant:
    """Allocator over a simulated driver that replays steps of a trace; a `Window` of steps per second."""

    def __init__(self, kind: type[Allocator], steps: Sequence[Trace]):
        self.source = VirtualSource()
        self.allocator = kind(self.source, name="trace")
        self._steps = steps
        self.periods = 0
        self.window: Window = paced(self._run, len(steps), 1.0)
        self._run(1)
        self.first_calls = self._calls()  # of the first period, when best fit grows
        self.periods = 0

    def _calls(self) -> int:
        return self.source.num_allocate_calls + self.source.num_free_calls

    def _run(self, periods: int) -> None:
        for _ in range(periods):
            for trace in self._steps:
                follow(self.allocator, trace)
        self.periods += periods

    def facts(self) -> dict[str, Any]:
        """Driver calls per step after warm-up, size of the pool, and its fragmentation."""
        figures = self.allocator.statistics()
        calls_per_step = (self._calls() - self.first_calls) / (self.periods * len(self._steps))
        seen: list[float] = []
        for trace in self._steps[-2:]:
            follow(self.allocator, trace, lambda: seen.append(self.allocator.statistics().fragmentation))
        return {
            "driver_calls_of_first_steps": self.first_calls,
            "driver_calls_per_step": calls_per_step,
            "largest_fragmentation": round(max(seen), 3),
            "pool_nbytes": max(figures.pool_nbytes, figures.peak_nbytes),
        }


def simulated(
    model: str,
    batch_size: int,
    steps: Sequence[Trace],
    seconds: float,
    windows: int,
    devices: tuple[str, ...] = CPU,
) -> dict[str, Any]:
    """Measurements of both allocators on a model's steps, and the step time at each driver cost."""
    contestants = {name: Contestant(kind, steps) for name, kind in ALLOCATORS.items()}
    with training_window(model, batch_size, 1, sync="none", devices=devices) as training:
        parties: dict[str, Window] = {name: one.window for name, one in contestants.items()}
        rates = interleave({**parties, "computing": training}, seconds, windows)
    computing_us = 1e6 * batch_size / rates["computing"].median
    memory = {
        name: {"bookkeeping_us_per_step": 1e6 / rates[name].median, **one.facts()}
        for name, one in contestants.items()
    }
    by_cost = []
    for cost in DRIVER_US:
        takes = {
            name: facts["bookkeeping_us_per_step"] + cost * facts["driver_calls_per_step"]
            for name, facts in memory.items()
        }
        by_cost.append(
            {
                "driver_us": cost,
                "memory_us_per_step": {name: round(spent, 2) for name, spent in takes.items()},
                "step_factor": (computing_us + takes["driver calls"]) / (computing_us + takes["best fit"]),
            }
        )
    for one in contestants.values():
        one.allocator.close()
    tensors = sum(event.nbytes is not None for event in steps[0])
    return {
        "model": model,
        "batch_size": batch_size,
        "tensors_per_step": tensors,
        "computing_us_per_step": round(computing_us, 1),
        "memory": memory,
        "by_driver_cost": by_cost,
    }


def on_gpu(
    runtime: CudaRuntime, row: dict[str, Any], steps: Sequence[Trace], seconds: float, windows: int
) -> dict[str, Any]:
    """Microseconds per step spent on memory alone on a real, otherwise idle GPU, by allocator.

    row: of `simulated`. Its time of computing gives the images per second of steps that allocate so.
    """
    model, computing_us = row["model"], row["computing_us_per_step"]
    spent: dict[str, float] = {}
    for name, allocator in ON_GPU.items():
        with GpuDevice("/gpu:0", runtime, allocator=allocator) as device:
            group = device.stream_group(f"{NAME} {model}")

            def run(periods: int, pool: Allocator) -> None:
                for _ in range(periods):
                    for trace in steps:
                        follow(pool, trace)

            window = paced(partial(run, pool=group.allocator), len(steps), 1.0)
            window(seconds)
            spent[name] = 1e6 / statistics.median(window(seconds) for _ in range(windows))
            group.close()
    rates = {name: 1e6 * row["batch_size"] / (computing_us + us) for name, us in spent.items()}
    found = {"model": model, "gpu": runtime.properties.name, "memory_us_per_step": spent}
    return {**found, "images_per_second": rates, "step_factor": rates["best fit"] / rates["driver calls"]}


def accuracies(runtime: CudaRuntime, goal: Goal) -> dict[str, list[list[float]]]:
    """Panel (a): [epochs, test accuracy] of LeNet, b=16, with each allocator on a GPU."""
    found = {}
    for name, allocator in ON_GPU.items():
        with GpuDevice("/gpu:0", runtime, allocator=allocator) as device:
            setting = RunSetting(16, chosen_rate(1, 16))
            checks = course(Replicas(setting, goal, 0, [device]), goal)["checks"]
        found[name] = [[check[CHECK.index(key)] for key in ("epochs", "test_accuracy")] for check in checks]
    return found


def same_for_both(found: dict[str, list[list[float]]]) -> bool:
    """True if the accuracies do not depend on the allocator."""
    first, *others = found.values()
    return all(other == first for other in others)


def draw_thesis_panels(
    figure: Figure, rows: list[dict[str, Any]], courses: dict[str, list[list[float]]]
) -> None:
    """Draws panels (a) and (b). rows: of `on_gpu`."""
    learning, speed = figure.subplots(1, 2)
    colours = dict(zip(ON_GPU, (BLUE, GOLD), strict=True))
    for (name, checks), style in zip(courses.items(), ("-", "--"), strict=True):
        epochs, accuracy = zip(*checks, strict=True)
        percent = [100 * value for value in accuracy]
        learning.plot(epochs, percent, style, color=colours[name], marker="o", markersize=4, label=name)
    learning.set_xlim(left=0)
    finish_axes(learning, "(a) LeNet, b=16", "epochs", "test accuracy [%]")
    width = 0.4
    for number, (name, colour) in enumerate(colours.items()):
        at = [place + width * (number - 0.5) for place in range(len(rows))]
        rates = [row["images_per_second"][name] for row in rows]
        speed.bar(at, rates, 0.92 * width, color=colour, label=name)
    speed.set_xticks(range(len(rows)), [TITLES[row["model"]] for row in rows])
    speed.set_yscale("log")
    finish_axes(speed, "(b) steps that allocate op by op", "", "images per second")
    finish_figure(figure, f"The thesis's figure 4.2 on {rows[0]['gpu']}", 4.2)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    details = result["details"]
    if "accuracies" in details:
        draw_thesis_panels(figure, details["on_gpu"], details["accuracies"])
        return
    memory, factors = figure.subplots(1, 2)
    for row in details["rows"]:
        colour = MODELS[row["model"]]
        title = case_of(row)
        costs = [point["driver_us"] for point in row["by_driver_cost"]]
        for name, style in zip(ALLOCATORS, ("-", "--"), strict=True):
            spent = [point["memory_us_per_step"][name] / 1e3 for point in row["by_driver_cost"]]
            memory.plot(costs, spent, style, color=colour, marker="o", markersize=4, label=f"{title}, {name}")
        ratios = [point["step_factor"] for point in row["by_driver_cost"]]
        computing = f"{row['computing_us_per_step'] / 1e3:.2g} ms of computing"
        factors.plot(costs, ratios, color=colour, marker="o", markersize=4, label=f"{title}, {computing}")
    draw_baseline(factors, details["thesis_factor"], f"the thesis, on a GPU: {IN_THE_THESIS:g}", "thesis")
    for axes in (memory, factors):
        axes.set_xscale("log")
        axes.set_yscale("log")
    cost = "microseconds per driver call, simulated"
    finish_axes(memory, "time for memory in a step", cost, "milliseconds per step", DRIVER_US)
    finish_axes(factors, "a step with driver calls against best fit", cost, "times as long", DRIVER_US)
    factors.set_ylim(bottom=0.9)
    for axes in (memory, factors):
        axes.tick_params(axis="x", labelsize=8)
        axes.legend(fontsize=8)
    figure.suptitle("Best fit with coalescing against one driver call per tensor")


def table(details: dict[str, Any]) -> Table:
    rows, remarks = [], []
    for row in details["rows"]:
        for cost in row["by_driver_cost"]:
            spent = (cost["memory_us_per_step"][name] for name in ALLOCATORS)
            rows.append([case_of(row), cost["driver_us"], *spent, cost["step_factor"]])
        for name, facts in row["memory"].items():
            remarks.append(
                f"{case_of(row)}, {name}: {row['tensors_per_step']} tensors a step, "
                f"{row['computing_us_per_step'] / 1e3:.2f} ms of computing, "
                f"{facts['bookkeeping_us_per_step']:.0f} us of bookkeeping, "
                f"{facts['driver_calls_per_step']:g} driver calls a step (first {PERIOD} steps: "
                f"{facts['driver_calls_of_first_steps']}), pool {facts['pool_nbytes'] / 2**20:.1f} MiB, "
                f"fragmentation up to {facts['largest_fragmentation']:.2f}."
            )
    for row in details.get("on_gpu", []):
        spent = ", ".join(f"{name} {us:,.0f} us a step" for name, us in row["memory_us_per_step"].items())
        factor = f"a step takes {row['step_factor']:.2f} times as long with driver calls (thesis: 4)"
        remarks.append(f"On {row['gpu']}, {TITLES[row['model']]}, memory alone: {spent}; {factor}.")
    if "accuracies" in details:
        same = "the same" if same_for_both(details["accuracies"]) else "different"
        last = ", ".join(f"{name} {checks[-1][1]:.2%}" for name, checks in details["accuracies"].items())
        remarks.append(f"Accuracies with both allocators are {same} (thesis: the same); at the end {last}.")
    columns = ["model", "us a driver call", *(f"{name}, us a step" for name in ALLOCATORS), "step, times"]
    return Table(columns, rows, remarks)


def main() -> None:
    made = parser(__doc__, NAME)
    add_goal_options(made)
    options = made.parse_args()
    seconds, windows = (0.1, 3) if options.small else (1.0, 7)
    traces = {
        (model, size): steps_of(trace_of(model, size), trace_of(model, less)) for model, size, less in CASES
    }
    rows = [
        simulated(model, size, steps, seconds, windows, options.devices)
        for (model, size), steps in traces.items()
    ]
    details: dict[str, Any] = {"thesis_factor": IN_THE_THESIS, "rows": rows}
    gpus = gpu_status()
    if gpus.runtimes:
        runtime = gpus.runtimes[0]
        pairs = zip(rows, traces.values(), strict=True)
        details["on_gpu"] = [on_gpu(runtime, row, steps, seconds, windows) for row, steps in pairs]
    else:
        print(f"\nnot on a GPU: {gpus.problem}")
    if on_gpus(options):
        goal = goal_of(options, SMALL_EPOCHS if options.small else EPOCHS).to_the_end()
        details["accuracies"] = accuracies(gpus.runtimes[0], replace(goal, checks=1))
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
