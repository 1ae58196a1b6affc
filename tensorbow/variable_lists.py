"""Lists of variables, and their initialisers, under TensorFlow 1's other names."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import GraphKeys, Operation, Tensor, colocate_with, get_default_graph, name_scope
from tensorbow.kinds import Name, Names, checked
from tensorbow.ops.arrays import stack
from tensorbow.ops.constant import constant
from tensorbow.ops.data_dependent import boolean_mask
from tensorbow.ops.elementwise import logical_not
from tensorbow.ops.host_variables import HostVariable, HostVariableIsInitialized
from tensorbow.ops.initialized import IsVariableInitialized
from tensorbow.specs import string
from tensorbow.variable_scope import get_variable
from tensorbow.variables import (
    AsVariable,
    Variable,
    Variables,
    global_variables,
    global_variables_initializer,
    local_variables,
    local_variables_initializer,
    variables_initializer,
)

__all__ = [
    "all_variables",
    "get_local_variable",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "is_variable_initialized",
    "moving_average_variables",
    "report_uninitialized_variables",
]


def all_variables() -> list[Variable]:
    """All variables of the default graph: `global_variables`."""
    return global_variables()


def initialize_all_variables() -> Operation:
    """One operation that initialises all variables made so far: `global_variables_initializer`."""
    return global_variables_initializer()


def initialize_local_variables() -> Operation:
    """One operation that initialises all local variables made so far: `local_variables_initializer`."""
    return local_variables_initializer()


@checked
def initialize_variables(var_list: Variables, name: Name = "init") -> Operation:
    """One operation that initialises the given variables: `variables_initializer`."""
    return variables_initializer(var_list, name)


@checked
def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    collections: Names | None = None,
    **more: Any,
) -> Any:
    """The variable of that name, as of `get_variable`, in the collection LOCAL_VARIABLES; not trainable."""
    more |= {"trainable": False, "collections": [*(collections or ()), GraphKeys.LOCAL_VARIABLES]}
    return get_variable(name, shape, dtype, initializer, regularizer, **more)


@checked
def moving_average_variables(scope: Name = None) -> list[Variable]:
    """Variables of which `tb.train.ExponentialMovingAverage` keeps averages; scope: see `get_collection`."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


@checked
def is_variable_initialized(variable: AsVariable) -> Tensor:
    """A scalar bool: True if the variable has a value in the session of the run, in the dynamic mode."""
    op = variable.op
    with variable.graph.as_default(), colocate_with(op):
        if op.definition is HostVariable:
            return HostVariableIsInitialized.tensor(op.outputs[0])
        return IsVariableInitialized.tensor(variable=op.name, container=op.attrs["container"])


@checked
def report_uninitialized_variables(
    var_list: Variables | None = None, name: Name = "report_uninitialized_variables"
) -> Tensor:
    """The names of those variables that have no value in the session, strings `[n]`, in the dynamic mode.

    var_list: by default all global and local variables.
    """
    variables = [*global_variables(), *local_variables()] if var_list is None else var_list
    with name_scope(name):
        if not variables:
            return constant([], string, [0])
        names = constant([variable.op.name for variable in variables], string)
        return boolean_mask(names, logical_not(stack([is_variable_initialized(v) for v in variables])))
