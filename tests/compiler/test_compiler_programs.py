"""Random programs: compiled and run in poisoned memory, they equal a naive interpreter."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tests.program_rig.interpreter import VARIABLES, programs
from tests.program_rig.poisoned import PoisonedStep

EXAMPLES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def initial():
    return [np.arange(np.prod(s, dtype=int)).reshape(s) + 10.0 * i for i, s in enumerate(VARIABLES)]


@EXAMPLES
@given(programs())
def test_poisoned_steps_equal_the_interpreter(program):
    expected, after = program.interpret(initial())
    with tb.Graph().as_default():
        fetches, feeds, variables = program.build()
        with PoisonedStep(fetches, feeds) as step:
            step.container.load({v.op.name: value for v, value in zip(variables, initial(), strict=True)})
            for result, value in zip(step.run(), expected, strict=True):
                np.testing.assert_array_equal(result, value)
            for variable, value in zip(variables, after, strict=True):
                np.testing.assert_array_equal(step.container.read(variable.op.name), value)


@settings(EXAMPLES, max_examples=60)
@given(st.lists(programs(8), min_size=1, max_size=3))
def test_sessions_equal_the_interpreter_while_the_graph_grows(many):
    state = None
    with tb.Graph().as_default(), tb.Session() as session:
        for program in many:
            fetches, feeds, variables = program.build()
            state = initial()
            session.load_variables({v.op.name: a for v, a in zip(variables, state, strict=True)})
            for _ in range(2):
                expected, state = program.interpret(state)
                for result, value in zip(session.run(fetches, feeds), expected, strict=True):
                    assert np.shape(result) == value.shape
                    np.testing.assert_array_equal(result, value)
