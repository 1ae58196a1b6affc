"""Initial values of all variables of a graph, without a session of the caller's."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.runtime import initial_values

pytestmark = pytest.mark.usefixtures("graph")


def test_are_what_a_session_initialises(graph):
    tb.set_random_seed(5)
    constant = tb.Variable([1.0, 2.0], name="constant")
    tb.Variable(constant.value() * 3, name="dependent")
    tb.Variable(tb.random_normal([3, 2]), name="random")
    tb.Variable(np.arange(4), name="local", collections=[tb.GraphKeys.LOCAL_VARIABLES])
    found = initial_values(graph)
    assert [*found] == ["constant", "dependent", "random", "local"]
    with tb.Session() as session:
        session.run([tb.global_variables_initializer(), tb.local_variables_initializer()])
        for name, value in found.items():
            np.testing.assert_array_equal(value, session.run(f"{name}:0"))
            value[...] = 0  # owned by the caller


def test_they_are_made_on_the_first_cpu_device_whatever_devices_are_requested(graph):
    with tb.device("/gpu:3"):
        first = tb.Variable([1.0, 2.0], name="first")
    with tb.device("/cpu:5"):
        tb.Variable(first.value() * 2.0, name="second")
    assert {name: value.tolist() for name, value in initial_values(graph).items()} == {
        "first": [1.0, 2.0],
        "second": [2.0, 4.0],
    }
