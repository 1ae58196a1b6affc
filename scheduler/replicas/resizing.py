"""Change of the number of replicas: what each begins with, and whether there is room for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.averaging.outer_progress import progress_of
from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.replicas.device_plans import Compiled
from scheduler.replicas.learners import Learners
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.replica_counts import replica_counts
from scheduler.replicas.step_program import StepProgram
from tensorbow.graph import Operation
from tensorbow.specs import Array, TensorSpec


class Resizing:
    """A change of the number of replicas, prepared when nothing is in flight; the replicas stay as they are.

    per_device: their numbers after it. origins: by replica after it, the number of the same one before, or
    None for a new one; both of this worker. values: everything that the next round depends on, by name as in
    a checkpoint; values_before: the same as it is.
    """

    def __init__(
        self,
        old: Learners,
        replicas_per_device: int | Sequence[int],
        options: Synchronisation,
        round: int,
        specs: Sequence[TensorSpec],
    ):
        """options: with which they go on. round: the rounds trained so far. specs: of the first program's
        inputs after it. Of several workers all must call it.

        Raises, on all workers, InvalidArgumentError for counts or an alpha out of range,
        ResourceExhaustedError, saying how many fit, when there is no room once the old ones are gone.
        """
        lockstep, where = old.lockstep, "change of the number of replicas"
        self.per_device = counts = replica_counts(replicas_per_device, len(old.devices))
        every = [counts] if lockstep is None else lockstep.all_gather(where, counts)
        own = [sum(of_worker) for of_worker in every]
        total, first = sum(own), sum(own[: 0 if lockstep is None else lockstep.rank])

        def require_room() -> None:
            options.alpha_for(total)
            for here, on_device in zip(old.plans_for(options, total, specs), counts, strict=True):
                here.require_room(on_device, old.held_nbytes(here.device))

        require_room() if lockstep is None else lockstep.together(where, require_room)
        self.origins = origins(old.per_device, self.per_device)
        self.values_before = old.values.state_arrays()
        self.values = _values_after(old, self.origins, options, round, first, total)


def made_again(
    old: Learners,
    steps: Sequence[tuple[StepProgram, Sequence[TensorSpec]]],
    selected: int,
    results: Sequence[int],
    compiled: Compiled,
    per_device: Sequence[int],
    options: Synchronisation,
    values: Mapping[str, Array],
) -> Learners:
    """New learners in place of closed ones, with another number of replicas and these values.

    results: by step, how many of a replica are kept.
    """
    (program, specs), *others = steps
    learners = Learners(
        program,
        specs,
        old.devices,
        per_device,
        options,
        results=results[0],
        layout=old.layout,
        lockstep=old.lockstep,
        compiled=compiled,
        may_be_captured=old.may_be_captured,
    )
    try:
        for (further, shapes), kept in zip(others, results[1:], strict=True):
            learners.add_program(further, shapes, kept)
        learners.select(selected)
        learners.values.load_state_arrays(values)
    except BaseException:
        learners.close()
        raise
    return learners


def origins(before: Sequence[int], after: Sequence[int]) -> list[int | None]:
    """Former number of each replica after a change, or None for a new one: on each device the first stay."""
    result: list[int | None] = []
    first = 0
    for had, has in zip(before, after, strict=True):
        result.extend(first + local if local < had else None for local in range(has))
        first += had
    return result


def most_that_fit(learners: AnyLearners, options: Synchronisation, most: int) -> tuple[int, str]:
    """Number of replicas per device, up to `most`, that fit in place of these, and the reason for the limit.

    By a dry run, over all devices, with the same number on each.
    """
    devices = learners.devices
    least, name = most, ""
    for plans in learners.plans_for(options, most * len(devices)):
        held = learners.held_nbytes(plans.device)
        fit = plans.most_that_fit(most, held)
        if fit < least:
            least, name = fit, f"more do not fit into the memory of {plans.device.name.short}"
    return max(1, least), name


def _values_after(
    old: Learners,
    origins: Sequence[int | None],
    options: Synchronisation,
    round: int,
    first: int,
    count: int,
) -> dict[str, Array]:
    """The content of a checkpoint of the replicas after the change; the first has that number of `count`."""
    every = [old.values.replica_values(index) for index in range(old.count)]
    z = old.values.central_values(round)
    _hand_over_sums(old, every, origins)
    steps_on_mean = options.mean_gradient_from(count)
    equal = steps_on_mean is not None and round >= steps_on_mean
    newcomer = _newcomer(old, every[0], z, equal)
    if old.lockstep is not None:  # where replicas differ, new ones begin as replica 0, which is worker 0's
        newcomer = old.lockstep.broadcast("values of new replicas", newcomer)
    result: dict[str, Array] = {}
    for index, origin in enumerate(origins):
        values = newcomer if origin is None else every[origin]
        if count == 1 and old.synchronises:
            values = {**values, **z}
        for name, value in values.items():
            result[f"replica{first + index}/{name}"] = value
    for model in old.central[:1]:
        result.update({f"ema/{name}": value for name, value in model.average().items()})
    if options.averages(count):
        weights = [name for name, op in _by_name(old).items() if op.attrs["role"] == "weights"]
        for name in weights:
            for copy in range(options.z_copies(count)):
                result[f"central{copy}/{name}"] = z[name]
            if options.saves_velocity:
                result[f"velocity/{name}"] = np.zeros_like(z[name])
        for model in old.central[:1] if old.averages else ():
            for copy in range(old.z_copies):
                for name, value in model.weights(copy).items():
                    result[f"central{copy}/{name}"] = value
            velocity = model.velocity() if options.saves_velocity else {}
            for name, value in velocity.items():
                result[f"velocity/{name}"] = value
        if options.outer_steps and options.staleness:
            older = 1 - RoundVariants(options, count).newest_copy(round - 1)
            for index in (number for number, origin in enumerate(origins) if origin is None):
                for name in weights:  # it starts from the newest z, whose last move is no progress of its own
                    moved = z[name] - result[f"central{older}/{name}"]
                    result[f"replica{first + index}/{progress_of(name)}"] = moved
    return result


def _by_name(old: Learners) -> dict[str, Operation]:
    return {op.name: op for op in old.layout.variables}


def _hand_over_sums(old: Learners, every: Sequence[dict[str, Array]], origins: Sequence[int | None]) -> None:
    """Adds what the replicas that go have summed to replica 0, which always stays."""
    gone = [values for index, values in enumerate(every) if index not in origins]
    for name, op in _by_name(old).items():
        if op.attrs["combine"] == "sum" and op.attrs["role"] != "slots":
            for values in gone:
                every[0][name] = every[0][name] + values[name]


def _newcomer(old: Learners, first: dict[str, Array], z: dict[str, Array], equal: bool) -> dict[str, Array]:
    """Initial values of a new replica: z, sums of 0, fresh slots; `equal`: the slots of the first replica."""
    values: dict[str, Array] = {}
    for name, op in _by_name(old).items():
        if op.attrs["role"] == "slots":
            fresh = np.full_like(first[name], op.attrs["slot_value"])
            values[name] = first[name] if equal else fresh
        elif op.attrs["combine"] == "sum":
            values[name] = np.zeros_like(z[name])
        else:
            values[name] = z[name]
    return values
