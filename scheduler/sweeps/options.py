"""Options of a sweep, beside those of its members' runs."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.options import documents_options, option, read_options
from scheduler.replicas.replica_counts import MOST_REPLICAS
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import FLAG, Kind, number, whole

DEFAULT_PLACES = 64  # on each device: enough short steps in a launch that the host's share is small
HELD_OUT = 0.1  # of the training examples, unless the options say something else
ENSEMBLE_MEMBERS = 8  # at least, if enough have trained to their end


@documents_options
@dataclass(frozen=True)
class SweepOptions:
    """Options of a sweep. Raises InvalidArgumentError for values out of range."""

    seeds: int = option(
        1,
        "Seeds of each configuration, from --seed on: initial values, order of examples.",
        whole(1, 1 << 20),
    )
    random: int | None = option(
        None, "Number of configurations that are drawn from the ranges.", whole(1, 1 << 20), shown="no draws"
    )
    halving: bool = option(
        False,
        "Stop members early that are not among the best 1/factor at epochs 1, factor, factor^2, ... and give "
        "their place to new ones (asynchronous successive halving). Members of several compiled steps are "
        "compared when all have come so far.",
        FLAG,
    )
    halving_factor: int = option(
        3,
        "Factor between the epochs of two comparisons, and of the members that stop at one.",
        whole(2, 1024),
    )
    halving_epochs: int = option(1, "Epochs before the first comparison.", whole(1, 1_000_000))
    at_once: int | None = option(
        None,
        "Members that train side by side, on all devices. Does not change their results, but what halving "
        "compares them with where all have one compiled step.",
        whole(1, MOST_REPLICAS),
        shown=f"{DEFAULT_PLACES} on each device, or as many as fit into memory",
    )
    keep: int = option(
        1, "Number of best members whose weights are kept in the output folder.", whole(1, 1 << 20)
    )
    ensemble: bool = option(
        False,
        "Also export the mean of the probabilities, or other outputs, of the best "
        f"{ENSEMBLE_MEMBERS} members, or of as many as are kept.",
        FLAG,
    )
    checkpoint_seconds: float = option(
        30.0,
        "Seconds of training between two checkpoints; 0 writes one after each epoch. Each holds all members "
        "that are training.",
        Kind("a number from 0 to 1e9", number(0, 1e9).read),
    )

    def __post_init__(self) -> None:
        read_options(self)
        if not self.halving and (self.halving_factor, self.halving_epochs) != (3, 1):
            raise InvalidArgumentError(
                "halving_factor: expected with halving, as halving_epochs; add it, or leave them out"
            )
