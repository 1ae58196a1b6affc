"""Seeds of independent replicas, and the initial values that are drawn with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.replicas.replica_counts import replica_counts
from scheduler.replicas.step_program import StepProgram
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import sequence, whole
from tensorbow.specs import Array

Seeds: TypeAlias = Annotated[
    Sequence[int], sequence(whole(0, (1 << 63) - 1), "a whole number for each replica, in a list")
]


def seeds_for(
    seeds: Sequence[int] | None,
    options: Synchronisation,
    replicas_per_device: int | Sequence[int],
    devices: int,
) -> tuple[int, ...] | None:
    """The seeds, for so many devices, or groups of devices.

    Raises InvalidArgumentError unless independent replicas have one each.
    """
    if seeds is None:
        return None
    if options.sync != "none" or options.first_come:
        raise InvalidArgumentError(
            f"seeds: expected sync 'none' and dispatch 'round_robin', as other replicas begin with the same "
            f"values, got {options.sync!r} and {options.dispatch!r}"
        )
    count = sum(replica_counts(replicas_per_device, devices))
    if len(seeds) != count:
        raise InvalidArgumentError(f"seeds: expected {count}, one for each replica, got {len(seeds)}")
    return tuple(seeds)


def initial_values_of(program: StepProgram, seeds: Sequence[int] | None) -> list[dict[str, Array]]:
    """Initial values of a program's variables: for all replicas, or with seeds for each."""
    streams = seeds or (0,)
    drawn = {stream: program.initial_values(stream) for stream in dict.fromkeys(streams)}
    return [drawn[stream] for stream in streams]
