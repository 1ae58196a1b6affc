"""The error of a step that cannot be planned, and the value of what is not computed."""

from __future__ import annotations

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation
from tensorbow.program.nodes import Value
from tensorbow.specs import TensorSpec, bool_

DEAD = Value("dead", TensorSpec((), bool_))  # of a tensor in a branch that is not taken


class NeedsDynamicModeError(InvalidArgumentError):
    """Raised for a step that cannot be planned; the dynamic mode of a session may run it.

    why: in short. op: the one that cannot. passing: a later run may be planned.
    """

    def __init__(self, message: str, why: str = "", op: Operation | None = None, passing: bool = False):
        super().__init__(message)
        self.why = why
        self.op = op
        self.passing = passing


def dynamic(op: Operation, why: str = "") -> NeedsDynamicModeError:
    """The error of an op that no plan runs. why: beside that it is of control flow or of the host."""
    if op.has_strings and not op.definition.is_dynamic:
        return NeedsDynamicModeError(
            f"{op.type} {op.name}: strings are in host memory, for the dynamic executor of a tb.Session, or "
            "of a replica; make numbers of them before, in the input pipeline "
            f"(made at {op.source})",
            f"{op.type} {op.name} is of strings (made at {op.source})",
            op,
        )
    reason = f"; here: {why}" if why else ""
    return NeedsDynamicModeError(
        f"{op.type} {op.name}: control flow and ops of the host that no plan has are run by the dynamic "
        "executor of a tb.Session, or of a replica; unroll the loop in Python, use "
        f"tb.where for a condition, or fetch it by a session{reason} (made at {op.source})",
        f"{op.type} {op.name} is control flow or an op of the host{reason} (made at {op.source})",
        op,
    )
