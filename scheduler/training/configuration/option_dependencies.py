"""Options of a run that depend on others: reasons why one has no effect, and combinations that are refused.

Reasons are functions of the run's options, for `ignored` of an option; "" where it has an effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.averaging.synchronisation import default_tau
from scheduler.training.configuration.optimizer_choice import WITH_MOMENTUM
from scheduler.training.configuration.option_kinds import SCHEDULES
from tensorbow.compiler.recompute import NEVER
from tensorbow.data import WITHOUT_FILES
from tensorbow.errors import InvalidArgumentError

if TYPE_CHECKING:
    from scheduler.training.configuration.config import TrainingConfig

ALONE = "there is one replica"  # reason why options of averaging are ignored


def alone(run: TrainingConfig) -> str:
    """Reason for options of several replicas."""
    return ALONE if run.replicas == 1 and not run.tunes else ""


def unaveraged(run: TrainingConfig) -> str:
    """Reason for options of averaging."""
    averages = run.synchronisation.averages(2)
    return alone(run) or ("" if averages else f"--sync {run.sync} averages nothing")


def unaveraged_tau(run: TrainingConfig) -> str:
    """Reason for `tau`."""
    return "" if run.tau == default_tau(run.sync) else unaveraged(run)


def late_ssgd(run: TrainingConfig) -> str:
    """Reason for `ssgd_epoch`."""
    late = run.ssgd_epoch is not None and run.ssgd_epoch >= run.epochs
    return unaveraged(run) or (f"the run ends with epoch {run.epochs}" if late else "")


def without_restart(run: TrainingConfig) -> str:
    """Reason for options of restarts of averaging."""
    if reason := unaveraged(run):
        return reason
    if not run.synchronisation.restarts:
        return f"averaging never restarts with --sync {run.sync}"
    drops = run.learning_rate_drops and run.schedule == "piecewise"
    restarts = drops or run.ssgd_epoch is not None
    return "" if restarts else "averaging never restarts without --learning-rate-drops"


def without_weights(run: TrainingConfig) -> str:
    """Reason for options of given weights."""
    return "" if run.weights is not None else "it is for --weights"


def without_files(run: TrainingConfig) -> str:
    """Reason for the folder of the data set's files."""
    if run.data is not None:
        return "the data is --data"
    return f"the data set {run.dataset} needs no files" if run.dataset in WITHOUT_FILES else ""


def without_momentum(run: TrainingConfig) -> str:
    """Reason for `momentum`."""
    return "" if run.optimizer in WITH_MOMENTUM else f"{run.optimizer} has none, or as an optimizer option"


def unused_drops(run: TrainingConfig) -> str:
    """Reason for `learning_rate_drops`."""
    if run.schedule != "piecewise":
        return f"--schedule is {run.schedule}"
    late = [epoch for epoch, _ in run.learning_rate_drops if epoch >= run.epochs]
    return (
        f"the run ends with epoch {run.epochs}, before drops at {', '.join(map(str, late))}" if late else ""
    )


def without_end(run: TrainingConfig) -> str:
    """Reason for the rate at the end of a smooth schedule."""
    return f"--schedule is {run.schedule}" if run.schedule in SCHEDULES[:2] else ""


def only_cpus(run: TrainingConfig) -> bool:
    """True if all devices are CPU devices."""
    return run.device_kinds == {"CPU"}


def unknown_precision(run: TrainingConfig) -> str:
    """Reason for `compute`."""
    return "CPUs have no tf32, and compute in fp32" if run.compute == "tf32" and only_cpus(run) else ""


def without_swap(run: TrainingConfig) -> str:
    """Reason for `swap`."""
    return "CPUs compute in host memory" if run.swap != NEVER and only_cpus(run) else ""


def require_fitting(run: TrainingConfig) -> None:
    """Raises InvalidArgumentError for options that exclude each other, or need others."""
    if run.trace_rounds is not None and run.trace is None:
        raise InvalidArgumentError("trace_rounds: expected a trace to write them to, got none; give --trace")
    if run.ssgd_epoch is not None and run.sync != "sma":
        raise InvalidArgumentError(
            f"ssgd_epoch: expected sync sma, which ssgd follows, got sync {run.sync}; leave it out"
        )
    if run.ssgd_epoch is not None and run.dispatch == "fcfs":
        raise InvalidArgumentError(
            "ssgd_epoch: expected dispatch round_robin, since ssgd steps all replicas together; "
            "got fcfs; leave one of them out"
        )
    if run.backup and run.tunes:
        raise InvalidArgumentError(
            f"backup: expected 0 where the number of replicas is tuned, got {run.backup}; give "
            "a number of replicas"
        )
    # Other workers may have replicas, too: whether some are left is the engine's to know.
    run.synchronisation.alpha_for(max(run.replicas, run.backup + 1))
    if run.tunes:
        run.synchronisation.require_z(2)
