"""TensorFlow's names for how replicas' copies of a variable are joined: synchronization and aggregation."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Kind, one_of


class VariableSynchronization:
    """TensorFlow's names for when the replicas' copies of a variable are joined."""

    AUTO = "auto"
    """Depends on `combine`, and on whether the variable is trainable."""
    NONE = "none"
    """Not supported."""
    ON_WRITE = "on_write"
    """Not supported: the optimisers of a Replicator do so for gradients."""
    ON_READ = "on_read"
    """Each replica writes and reads its own copy; `VariableAggregation` gives the value outside of a step."""


class VariableAggregation:
    """TensorFlow's names for the value that a variable with ON_READ has outside of a step."""

    NONE = "none"
    """Not given."""
    SUM = "sum"
    """The sum of all replicas' copies: counters."""
    MEAN = "mean"
    """The mean of all replicas' copies, of a floating dtype."""
    ONLY_FIRST_REPLICA = "only_first_replica"
    """Replica 0's copy."""


ON_READ = {
    VariableAggregation.SUM: "sum",
    VariableAggregation.MEAN: "mean",
    VariableAggregation.ONLY_FIRST_REPLICA: "first",
}
SYNCHRONIZATIONS = ("auto", "none", "on_write", "on_read")
AsSynchronization: TypeAlias = Annotated[
    str, Kind("one of tb.VariableSynchronization", one_of(*SYNCHRONIZATIONS).read)
]
AsAggregation: TypeAlias = Annotated[
    str, Kind("one of tb.VariableAggregation", one_of("none", *ON_READ).read)
]


def combined_on_read(
    synchronization: str, aggregation: str, combine: str | None, trainable: bool | None
) -> tuple[str | None, bool]:
    """`combine` and `trainable` of a variable, with TensorFlow's arguments. Raises InvalidArgumentError."""
    if synchronization in ("none", "on_write"):
        raise InvalidArgumentError(
            f"Variable: expected synchronization AUTO or ON_READ, got {synchronization.upper()}; write "
            "tb.all_reduce(value) to a variable to have equal values in all replicas"
        )
    if synchronization == "auto":
        if aggregation != "none":
            raise InvalidArgumentError(
                f"Variable: expected synchronization ON_READ with aggregation {aggregation.upper()}, got "
                "AUTO; add synchronization=tb.VariableSynchronization.ON_READ"
            )
        return combine, trainable is not False
    if aggregation == "none" or combine is not None or trainable:
        got = f"aggregation {aggregation.upper()}, combine {combine!r} and trainable {trainable}"
        raise InvalidArgumentError(
            "Variable: expected aggregation SUM, MEAN or ONLY_FIRST_REPLICA with synchronization ON_READ, "
            f"and no combine or trainable=True; got {got}"
        )
    return ON_READ[aggregation], False
