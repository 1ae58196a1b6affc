"""Errors of inner calls: they name the call and the argument of the user's own line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.kinds import refuse


def inputs() -> Any:
    return tb.constant(np.ones((2, 3, 4), np.float32))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tb.image.adjust_hue([1.0, 2.0], 0.1), "adjust_hue: rgb_to_hsv: expected three channels"),
        (lambda: tb.truncatediv([1.0, 2.0], np.ones(3)), "truncatediv: FloorDiv: "),
        (
            lambda: tb.nn.bidirectional_dynamic_rnn(tb.nn.rnn_cell.GRUCell(2), None, inputs()),
            "bidirectional_dynamic_rnn: expected cell_bw to be a cell such as",
        ),
        (
            lambda: tb.map_fn(lambda row: tb.reduce_sum(row, 0.5), inputs()),  # the user's own call
            "reduce_sum: expected axis to be ",
        ),
        (lambda: tb.nn.relu(tb.add(1.0, [[1], [1, 2]])), "add: y: nested list"),
    ],
    ids=["inner op", "two inner ops", "inner argument", "function of the user", "argument of a call"],
)
def test_the_error_begins_with_the_users_call(call: Callable[[], Any], words: str) -> None:
    with tb.Graph().as_default(), pytest.raises(tb.errors.InvalidArgumentError) as caught:
        call()
    assert str(caught.value).startswith(words)


def test_what_does_not_fit_into_memory_names_the_call() -> None:
    with tb.Graph().as_default(), pytest.raises(tb.errors.ResourceExhaustedError, match=r"^linspace: "):
        tb.linspace(0.0, 1.0, 2**50)


def test_an_error_reaches_another_process_without_the_value() -> None:
    error = refuse("dense", "units", "a whole number", lambda: None)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is tb.errors.InvalidArgumentError
    assert str(copied) == str(error)
