"""The `tensorbow` program's commands."""

from __future__ import annotations

import click

import tensorbow
from tensorbow.cli.compare import compare
from tensorbow.cli.devices import devices
from tensorbow.cli.explain import explain
from tensorbow.cli.inference import evaluate, export, predict
from tensorbow.cli.init import init
from tensorbow.cli.launch import launch
from tensorbow.cli.sweep import sweep
from tensorbow.cli.train import train
from tensorbow.cli.tune import tune

EXAMPLES = (
    ("train lenet", "Train LeNet with two averaged replicas on digits, which need no download."),
    ("init project", "Write a project to start from: a model, data and options."),
    ("tune lenet", "Measure how many replicas a device takes best."),
    ("train --help", "All options of a command."),
)
SUBJECTS = {
    "Begin": (init, devices),
    "Train": (train, launch, tune, sweep),
    "Look": (explain, compare),
    "Use a trained model": (evaluate, predict, export),
}


class Commands(click.Group):
    """Group that shows examples, and its commands by subject."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes examples and commands."""
        with formatter.section("Examples"):
            formatter.write_dl([(f"tensorbow {words}", text) for words, text in EXAMPLES])
        width = max(len(str(command.name)) for command in COMMANDS)
        for subject, commands in SUBJECTS.items():
            with formatter.section(subject):
                formatter.write_dl(
                    [(str(command.name).ljust(width), command.short_help or "") for command in commands]
                )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tensorbow.__version__, prog_name="tensorbow")
def app() -> None:
    """Trains several small-batch replicas of a model on every device and averages them."""


COMMANDS = tuple(command for commands in SUBJECTS.values() for command in commands)

for command in COMMANDS:
    command.short_help = (
        (command.help or "").split("\n\n")[0].replace("\n", " ")
    )  # otherwise click truncates it
    app.add_command(command)

# Read by `tensorbow.cli.program`, before click parses the arguments; declared here for the help.
for command in (app, *COMMANDS):
    command.params.append(
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            show_default="off",
            help="Show the traceback of an error.",
        )
    )
