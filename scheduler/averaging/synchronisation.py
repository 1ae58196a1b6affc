"""Options of the synchronisation of replicas, and their bounds (Crossbow, section 3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias

import numpy as np

from scheduler.options import MOMENTUM, POSITIVE, RATE, documents_options, option, options_of, read_options
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import FLAG, Kind, Positive, RefusedError, checked, instance, number, one_of, whole

SYNCS = ("sma", "ssgd", "easgd", "diloco", "none")
EXCHANGE_DTYPES = ("bfloat16",)
DISPATCHES = ("round_robin", "fcfs")
REPLICA_MODES = AUTO_MODE, CAPTURED, FUSED = ("auto", "captured", "fused")
ON_NAN = ("stop", "skip")
FREEZE = "freeze"  # further reaction, of independent replicas: the replica ends alone

EASGD_BETA = 0.9
"""Default of beta = alpha * replicas for `easgd`, from its paper's experiments (2015, section 5)."""

OUTER_TAU = 100
"""Default of tau for `diloco`; its paper (2023, section 3) has 500 rounds, and 50 to 1000 beside them."""

OUTER_MOMENTUM = 0.6
"""Default of outer_momentum; its paper has 0.9, with which z oscillates for tens of outer steps.

Near a minimum, to which tau rounds take a replica by a fraction k of the way, an outer step is a linear map
of z, u and the progress under way. Its greatest root, at rate 0.7 and for k from 0.1 to 0.8: with momentum
0.9 it is 0.91 to 0.63, and 0.95 to 0.90 with staleness 1; with 0.6 0.75 to 0.51, and 0.77 to 0.72.
"""


@documents_options
@dataclass(frozen=True)
class Synchronisation:
    """Options of the averaging.

    `easgd` (elastic averaging SGD: Zhang, Choromanska, LeCun 2015, section 3) is SMA without momentum of z,
    and without restarts at jumps of the learning rate: every tau rounds
    w_i <- w_i - learning_rate * g_i - alpha (w_i - z) and z <- z + alpha * sum of (w_i - z), with w_i from
    before the step on the right; the step may be any optimiser's.

    `ssgd` with backup workers (Abadi et al., OSDI 2016, section 4.4) takes the first gradients of a round, as
    many as there are replicas without the backups, and their mean. Replica i computes on batch i of a round;
    what the others compute then is stale: it is dropped, with its batch. A replica that was dropped copies
    weights and slots of another one and joins the round of then.

    `diloco` (Douillard et al. 2023, algorithm 1) trains replicas for tau rounds without any exchange. Then
    their mean progress is an outer gradient, along which z takes a step with Nesterov momentum, and each
    replica goes on from z: p = mean of (w_i - z), u <- outer_momentum * u + p,
    z <- z + outer_learning_rate * (outer_momentum * u + p), w_i <- z. The optimisers' slots stay, and nothing
    restarts at jumps of the learning rate. With staleness 1 the exchange has the next tau rounds to complete:
    each replica goes on from the z before, plus the progress of its own that this z lacks, w_i <- z + p_i.
    With exchange_dtype bfloat16 a replica hands in p_i without the lower half of its bits, so with a relative
    error below 2^-7 (TensorFlow's white paper, 2015, section 5.5); with staleness 1 what is cut off is
    progress of its next period. Workers give each other 16 bits of each element, by MPI, by NCCL or in the
    memory that they share, and add them in float32 in the order of the workers; the sum of several replicas
    of a worker has as great an error once more. A step with collectives of its own sends all bits.

    With `fcfs` a round has as many batches as there are replicas, but a fast replica takes more of them and a
    slow one fewer, or none. A replica is free while fewer than `launch_ahead` of its tasks are on its stream;
    the free replica with the fewest tasks takes the next batch, among equals the one that has waited longest.
    With averaging, tau rounds are a period of replicas * tau tasks. After the last task of a period is
    assigned, each replica is averaged after its own last task: w_i <- w_i - c_i and z <- z + sum of c_i, with
    c_i = alpha (w_i - z) and w_i from after the replica's last step of the period. Tasks of the next period
    follow at once. With `none` there are no periods. Random ops draw by batch, so that the draws do not
    depend on the replica. Not reproducible: the assignment depends on timing and is not saved. `ssgd` does
    not support `fcfs`.
    """

    sync: str = option(
        "sma",
        "Synchronisation of the replicas: synchronous model averaging (sma), synchronous SGD (ssgd), elastic "
        "averaging SGD (easgd), rounds of their own and then an outer step (diloco), or none.",
        choices=SYNCS,
    )
    tau: int = option(
        None,
        "Number of rounds from one averaging to the next.",
        whole(1),
        shown=f"1, with diloco {OUTER_TAU}",
    )
    alpha: float | None = option(
        None,
        "Fraction of a replica's difference from the central model that each averaging removes.",
        POSITIVE,
        shown="1 / replicas, with easgd 0.9 / replicas, less with staleness",
    )
    mu: float = option(0.0, "Momentum of the central model; easgd has none.", MOMENTUM)
    outer_learning_rate: float = option(
        0.7,
        "Learning rate of the central model's outer steps, with sync diloco.",
        RATE,
    )
    outer_momentum: float = option(
        OUTER_MOMENTUM,
        "Nesterov momentum of the central model's outer steps, with sync diloco.",
        MOMENTUM,
    )
    exchange_dtype: str | None = option(
        None,
        "Precision of what replicas hand to an exchange, with sync diloco: bfloat16 keeps the upper half of "
        "each float32.",
        choices=EXCHANGE_DTYPES,
        shown="that of the weights",
    )
    staleness: int = option(
        0, "Number of averagings by which the central model that replicas read is delayed.", whole(0, 64)
    )
    clear_velocity: bool = option(
        False, "Also set the optimisers' momentum to zero when averaging restarts.", FLAG
    )
    ssgd_from: int | None = option(
        None,
        "First round of ssgd after sma; replicas then start from z with optimiser slots at zero.",
        Kind("a round of at least 1", whole(1).read),
        shown="never",
    )
    priority: int = option(
        -1,  # everybody waits for z
        "Priority of the streams of z, on devices with priorities: lower numbers run first, replicas have 0. "
        "CUDA supports -5 to 0, and uses the nearest.",
        whole(high=0),
    )
    dispatch: str = option(
        "round_robin",
        "Assignment of batches: one to each replica per round (round_robin), or each to the replica that is "
        "free first, so that fast replicas take more (fcfs: first come, first served). fcfs is not "
        "reproducible: the assignment depends on timing.",
        choices=DISPATCHES,
    )
    backup: int = option(
        0,
        "Number of replicas whose gradients a round of ssgd does not wait for: it takes the first that are "
        "there, and drops the rest. Not reproducible: what is dropped depends on timing.",
        whole(0),
    )
    replica_mode: str = option(
        "auto",
        "Way in which the replicas of a GPU share it: each with kernels of its own, side by side in one CUDA "
        "graph (captured), or all in each kernel (fused); the numbers differ by rounding. With auto, tune "
        "and runs that tune the number of replicas measure both and take the faster; elsewhere replicas are "
        "captured.",
        choices=REPLICA_MODES,
    )
    ema: float | None = option(
        None,
        "Decay of an exponential moving average of z, such as 0.999. It begins with "
        "z's initial values; each averaging (with ssgd or one replica, each round) is followed by "
        "ema = decay * ema + (1 - decay) * z. It is evaluated and saved beside z.",
        Kind("a decay in (0, 1)", number(0, 1, above=True, below=True).read),
        shown="none",
    )

    def __post_init__(self) -> None:
        read_options(self)
        object.__setattr__(self, "tau", default_tau(self.sync) if self.tau is None else self.tau)
        if self.ssgd_from is not None and self.sync != "sma":
            raise InvalidArgumentError(
                f"ssgd_from: expected sync 'sma', which ssgd follows, got {self.sync!r}; leave it out"
            )
        if self.mu and self.sync == "easgd":
            raise InvalidArgumentError(
                f"mu: expected 0 with sync 'easgd', whose z has no momentum, got {self.mu:g}; leave it out, "
                "or choose sync 'sma'"
            )
        if self.backup:
            self._require_backup_options()
        if self.outer_steps:
            self._require_outer_options()
        else:
            self._require_no_outer_options()
        if self.first_come and (self.sync == "ssgd" or self.ssgd_from is not None):
            raise InvalidArgumentError(
                "dispatch: expected round_robin with ssgd, which steps all replicas together on one batch "
                "each; got 'fcfs'; leave it out, or choose sync sma, easgd, diloco or none"
            )

    def _require_outer_options(self) -> None:
        """Raises InvalidArgumentError for options that outer steps have not."""
        for name, usual, instead in (
            ("alpha", None, "replicas go on from z itself; leave it out"),
            ("mu", 0.0, "give outer_momentum"),
        ):
            if (value := getattr(self, name)) != usual:
                raise InvalidArgumentError(f"{name}: not for sync 'diloco', got {value:g}; {instead}")
        if self.staleness > 1:
            raise InvalidArgumentError(
                f"staleness: expected 0 or 1 with sync 'diloco', where one exchange is under way at a time, "
                f"got {self.staleness}; give 1, and a greater tau if the exchange needs more time"
            )

    def _require_no_outer_options(self) -> None:
        """Raises InvalidArgumentError for options of outer steps, where there are none."""
        declared = options_of(type(self))
        for name in ("outer_learning_rate", "outer_momentum", "exchange_dtype"):
            if (value := getattr(self, name)) != declared[name].default:
                raise InvalidArgumentError(
                    f"{name}: expected sync 'diloco', which has outer steps, got {value} with sync "
                    f"{self.sync!r}; leave it out, or choose sync 'diloco'"
                )

    def _require_backup_options(self) -> None:
        """Raises InvalidArgumentError for options that do not go with backup workers."""
        if self.sync != "ssgd":
            raise InvalidArgumentError(
                f"backup: expected 0 with sync {self.sync!r}, where no round waits for gradients, got "
                f"{self.backup}; choose sync 'ssgd'"
            )
        if self.ema is not None:
            raise InvalidArgumentError(
                "ema: not with backup workers, of which none has done every update; leave ema or backup out"
            )

    def listed(self) -> list[str]:
        """Each option with its value, as `tau=1`."""
        return [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)]

    @property
    def in_lockstep(self) -> bool:
        """True if each round waits for the tasks of all replicas; else a run is made of single tasks."""
        return not (self.first_come or self.backup)

    @property
    def outer_steps(self) -> bool:
        """True if z takes outer steps along the mean progress of the replicas."""
        return self.sync == "diloco"

    @property
    def z_momentum(self) -> float:
        """Momentum of z: mu, or that of its outer steps."""
        return self.outer_momentum if self.outer_steps else self.mu

    @property
    def first_come(self) -> bool:
        """True if a batch goes to the replica that is free first."""
        return self.dispatch == "fcfs"

    @property
    def fused(self) -> bool:
        """True if each kernel of a GPU computes all its replicas."""
        return self.replica_mode == "fused"

    @property
    def saves_velocity(self) -> bool:
        """True if u, the momentum of z, is part of a checkpoint: also if mu and so u is 0."""
        return self.sync in ("sma", "diloco")

    @property
    def restarts(self) -> bool:
        """True if averaging restarts where the learning rate jumps."""
        return self.sync == "sma"

    def averages(self, replicas: int) -> bool:
        """True if there is anything to average: one replica is plain training, z is w."""
        return self.sync in ("sma", "easgd", "diloco") and replicas > 1

    def z_copies(self, replicas: int) -> int:
        """Copies of z that averaging needs: staleness + 1, or 0 without averaging."""
        return self.staleness + 1 if self.averages(replicas) else 0

    def averages_gradients(self, replicas: int) -> bool:
        """True if some round steps on the mean of gradients."""
        return (self.sync == "ssgd" or self.ssgd_from is not None) and replicas > 1

    def mean_gradient_from(self, replicas: int) -> int | None:
        """The round from which all replicas step together on the mean of their gradients, or None."""
        if not self.averages_gradients(replicas):
            return None
        return 0 if self.ssgd_from is None else self.ssgd_from

    def require_z(self, replicas: int) -> None:
        """Raises InvalidArgumentError for an option that does not suit the number of replicas."""
        if self.backup and self.backup >= replicas:
            raise InvalidArgumentError(
                f"backup: expected fewer than the {replicas} replicas, got {self.backup}; each round needs "
                "the gradient of one at least"
            )
        if self.ema is not None and self.sync == "none" and replicas > 1:
            raise InvalidArgumentError(
                f"ema: expected a central model to average over time, got sync 'none' with {replicas} "
                "independent replicas; leave it out, or choose sync sma, ssgd, easgd or diloco"
            )
        if self.ema is not None and self.first_come and not self.averages(replicas):
            raise InvalidArgumentError(
                "ema: expected dispatch round_robin for one replica, got 'fcfs'; leave one of them out"
            )

    @checked
    def alpha_for(self, replicas: Positive) -> float:
        """alpha: 0 where nothing is averaged, 1 with `diloco`, else as given, or by default 1 / replicas
        (`easgd`: 0.9 / replicas), with staleness half its bound at most.

        Raises InvalidArgumentError beyond `alpha_bound`, or as `require_z`. The bound is necessary, not
        sufficient: the optimiser's steps ask for less.
        """
        self.require_z(replicas)
        if not self.averages(replicas):
            return 0.0
        if self.outer_steps:
            return 1.0
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


def _read_on_nan(value: Any) -> str:
    if isinstance(value, str) and value == FREEZE:
        raise RefusedError(
            "freeze ends an independent replica alone, as tb.sweep does with its members, and "
            "tb.LearningEngine with sync 'none'"
        )
    read: str = one_of(*ON_NAN).read(value)
    return read


REACTION = Kind(one_of(*ON_NAN).expected, _read_on_nan)
OnNan: TypeAlias = Annotated[str, REACTION]
OnNanAlone: TypeAlias = Annotated[str, one_of(*ON_NAN, FREEZE)]
AsSynchronisation: TypeAlias = Annotated[
    Synchronisation, instance(Synchronisation, expected="tb.Synchronisation(sync, ...)")
]


def modes_on(kinds: Collection[str], options: Synchronisation) -> tuple[str | None, ...]:
    """Modes of replicas to measure on devices of these kinds, in this order: on GPUs the given one, or both
    with "auto"; other devices have none.
    """
    if {*kinds} != {"gpu"}:
        return (None,)
    return (CAPTURED, FUSED) if options.replica_mode == AUTO_MODE else (options.replica_mode,)


def default_tau(sync: str) -> int:
    """The default of tau, by the option sync."""
    return OUTER_TAU if sync == "diloco" else 1


def require_round_robin(options: Synchronisation, user: str) -> None:
    """Raises InvalidArgumentError for `fcfs` and backup workers where one round is waited for before the next
    is given."""
    if options.backup:
        raise InvalidArgumentError(
            f"backup: expected 0 for {user}, which waits for all replicas at each step, got "
            f"{options.backup}; leave it out, or train by the method train of a tb.MultiGpuReplicator, by "
            "tb.LearningEngine.run or the Trainer"
        )
    if options.first_come:
        raise InvalidArgumentError(
            f"dispatch: expected round_robin for {user}, which waits for all replicas at each step, so that "
            "none is free before the others; got 'fcfs'; leave it out, or train by the method train of a "
            "tb.MultiGpuReplicator, by tb.LearningEngine.run or the Trainer"
        )


def require_no_meeting(options: Synchronisation, exchanges: Collection[Any]) -> None:
    """Raises InvalidArgumentError for `fcfs` and backup workers with a step that has exchanges."""
    if options.backup and exchanges:
        raise InvalidArgumentError(
            f"backup: expected 0 for a step with exchanges, in which all replicas meet; got "
            f"{options.backup}; leave it out"
        )
    if options.first_come and exchanges:
        raise InvalidArgumentError(
            "dispatch: expected round_robin for a step with exchanges, in which all replicas meet; "
            "got 'fcfs'; leave it out"
        )


def require_whole_replicas(options: Synchronisation, devices_per_replica: int) -> None:
    """Raises InvalidArgumentError for `fcfs` and backup workers with replicas of several devices."""
    if options.backup and devices_per_replica > 1:
        raise InvalidArgumentError(
            f"backup: expected 0 for replicas with several devices, here {devices_per_replica}, whose parts "
            f"are launched together; got {options.backup}; leave it out"
        )
    if options.first_come and devices_per_replica > 1:
        raise InvalidArgumentError(
            f"dispatch: expected round_robin for replicas with several devices, here {devices_per_replica}, "
            "whose parts are launched together; got 'fcfs'; leave it out"
        )


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
