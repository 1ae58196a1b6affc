"""Checks of the terminal's size, which the environment or the terminal may report wrongly."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

LEAST_COLUMNS, MOST_COLUMNS = 20, 1_000  # widths in which a table can be laid out
USUAL_COLUMNS = 80


def use_sound_size(environment: MutableMapping[str, str], terminal: os.terminal_size) -> None:
    """Removes COLUMNS and LINES from the environment if they are not numbers, or too small or large.

    click and rich follow these variables, and show nothing in a width of 0. terminal: the real size; if it is
    too narrow, COLUMNS is set to 80.
    """
    for name, least in (("COLUMNS", LEAST_COLUMNS), ("LINES", 1)):
        text = environment.get(name)
        sound = text is not None and text.isascii() and text.isdigit() and len(text) <= len(str(MOST_COLUMNS))
        if text is not None and not (sound and least <= int(text) <= MOST_COLUMNS):
            del environment[name]
    if "COLUMNS" not in environment and terminal.columns < LEAST_COLUMNS:
        environment["COLUMNS"] = str(USUAL_COLUMNS)
