"""TensorBow's replicas for `gpu_replicas.py`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gpu_replicas_contestant import Case, Contestant, Opening, Settings
from ours import Training, training_window
from replica_modes import Ways

from scheduler.averaging.synchronisers import UPDATE
from tensorbow.data import ImageDataset
from tensorbow.devices import GpuDevice

TASKS_TIMED = 400


def our_contestants(case: Case, settings: Settings) -> Opening:
    """TensorBow's contestants: every number of replicas, averaged and not, in each way to run them."""
    data = case.data()
    for sync in ("sma", "none"):
        for ways in settings.ways:
            for replicas in settings.counts:
                if replicas > 1 or sync == "none":
                    name = f"TensorBow {sync} x {replicas}, {ways.title}"
                    yield name, partial(_ours, case, settings, data, replicas, sync, ways)


def _ours(
    case: Case, settings: Settings, data: ImageDataset, replicas: int, sync: str, ways: Ways
) -> Contestant:
    options = ways.options()
    device = GpuDevice("/gpu:0", settings.runtime, compute=settings.compute)
    try:
        with ways.building():
            training = training_window(
                case.model, case.batch_size, replicas, sync=sync, devices=(device,), data=data, **options
            )
    except BaseException:
        device.close(drain=False)
        raise

    def close() -> None:
        training.close()
        device.close()

    facts = partial(_facts, training, settings)
    return Contestant(f"TensorBow {sync}", replicas, training, close, facts, ways.title)


def _facts(training: Training, settings: Settings) -> dict[str, Any]:
    """Launches of a learning task, and the host's time for them and for a task of the first replica."""
    engine = training.engine
    replica = engine.learners.replicas[0]
    plan = replica.binding.plan
    launches = [launch for part in plan.executable.variants[UPDATE] for launch in plan.launches(part)]
    rounds = max(3, (12 if settings.emulated else TASKS_TIMED) // engine.learners.count)
    with (
        timed(settings.runtime, "launch_graph") as graphs,
        timed(replica, "launch") as tasks,
    ):
        training.run_rounds(rounds)
    return {
        "kernels_per_step": sum(len(launch.groups) for launch in launches),
        "graphs_per_step": sum(not launch.reason for launch in launches),
        "launched_alone": [launch.reason for launch in launches if launch.reason],
        "host_us_per_graph_launch": statistics.median(graphs) if graphs else None,
        "host_us_per_task": statistics.median(tasks) if tasks else None,
    }


@contextmanager
def timed(owner: Any, method: str) -> Iterator[list[float]]:
    """Records the microseconds of the calling thread in every call of a method while the context lasts."""
    durations: list[float] = []
    call = getattr(owner, method)

    def measured(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter_ns()
        try:
            return call(*arguments, **options)
        finally:
            durations.append((time.perf_counter_ns() - started) / 1e3)

    setattr(owner, method, measured)
    try:
        yield durations
    finally:
        delattr(owner, method)  # uncovers the method of the class
