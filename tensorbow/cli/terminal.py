"""The size of the terminal, as the environment or the terminal itself has it, however odd."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

LEAST_COLUMNS, MOST_COLUMNS = 20, 1_000  # between which a table can be laid out
USUAL_COLUMNS = 80


def use_sound_size(environment: MutableMapping[str, str], terminal: os.terminal_size) -> None:
    """Drops COLUMNS and LINES that are no number, or a size in which nothing could be shown.

    What stands there counts for click and for rich, which show nothing in a width of 0. terminal: the size
    that counts without them; one that is too narrow is passed over.
    """
    for name, least in (("COLUMNS", LEAST_COLUMNS), ("LINES", 1)):
        text = environment.get(name)
        sound = text is not None and text.isascii() and text.isdigit() and len(text) <= len(str(MOST_COLUMNS))
        if text is not None and not (sound and least <= int(text) <= MOST_COLUMNS):
            del environment[name]
    if "COLUMNS" not in environment and terminal.columns < LEAST_COLUMNS:
        environment["COLUMNS"] = str(USUAL_COLUMNS)
