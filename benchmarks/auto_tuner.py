"""Throughput with the auto-tuner's number of replicas beside fixed numbers (Crossbow, VLDB 2019, section 4).

    python benchmarks/auto_tuner.py [--small] [--windows N] [--output FOLDER]

For each case a training run with `--replicas-per-gpu auto` on one CPU device continues until the tuner has
decided. In the same process that run then takes turns with runs of 1, 2, 3 and 4 replicas and of every other
number that the tuner measured, with the defaults of `tensorbow train`: this gives the throughput in steady
state, at as many steps per launch as each run chooses. Two runs before it decide as well. Every number
chosen, and the tuned run itself, should be at most 5 % slower than the best fixed number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from drawing import Row, Series, draw_limit, draw_lines, finish_axes, finish_figure, grid_of
from experiments import TITLES, case_of
from harness import CPU, LEARNING_RATE, in_turn, interleave, parser, positive_int, save
from ours import CLASSES, image_shape
from paused_training import PATIENCE_S, Gate, PausedTraining
from results_page import MISSED, Table

from scheduler import TrainingConfig
from tensorbow.data import DATASETS, ImageDataset, make_synthetic, register_dataset
from tensorbow.pictures import BLUE, GOLD, GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "auto_tuner"
CASES = (("lenet", 4), ("lenet", 16), ("logreg", 16), ("resnet32", 4))
COUNTS = (1, 2, 3, 4)
TUNED = "the run that has tuned itself"
DECISIONS = 3
FLOOR = 0.95  # of the best fixed number's throughput
LONGEST_SECONDS, LONGEST_SMALL = 240.0, 30.0  # of tuning; the tuner then chooses from its measurements so far
MANY_EPOCHS = 100_000
EXAMPLES, TEST_EXAMPLES = 49_152, 16  # epochs as long as MNIST's, and evaluations that cost nothing


class UntilDecided(Gate):
    """Prints the progress of a run's tuner; holds the run at its windows only after the decision."""

    def __init__(self) -> None:
        super().__init__()
        self._decided = False

    def line(self, text: str) -> None:
        if "per device" in text:
            print(f"  {text}", flush=True)
        self._decided = self._decided or "from now on" in text

    def rounds(self, finished: int) -> None:
        if self._decided:
            super().rounds(finished)


def data_set_of(model: str) -> str:
    """Registers a data set of made-up pictures of a model's shape; returns its name."""
    name = f"made-up pictures for {model}"
    if name not in DATASETS:
        height, width, channels = image_shape(model)
        data = make_synthetic(
            EXAMPLES, TEST_EXAMPLES, height=height, width=width, channels=channels, classes=CLASSES
        )

        def loader(folder: object) -> tuple[ImageDataset, ImageDataset]:
            return data

        register_dataset(name, loader)
    return name


def run_of(model: str, batch_size: int, devices: tuple[str, ...] = CPU) -> TrainingConfig:
    """Configuration of a training run without an end, with defaults for all else."""
    return TrainingConfig(
        model=model,
        dataset=data_set_of(model),
        batch_size=batch_size,
        devices=tuple(name.strip("/") for name in devices),
        epochs=MANY_EPOCHS,
        learning_rate=LEARNING_RATE,
        learning_rate_drops=(),
    )


@contextmanager
def tuned(run: TrainingConfig, longest_seconds: float) -> Iterator[tuple[PausedTraining, dict[str, Any]]]:
    """Run that continues with the number of replicas it has chosen; the decision with its evidence."""
    # The tuner takes at most half of a run.
    config = replace(run, replicas_per_device="auto", max_seconds=2 * longest_seconds)
    gate = UntilDecided()
    started = time.perf_counter()
    with PausedTraining(config, gate) as training:
        gate.await_hold(2 * longest_seconds + PATIENCE_S)
        seconds = round(time.perf_counter() - started, 1)
        found = training.trainer.tuning
        assert found is not None
        yield training, {**found.to_dict(), "seconds": seconds}


def measured_in_turn(
    run: TrainingConfig, counts: list[int], tuned: PausedTraining, seconds: float, windows: int
) -> tuple[list[Row], Row]:
    """Row for each fixed number of replicas, and row of the tuned run; all of them train in turn.

    A row has the steps per launch and the images per second.
    """
    with ExitStack() as runs:
        training: dict[int | str, PausedTraining] = {
            count: runs.enter_context(PausedTraining(replace(run, replicas_per_device=count)))
            for count in counts
        }
        training[TUNED] = tuned
        measured = interleave(training, seconds, windows)
        steps = {name: each.steps_per_launch for name, each in training.items()}
    rows: dict[int | str, Row] = {}
    for name, rates in measured.items():
        rows[name] = {"steps_per_launch": steps[name], "images_per_second": rates.as_json()}
        what = name if name == TUNED else f"{name} fixed"
        print(f"  {what}: {rates.median:,.0f} images/s, {steps[name]} steps in a launch", flush=True)
    return [{"replicas": count, **rows[count]} for count in counts], rows[TUNED]


def judged(
    model: str,
    batch_size: int,
    longest_seconds: float,
    seconds: float,
    windows: int,
    decisions: int,
    devices: tuple[str, ...],
) -> dict[str, Any]:
    """Result of a case: the decisions, the rates of the tuned run and of the fixed numbers, and their ratios.

    ratio_to_best: slowest of the chosen fixed numbers over the best fixed number. tuned_to_best: the tuned
    run over the best fixed number.
    """
    print(f"{TITLES[model]} b={batch_size}, tuning", flush=True)
    run = run_of(model, batch_size, devices)
    chosen, seen = [], set(COUNTS)
    while len(chosen) < decisions:
        with tuned(run, longest_seconds) as (training, decision):
            chosen.append(decision["replicas_per_device"])
            seen |= {known["replicas_per_device"] for known in decision["measurements"]}
            if len(chosen) == decisions:
                rows, tuned_row = measured_in_turn(run, sorted(seen), training, seconds, windows)
    rates = {row["replicas"]: row["images_per_second"]["median"] for row in rows}
    best = max(rates, key=lambda count: rates[count])
    return {
        "model": model,
        "batch_size": batch_size,
        "chosen": chosen,
        "decision": decision,
        "rows": rows,
        "tuned": tuned_row,
        "best": best,
        "ratio_to_best": round(min(rates[count] for count in chosen) / rates[best], 4),
        "tuned_to_best": round(tuned_row["images_per_second"]["median"] / rates[best], 4),
    }


def draw(figure: Figure, result: dict[str, Any]) -> None:
    cases = result["details"]["cases"]
    fixed = Series("fixed numbers, in turn: median and range", BLUE)
    for axes, case in zip(grid_of(figure, len(cases), 2), cases, strict=True):
        draw_lines(axes, case["rows"], "replicas", lambda row: fixed)
        chosen = case["decision"]["replicas_per_device"]
        rates = {row["replicas"]: row["images_per_second"]["median"] for row in case["rows"]}
        ring = {"markersize": 13, "markerfacecolor": "none", "markeredgewidth": 2, "linestyle": "none"}
        sure = case["decision"]["complete"]
        label = "what the tuner chose" if sure else "what the tuner chose, not sure"
        axes.plot([chosen], [rates[chosen]], "o", color=GOLD, label=label, **ring)
        own = case["tuned"]["images_per_second"]["median"]
        axes.plot([chosen], [own], "D", color=GOLD, markersize=5, linestyle="none", label=TUNED)
        seen = case["decision"]["measurements"]
        axes.plot(
            [known["replicas_per_device"] for known in seen],
            [known["images_per_second"] for known in seen],
            linestyle="none",
            marker="x",
            color=GREY,
            label="the tuner's measurements: medians",
        )
        draw_limit(axes, FLOOR * rates[case["best"]], f"{1 - FLOOR:.0%} under the best")
        counts = sorted({*rates, *(known["replicas_per_device"] for known in seen)})
        title = f"{case_of(case)}: {least_ratio(case):.1%} of the best"
        finish_axes(axes, title, "replicas", "images per second", counts)
        axes.set_ylim(top=1.08 * max(axes.get_ylim()[1], *(known["images_per_second"] for known in seen)))
    lines = -(-len(cases) // 2)
    finish_figure(figure, "The auto-tuner against fixed numbers of replicas", 2.9 * lines + 1.2)


def least_ratio(case: dict[str, Any]) -> float:
    """Ratio that is compared with the floor."""
    return min(float(case["ratio_to_best"]), float(case["tuned_to_best"]))


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    for case in details["cases"]:
        rates = {row["replicas"]: row["images_per_second"]["median"] for row in case["rows"]}
        rows.append([case_of(case), *(rates[count] for count in COUNTS)])
        rows[-1].append(", ".join(f"{rate:,.0f} with {n}" for n, rate in rates.items() if n not in COUNTS))
        rows[-1] += [", ".join(map(str, case["chosen"])), case["best"]]
        rows[-1] += [f"{case[ratio]:.1%}" for ratio in ("ratio_to_best", "tuned_to_best")]
        rows[-1].append("yes" if least_ratio(case) >= details["floor"] else MISSED)
        rows[-1].append(case["decision"]["seconds"])
    columns = ["images/s with", *map(str, COUNTS), "more", "chosen", "best", "slowest chosen", "tuned run"]
    columns += [f"at least {details['floor']:.0%}", "seconds of tuning"]
    return Table(columns, rows, [in_turn(details["windows"], details["seconds_per_window"])])


def main() -> None:
    made = parser(__doc__, NAME)
    made.add_argument("--windows", type=positive_int, help="windows of each fixed number; default 9, small 3")
    options = made.parse_args()
    seconds = 0.2 if options.small else 2.0
    windows = options.windows or (3 if options.small else 9)
    longest = LONGEST_SMALL if options.small else LONGEST_SECONDS
    chosen_cases = CASES[:1] if options.small else CASES
    decisions = 1 if options.small else DECISIONS
    cases = [judged(*case, longest, seconds, windows, decisions, options.devices) for case in chosen_cases]
    details = {"windows": windows, "seconds_per_window": seconds, "floor": FLOOR, "cases": cases}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
