"""Values that the replicas of a Replicator had learned when they were shut down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler import LearningEngine
from tensorbow.specs import Array

Values = Mapping[str, Array]


@dataclass(frozen=True)
class LastValues:
    """Variables by name: of the central model, joined for `read`, with the moving average of z, by replica.

    average: empty without the option `ema`. replicas: empty unless nothing keeps them together.
    """

    central: Values
    joined: Values
    average: Values
    replicas: tuple[Values, ...]

    @classmethod
    def of(cls, engine: LearningEngine) -> LastValues:
        """The values of an engine that has settled."""
        values, central = engine.learners.values, engine.central_values()
        average = engine.ema_values() if engine.options.ema is not None else {}
        if engine.options.sync != "none":
            return cls(central, central, average, ())
        joined = values.central_values(engine.round, joined=True)
        return cls(central, joined, average, tuple(map(values.replica_values, range(engine.learners.count))))


def copied(values: Values) -> dict[str, Array]:
    """Values that the caller may change."""
    return {name: value.copy() for name, value in values.items()}
