"""Scopes whose functions make the variables, as in TensorFlow 1's `tf.variable_creator_scope`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tensorbow.graph.graph import get_default_graph
from tensorbow.kinds import Function, checked


@checked
@contextmanager
def variable_creator_scope(variable_creator: Function) -> Iterator[None]:
    """Has a function make the variables of the default graph, until the scope ends.

    variable_creator: a function (next_creator, **arguments), which returns `next_creator(**arguments)`, a
    variable with other arguments, or what it makes of one. The arguments are all those of `tb.Variable`, by
    name. Of several scopes the innermost function is called first, and the last one makes the variable.
    """
    graph = get_default_graph()
    before = graph.variable_creators
    graph.variable_creators = (*before, variable_creator)
    try:
        yield
    finally:
        graph.variable_creators = before


class MadeByCreators(type):
    """Type of classes whose objects the functions of `variable_creator_scope` make."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of a class."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=[*signature.parameters.values()][1:])

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """Makes an object."""
        make: Callable[..., Any] = partial(super().__call__)
        creators = get_default_graph().variable_creators
        if not creators:
            return make(*arguments, **named)
        bound = cls.__signature__.bind(*arguments, **named)
        bound.apply_defaults()
        for creator in creators:
            make = partial(creator, make)
        return make(**bound.arguments)
