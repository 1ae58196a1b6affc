"""Throughput of `replicator.train` with one and with several rounds a launch, beside the scheduler's engine.

    python benchmarks/replicator_launches.py [--small] [--output FOLDER]

Two replicas, averaged every round, train on made-up pictures, in turn: by the engine that `tensorbow train`
uses, with several rounds a launch and batches made from a data set that the device keeps, and by
`replicator.train`, with `steps_per_launch` 1 and `auto`, and with that data set or with arrays that a
generator draws from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import CONTESTANTS, WIDTH, grid_of, grouped
from experiments import case_of
from harness import LEARNING_RATE, MOMENTUM, Window, in_turn, interleave, paced, parser, save
from ours import CLASSES, made_up_data, training_window
from results_page import MISSED, Table

import tensorbow as tb
from tensorbow.pictures import GREY, LIMIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "replicator_launches"
CASES = (("logreg", 16, 64), ("lenet", 4, 16))  # model, batch size, rounds of a launch of the engine
REPLICAS = 2
INPUTS = ("data set", "arrays")
TARGET = 0.9  # of the engine's rate, with the data set
ENGINE = "engine"


def replicated(
    stack: ExitStack, model: str, batch_size: int, inputs: str, steps: int | str, devices: tuple[str, ...]
) -> Window:
    data = made_up_data(model)
    with tb.Graph().as_default():
        replicator = stack.enter_context(tb.MultiGpuReplicator(devices, REPLICAS))
        with replicator.context():
            tb.set_random_seed(1)
            optimizer = replicator.wrap_optimizer(tb.train.MomentumOptimizer(LEARNING_RATE, MOMENTUM))

        def arrays(replica_id: int) -> Iterator[Any]:
            rng = np.random.default_rng(replica_id)
            while True:
                yield data.batch(rng.integers(0, len(data), batch_size))

        def step(images: Any, labels: Any) -> Any:
            loss = tb.models.get_model(model)(images, labels, training=True, classes=CLASSES).loss
            with tb.control_dependencies([optimizer.minimize(loss)]):
                return tb.identity(loss)

        batches = tb.DatasetBatches(data, batch_size, REPLICAS, seed=1)
        given: Any = arrays if inputs == "arrays" else lambda: batches
        loop = replicator.train(step, given, steps_per_launch=steps)
        next(loop)
    stack.callback(loop.close)

    def run(rounds: int) -> None:
        for _ in range(rounds):
            next(loop)

    return paced(run, REPLICAS * batch_size)


def measured(
    model: str, batch_size: int, launch: int, seconds: float, windows: int, devices: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Row for each way: images/s, and median ratios in the same turn to one round a launch and the engine."""
    with ExitStack() as stack:
        engine = training_window(model, batch_size, REPLICAS, steps_per_launch=launch, devices=devices)
        ways: dict[tuple[str, int | str], Window] = {(ENGINE, launch): stack.enter_context(engine)}
        for inputs in INPUTS:
            for steps in (1, "auto"):
                ways[inputs, steps] = replicated(stack, model, batch_size, inputs, steps, devices)
        found = interleave(ways, seconds, windows)

    def ratio(way: tuple[str, int | str], other: tuple[str, int | str]) -> float:
        pairs = zip(found[way].samples, found[other].samples, strict=True)
        return round(float(np.median([ours / base for ours, base in pairs])), 3)

    return [
        {
            "model": model,
            "batch_size": batch_size,
            "inputs": way[0],
            "steps_per_launch": way[1],
            "images_per_second": rate.as_json(),
            "over_one": ratio(way, way if way[0] == ENGINE else (way[0], 1)),
            "over_engine": ratio(way, (ENGINE, launch)),
        }
        for way, rate in found.items()
    ]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    models = grouped(result["details"]["rows"], "model")
    figure.set_size_inches(WIDTH, 3.4)
    for axes, own in zip(grid_of(figure, len(models), 2), models, strict=True):
        names = [f"{row['inputs']}, {row['steps_per_launch']}" for row in own]
        ratios = [row["over_engine"] for row in own]
        colours = [GREY if row["inputs"] == ENGINE else CONTESTANTS["TensorBow"] for row in own]
        axes.barh(names, ratios, color=colours)
        for place, ratio in enumerate(ratios):
            beside = {"textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(f"{ratio:.2f}", (ratio, place), (3, 0), **beside)
        at = INPUTS.index("data set") * 2 + 2
        axes.plot(
            [TARGET], [at], "|", color=LIMIT, markersize=15, markeredgewidth=2, label=f"to reach: {TARGET:g}"
        )
        axes.invert_yaxis()
        axes.set_xlim(0, 1.18 * max(ratios))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("times the engine's images/s")
        axes.set_title(f"{case_of(own[0])}, {REPLICAS} replicas")
    figure.axes[0].set_ylabel("inputs, rounds a launch")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center")


def table(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["rows"]:
        is_target = row["inputs"] == INPUTS[0] and row["steps_per_launch"] == "auto"
        reached = None if not is_target else "yes" if row["over_engine"] >= TARGET else MISSED
        case = f"{row['model']} b={row['batch_size']}"
        rate = row["images_per_second"]["median"]
        way = f"{row['inputs']}, {row['steps_per_launch']}"
        rows.append([case, way, rate, row["over_one"], row["over_engine"], reached])
    columns = ["model", "inputs, rounds a launch", "images/s", "times one a launch", "times the engine"]
    return Table([*columns, f"at least {TARGET:g}"], rows, [details["windows"]])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.2, 3) if options.small else (1.0, 15)
    rows = [row for case in CASES for row in measured(*case, seconds, windows, options.devices)]
    details = {"rows": rows, "windows": in_turn(windows, seconds)}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
