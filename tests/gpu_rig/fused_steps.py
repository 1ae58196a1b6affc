"""Steps of several replicas of a model on one GPU: fused, or by a plan of each replica, synchronously."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler import Synchronisation
from scheduler.averaging.synchronisers import UPDATE
from scheduler.replicas.learners import Learners
from tensorbow.devices import GpuDevice
from tensorbow.kernels import backend_for
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.kernels.gpu.fused.plan import FusedPlan
from tensorbow.program import SegmentKind
from tests.gpu_rig.counted import CountedCuda
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.scheduler_rig.programs import Model

WORK = ("launch", "gemm", "convolution", "copy", "fill")


@dataclass
class Trained:
    """Variables by replica and name, central ones by name; fetched values by round and replica; work of the
    last round's replica segments, by its kind.
    """

    variables: list[dict[str, np.ndarray]]
    central: dict[str, np.ndarray]
    fetched: list[list[list[np.ndarray]]]
    work: Counter[str]

    @property
    def bits(self) -> list[bytes]:
        """Everything, in order."""
        values = [value for each in (*self.variables, self.central) for value in each.values()]
        values += [value for rounds in self.fetched for replica in rounds for value in replica]
        return [value.tobytes() for value in values]


def trained(
    runtime: EmulatedCuda | CountedCuda,
    model: Model,
    replicas: int,
    rounds: int,
    *,
    fused: bool,
    sync: str = "sma",
    compute: str = "fp32",
    captured: bool = False,
) -> Trained:
    """Trains; every replica has a batch of its own.

    captured: fused segments are enqueued by graphs, but for the first round.
    """
    with GpuDevice("/gpu:0", runtime, compute=compute) as device:
        learners = Learners(
            model.program, model.shapes, [device], replicas, Synchronisation(sync), results=2, by_segment=True
        )
        group = device.stream_group("fused")
        plan = None
        try:
            learners.values.initialize(model.initial)
            learners.prepare()
            step = learners.replicas[0].step
            backend = backend_for(device)
            assert isinstance(backend, GpuBackend)
            if fused:
                bases = [replica.binding.bases for replica in learners.replicas]
                own = [backend.context_of(replica.group).workspace for replica in learners.replicas]
                plan = FusedPlan(step, bases, group, backend.context_of(group), workspaces=own)
            stream = backend.context_of(group).stream
            fetched, work = [], Counter[str]()
            for round in range(rounds):
                for replica in learners.replicas:
                    feeds = dict(zip(replica.input_names, model.batch(round, replica.index), strict=True))
                    counters = {key: round for key in replica.step.state if key.startswith("counter")}
                    replica.binding.write(feeds, counters)
                    replica.group.synchronize()
                work.clear()
                for number in step.variants[UPDATE]:
                    if step.segments[number].kind is not SegmentKind.REPLICA:
                        (central,) = learners.central
                        central.launch(number, round, ()).wait()
                        continue
                    before = runtime.counts.copy()
                    if plan is not None and captured and round:  # as the libraries must be warm
                        runtime.begin_capture(stream)
                        plan.enqueue(number)
                        graph = runtime.end_capture(stream)
                        runtime.launch_graph(graph, stream)
                        runtime.synchronize_stream(stream)
                        runtime.destroy_graph(graph)
                    elif plan is not None:
                        plan.enqueue(number)
                        runtime.synchronize_stream(stream)
                    else:
                        for replica in learners.replicas:
                            replica.binding.plan.launch(number, round)
                            replica.group.synchronize()
                    work += runtime.counts - before
                fetched.append(
                    [_fetched(device, replica, plan is not None, round) for replica in learners.replicas]
                )
            return Trained(
                [
                    {op.name: each.container.read(op.name) for op in learners.layout.variables}
                    for each in learners.replicas
                ],
                learners.central[0].weights(0) if learners.central else {},
                fetched,
                Counter({kind: work[kind] for kind in WORK if work[kind]}),
            )
        finally:
            if plan is not None:
                plan.close()
            learners.close()
            group.close()


def _fetched(device: GpuDevice, replica: Any, fused: bool, round: int) -> list[np.ndarray]:
    binding = replica.binding
    if not fused:
        return [value.copy() for value in binding.plan.fetch_arrays(round)]
    return [
        device.read(binding.bases[ref.region] + ref.offset, ref.shape, ref.dtype.as_numpy_dtype)
        for ref in binding.executable.fetches
    ]
