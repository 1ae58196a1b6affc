"""A step of all replicas, and the op that runs it from the user's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from replicator.step_inputs import Shapes, StepInputs
from replicator.tracing import TracedStep
from scheduler import Stepper, StepProgram
from scheduler.engine.evaluation_steps import run_outside_rounds
from scheduler.replicas.device_plans import MOST_STEPS
from tensorbow.data import BatchInputs
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall, OpDef
from tensorbow.nest import flatten, pack
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, as_dtype

Columns: TypeAlias = "Sequence[Sequence[Any]]"
"""Values of each tensor that a step returns, by round and then by replica."""
RESULTS_NBYTES = 1 << 20  # of a replica in a launch, at most, where the number of its rounds is chosen here


class StepRunner(Protocol):
    """Runs a step on all replicas."""

    def step(self) -> Columns:
        """Runs the step once; returns its results."""


class BuiltStep:
    """A traced step with its inputs; the runner of a `ReplicatedStep` op."""

    def __init__(
        self,
        run: Callable[[BuiltStep], Columns],
        number: int,
        traced: TracedStep,
        inputs: StepInputs,
        most_steps: int = 1,
    ):
        """run: runs the step once on all replicas. number: index among the steps of the replicator.

        most_steps: rounds of a launch, at most.
        """
        self.programs: dict[Shapes, int] = {}  # the engine's programs of the step, by the inputs' shapes
        self._run = run
        self.number = number
        self.program = number  # the engine's, for full batches
        self.traced = traced
        self.inputs = inputs
        self.most_steps = most_steps
        self.updates_no_weights = not traced.program.updates_weights
        self.evaluations = 0  # runs that updated no weights
        self.ended_early = False  # inputs have ended on one worker, and not on another

    @property
    def engine_program(self) -> tuple[StepProgram, Sequence[TensorSpec], int]:
        """Arguments of `LearningEngine.add_program`."""
        return self.traced.program, self.traced.shapes, self.most_steps

    @property
    def reads_weights(self) -> bool:
        """True if its results depend on a trainable variable."""
        left = [tensor.op for tensor in self.traced.tensors]
        seen = set(left)
        while left:
            op = left.pop()
            if op.attrs.get("role") == "weights":
                return True
            before = {*(tensor.op for tensor in op.inputs), *op.control_inputs} - seen
            seen |= before
            left += before
        return False

    def set_program(self, number: int) -> None:
        """Sets the number of the engine's program for full batches, the only program so far."""
        self.program, self.programs = number, {self.inputs.shapes: number}

    def _program_for(self, stepper: Stepper, arrays: Sequence[Array]) -> int:
        """The engine's program for a replica's inputs, new for sizes that are new."""
        shapes = tuple(array.shape for array in arrays)
        if shapes not in self.programs:
            specs = [TensorSpec(array.shape, as_dtype(array.dtype)) for array in arrays]
            stepper.settle()
            self.programs[shapes] = stepper.engine.add_program(self.traced.program, specs, self.most_steps)
        return self.programs[shapes]

    def step(self) -> Columns:
        """Runs the step once; returns its results."""
        return self._run(self)

    def select(self, stepper: Stepper, rounds: Sequence[Any]) -> None:
        """Has the stepper run the program of this step for such inputs. Raises what `add_program` raises."""
        is_full = not self.inputs.compiles_smaller
        stepper.select(self.program if is_full else self._program_for(stepper, rounds[0][0]))

    def is_selected(self, stepper: Stepper, rounds: Sequence[Any]) -> bool:
        """True if the stepper runs the program for such inputs already."""
        shapes = self.inputs.shapes
        if self.inputs.compiles_smaller:
            shapes = tuple(array.shape for array in rounds[0][0])
        return self.programs.get(shapes) == stepper.engine.selected

    def launch(self, stepper: Stepper, rounds: Sequence[Any]) -> Columns:
        """Runs rounds of its inputs in one launch; returns their results. Raises as `Stepper.step`."""
        inputs = self.inputs.joined(rounds)
        self.select(stepper, rounds)
        if self.updates_no_weights:
            self.evaluations += 1
            of_one = cast(Sequence[BatchInputs], inputs)
            by_replica = run_outside_rounds(stepper, of_one, self.evaluations - 1)
            return [*zip(*by_replica, strict=True)]
        return stepper.step(inputs, len(rounds)).metrics

    def results(self, columns: Columns, rounds: int) -> list[Any]:
        """Results of each round: arrays `[num_replicas, ...]` in the nest that the step returns.

        Operations in the nest become None.
        """
        arrays = []
        for values, tensor in zip(columns, self.traced.tensors, strict=True):
            array = np.array(values, tensor.dtype.as_numpy_dtype)
            if not len(values):  # of backup workers here none has counted
                array = array.reshape(0, *(extent or 0 for extent in tensor.spec.shape or ()))
            arrays.append(array.reshape(rounds, len(values) // rounds, *array.shape[1:]))
        nest = self.traced.structure
        if isinstance(nest, int):
            return [*arrays[nest]]
        of_leaves = [arrays[leaf] if isinstance(leaf, int) else [None] * rounds for leaf in flatten(nest)]
        return [pack(nest, iter([each[number] for each in of_leaves])) for number in range(rounds)]


def steps_with_room(traced: TracedStep) -> int:
    """Rounds of a launch whose results take little memory; 1 where their shapes are not known."""
    specs = [tensor.spec for tensor in traced.tensors]
    if not all(spec.is_static for spec in specs):
        return 1
    return min(MOST_STEPS, max(1, RESULTS_NBYTES // max(1, sum(spec.nbytes for spec in specs))))


def _declared(inputs: Sequence[TensorSpec], attrs: Attrs) -> Sequence[TensorSpec]:
    return [TensorSpec((attrs["replicas"], *shape), dtype) for shape, dtype in attrs["results"]]


def _run(call: KernelCall) -> None:
    runner: StepRunner = call.attrs["runner"]
    for output, values in zip(call.outputs, runner.step(), strict=True):
        for replica, value in enumerate(values):
            np.copyto(output[replica, ...], value)


ReplicatedStep: OpDef = define_op(
    "ReplicatedStep",
    spec=_declared,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_run, capturable=False, waits=True, explain=lambda attrs: attrs["explain"]()),
    attrs={"runner": REQUIRED, "replicas": REQUIRED, "results": REQUIRED, "explain": REQUIRED},
    stateful=True,
    doc="One round of all replicas; each result is [replicas, ...].",
)
