"""Help of a command with many options: examples first, then the options by subject."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import click

from tensorbow.cli.options import ModelCommand

SUBJECTS: Mapping[str, Sequence[str]] = {
    "Configurations": ("grid", "ranges", "random", "seeds"),
    "Workers": (
        "workers",
        "hosts",
        "restarts",
        "watchdog",
        "start_limit",
        "watch_port",
        "mpirun",
        "mpi_options",
    ),
    "Successive halving": ("halving", "halving_factor", "halving_epochs"),
    "Model and data": (
        "model_options",
        "dataset",
        "data_dir",
        "data",
        "target",
        "ignore_columns",
        "task",
        "image_size",
        "validation_split",
        "test_split",
        "split_seed",
        "split",
        "resize",
        "augmentation",
        "class_weights",
        "data_on_device",
        "weights",
        "weights_skip",
        "weights_names",
        "weights_flattened",
        "seed",
        "config",
        "config_file",
    ),
    "Length and evaluation": (
        "epochs",
        "max_seconds",
        "target_accuracy",
        "evaluate_every",
        "metrics",
        "early_stopping",
        "best_metric",
    ),
    "Optimiser and learning rate": (
        "batch_size",
        "optimizer",
        "optimizer_options",
        "learning_rate",
        "schedule",
        "learning_rate_drops",
        "final_rate",
        "warmup_epochs",
        "momentum",
        "weight_decay",
        "decay_all",
        "clip_norm",
        "clip_value",
        "label_smoothing",
        "mixup",
        "on_nan",
    ),
    "Replicas and averaging": (
        "replicas_per_device",
        "devices",
        "sync",
        "tau",
        "alpha",
        "mu",
        "outer_learning_rate",
        "outer_momentum",
        "exchange_dtype",
        "backup",
        "staleness",
        "ema",
        "ssgd_epoch",
        "clear_velocity",
        "dispatch",
    ),
    "Speed": (
        "at_once",
        "device",
        "replica_mode",
        "steps_per_launch",
        "launch_ahead",
        "compute",
        "recompute",
        "swap",
    ),
    "Output and resuming": (
        "output",
        "resume",
        "checkpoint_rounds",
        "keep_checkpoints",
        "keep",
        "ensemble",
        "checkpoint_seconds",
        "tensorboard",
        "trace",
        "trace_rounds",
        "picture",
        "full",
        "with_summary",
        "as_json",
        "json_lines",
        "debug",
    ),
}
"""Names of options by subject, of all commands; a command shows the subjects that it has options of."""
WEIGHTS = {"Weights to use": ("replica", "ema", "best", "ensemble")}
"""Subject of the commands that use a trained model."""
OTHER_SUBJECT = "Other options"


def grouped(
    examples: Sequence[tuple[str, str]],
    base: type[click.Command] = ModelCommand,
    own: Mapping[str, Sequence[str]] | None = None,
) -> type[click.Command]:
    """Class of commands that show these examples, (words, what they do), and the options by subject.

    own: subjects of the command alone, shown first; their options are in no other subject.
    """

    class GroupedCommand(base):  # type: ignore[misc, valid-type] # a class of the caller's choice
        def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            """Writes examples and options."""
            with formatter.section("Examples"):
                formatter.write_dl([(f"tensorbow {words}", text) for words, text in examples])
            left = {
                str(parameter.name): record
                for parameter in self.get_params(ctx)
                if isinstance(parameter, click.Option)
                and (record := parameter.get_help_record(ctx)) is not None
            }
            for subject, names in [*(own or {}).items(), *SUBJECTS.items(), (OTHER_SUBJECT, [])]:
                chosen = [left.pop(name) for name in (names or [*left]) if name in left]
                if chosen:
                    with formatter.section(subject):
                        formatter.write_dl(chosen)

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            """Writes the text at the end; names with hyphens, as of models, are not broken."""
            for paragraph in (self.epilog or "").split("\n\n"):
                formatter.write_paragraph()
                text = " ".join(paragraph.split())
                lines = textwrap.wrap(text, formatter.width - 2, break_on_hyphens=False)
                formatter.write("".join(f"  {line}\n" for line in lines))

    return GroupedCommand
