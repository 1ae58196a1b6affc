"""First values of a session's variables: of a checkpoint, or initial ones."""

from __future__ import annotations

from collections.abc import Callable

from tensorbow.graph import Operation, Tensor
from tensorbow.runtime.session import Session
from tensorbow.variables import Variable, global_variables


def prepare_variables(session: Session, initializer: Operation | Tensor, restore: Callable[[], bool]) -> bool:
    """Gives the global variables values, as TensorFlow's SessionManager does; True if they were restored.

    restore: sets variables from a checkpoint; False if there is none. With a checkpoint, variables of a
    cluster never have their initial values in between, since other workers may be training them; only what
    the checkpoint leaves without a value is initialised. Without one, all are initialised.
    """
    without_value = getattr(session, "without_value", None)
    if without_value is None:  # of a session that has its variables for itself
        session.run(initializer)
        return restore()
    if not restore():
        session.run(initializer)
        return False
    with session.graph.as_default():
        variables: list[Variable] = global_variables()
    missing = set(without_value([variable.op for variable in variables]))
    if missing:
        session.run([variable.initializer for variable in variables if variable.op.name in missing])
    return True
