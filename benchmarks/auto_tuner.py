"""The number of replicas that the auto-tuner finds, against every fixed one (Crossbow, VLDB 2019, section 4).

    python benchmarks/auto_tuner.py [--small] [--windows N] [--output FOLDER]

For each case a training run with `--replicas-per-gpu auto` on one CPU device goes on until it has decided.
Then, in the same process, runs as `tensorbow train` has them by default, with 1, 2, 3 and 4 replicas and with
every number that the tuner has looked at, train in turn: that is the throughput in steady state, at as many
steps in a launch as each run finds. The number chosen is to be at most 5 % slower than the best fixed one.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness import LEARNING_RATE, interleave, parser, positive_int, print_table, save
from ours import CLASSES, image_shape
from paused_training import PausedTraining
from sweep import COLOURS, TITLES, Row, draw_lines, finish_axes, finish_figure

from scheduler import Trainer, TrainingConfig
from tensorbow.data import DATASETS, Dataset, make_synthetic, register_dataset
from tensorbow.training import TrainingProgress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "auto_tuner"
CASES = (("lenet", 4), ("lenet", 16), ("logreg", 16), ("resnet32", 4))
COUNTS = (1, 2, 3, 4)
FLOOR = 0.95  # of the best fixed number's throughput
LONGEST_SECONDS, LONGEST_SMALL = 240.0, 30.0  # of tuning; the choice is then by what is known
MANY_EPOCHS = 100_000
EXAMPLES, TEST_EXAMPLES = 49_152, 16  # epochs as long as MNIST's, and evaluations that cost nothing


class UntilDecided(TrainingProgress):
    """Shows what the tuner says, and stops its trainer once it has decided."""

    trainer: Trainer | None = None

    def line(self, text: str) -> None:
        if "per device" in text:
            print(f"  {text}", flush=True)
        if "from now on" in text and self.trainer is not None:
            self.trainer.request_stop()


def data_set_of(model: str) -> str:
    """The name of made-up pictures of a model's shape; registers them."""
    name = f"made-up pictures for {model}"
    if name not in DATASETS:
        height, width, channels = image_shape(model)
        data = make_synthetic(
            EXAMPLES, TEST_EXAMPLES, height=height, width=width, channels=channels, classes=CLASSES
        )

        def loader(folder: object) -> tuple[Dataset, Dataset]:
            return data

        register_dataset(name, loader)
    return name


def run_of(model: str, batch_size: int) -> TrainingConfig:
    """A training run without an end, with all else by default."""
    return TrainingConfig(
        model=model,
        dataset=data_set_of(model),
        batch_size=batch_size,
        epochs=MANY_EPOCHS,
        learning_rate=LEARNING_RATE,
        learning_rate_drops=(),
    )


def tuned(run: TrainingConfig, longest_seconds: float) -> dict[str, Any]:
    """What a training run that finds its number of replicas has decided, and on what evidence."""
    # Half of a run is the longest that it looks.
    config = replace(run, replicas_per_device="auto", max_seconds=2 * longest_seconds)
    progress = UntilDecided()
    started = time.perf_counter()
    with Trainer(config, progress) as trainer:
        progress.trainer = trainer
        result = trainer.train()
    if result.tuning is None:
        raise RuntimeError(
            f"{run.model} b={run.batch_size}: the run was over before it had measured anything"
        )
    return {**result.tuning.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


def fixed(run: TrainingConfig, counts: list[int], seconds: float, windows: int) -> list[Row]:
    """A row for each number of replicas: steps of a launch, images per second. All of them train in turn."""
    with ExitStack() as runs:
        training = {
            count: runs.enter_context(PausedTraining(replace(run, replicas_per_device=count)))
            for count in counts
        }
        measured = interleave(training, seconds, windows)
        steps = {count: training[count].steps_per_launch for count in counts}
    rows: list[Row] = []
    for count, rates in measured.items():
        images = rates.as_json()
        rows.append({"replicas": count, "steps_per_launch": steps[count], "images_per_second": images})
        print(f"  {count} fixed: {rates.median:,.0f} images/s, {steps[count]} steps in a launch", flush=True)
    return rows


def judged(
    model: str, batch_size: int, longest_seconds: float, seconds: float, windows: int
) -> dict[str, Any]:
    """A case: the decision, the fixed numbers in turn, and how the number chosen compares with the best."""
    print(f"{TITLES[model]} b={batch_size}, tuning", flush=True)
    run = run_of(model, batch_size)
    decision = tuned(run, longest_seconds)
    chosen = decision["replicas_per_device"]
    seen = {known["replicas_per_device"] for known in decision["measurements"]}
    rows = fixed(run, sorted({*COUNTS, *seen}), seconds, windows)
    rates = {row["replicas"]: row["images_per_second"]["median"] for row in rows}
    best = max(rates, key=lambda count: rates[count])
    return {
        "model": model,
        "batch_size": batch_size,
        "decision": decision,
        "rows": rows,
        "best": best,
        "ratio_to_best": round(rates[chosen] / rates[best], 4),
    }


def series_of(row: Row) -> str:
    return "fixed numbers, in turn: median and range"


def draw(figure: Figure, cases: list[dict[str, Any]]) -> None:
    columns = min(2, len(cases))
    lines = -(-len(cases) // columns)
    for place, case in enumerate(cases, start=1):
        axes = figure.add_subplot(lines, columns, place)

        draw_lines(axes, case["rows"], "replicas", series_of)
        chosen = case["decision"]["replicas_per_device"]
        rates = {row["replicas"]: row["images_per_second"]["median"] for row in case["rows"]}
        ring = {"markersize": 13, "markerfacecolor": "none", "markeredgewidth": 2, "linestyle": "none"}
        sure = case["decision"]["complete"]
        label = "what the tuner chose" if sure else "what the tuner chose, not sure"
        axes.plot([chosen], [rates[chosen]], "o", color=COLOURS[1], label=label, **ring)
        seen = case["decision"]["measurements"]
        axes.plot(
            [known["replicas_per_device"] for known in seen],
            [known["images_per_second"] for known in seen],
            linestyle="none",
            marker="x",
            color=COLOURS[4],
            label="what the tuner saw: medians",
        )
        best = rates[case["best"]]
        axes.axhline(FLOOR * best, color="#b03030", linestyle="--", linewidth=1, label="5 % under the best")
        name = f"{TITLES[case['model']]}, batch size {case['batch_size']}"
        title = f"{name}: {case['ratio_to_best']:.1%} of the best"
        counts = sorted({*rates, *(known["replicas_per_device"] for known in seen)})
        finish_axes(axes, title, "replicas", "images per second", counts)
        axes.set_ylim(top=1.08 * max(axes.get_ylim()[1], *(known["images_per_second"] for known in seen)))
    finish_figure(
        figure, "The auto-tuner against fixed numbers of replicas", 5.2 * columns, 3.5 * lines + 0.7
    )


def main() -> None:
    made = parser(__doc__, NAME)
    made.add_argument("--windows", type=positive_int, help="of each fixed number; default 9, small 3")
    options = made.parse_args()
    seconds = 0.2 if options.small else 2.0
    windows = options.windows or (3 if options.small else 9)
    longest = LONGEST_SMALL if options.small else LONGEST_SECONDS
    chosen_cases = CASES[:1] if options.small else CASES
    cases = [judged(*case, longest, seconds, windows) for case in chosen_cases]
    table = []
    for case in cases:
        rates = {row["replicas"]: row["images_per_second"]["median"] for row in case["rows"]}
        table.append(
            [
                f"{TITLES[case['model']]} b={case['batch_size']}",
                *(f"{rates[count]:,.0f}" for count in COUNTS),
                str(case["decision"]["replicas_per_device"]),
                str(case["best"]),
                f"{case['ratio_to_best']:.1%}",
                "met" if case["ratio_to_best"] >= FLOOR else "MISSED",
                f"{case['decision']['seconds']:.0f}",
            ]
        )
    header = [
        "images/s with",
        *(f"{count}" for count in COUNTS),
        "chosen",
        "best",
        "of the best",
        "floor",
        "tuning s",
    ]
    print_table(header, table)
    save(options, NAME, {"floor": FLOOR, "cases": cases}, lambda figure: draw(figure, cases))


if __name__ == "__main__":
    main()
