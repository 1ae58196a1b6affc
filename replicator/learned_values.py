"""Values of a Replicator's variables, by name: of running replicas, and after `shutdown` the last ones."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler import Stepper
from tensorbow.errors import FailedPreconditionError
from tensorbow.specs import Array

Values = Mapping[str, Array]


class CurrentValues:
    """Values of replicas that have settled, copied when they are asked for."""

    def __init__(self, stepper: Stepper):
        self._stepper = stepper

    def central(self) -> dict[str, Array]:
        """Variables of the central model."""
        return self._stepper.engine.central_values()

    def average(self) -> dict[str, Array]:
        """`central`, with the weights of the moving average of z. Needs the option `ema`."""
        return self._stepper.engine.ema_values()

    def joined(self) -> Values:
        """Variables of the central model; means and sums over the replicas also with `sync="none"`."""
        return self._stepper.engine.learners.values.central_values(self._stepper.round, joined=True)

    def replica(self, index: int) -> dict[str, Array]:
        """All variables of one replica, slots included."""
        return self._stepper.engine.learners.values.replica_values(index)


class LastValues:
    """Values at the time of `shutdown`: the methods of `CurrentValues`."""

    def __init__(self, stepper: Stepper):
        """Copies all values that remain available; those of single replicas only if they are independent."""
        options, current = stepper.engine.options, CurrentValues(stepper)
        independent = options.sync == "none"
        self._central = current.central()
        self._average = current.average() if options.ema is not None else {}
        self._joined = current.joined() if independent else self._central
        count = stepper.engine.learners.count if independent else 0
        self._replicas = [current.replica(index) for index in range(count)]

    def central(self) -> dict[str, Array]:
        """See CurrentValues.central."""
        return _copied(self._central)

    def average(self) -> dict[str, Array]:
        """See CurrentValues.average."""
        return _copied(self._average)

    def joined(self) -> Values:
        """See CurrentValues.joined; not copied."""
        return self._joined

    def replica(self, index: int) -> dict[str, Array]:
        """See CurrentValues.replica. Raises FailedPreconditionError unless they are independent."""
        if not self._replicas:
            raise FailedPreconditionError(
                "replica_values: there are no replicas after shutdown(), which keeps central_values()"
            )
        return _copied(self._replicas[index])


def _copied(values: Values) -> dict[str, Array]:
    return {name: value.copy() for name, value in values.items()}
