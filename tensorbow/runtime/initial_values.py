"""What a graph's variables begin with."""

from __future__ import annotations

from tensorbow.graph import Graph
from tensorbow.runtime.session import Session
from tensorbow.specs import Array
from tensorbow.variables import global_variables, local_variables, variables_initializer


def initial_values(graph: Graph) -> dict[str, Array]:
    """The initial values of all variables of a graph, by name: what their initialisers draw first.

    They are read from where the initialisers put them: a step that fetches them would have to be compiled.
    """
    with graph.as_default(), Session(graph=graph) as session:
        variables = [*global_variables(), *local_variables()]
        session.run(variables_initializer(variables))
        names = [variable.op.name for variable in variables]
        return {name: session._device_variables.of(name).read(name) for name in names}
