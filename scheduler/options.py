"""How replicas are kept together: the options of synchronisation and their bounds (Crossbow, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from types import NoneType

import numpy as np

from tensorbow.errors import InvalidArgumentError

SYNCS = ("sma", "ssgd", "easgd", "none")
DISPATCHES = ("round_robin", "fcfs")
ON_NAN = ("stop", "skip")

EASGD_BETA = 0.9
"""beta = alpha * replicas of `easgd`, by default: that of its paper's experiments (2015, section 5)."""


@dataclass(frozen=True)
class Synchronisation:
    """Options of the averaging.

    sync: `sma` (synchronous model averaging), `ssgd` (synchronous SGD: all replicas step on the mean of
        their gradients), `easgd` (elastic averaging SGD: Zhang, Choromanska, LeCun 2015, section 3) or `none`
        (independent replicas).
    ssgd_from: the round from which `sma` gives way to `ssgd`; replicas then start from z, slots at zero.
    tau: rounds between two averagings.
    alpha: pull of z on a replica, and of a replica on z; None is 1 / replicas, for `easgd` 0.9 / replicas,
        less with staleness.
    mu: momentum of z; `easgd` has none.
    staleness: averagings that z may lag.
    clear_velocity: whether a restart also sets the optimiser's slots to zero.
    priority: of z's streams, on devices that have priorities: a lower number goes first, 0 is that of the
        replicas. CUDA has -5 to 0, and takes the nearest.
    dispatch: which replica takes a batch. `round_robin`: batch n of a round goes to replica n. `fcfs` (first
        come, first served: Crossbow, section 4): batches go, in their order, each to the replica that is free
        first. See below.

    `easgd` is SMA without momentum of z, and without restarts where the learning rate jumps: every tau
    rounds w_i <- w_i - learning_rate * g_i - alpha (w_i - z) and z <- z + alpha * sum of (w_i - z), with w_i
    from before the step on the right; the step may be any optimiser's.

    With `fcfs` a round is still as many batches as there are replicas, but a fast replica takes more of them
    and a slow one fewer, or none. A replica is free while fewer than `launch_ahead` of its tasks are on its
    stream; of several that are free the one with the fewest takes the batch, of equals the one that has
    waited longest. With averaging, tau rounds are a window of replicas * tau tasks; when the last of them is
    taken, every replica is averaged behind its own last one, by its weights of then: w_i <- w_i - c_i and
    z <- z + sum of c_i, with c_i = alpha (w_i - z) and w_i from after its last step of the window. Tasks of
    the next window follow at once. With `none` there is no window. Random ops draw by batch, not by replica,
    so that a batch has the same draws whoever takes it. Timing decides who does: two runs do not give the
    same bits, and what decides who takes what is not kept. `ssgd` cannot be had with it.
    """

    sync: str = "sma"
    tau: int = 1
    alpha: float | None = None
    mu: float = 0.0
    staleness: int = 0
    clear_velocity: bool = False
    ssgd_from: int | None = None
    priority: int = -1  # everybody waits for z
    dispatch: str = "round_robin"

    def __post_init__(self) -> None:
        for name, choice, known in (("sync", self.sync, SYNCS), ("dispatch", self.dispatch, DISPATCHES)):
            if choice not in known:
                raise InvalidArgumentError(f"{name}: expected one of {', '.join(known)}, got {choice!r:.60}")
        for name, value, least in (("tau", self.tau, 1), ("staleness", self.staleness, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidArgumentError(f"{name}: expected an integer of at least {least}, got {value!r}")
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or self.priority > 0:
            raise InvalidArgumentError(
                f"priority: expected an integer of at most 0, got {self.priority!r:.60}"
            )
        for name, number in (("mu", self.mu), ("alpha", self.alpha)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, Real)):
                raise InvalidArgumentError(f"{name}: expected a number, got {number!r:.60}")
        if isinstance(self.ssgd_from, bool) or not isinstance(self.ssgd_from, (int, NoneType)):
            raise InvalidArgumentError(f"ssgd_from: expected a round or None, got {self.ssgd_from!r:.60}")
        if self.ssgd_from is not None and (self.sync != "sma" or self.ssgd_from < 1):
            raise InvalidArgumentError(
                f"ssgd_from: expected a round of at least 1, with sync 'sma'; got {self.ssgd_from} "
                f"with {self.sync!r}"
            )
        if not 0 <= self.mu < 1:
            raise InvalidArgumentError(f"mu: expected a momentum in [0, 1), got {self.mu}")
        if self.mu and self.sync == "easgd":
            raise InvalidArgumentError(
                f"mu: expected 0 with sync 'easgd', whose z has no momentum, got {self.mu:g}; leave it out, "
                "or choose sync 'sma'"
            )
        if self.first_come and (self.sync == "ssgd" or self.ssgd_from is not None):
            raise InvalidArgumentError(
                "dispatch: expected round_robin with ssgd, which steps all replicas together on one batch "
                "each; got 'fcfs'; leave it out, or choose sync sma, easgd or none"
            )

    @property
    def first_come(self) -> bool:
        """Whether a batch goes to the replica that is free first."""
        return self.dispatch == "fcfs"

    @property
    def has_velocity(self) -> bool:
        """Whether z moves with a momentum u, be it 0; it is part of a checkpoint then."""
        return self.sync == "sma"

    @property
    def restarts(self) -> bool:
        """Whether averaging restarts where the learning rate jumps."""
        return self.sync == "sma"

    def averages(self, replicas: int) -> bool:
        """Whether there is anything to average: one replica is plain training, z is w."""
        return self.sync in ("sma", "easgd") and replicas > 1

    def aggregates(self, replicas: int) -> bool:
        """Whether some round steps on the mean of gradients."""
        return (self.sync == "ssgd" or self.ssgd_from is not None) and replicas > 1

    def gang_from(self, replicas: int) -> int | None:
        """The round from which all replicas step together on the mean of their gradients, or None."""
        if not self.aggregates(replicas):
            return None
        return 0 if self.ssgd_from is None else self.ssgd_from

    def alpha_for(self, replicas: int) -> float:
        """alpha: 0 where nothing is averaged, else as given, or by default 1 / replicas (`easgd`:
        0.9 / replicas), with staleness half its bound at most.

        Raises InvalidArgumentError beyond `alpha_bound`. The bound is necessary, not sufficient: the
        optimiser's steps ask for less.
        """
        if not self.averages(replicas):
            return 0.0
        bound = alpha_bound(replicas, self.mu, self.staleness)
        default = (EASGD_BETA if self.sync == "easgd" else 1) / replicas
        if self.staleness:
            default = min(default, bound / 2)
        alpha = default if self.alpha is None else self.alpha
        if not 0 < alpha < bound:
            raise InvalidArgumentError(
                f"alpha: expected 0 < alpha < {bound:.4g} for {replicas} replicas, mu {self.mu:g} and "
                f"staleness {self.staleness}, or averaging diverges; got {alpha:g}; "
                f"the default is {default:.4g}"
            )
        return alpha


def synchronisation_of(given: Synchronisation | None) -> Synchronisation:
    """The options, or SMA with its defaults. Raises InvalidArgumentError for what is neither."""
    if given is None:
        return Synchronisation()
    if not isinstance(given, Synchronisation):
        raise InvalidArgumentError(
            f"synchronisation: expected tb.Synchronisation(sync, ...) or None, got {given!r:.60}"
        )
    return given


def require_round_robin(options: Synchronisation, user: str) -> None:
    """Raises InvalidArgumentError for `fcfs` where each replica is brought a batch of its own."""
    if options.first_come:
        raise InvalidArgumentError(
            f"dispatch: expected round_robin for a {user}, which brings every replica its batch of each step "
            "and waits for all; got 'fcfs'; leave it out, or train by tb.LearningEngine.run or the Trainer"
        )


def check_on_nan(on_nan: str) -> str:
    """What to do when a loss or gradient is not finite. Raises InvalidArgumentError for what is no choice."""
    if on_nan not in ON_NAN:
        raise InvalidArgumentError(f"on_nan: expected one of {', '.join(ON_NAN)}, got {on_nan!r:.60}")
    return on_nan


def alpha_bound(replicas: int, mu: float = 0.0, staleness: int = 0) -> float:
    """The largest alpha with which averaging alone, without gradients, is stable.

    With z from s averagings before, the mean of the replicas and z follow the recurrence whose
    characteristic polynomial is (x - mu) (x - 1 + alpha) x^s + alpha k x; it is stable while all roots
    lie inside the unit circle. For s = 0 that is alpha < 2 (1 + mu) / (k + 1 + mu).
    """
    bound = 2 * (1 + mu) / (replicas + 1 + mu)
    if staleness == 0:
        return bound

    def is_stable(alpha: float) -> bool:
        head = np.polymul([1.0, -mu], [1.0, alpha - 1.0])
        polynomial = np.polyadd(np.concatenate([head, np.zeros(staleness)]), [alpha * replicas, 0.0])
        return bool(np.abs(np.roots(polynomial)).max() < 1)

    low, high = 0.0, bound
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return low
