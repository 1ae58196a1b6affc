"""Initial values of a graph's variables."""

from __future__ import annotations

from tensorbow.graph import Graph
from tensorbow.ops.constant import Const
from tensorbow.ops.state import VariableReference
from tensorbow.runtime.session import Session
from tensorbow.specs import Array
from tensorbow.variables import global_variables, local_variables


def initial_values(graph: Graph, random_stream: int = 0) -> dict[str, Array]:
    """The initial values of all variables of a graph, by name; random initialisers draw for the first time.

    Constants are loaded: the compiled step has only the other initialisers, all on the first CPU device. The
    values are read from the initialised variables, since fetching them would compile another step.
    random_stream: number of the stream that they draw from; replicas draw from that of their number, or seed.
    """
    with graph.as_default(), Session(graph=graph, devices=(), allow_soft_placement=True) as session:
        session.random_state.stream = random_stream
        everything = (*global_variables(), *local_variables())
        variables = {each.op.name: each for each in everything if each.op.definition is VariableReference}
        constants = {
            name: each.initial_value.op.attrs["value"]
            for name, each in variables.items()
            if each.initial_value.op.definition is Const
        }
        session.load_variables(constants)
        session.run([each.initializer for name, each in variables.items() if name not in constants])
        return session._variables.devices.values(variables)
