"""`tensorbow devices`."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from tensorbow.devices import available_devices


@click.command()
@click.option("--json", "as_json", is_flag=True, show_default="off", help="Print one JSON array, no table.")
def devices(as_json: bool) -> None:
    """List the devices of this machine."""
    rows = available_devices()
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "kind", "memory", "description"):
        table.add_column(column)
    for row in rows:
        limit = row["memory_limit_nbytes"]
        memory = "unlimited" if limit is None else f"{limit / 2**30:.1f} GiB"
        table.add_row(row["name"], row["kind"], memory, row["description"])
    Console().print(table)
