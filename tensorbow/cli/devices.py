"""`tensorbow devices`."""

from __future__ import annotations

import json

import click
from rich.table import Table

from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import say
from tensorbow.cli.options import json_option
from tensorbow.devices import available_devices, gpu_status
from tensorbow.kernels.backends import backend_of_kind
from tensorbow.training import console_of_worker

EXAMPLES = (
    ("devices", "A table of the devices that --devices takes."),
    ("devices --json", "The same for programs."),
)


@click.command(cls=grouped(EXAMPLES, click.Command))
@json_option("Print a JSON array instead of a table.")
def devices(as_json: bool) -> None:
    """List the devices of this machine, and the reason if no GPU is usable."""
    by = backend_of_kind("cpu").title
    rows = [
        row | {"description": f"{row['description']}; {by}"} if row["kind"] == "cpu" else row
        for row in available_devices()
    ]
    problem = gpu_status().problem
    if as_json:
        print(json.dumps(rows))
        if problem:
            say(problem)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "kind", "memory", "description"):
        table.add_column(column)
    for row in rows:
        limit = row["memory_limit_nbytes"]
        memory = "unlimited" if limit is None else f"{limit / 2**30:.1f} GiB"
        table.add_row(row["name"], row["kind"], memory, row["description"])
    console = console_of_worker()
    console.print(table)
    if problem:
        console.print(problem, highlight=False, markup=False, emoji=False, soft_wrap=True)
