"""Sequences: quick ops of a dynamic step that run one after the other, without counts and frames.

A sequence has a slot for each value. Its parts are static regions, ops of the host that do not wait, and the
loops and conds that are made of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from operator import itemgetter
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tensorbow.array_likes import string_array
from tensorbow.compiler import NeedsDynamicModeError
from tensorbow.devices import DeviceValue
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    TensorBowError,
)
from tensorbow.executor.region import RunRegion, StaticRegion, run_timed
from tensorbow.executor.simple_loop import SimpleLoop
from tensorbow.executor.step_spans import Tell
from tensorbow.executor.string_kernels import string_kernel
from tensorbow.graph import HostCall, Operation, StepResources, add_iteration, blame
from tensorbow.specs import Array, as_dtype, compatible, render_dims
from tensorbow.timeline import OP


class SequencePart(Protocol):
    """Part of a sequence that runs at one place."""

    def run(self, values: list[Any], calls: SequenceCalls) -> None:
        """Reads and writes slots."""


class StepState(Protocol):
    """A step. error: what ends it, from another thread maybe."""

    error: BaseException | None


@dataclass(eq=False)
class SequenceCalls:
    """Calls of the parts of a sequence in one run of a step.

    check: raises the error that ends the step, if there is one. limited: the step has a deadline.
    keeps_values: values may lie on a GPU. teller: gives what takes spans, in the iterations of the loops
    around (frame, number); None where nothing is traced.
    """

    region: RunRegion
    shared: StepResources
    step: StepState
    check: Callable[[], None]
    limited: bool
    keeps_values: bool = False
    teller: Callable[[Sequence[tuple[str, int]]], Tell] | None = None
    loops: list[tuple[str, int]] = field(default_factory=list)  # around the part that runs, and iterations
    loop_run: object = None  # stands for the run of the outermost loop of a sequence that is under way
    stacks: dict[str, Any] = field(default_factory=dict)  # of the step, by name, as far as they were used

    def run(self, parts: Sequence[SequencePart], values: list[Any]) -> None:
        """Runs parts in turn."""
        if self.limited or self.teller is not None:
            for part in parts:
                self.check()
                part.run(values, self)
            return
        step = self.step
        for part in parts:
            if step.error is not None:
                self.check()
            part.run(values, self)

    def tell(self) -> Tell | None:
        """Receiver of spans of the part that runs; None if nothing is traced."""
        return None if self.teller is None else self.teller(self.loops)


class RegionPart:
    """A static region."""

    __slots__ = ("first", "free", "inputs", "last", "region")

    def __init__(self, region: StaticRegion, inputs: Sequence[int], first: int, free: Sequence[int]):
        """first: slot of its first output. free: slots whose values nothing needs any more."""
        self.region, self.inputs = region, tuple(inputs)
        self.first, self.last = first, first + len(region.outputs)
        self.free = tuple(free)

    def run(self, values: list[Any], calls: SequenceCalls) -> None:
        """See SequencePart.run."""
        region = self.region
        given = [values[slot] for slot in self.inputs]
        for slot in self.free:
            values[slot] = None
        tell = calls.tell()
        if tell is not None:
            values[self.first : self.last] = run_timed(
                region, given, lambda _, arrays, __: self._run_large(arrays, calls), tell
            )
            return
        form = region.small(given)
        values[self.first : self.last] = (
            self._run_large(given, calls) if form is None else form.compute(given)
        )

    def _run_large(self, given: Sequence[Array], calls: SequenceCalls) -> Sequence[Array]:
        region, parts = self.region, self.region.parts
        if parts is None:
            try:
                return calls.region(region, given, calls.loop_run)
            except NeedsDynamicModeError as error:
                parts = region.divided(error)
                if parts is None:
                    raise
        around, calls.loop_run = calls.loop_run, None  # the parts have slots, and steady inputs, of their own
        outputs: list[Array] = parts.run(given, calls)
        calls.loop_run = around
        return outputs[: len(region.outputs)]


class HostPart:
    """An op of the host that does not wait."""

    __slots__ = ("dtype", "first", "host", "inputs", "op", "several", "shape", "slots")

    def __init__(self, op: Operation, inputs: Sequence[int], first: int):
        """first: slot of its first output."""
        self.op = op
        self.host = op.definition.host or string_kernel(op)
        self.slots, self.several = tuple(inputs), len(inputs) > 1
        self.inputs: Any = itemgetter(*inputs) if self.several else inputs[0] if inputs else None
        self.first = first
        self.dtype, self.shape = usual_output(op)

    def run(self, values: list[Any], calls: SequenceCalls) -> None:
        """See SequencePart.run."""
        inputs = self.inputs
        if self.several:
            given = inputs(values)
        else:
            given = () if inputs is None else (values[inputs],)
        if calls.keeps_values:
            given = on_host(self.op, given)
        if calls.teller is not None:
            self._run_timed(given, values, calls)
            return
        try:
            outputs = self.host(HostCall(self.op, given, calls.shared))
        except Exception as error:
            raise blamed_host(self.op, error) from error
        if type(outputs) is np.ndarray and outputs.dtype is self.dtype and outputs.shape == self.shape:
            values[self.first] = outputs  # the usual case: one array, which fits
            return
        array = outputs[0] if type(outputs) is list and len(outputs) == 1 else None
        if type(array) is np.ndarray and array.dtype is self.dtype and array.shape == self.shape:
            values[self.first] = array
        elif outputs is not None or self.op.outputs:
            arrays = checked_outputs(self.op, outputs)
            values[self.first : self.first + len(arrays)] = arrays

    def _run_timed(self, given: tuple[Array, ...], values: list[Any], calls: SequenceCalls) -> None:
        tell, began_s = calls.tell(), perf_counter()
        try:
            outputs = self.host(HostCall(self.op, given, calls.shared))
        except Exception as error:
            raise blamed_host(self.op, error) from error
        finally:
            if tell is not None:
                tell(f"{self.op.type} {self.op.name}", OP, began_s, perf_counter())
        arrays = checked_outputs(self.op, outputs)
        values[self.first : self.first + len(arrays)] = arrays


class CondPart:
    """A cond: the parts of both branches, and by result the slots of it and of what each branch gives."""

    __slots__ = ("branches", "moves", "name", "pred")

    def __init__(
        self,
        name: str,
        pred: int,
        branches: tuple[Sequence[SequencePart], Sequence[SequencePart]],
        merged: Sequence[tuple[int, int, int]],
    ):
        """merged: slots of a result, of the value for false, of that for true."""
        self.name, self.pred, self.branches = name, pred, branches
        self.moves = [[(into, pair[branch]) for into, *pair in merged] for branch in (0, 1)]

    def run(self, values: list[Any], calls: SequenceCalls) -> None:
        """See SequencePart.run."""
        branch = 1 if values[self.pred] else 0
        calls.run(self.branches[branch], values)
        for into, source in self.moves[branch]:
            values[into] = values[source]


class LoopPart:
    """A loop. variables: their slots, which follow each other. start, results: slots of their values."""

    __slots__ = ("begin", "body", "condition", "end", "holds", "name", "results", "simple", "start")

    def __init__(
        self,
        name: str,
        start: Sequence[int],
        variables: int,
        condition: Sequence[SequencePart],
        holds: int,
        body: Sequence[SequencePart],
        results: Sequence[int],
        simple: SimpleLoop | None,
    ):
        """variables: slot of the first. simple: the form of a loop that has only regions."""
        self.name, self.start, self.results = name, tuple(start), tuple(results)
        self.begin, self.end = variables, variables + len(self.start)
        self.condition, self.body, self.holds = condition, body, holds
        self.simple = simple

    def run(self, values: list[Any], calls: SequenceCalls) -> None:
        """See SequencePart.run."""
        values[self.begin : self.end] = [values[slot] for slot in self.start]
        numbers = count()
        simple = self.simple if calls.teller is None else None
        is_outermost = calls.loop_run is None
        if is_outermost:
            calls.loop_run = object()
        calls.loops.append((self.name, 0))
        try:
            if simple is not None and simple.run(values, calls.check, numbers):
                return
            for number in numbers:
                calls.check()
                calls.loops[-1] = (self.name, number)
                calls.run(self.condition, values)
                if not values[self.holds]:
                    break
                calls.run(self.body, values)
                values[self.begin : self.end] = [values[slot] for slot in self.results]
        except Exception as error:
            if not isinstance(error, (CancelledError, DeadlineExceededError)):
                add_iteration(error, self.name, max(0, next(numbers) - 1))
            raise
        finally:
            calls.loops.pop()
            if is_outermost:
                calls.loop_run = None


@dataclass(eq=False)
class OpSequence:
    """Parts in the order in which they run. inputs: in the first slots. template: the slots, with constants.

    outputs: slots of what later nodes read.
    """

    parts: Sequence[SequencePart]
    template: list[Any]
    inputs: int
    outputs: Sequence[int]
    regions: Sequence[StaticRegion]  # of all parts
    duration_s: float = inf  # of its last run, if it may be long

    @property
    def may_be_long(self) -> bool:
        """True if it has a region that is compiled."""
        return any(not region.may_be_small for region in self.regions)

    def run(self, inputs: Sequence[Any], calls: SequenceCalls) -> list[Any]:
        """The outputs for these inputs. Raises what its ops raise."""
        values = self.template.copy()
        values[: self.inputs] = inputs
        calls.run(self.parts, values)
        return [values[slot] for slot in self.outputs]


# Host functions ---------------------------------------------------------------------------------------


def on_host(op: Operation, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs of a host op in host memory, unless it only keeps them; see `OpDef.keeps`."""
    swaps = op.context is not None and op.context.swap_memory
    if op.definition.keeps and not swaps:
        return tuple(inputs)
    return tuple([each.host() if type(each) is DeviceValue else each for each in inputs])


def usual_output(op: Operation) -> tuple[Any, Any]:
    """Dtype, as NumPy has it, and shape of the only output of a host op; None if not known."""
    if len(op.outputs) == 1 and op.outputs[0].spec.is_static and not op.outputs[0].dtype.is_string:
        spec = op.outputs[0].spec
        return np.dtype(spec.dtype.as_numpy_dtype), spec.extents
    return None, None


def checked_outputs(op: Operation, outputs: Any) -> list[Array]:
    """The outputs of a host function as arrays that fit the op's static specs."""
    if not op.outputs and (outputs is None or (type(outputs) is list and not outputs)):
        return []
    given = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if len(given) != len(op.outputs):
        raise InvalidArgumentError(
            f"{op.type} {op.name}: its host function returned {len(given)} outputs, expected "
            f"{len(op.outputs)} (made at {op.source})"
        )
    arrays = []
    for tensor, value in zip(op.outputs, given, strict=True):
        array: Any = value
        if type(value) is not DeviceValue:
            array = string_array(value) if tensor.dtype.is_string else np.asarray(value)
        if as_dtype(array.dtype) != tensor.dtype or not compatible(tensor.spec.shape, array.shape):
            raise InvalidArgumentError(
                f"{op.type} {op.name}: output {tensor.index} of its host function is "
                f"{array.dtype.name}{render_dims(array.shape)}, expected {tensor.spec} "
                f"(made at {op.source})"
            )
        arrays.append(array)
    return arrays


def blamed_host(op: Operation, error: BaseException) -> BaseException:
    """The error of a host function, with the op's name and the user's line."""
    if not isinstance(error, Exception):
        return error
    kind = type(error) if isinstance(error, TensorBowError) else InvalidArgumentError
    return kind(blame(op.type, op.name, error, op.source))
