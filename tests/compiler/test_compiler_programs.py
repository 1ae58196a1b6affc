"""Random programs: compiled and run in poisoned memory, they equal a naive interpreter."""

import numpy as np
import pytest
from hypothesis import strategies as st

import tensorbow as tb
from tests.program_rig.examples import given_few
from tests.program_rig.interpreter import initial_values, programs
from tests.program_rig.poisoned import PoisonedStep


@pytest.mark.slow
@given_few(80, 600, programs())
def test_poisoned_steps_equal_the_interpreter(program):
    expected, after = program.interpret(initial_values())
    with tb.Graph().as_default():
        fetches, feeds, variables = program.build()
        with PoisonedStep(fetches, feeds) as step:
            step.container.load(
                {v.op.name: value for v, value in zip(variables, initial_values(), strict=True)}
            )
            for result, value in zip(step.run(), expected, strict=True):
                np.testing.assert_array_equal(result, value)
            for variable, value in zip(variables, after, strict=True):
                np.testing.assert_array_equal(step.container.read(variable.op.name), value)


@pytest.mark.slow
@given_few(25, 200, st.lists(programs(8), min_size=1, max_size=3))
def test_sessions_equal_the_interpreter_while_the_graph_grows(many):
    state = None
    with tb.Graph().as_default(), tb.Session() as session:
        for program in many:
            fetches, feeds, variables = program.build()
            state = initial_values()
            session.load_variables({v.op.name: a for v, a in zip(variables, state, strict=True)})
            for _ in range(2):
                expected, state = program.interpret(state)
                for result, value in zip(session.run(fetches, feeds), expected, strict=True):
                    assert np.shape(result) == value.shape
                    np.testing.assert_array_equal(result, value)
