"""Plot of `tensorbow tune`: throughput against replicas per device."""

from __future__ import annotations

from pathlib import Path

from scheduler import TrainingConfig, TuningResult
from scheduler.training.measures.tuning_result import mode_text
from tensorbow.cli.options import require_picture
from tensorbow.pictures import BLUE, GREEN, GREY, ORANGE, new_picture


class ThroughputPicture:
    """File to plot a result to; the constructor checks that this will be possible."""

    def __init__(self, path: Path):
        """Raises OptionValueError for a path that cannot be written or whose ending is not a format.

        Raises FailedPreconditionError without matplotlib.
        """
        self.path = path
        require_picture(path)

    def draw(self, config: TrainingConfig, result: TuningResult) -> None:
        """Plots medians, ranges of windows, and the choice; a line for each mode of replicas.

        Raises ResourceExhaustedError for a full disk.
        """
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        measurements, chosen = result.measurements, result.decision.replicas
        counts = [measurement.replicas for measurement in measurements]
        fastest = f"{chosen}{mode_text(result.decision.mode)} with {result.decision.images_per_second:,.0f}"
        choice = "chosen" if result.decision.complete else "best so far, not sure"
        with new_picture(self.path) as figure:
            axes = figure.add_subplot()
            for mode, color in zip(dict.fromkeys(m.mode for m in measurements), (BLUE, GREEN), strict=False):
                of_mode = [m for m in measurements if m.mode == mode]
                axes.errorbar(
                    [m.replicas for m in of_mode],
                    [m.images_per_second for m in of_mode],
                    yerr=[
                        [m.images_per_second - min(m.windows) for m in of_mode],
                        [max(m.windows) - m.images_per_second for m in of_mode],
                    ],
                    color=color,
                    ecolor=GREY,
                    elinewidth=1.2,
                    capsize=4,
                    marker="o",
                    markersize=5,
                    linewidth=1.6,
                    label=f"{'' if mode is None else f'{mode}: '}median and range of the windows",
                )
            axes.plot(
                [chosen],
                [result.decision.images_per_second],
                linestyle="none",
                marker="o",
                markersize=13,
                markerfacecolor="none",
                markeredgecolor=ORANGE,
                markeredgewidth=2.2,
                label=f"{choice}: {fastest} {result.unit}/s",
            )
            axes.set_xlim(min(counts) - 0.5, max(counts) + 0.5)
            axes.set_ylim(0, 1.12 * max(max(m.windows) for m in measurements))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.set_xlabel("replicas per device")
            axes.set_ylabel(f"{result.unit} per second, all devices")
            what = f"{config.source.name} on {config.data_name}, batch {config.batch_size} per replica"
            axes.set_title(f"{what}, {config.sync}, on {', '.join(config.devices)}")
            figure.legend(frameon=False, loc="outside lower center", ncols=2)
