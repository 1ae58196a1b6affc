"""The values of replicas and z, read and set while nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat

from scheduler.averaging.outer_progress import progress_of
from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.replicas.central import CentralModel
from scheduler.replicas.replica import Replica
from scheduler.workers.lockstep import Lockstep
from tensorbow.compiler import VariableLayout
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.missing_names import listed
from tensorbow.program import Ref
from tensorbow.specs import Array


def of_model(layout: VariableLayout, values: Mapping[str, Array]) -> dict[str, Array]:
    """Values of the model's own variables: without optimisers' slots and counts."""
    optimizers = {op.name for op in layout.variables if op.attrs["slot_name"]}
    return {name: value for name, value in values.items() if name not in optimizers}


class ReplicaValues:
    """The variables of all replicas and of z: read and set while nothing runs."""

    def __init__(
        self,
        layout: VariableLayout,
        options: Synchronisation,
        replicas: Sequence[Replica],
        central: Sequence[CentralModel],
        total: int,
        lockstep: Lockstep | None = None,
    ):
        """total: replicas of all workers. lockstep: with other workers, if there are some."""
        self.layout = layout
        self._options, self._replicas, self._central = options, replicas, central
        self._count, self._lockstep = total, lockstep
        self._averages = options.averages(self._count)
        self._averages_gradients = options.averages_gradients(self._count)
        self._variants = RoundVariants(options, self._count)
        self._z_copies = options.z_copies(self._count)

    def initialize(self, values: Mapping[str, Array], *others: Mapping[str, Array]) -> None:
        """Starts from these values of the variables: z_d = z, w_i = z, u = 0.

        others: values of the replicas behind the first, where each has its own.

        Optimisers' slots and counts that are not given start as the optimiser says. A variable whose
        replicas' values are summed keeps its value in replica 0 and starts at 0 in the others.
        Raises InvalidArgumentError or NotFoundError for values that do not fit, before any change.
        """
        operations = {op.name: op for op in self.layout.variables}
        slots = {name for name, op in operations.items() if op.attrs["slot_name"]}
        unknown = sorted(values.keys() - operations.keys())
        if unknown:
            raise NotFoundError(
                f"initialize: the step has no variable {listed(unknown)}; "
                f"it has {listed(sorted(operations.keys() - slots)) or 'none'}"
            )
        missing = sorted(operations.keys() - slots - values.keys())
        if missing:
            raise InvalidArgumentError(
                f"initialize: no value for {listed(missing)}; give one for every variable of the step"
            )
        starts = (values, *others) if others else repeat(values)
        for number, (replica, own) in enumerate(zip(self._replicas, starts, strict=False)):
            self.initialize_replica(number, own)
            if replica.index:
                for name, op in operations.items():
                    if op.attrs["combine"] == "sum":
                        replica.container.write(name, 0)
        first = self._replicas[0].container
        for model in self._central:
            model.fill({name: first.read(name) for name in model.names})

    def initialize_replica(self, index: int, values: Mapping[str, Array]) -> None:
        """Gives one replica these values; slots that are not among them start from their initial values.

        Raises InvalidArgumentError or NotFoundError for values that do not fit, before any change.
        """
        container = self._replicas[index].container
        container.load(values)
        slots = {op.name: op.attrs["slot_value"] for op in self.layout.variables if op.attrs["slot_name"]}
        for name in slots.keys() - values.keys():
            container.write(name, slots[name])
        container.initialized.update(slots)

    def assign(self, values: Mapping[str, Array]) -> None:
        """Sets some variables in every replica, in z and its moving average.

        One that is summed goes to replica 0, others get 0.
        Raises InvalidArgumentError or NotFoundError for values that do not fit, before any change.
        """
        combined = {op.name: op.attrs["combine"] for op in self.layout.variables}
        values = self._replicas[0].container.fitting(values)
        for replica in self._replicas:
            replica.container.load(values)
            for name in values:
                if replica.index and combined[name] == "sum":
                    replica.container.write(name, 0)
                if progress_of(name) in combined:  # z has all of its progress
                    replica.container.write(progress_of(name), 0)
        for model in self._central:
            weights = {name: values[name] for name in model.names if name in values}
            for copy in range(self._z_copies):
                model.write_weights(copy, weights)
            model.write_average(weights)

    def central_values(self, round: int, joined: bool = False) -> dict[str, Array]:
        """The central model at the end of round `round` - 1: weights and other variables, copied.

        Without averaging, and once all replicas step on the mean gradient, values are replica 0's (of each
        worker, its first replica's), except for sums over the replicas, and with `joined` means over them.
        With several workers all of them must call it.
        """
        joined = joined or self._averages or self._averages_gradients
        values = self.replica_values(0)
        for op in self.layout.variables:
            how = op.attrs["combine"]
            if op.attrs["role"] == "slots":
                del values[op.name]
            elif how == "sum" or (how == "mean" and joined):
                values[op.name] = self._combined(op.name, how)
        if self._has_central(round):
            for model in self._central[:1]:
                values.update(model.weights(self._variants.newest_copy(round - 1)))
        return values

    def _has_central(self, round: int) -> bool:
        """True if the weights at the end of round `round` - 1 are those of z on the devices."""
        on_mean_from = self._variants.mean_gradient_from
        return self._averages and (on_mean_from is None or round <= on_mean_from)

    def begin_anew(self, round: int) -> None:
        """Has all replicas begin at a round as new ones do: from the central model, with fresh slots; u = 0.

        For replicas that are some rounds apart, while the central model is whole. Where all step on the mean
        gradient it is replica 0, and its slots stay. The moving average of z stays, too. Variables that are
        not trained are combined as they are, so that counts may be ahead of the round.
        """
        values, average = self.central_values(round), [model.average() for model in self._central]
        if not self._has_central(round):
            values = {**self.replica_values(0), **values}
        self.initialize(values)
        for model, own in zip(self._central, average, strict=True):
            model.write_average(own)

    def ema_values(self, round: int) -> dict[str, Array]:
        """`central_values`, with weights of the moving average of z.

        Raises FailedPreconditionError without the option `ema`.
        """
        if self._options.ema is None:
            raise FailedPreconditionError(
                "ema_values: there is no moving average of z; train with the option ema, as ema=0.999"
            )
        values = self.central_values(round)
        for model in self._central[:1]:
            values.update(model.average())
        return values

    def _combined(self, name: str, how: str) -> Array:
        """The sum or mean of a variable over the replicas, in their order."""
        total, *others = (replica.container.read(name) for replica in self._replicas)
        for other in others:
            total += other
        if self._lockstep is not None:
            self._lockstep.all_sum(f"the {how} of {name}", total)
        if how == "mean":
            total /= total.dtype.type(self._count)
        return total

    def replica_values(self, index: int) -> dict[str, Array]:
        """All variables of a replica, slots included, copied."""
        container = self._replicas[index].container
        return {name: container.read(name) for name in self.layout.refs()}

    def state_arrays(self) -> dict[str, Array]:
        """Everything the next step depends on, by name, copied: the content of a checkpoint.

        Of several workers each has its own replicas, by their numbers among those of all, and z.
        """
        arrays: dict[str, Array] = {}
        for number, replica in enumerate(self._replicas):
            for name, value in self.replica_values(number).items():
                arrays[f"replica{replica.index}/{name}"] = value
        for model in self._central[:1]:
            for copy in range(self._z_copies):
                for name, value in model.weights(copy).items():
                    arrays[f"central{copy}/{name}"] = value
            for name, value in model.average().items():
                arrays[f"ema/{name}"] = value
            velocity = model.velocity() if self._averages and self._options.saves_velocity else {}
            for name, value in velocity.items():
                arrays[f"velocity/{name}"] = value
        return arrays

    def load_state_arrays(self, arrays: Mapping[str, Array]) -> None:
        """The reverse of `state_arrays`.

        Raises InvalidArgumentError for names, shapes or dtypes that do not fit, before any change.
        """
        for name, write in self.require_fitting(arrays).items():
            write(arrays[name])
        for replica in self._replicas:
            replica.container.initialized.update(self.layout.refs())

    def require_fitting(self, arrays: Mapping[str, Array]) -> dict[str, Callable[[Array], None]]:
        """Setters of the values by their names in a checkpoint. Raises as `load_state_arrays`."""
        targets = self._targets()
        missing, unknown = sorted(targets.keys() - arrays.keys()), sorted(arrays.keys() - targets.keys())
        if missing or unknown:
            raise InvalidArgumentError(
                "the checkpoint does not fit this model and these replicas: missing "
                f"{listed(missing) or 'nothing'}; unexpected {listed(unknown) or 'nothing'}; resume with the "
                "options it was written with"
            )
        for name, (ref, _) in targets.items():
            have, dtype = arrays[name], ref.dtype.as_numpy_dtype
            if have.shape != ref.shape or have.dtype != dtype:
                raise InvalidArgumentError(
                    f"the checkpoint does not fit: {name} is {have.dtype}{list(have.shape)}, "
                    f"expected {dtype}{list(ref.shape)}"
                )
        return {name: write for name, (_, write) in targets.items()}

    def _targets(self) -> dict[str, tuple[Ref, Callable[[Array], None]]]:
        """Shape and setter of each value by its name in a checkpoint."""
        refs = self.layout.refs()
        targets: dict[str, tuple[Ref, Callable[[Array], None]]] = {}
        for replica in self._replicas:
            for name, ref in refs.items():
                targets[f"replica{replica.index}/{name}"] = ref, partial(replica.container.write, name)
        if self._averages:
            for name in self._central[0].names if self._central else ():
                for copy in range(self._z_copies):
                    targets[f"central{copy}/{name}"] = refs[name], partial(self._write_central, name, copy)
                if self._options.saves_velocity:
                    targets[f"velocity/{name}"] = refs[name], partial(self._write_velocity, name)
        for name in self._central[0].average() if self._central else ():
            targets[f"ema/{name}"] = refs[name], partial(self._write_average, name)
        return targets

    def set_average(self, values: Mapping[str, Array]) -> None:
        """Sets the moving average of z, if there is one."""
        for model in self._central:
            model.write_average(values)

    def _write_average(self, name: str, value: Array) -> None:
        for model in self._central:
            model.write_average({name: value})

    def _write_central(self, name: str, copy: int, value: Array) -> None:
        for model in self._central:
            model.write_weights(copy, {name: value})

    def _write_velocity(self, name: str, value: Array) -> None:
        for model in self._central:
            model.write_velocity({name: value})


def check_combination(layout: VariableLayout) -> None:
    """Weights are averaged while training, all others only when z is read."""
    for op in layout.variables:
        how, is_weight = op.attrs["combine"], op.attrs["role"] == "weights"
        if is_weight != (how == "sma") and op.attrs["role"] != "slots":
            kind, ways = ("trainable", "sma") if is_weight else ("not trainable", "mean, sum or first")
            raise InvalidArgumentError(
                f"variable {op.name} is {kind}, so its replicas combine by {ways}, not {how} "
                f"(made at {op.source})"
            )
