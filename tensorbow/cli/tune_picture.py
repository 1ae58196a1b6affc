"""Plot of `tensorbow tune`: images/s against replicas per device."""

from __future__ import annotations

import io
from pathlib import Path

from scheduler import TrainingConfig, TuningResult
from scheduler.training.tuning_result import mode_text
from tensorbow.cli.messages import OptionValueError
from tensorbow.cli.options import require_writable
from tensorbow.errors import FailedPreconditionError
from tensorbow.files import write_file

FORMATS = ("png", "svg", "pdf")
BLUE, GREEN, ORANGE, GREY = "#1f5fa8", "#2f8f4e", "#d9622b", "#8a8a8a"


class ThroughputPicture:
    """File to plot a result to; the constructor checks that this will be possible."""

    def __init__(self, path: Path):
        """Raises OptionValueError for a path that cannot be written or whose ending is not a format.

        Raises FailedPreconditionError without matplotlib.
        """
        self.path = path
        self._format = path.suffix.lower().removeprefix(".")
        if self._format not in FORMATS:
            kinds = ", ".join(f".{name}" for name in FORMATS)
            raise OptionValueError(
                f"--picture: expected a file that ends in one of {kinds}, got {str(path)!r}"
            )
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise FailedPreconditionError(
                "--picture: drawing needs matplotlib; pip install 'tensorbow[plot]', or leave it out"
            ) from None
        require_writable("--picture", path)

    def draw(self, config: TrainingConfig, result: TuningResult) -> None:
        """Plots medians, ranges of windows, and the choice; a line for each mode of replicas.

        Raises ResourceExhaustedError for a full disk.
        """
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        measurements, chosen = result.measurements, result.decision.replicas
        counts = [measurement.replicas for measurement in measurements]
        fastest = f"{chosen}{mode_text(result.decision.mode)}, {result.decision.images_per_second:,.0f}"
        choice = "chosen" if result.decision.complete else "best so far, not sure"
        figure = Figure(figsize=(7, 4.2), layout="constrained")
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
            label=f"{choice}: {fastest} images/s",
        )
        axes.set_xlim(min(counts) - 0.5, max(counts) + 0.5)
        axes.set_ylim(0, 1.12 * max(max(m.windows) for m in measurements))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlabel("replicas per device")
        axes.set_ylabel("images per second, all devices")
        what = f"{config.model} on {config.dataset}, batch {config.batch_size} per replica"
        axes.set_title(f"{what}, {config.sync}, on {', '.join(config.devices)}", fontsize=10)
        axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=9)
        blob = io.BytesIO()
        figure.savefig(blob, format=self._format, dpi=150)
        write_file(self.path, blob.getvalue())
