"""Data set `text`: Python's own reference of its language, in sequences of characters. Needs no download."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from tensorbow.data.array_dataset import ArrayDataset
from tensorbow.errors import NotFoundError
from tensorbow.kinds import AsPath, checked
from tensorbow.specs import Array

SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))  # and a last one for all other characters
STEPS = 64  # of a sequence
_HELD_OUT = 0.1  # share of the text, its end


def encode(text: str) -> Array:
    """Number of each character's symbol, uint8: line feed 0, printable ASCII 1 to 95, all others 96."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    printable = (points >= 32) & (points < 127)
    other = np.where(points == ord("\n"), 0, len(SYMBOLS))
    return np.where(printable, points - 31, other).astype(np.uint8)


@checked
def load_text(data_dir: AsPath | None = None) -> tuple[ArrayDataset, ArrayDataset]:
    """Training and test split: sequences uint8 [n, 64] of 97 symbols, and as labels the symbols that follow.

    The text is that of `help()` in Python's topics, some 470,000 characters; it differs between releases of
    Python. The last tenth is held out. Ignores `data_dir`. Raises NotFoundError if Python comes without it.
    """
    try:
        topics = import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise NotFoundError(
            "data set 'text' is Python's module pydoc_data, which this Python lacks "
            f"({' '.join(str(error).split())}); install Python's documentation, or give text of your own "
            "as arrays (--data)"
        ) from error
    symbols = encode("\n".join(topics[name] for name in sorted(topics)))
    cut = int(len(symbols) * (1 - _HELD_OUT))
    train, test = (
        _sequences(part, name) for part, name in ((symbols[:cut], "train"), (symbols[cut:], "test"))
    )
    return train, test


def _sequences(symbols: Array, name: str) -> ArrayDataset:
    """Sequences one after another, and the same one symbol later."""
    count = (len(symbols) - 1) // STEPS
    inputs, labels = (symbols[start : start + count * STEPS].reshape(count, STEPS) for start in (0, 1))
    return ArrayDataset(inputs, labels, name=f"text/{name}", classes=len(SYMBOLS) + 1)
