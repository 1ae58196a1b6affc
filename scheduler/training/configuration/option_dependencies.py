"""Options of a run that depend on others: which are ignored and why, and which exclude each other.

A function (options of a run) -> str is for `ignored` of an option: why it has no effect, or "".
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


def single_replica(run: TrainingConfig) -> str:
    """Options of several replicas are ignored with one."""
    return ALONE if run.replicas == 1 and not run.tunes else ""


def averages_nothing(run: TrainingConfig) -> str:
    """Options of averaging are ignored where replicas are not averaged."""
    averages = run.synchronisation.averages(2)
    return single_replica(run) or ("" if averages else f"--sync {run.sync} averages nothing")


def tau_averages_nothing(run: TrainingConfig) -> str:
    """`averages_nothing`, but not for the default of `tau`, which --sync sets."""
    return "" if run.tau == default_tau(run.sync) else averages_nothing(run)


def ends_before_ssgd(run: TrainingConfig) -> str:
    """`ssgd_epoch` is ignored where the run ends before it."""
    late = run.ssgd_epoch is not None and run.ssgd_epoch >= run.epochs
    return averages_nothing(run) or (f"the run ends with epoch {run.epochs}" if late else "")


def never_restarts(run: TrainingConfig) -> str:
    """Options of restarts are ignored where averaging never restarts."""
    if reason := averages_nothing(run):
        return reason
    if not run.synchronisation.restarts:
        return f"averaging never restarts with --sync {run.sync}"
    drops = run.learning_rate_drops and run.schedule == "piecewise"
    restarts = drops or run.ssgd_epoch is not None
    return "" if restarts else "averaging never restarts without --learning-rate-drops"


def no_own_data(run: TrainingConfig) -> str:
    """Options of a file of data are ignored without one."""
    return "" if run.data is not None else "it is for --data"


def no_given_weights(run: TrainingConfig) -> str:
    """Options of given weights are ignored without these."""
    return "" if run.weights is not None else "it is for --weights"


def no_dataset_files(run: TrainingConfig) -> str:
    """`data_dir` is ignored for data without files there."""
    if run.data is not None:
        return "the data is --data"
    return f"the data set {run.dataset} needs no files" if run.dataset in WITHOUT_FILES else ""


def optimizer_without_momentum(run: TrainingConfig) -> str:
    """`momentum` is ignored by optimisers that have none, or as an option of their own."""
    return "" if run.optimizer in WITH_MOMENTUM else f"{run.optimizer} has none, or as an optimizer option"


def ends_before_drops(run: TrainingConfig) -> str:
    """`learning_rate_drops` are ignored by other schedules, and where the run ends before them."""
    if run.schedule != "piecewise":
        return f"--schedule is {run.schedule}"
    late = [epoch for epoch, _ in run.learning_rate_drops if epoch >= run.epochs]
    return (
        f"the run ends with epoch {run.epochs}, before drops at {', '.join(map(str, late))}" if late else ""
    )


def schedule_without_final_rate(run: TrainingConfig) -> str:
    """`final_rate` is ignored by schedules that are not smooth."""
    return f"--schedule is {run.schedule}" if run.schedule in SCHEDULES[:2] else ""


def only_cpus(run: TrainingConfig) -> bool:
    """True if all devices are CPU devices."""
    return run.device_kinds == {"CPU"}


def no_tf32_on_cpus(run: TrainingConfig) -> str:
    """`compute` tf32 is ignored on CPU devices."""
    return "CPUs have no tf32, and compute in fp32" if run.compute == "tf32" and only_cpus(run) else ""


def no_swap_on_cpus(run: TrainingConfig) -> str:
    """`swap` is ignored on CPU devices."""
    return "CPUs compute in host memory" if run.swap != NEVER and only_cpus(run) else ""


def require_compatible(run: TrainingConfig) -> None:
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
