"""Data set of characters: symbols, sequences, split."""

import sys

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.data.text import STEPS, SYMBOLS, encode
from tensorbow.errors import NotFoundError


def test_symbols():
    assert encode("\n ~a\u00e9\t\U0001f600").tolist() == [0, 1, 95, 66, 96, 96, 96]
    assert len(SYMBOLS) == 96
    assert "".join(SYMBOLS[n] for n in encode('if x:\n    "y"')) == 'if x:\n    "y"'


@pytest.mark.slow
def test_sequences():
    train, test = tb.data.load("text")
    assert train.classes == test.classes == 97
    assert train.inputs.dtype == np.uint8
    assert train.inputs.shape[1:] == (STEPS,)
    assert len(train) > 5 * len(test) > 1000
    flat = np.append(train.inputs.ravel(), train.labels[-1, -1])
    np.testing.assert_array_equal(flat[1:].reshape(train.labels.shape), train.labels)
    text = "".join((*SYMBOLS, "?")[n] for n in flat)
    assert "statement" in text
    assert not set(map(bytes, test.inputs[:50])) & set(map(bytes, train.inputs))


def test_a_python_without_its_documentation(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(NotFoundError, match="which this Python lacks"):
        tb.data.load("text")
