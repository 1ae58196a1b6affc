"""All options of a training run, with their defaults and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from scheduler.averaging.synchronisation import ON_NAN, Synchronisation, shortened
from scheduler.batches.device_data import ON_DEVICE
from scheduler.replicas.device_plans import most_steps
from scheduler.replicas.replica_counts import MOST_REPLICAS, replica_counts
from scheduler.training.option_values import AUTO, NOT_NEGATIVE, POSITIVE, is_positive, typed
from scheduler.training.run_trace import check_traced_rounds
from tensorbow.data import DATASETS
from tensorbow.devices import DeviceName, device_kinds, gpu_status
from tensorbow.devices.gpu import COMPUTE
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import get_model

# What must agree between a checkpoint and the run that goes on from it.
IDENTITY = (
    "model",
    "dataset",
    "batch_size",
    "replicas_per_device",
    "devices",
    "sync",
    "tau",
    "staleness",
    "seed",
    "ssgd_epoch",
)

MOST_EPOCHS = 1_000_000

# Options that count something: their least and greatest values.
INTEGERS = (
    ("batch_size", 1, (1 << 31) - 1),  # what shapes are counted in
    ("replicas_per_device", 1, MOST_REPLICAS),
    ("epochs", 1, MOST_EPOCHS),
    ("launch_ahead", 1, 64),
    ("steps_per_launch", 1, 4096),
    ("staleness", 0, 64),
    ("tau", 1, 1 << 40),
    ("seed", 0, (1 << 64) - 1),
    ("keep_checkpoints", 1, 1 << 40),
    ("checkpoint_rounds", 1, 1 << 40),
    ("ssgd_epoch", 1, MOST_EPOCHS),
)


DEFAULT_REPLICAS = 2  # on each device

# Options of which each model has its own default.
OF_THE_MODEL = ("dataset", "batch_size", "learning_rate_drops", "weight_decay", "epochs")
_THE_MODELS: Any = None


@dataclass(frozen=True)
class TrainingConfig:
    """A training run. `batch_size` is per replica; the defaults do not depend on the machine.

    dataset, batch_size, learning_rate_drops, weight_decay, epochs: what is not given, or None, is the
        model's own (`tensorbow.models.Defaults`).
    replicas_per_device: one count for all devices, or one for each of them; or `auto`: the run begins with
        one on each, measures itself, and adds and removes replicas until it knows the number that trains
        fastest. Timing decides then: two runs, or two machines, do not give the same bits.
    learning_rate: None takes the model's, for this number of replicas.
    learning_rate_drops: (epoch, factor) pairs: from that epoch on the rate is `factor` times the first.
    alpha: None is 1 / replicas, with sync easgd 0.9 / replicas, less with staleness.
    clear_velocity: whether a restart of averaging, as at a drop, also clears the optimiser's slots.
    ssgd_epoch: after that many epochs averaging gives way to synchronous SGD; None is never.
    steps_per_launch: rounds that a replica does in one launch, averaging included; see LearningEngine. The
        bits stay the same. None finds as many as take about 20 ms, 64 at most, for each number of replicas,
        where that can be: on one CPU device with native code; elsewhere it is 1.
    dispatch: `round_robin`, or `fcfs`: a batch goes to the replica that is free first, and two runs do not
        give the same bits; `Synchronisation` has the rules. A run may be gone on with by the other.
    decay_all: weight decay for biases too.
    compute: in what GPUs compute products and convolutions of float32: fp32, or on tensor cores tf32 or bf16;
        None is the devices' own, fp32 unless `tb.configure_gpus` said otherwise.
    trace: a file for a Chrome trace of `trace_rounds`, (first, stop); None is the run's first hundred.
    keep_checkpoints: the newest so many; the best and the last sound one (`Tally`) are kept beside them.
    data_on_device: whether devices keep the data set and make the batches, with the same bits: `auto` on
        GPUs, where it takes at most half of what the replicas leave free, and on CPU devices with native
        code, where it takes nothing; `always` on all CPU devices; or `never`.
    """

    model: str = "lenet"
    dataset: str = _THE_MODELS
    data_dir: str | None = None
    batch_size: int = _THE_MODELS
    replicas_per_device: int | tuple[int, ...] | Literal["auto"] = DEFAULT_REPLICAS
    devices: tuple[str, ...] = ("cpu:0",)
    sync: str = "sma"
    tau: int = 1
    alpha: float | None = None
    mu: float = 0.0
    staleness: int = 0
    momentum: float = 0.9
    learning_rate: float | None = None
    learning_rate_drops: tuple[tuple[int, float], ...] = _THE_MODELS
    weight_decay: float = _THE_MODELS
    epochs: int = _THE_MODELS
    max_seconds: float | None = None
    target_accuracy: float | None = None
    seed: int = 0
    launch_ahead: int = 2
    steps_per_launch: int | None = None
    on_nan: str = "stop"
    output: str | None = None
    resume: str | None = None
    checkpoint_rounds: int | None = None
    keep_checkpoints: int = 2
    clear_velocity: bool = False
    ssgd_epoch: int | None = None
    decay_all: bool = False
    trace: str | None = None
    trace_rounds: tuple[int, int] | None = None
    data_on_device: str = "auto"
    compute: str | None = None
    dispatch: str = "round_robin"

    def __post_init__(self) -> None:
        by_name = {field.name: field for field in fields(self)}
        model = typed(by_name["model"], self.model)
        own = get_model(model).defaults
        for name, field in by_name.items():
            value = getattr(self, name)
            if value is None and name in OF_THE_MODEL:
                value = getattr(own, name)
            object.__setattr__(self, name, typed(field, value))
        _one_of("dataset", self.dataset, DATASETS)
        _one_of("on_nan", self.on_nan, ON_NAN)
        _one_of("data_on_device", self.data_on_device, ON_DEVICE)
        if self.compute is not None:
            _one_of("compute", self.compute, COMPUTE)
        for name, least, most in INTEGERS:
            given = getattr(self, name)
            for value in given if isinstance(given, tuple) else (given,):
                if isinstance(value, int) and not least <= value <= most:
                    bounds = f"at least {least}" if value < least else f"at most {most}"
                    raise InvalidArgumentError(f"{name}: expected {bounds}, got {shortened(value)}")
        self._check_numbers()
        check_devices(self.devices)
        self._check_counts()
        check_traced_rounds(self.trace, self.trace_rounds)
        if self.ssgd_epoch is not None and self.sync != "sma":
            raise InvalidArgumentError(
                f"ssgd_epoch: expected sync sma, which ssgd follows, got sync {self.sync}; leave it out"
            )
        if self.ssgd_epoch is not None and self.dispatch == "fcfs":
            raise InvalidArgumentError(
                "ssgd_epoch: expected dispatch round_robin, since ssgd steps all replicas together; "
                "got fcfs; leave one of them out"
            )
        for name in ("output", "resume", "trace"):
            if getattr(self, name) == "":
                raise InvalidArgumentError(f"{name}: expected a path, got an empty text")
        self.synchronisation.alpha_for(self.replicas)

    def _check_numbers(self) -> None:
        """The ranges of what need not be an integer. NaN is in none of them."""
        for name, value, holds, expected in (
            ("momentum", self.momentum, 0 <= self.momentum < 1, "a number in [0, 1)"),
            (
                "weight_decay",
                self.weight_decay,
                self.weight_decay == 0 or is_positive(self.weight_decay),
                NOT_NEGATIVE,
            ),
            ("learning_rate", self.learning_rate, is_positive(self.learning_rate), POSITIVE),
            ("alpha", self.alpha, is_positive(self.alpha), POSITIVE),
            ("max_seconds", self.max_seconds, is_positive(self.max_seconds), POSITIVE),
            (
                "target_accuracy",
                self.target_accuracy,
                self.target_accuracy is None or 0 < self.target_accuracy <= 1,
                "a fraction in (0, 1], as 0.99",
            ),
        ):
            if not holds:
                raise InvalidArgumentError(f"{name}: expected {expected}, got {value:g}")
        epochs = [epoch for epoch, _ in self.learning_rate_drops]
        if epochs != sorted(set(epochs)) or any(e < 1 for e in epochs):
            raise InvalidArgumentError(
                f"learning_rate_drops: epochs must rise from 1, got {shortened(epochs)}"
            )
        if epochs and epochs[-1] > MOST_EPOCHS:
            raise InvalidArgumentError(
                f"learning_rate_drops: expected epochs of at most {MOST_EPOCHS}, got {epochs[-1]}"
            )
        for _, factor in self.learning_rate_drops:
            if not is_positive(factor):
                raise InvalidArgumentError(
                    f"learning_rate_drops: factors must be positive: expected {POSITIVE}, got {factor:g}"
                )

    def _check_counts(self) -> None:
        """One count for each device; where all are equal, one number says so."""
        counts = self.replicas_per_device
        if isinstance(counts, tuple):
            if len(counts) != len(self.devices):
                listed = ",".join([*map(str, counts[:20]), *(["..."] if len(counts) > 20 else [])]) or "none"
                raise InvalidArgumentError(
                    f"replicas_per_device: expected one number, or one for each of {len(self.devices)} "
                    f"devices, got {listed}"
                )
            if len(set(counts)) == 1:
                object.__setattr__(self, "replicas_per_device", counts[0])

    @property
    def tunes(self) -> bool:
        """Whether the number of replicas is found while training."""
        return self.replicas_per_device == AUTO

    @property
    def replicas(self) -> int:
        """Replicas on all devices; of a run that finds their number, those it begins with."""
        return sum(self.replica_counts)

    @property
    def replica_counts(self) -> tuple[int, ...]:
        """Replicas on each device; of a run that finds their number, those it begins with."""
        if isinstance(self.replicas_per_device, str):
            return (1,) * len(self.devices)
        return replica_counts(self.replicas_per_device, len(self.devices))

    @property
    def synchronisation(self) -> Synchronisation:
        """The options of averaging, but for the round of `ssgd_epoch`, which depends on the data."""
        return Synchronisation(
            self.sync,
            self.tau,
            self.alpha,
            self.mu,
            self.staleness,
            clear_velocity=self.clear_velocity,
            dispatch=self.dispatch,
        )

    @property
    def batches_ahead(self) -> int:
        """Batches held ready for each replica; with `fcfs` some of them may be with a slow one."""
        return self.launch_ahead * (2 if self.dispatch == "fcfs" else 1) + 1

    @property
    def results_kept(self) -> int:
        """Of each replica, in memory."""
        return (self.launch_ahead + 1) * most_steps(self.steps_per_launch)

    def synchronisation_for(self, first_round: Callable[[int], int]) -> Synchronisation:
        """All options of averaging, on data of which that is the round that an epoch begins with."""
        if self.ssgd_epoch is None:
            return self.synchronisation
        return replace(self.synchronisation, ssgd_from=first_round(self.ssgd_epoch))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for YAML and JSON."""
        values = asdict(self)
        values["devices"] = list(self.devices)
        if isinstance(self.replicas_per_device, tuple):
            values["replicas_per_device"] = list(self.replicas_per_device)
        values["trace_rounds"] = None if self.trace_rounds is None else list(self.trace_rounds)
        values["learning_rate_drops"] = [list(pair) for pair in self.learning_rate_drops]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """The reverse of `to_dict`. Raises InvalidArgumentError for unknown names or wrong types."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            shown = ", ".join(shortened(name) for name in unknown[:5])
            raise InvalidArgumentError(f"unknown option {shown}; known: {', '.join(sorted(known))}")
        return cls(**values)

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """In what a saved configuration is another run than this one.

        With `auto` replicas the batch size may be another one: it begins another tuning.
        """
        mine = self.to_dict()
        return [
            f"{name} was {shortened(saved.get(name))}, is {mine[name]!r}"
            for name in IDENTITY
            if saved.get(name) != mine[name] and not (self.tunes and name == "batch_size")
        ]


def check_devices(names: tuple[str, ...]) -> None:
    """Raises InvalidArgumentError for what names no device that a run can train on."""
    if not names:
        raise InvalidArgumentError("devices: expected at least one, as cpu:0; got none")
    parsed = [_device(name) for name in names]
    if len(set(map(str, parsed))) != len(names):
        raise InvalidArgumentError(f"devices: expected different ones, got {', '.join(names)}")


def _device(text: str) -> DeviceName:
    try:
        name, reason = DeviceName.parse(text), ""
    except InvalidArgumentError as error:
        raise _no_device(text, "it is no name of a device") from error
    kind = (name.kind or "").lower()
    if not kind:
        reason = "it names no device"
    elif name.job is not None or name.task is not None:
        reason = "a run trains on this process's devices"
    elif kind not in device_kinds():
        gpu = "; a GPU is gpu:0" if kind == "cuda" else ""
        reason = f"this version has no {kind.upper()} device{gpu}"
    elif kind == "gpu" and gpu_status().problem:
        reason = gpu_status().problem
    elif kind == "null":
        reason = "it records launches and computes nothing"
    elif name.index is None:
        reason = f"it has no number; write {kind}:0"
    if reason:
        raise _no_device(text, reason)
    return name


def _no_device(text: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"devices: expected names such as cpu:0,cpu:1; got {shortened(text)}: {reason}"
    )


def _one_of(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise InvalidArgumentError(f"{name}: expected one of {', '.join(known)}, got {shortened(value)}")
