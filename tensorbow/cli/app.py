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


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tensorbow.__version__, prog_name="tensorbow")
def app() -> None:
    """Trains several small-batch replicas of a model on every device and averages them."""


COMMANDS = (init, train, launch, tune, sweep, compare, predict, evaluate, export, devices, explain)

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
