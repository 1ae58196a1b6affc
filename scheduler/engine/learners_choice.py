"""Choice of the learners of an engine by devices per replica, and of the agreement with other workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.transport import Transport
from scheduler.replicas.hyperparameters import of_schedule
from scheduler.replicas.learners import Learners
from scheduler.replicas.parted_learners import AnyLearners, PartedLearners
from scheduler.replicas.step_program import StepProgram
from scheduler.workers.group import WorkerGroup
from scheduler.workers.lockstep import Lockstep
from tensorbow.devices import Device
from tensorbow.errors import InvalidArgumentError
from tensorbow.optimizers import Schedule
from tensorbow.specs import TensorSpec


def made_learners(
    program: StepProgram,
    specs: Sequence[TensorSpec],
    devices: Sequence[Device],
    replicas_per_device: int | Sequence[int],
    options: Synchronisation,
    devices_per_replica: int,
    transport: Transport | None,
    lockstep: Lockstep | None,
    **common: Any,
) -> AnyLearners:
    """Replicas with one device each, or with several. common: further arguments of both kinds of learners.

    Raises InvalidArgumentError for a transport of the caller's where replicas have several devices.
    """
    given = program, specs, devices
    if devices_per_replica == 1:
        return Learners(
            *given, replicas_per_device, options, transport=transport, lockstep=lockstep, **common
        )
    if transport is not None:
        raise InvalidArgumentError("transport: not for replicas with several devices; leave it out")
    return PartedLearners(*given, devices_per_replica, replicas_per_device, options, **common)


def lockstep_of(
    workers: WorkerGroup | None,
    options: Synchronisation,
    devices_per_replica: int,
    transport: Transport | None,
    schedule: Schedule | None,
) -> Lockstep | None:
    """Agreement with other workers, if there are some.

    Raises InvalidArgumentError for options that several workers do not take, or that differ between them, the
    schedule of the learning rate included.
    """
    if workers is None or workers.size == 1:
        return None
    refused = (
        ("dispatch", options.first_come, "round_robin", "'fcfs'"),
        ("devices_per_replica", devices_per_replica > 1, "1", devices_per_replica),
        ("transport", transport is not None, "none of the caller's", "one"),
    )
    for name, is_refused, expected, got in refused:
        if is_refused:
            raise InvalidArgumentError(
                f"{name}: expected {expected} with {workers.size} workers, got {got}; leave it out, or "
                "train in one process"
            )
    lockstep = Lockstep(workers)
    rates = of_schedule(schedule) if options.sync != "none" else []
    lockstep.require_equal("options of the synchronisation", [*options.listed(), *rates])
    return lockstep
