"""The op that stands in the outer graph for one step of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall, OpDef
from tensorbow.ops.definition import define_op
from tensorbow.specs import TensorSpec


class StepRunner(Protocol):
    """Runs a round of a step over all replicas."""

    def step(self) -> Sequence[Sequence[Any]]:
        """The step's results, by replica."""


def _declared(inputs: Sequence[TensorSpec], attrs: Attrs) -> Sequence[TensorSpec]:
    return [TensorSpec((attrs["replicas"], *shape), dtype) for shape, dtype in attrs["results"]]


def _run(call: KernelCall) -> None:
    runner: StepRunner = call.attrs["runner"]
    for replica, values in enumerate(runner.step()):
        for output, value in zip(call.outputs, values, strict=True):
            np.copyto(output[replica, ...], value)


ReplicatedStep: OpDef = define_op(
    "ReplicatedStep",
    spec=_declared,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_run, capturable=False),
    attrs={"runner": REQUIRED, "replicas": REQUIRED, "results": REQUIRED},
    stateful=True,
    doc="One round of all replicas; each result is [replicas, ...].",
)
