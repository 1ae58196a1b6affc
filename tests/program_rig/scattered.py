"""Random programs whose ops are scattered over devices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import tensorbow as tb
from tests.program_rig.interpreter import initial_values, random_program

NAMES = ("", "/cpu:0", "/cpu:1", "/cpu:1", "/cpu:2", "/cpu:2", "/cpu:*")


def scattered(random: Random) -> Callable[[Any], str]:
    """Device function that places ops randomly, most of them on the device of the op before."""
    last = [""]

    def place(op: Any) -> str:
        if random.randrange(5) < 2:
            last[0] = random.choice(NAMES)
        return last[0]

    return place


class ScatteredProgram:
    """Program of a seed, built in the default graph."""

    def __init__(self, seed: int):
        random = Random(seed)
        self.program = random_program(random, 30)
        while not self.program.is_exact():
            self.program = random_program(random, 30)
        with tb.get_default_graph().device(scattered(random)):
            self.fetches, self._feeds, self.variables = self.program.build()

    def load(self, session: tb.Session) -> None:
        """Loads the variables' initial values."""
        session.load_variables({v.op.name: a for v, a in zip(self.variables, initial_values(), strict=True)})

    def feeds(self, run: int) -> dict[Any, np.ndarray]:
        """Feeds of a run."""
        return dict(zip(self._feeds, self.program.feed_values(run).values(), strict=True))

    def check(self, session: tb.Session, runs: int = 3) -> None:
        """Runs the program with different feeds; asserts that every value is the interpreter's."""
        self.load(session)
        state = initial_values()
        for run in range(runs):
            expected, state = self.program.interpret(state, run)
            for result, value in zip(session.run(self.fetches, self.feeds(run)), expected, strict=True):
                assert (np.shape(result), result.dtype) == (value.shape, value.dtype)
                np.testing.assert_array_equal(result, value)
        for result, value in zip(session.run(self.variables), state, strict=True):
            np.testing.assert_array_equal(result, value)
