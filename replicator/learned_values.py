"""Values of a Replicator's variables, by name: of running replicas, and after `shutdown` the last ones."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler import Stepper
from scheduler.replicas.values import of_model
from tensorbow.errors import FailedPreconditionError
from tensorbow.specs import Array

Values = Mapping[str, Array]


class CurrentValues:
    """Values of replicas that have settled, copied when they are asked for."""

    def __init__(self, stepper: Stepper):
        self._stepper = stepper
        self.round = stepper.round  # the next one

    def central(self) -> dict[str, Array]:
        """Variables of the central model, without optimisers' counts."""
        return self._of_model(self._stepper.engine.central_values())

    def average(self) -> dict[str, Array]:
        """`central`, with the weights of the moving average of z. Needs the option `ema`."""
        return self._of_model(self._stepper.engine.ema_values())

    def joined(self) -> Values:
        """Variables of the central model; means and sums over the replicas also with `sync="none"`."""
        return self._stepper.engine.learners.values.central_values(self._stepper.round, joined=True)

    def replica(self, index: int, slots: bool) -> dict[str, Array]:
        """Variables of one replica; slots: with those of optimisers."""
        values = self._stepper.engine.learners.values.replica_values(index)
        return values if slots else self._of_model(values)

    def _of_model(self, values: Values) -> dict[str, Array]:
        return of_model(self._stepper.engine.learners.layout, values)


class LastValues:
    """Values at the time of `shutdown`: the methods of `CurrentValues`."""

    def __init__(self, stepper: Stepper):
        """Copies all values that remain available; those of single replicas only if they are independent."""
        options, current = stepper.engine.options, CurrentValues(stepper)
        independent = options.sync == "none"
        self.round = current.round
        self._layout = stepper.engine.learners.layout
        self._average = current.average() if options.ema is not None else {}
        central = stepper.engine.central_values()
        self._central = of_model(self._layout, central)
        self._joined = current.joined() if independent else central
        count = stepper.engine.learners.count if independent else 0
        self._replicas = [current.replica(index, slots=True) for index in range(count)]

    def central(self) -> dict[str, Array]:
        """See CurrentValues.central."""
        return _copied(self._central)

    def average(self) -> dict[str, Array]:
        """See CurrentValues.average."""
        return _copied(self._average)

    def joined(self) -> Values:
        """See CurrentValues.joined; not copied."""
        return self._joined

    def replica(self, index: int, slots: bool) -> dict[str, Array]:
        """See CurrentValues.replica. Raises FailedPreconditionError unless they are independent."""
        if not self._replicas:
            raise FailedPreconditionError(
                "replica_values: there are no replicas after shutdown(), which keeps central_values()"
            )
        values = self._replicas[index]
        return _copied(values if slots else of_model(self._layout, values))


def _copied(values: Values) -> dict[str, Array]:
    return {name: value.copy() for name, value in values.items()}
