"""Initial values of a graph's variables."""

from __future__ import annotations

from tensorbow.graph import Graph
from tensorbow.runtime.session import Session
from tensorbow.specs import Array
from tensorbow.variables import global_variables, local_variables, variables_initializer


def initial_values(graph: Graph) -> dict[str, Array]:
    """The initial values of all variables of a graph, by name; random initialisers draw for the first time.

    The values are read from the initialised variables, since fetching them would compile another step.
    """
    with graph.as_default(), Session(graph=graph) as session:
        variables = [*global_variables(), *local_variables()]
        session.run(variables_initializer(variables))
        names = [variable.op.name for variable in variables]
        return {name: session._device_variables.of(name).read(name) for name in names}
