"""Static regions of a dynamic plan: each runs as a compiled step, or, if it is small, as NumPy calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from tensorbow.compiler import NeedsDynamicModeError
from tensorbow.compiler.fold import fold
from tensorbow.compiler.merge import merge
from tensorbow.compiler.prune import drop_unused
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.executor.step_spans import Tell, TimedCalls
from tensorbow.executor.units import IN_PLANS, WholeUnit
from tensorbow.graph import KernelCall, NodeSpec, Operation, Tensor, UserLine, blame, is_free
from tensorbow.graph.definition import read_only
from tensorbow.program.nodes import Value
from tensorbow.specs import Array, TensorSpec
from tensorbow.timeline import OP, WORK

RunRegion: TypeAlias = "Callable[[StaticRegion, Sequence[Any], object], Sequence[Any]]"
"""Gives a region's outputs for its inputs: arrays, or DeviceValues in steps that keep values on devices.

The last argument stands for the run of a loop, or is None: in it the `steady` inputs stay the same.
"""

MOST_SMALL_OPS = 32  # of a region that runs as NumPy calls
MOST_SMALL_ELEMENTS = 4096  # of each of its values
CACHED = 16  # prepared forms of a region, by shapes of its inputs


class StaticRegion:
    """Static ops that run together, in program order."""

    def __init__(
        self,
        ops: Sequence[Operation],
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        targets: tuple[Operation, ...],
        baked: Collection[Tensor],
        units: Sequence[WholeUnit] = (),
        divide: Callable[[NeedsDynamicModeError], Any] | None = None,
    ):
        """targets: ops to run without a result. baked: inputs whose values shapes depend on. units: loops and
        conds among the ops. divide: makes a sequence of it if it turns out not to be one plan.
        """
        self.ops = ops
        self.inputs = inputs
        self.outputs = outputs
        self.targets = targets
        self.elements: tuple[Tensor | Operation, ...] = (*outputs, *targets)
        self.baked = tuple(index for index, tensor in enumerate(inputs) if tensor in baked)
        self.baked_names = {inputs[index].name for index in self.baked}
        self.steady: Collection[int] = ()  # inputs that come from outside of all loops of its sequence
        self.within = frozenset(ops)
        self.units = list(units)
        self.is_pure = not any(_has_state(op) for op in ops)
        at_once = not any(op.definition.flow == "enter" or op.definition in IN_PLANS for op in ops)
        self.may_be_small = self.is_pure and len(ops) <= MOST_SMALL_OPS and at_once
        self._prepared: dict[object, PreparedRegion | None] = {}
        self._divide = divide
        self.parts: Any = None  # the OpSequence of a region that has turned out not to be one plan
        self.why = ""  # it is not
        self._for_now: Any = None  # the OpSequence for runs that are not to be planned, as others may be

    def divided(self, error: NeedsDynamicModeError) -> Any:
        """The OpSequence to run after this error; None if there is no loop or cond to be left out."""
        if self._divide is None:
            return None
        if error.passing:
            self._for_now = self._for_now or self._divide(error)
            return self._for_now
        self.parts, self.why = self._divide(error), error.why
        return self.parts

    def feeds(self, arrays: Sequence[Array]) -> dict[Tensor, TensorSpec]:
        """Specs of the inputs, with the values that shapes depend on."""
        return {
            tensor: TensorSpec(array.shape, tensor.dtype, np.asarray(array) if index in self.baked else None)
            for index, (tensor, array) in enumerate(zip(self.inputs, arrays, strict=True))
        }

    def key(self, arrays: Sequence[Array]) -> object:
        """Key of its compiled form: shapes, and the values in shapes."""
        shapes = tuple([array.shape for array in arrays])
        if not self.baked:
            return shapes
        return (shapes, tuple([np.asarray(arrays[index]).tobytes() for index in self.baked]))

    def small(self, arrays: Sequence[Array]) -> PreparedRegion | None:
        """The NumPy calls for inputs of these shapes, or None if it is to be compiled as a step."""
        if not self.may_be_small:
            return None
        key = self.key(arrays)
        try:
            return self._prepared[key]
        except KeyError:
            pass
        while len(self._prepared) >= CACHED:
            self._prepared.pop(next(iter(self._prepared)), None)
        made = self._prepared[key] = self.fresh(arrays)
        return made

    def fresh(self, arrays: Sequence[Array]) -> PreparedRegion | None:
        """A prepared form with arrays of its own, for inputs of these shapes; None if it is too large."""
        return prepared(self, self.feeds(arrays)) if self.may_be_small else None


def _has_state(op: Operation) -> bool:
    definition = op.definition
    return bool(
        definition.stateful
        or definition.random
        or definition.state
        or definition.exchange
        or definition.writes
        or any(is_free(t.op) and t.op.definition.name != "Const" for t in op.inputs)
        or definition.name in ("Placeholder", "StepScalar")
    ) and definition.name not in ("NoOp",)


class PreparedRegion:
    """Reference kernels of a region, bound to arrays for inputs of certain shapes.

    inputs: position among the region's inputs, and array, of those that are read. calls: run the kernels.
    fetched: the arrays of the region's outputs, which may be inputs or constants.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, Array]],
        calls: Sequence[Callable[[], None]],
        blamed: Sequence[tuple[str, str, UserLine | None]],
        fetched: Sequence[Array],
    ):
        """blamed: type, name and user's line of the op of each call."""
        self.inputs, self.calls, self.fetched = inputs, calls, fetched
        self._blamed = blamed
        self._turn = threading.Lock()  # concurrent steps share the arrays

    def compute(self, values: Sequence[Array]) -> Sequence[Array]:
        """The outputs for inputs of the region's order; thread-safe."""
        with self._turn:
            for index, array in self.inputs:
                array[...] = values[index]
            self.call()
            return [array.copy() for array in self.fetched]

    def compute_timed(self, values: Sequence[Array], timed: TimedCalls) -> Sequence[Array]:
        """`compute`, with the time of each op."""
        with self._turn:
            for index, array in self.inputs:
                array[...] = values[index]
            for number, call in enumerate(self.calls):
                kind, name, _ = self._blamed[number]
                try:
                    timed.run(f"{kind} {name}", call)
                except Exception as error:
                    raise self._blame(number, error) from error
            return [array.copy() for array in self.fetched]

    def call(self) -> None:
        """Runs the kernels on the arrays as they are. Raises the error of an op, with its name and line."""
        call = None
        try:
            for call in self.calls:
                call()
        except Exception as error:
            number = next(number for number, each in enumerate(self.calls) if each is call)
            raise self._blame(number, error) from error

    def _blame(self, number: int, error: Exception) -> TensorBowError:
        kind = type(error) if isinstance(error, TensorBowError) else InvalidArgumentError
        name, node_name, source = self._blamed[number]
        return kind(blame(name, node_name, error, source))


def prepared(region: StaticRegion, feeds: dict[Tensor, TensorSpec]) -> PreparedRegion | None:
    """A region's reference kernels on arrays made once; None if a value is too large for that."""
    ops = with_free(region.ops)
    try:
        folded = fold(ops, feeds, region.outputs, region.targets, runs_blocks=True)
    except NeedsDynamicModeError:
        return None
    program = drop_unused(merge(drop_unused(folded)))
    arrays: dict[Value, Array] = {}
    inputs: list[tuple[int, Array]] = []
    for index, tensor in enumerate(region.inputs):
        value = program.feeds.get(tensor.name)
        if value is not None:
            arrays[value] = np.empty(value.spec.extents, value.spec.dtype.as_numpy_dtype)
            inputs.append((index, arrays[value]))

    def array_of(value: Value) -> Array:
        if value not in arrays and value.constant is not None:
            arrays[value] = value.constant
        return arrays[value]

    calls: list[Callable[[], None]] = []
    blamed: list[tuple[str, str, UserLine | None]] = []
    for node in program.nodes:
        specs = tuple(v.spec for v in node.outputs)
        if any(spec.size > MOST_SMALL_ELEMENTS for spec in (*specs, *(v.spec for v in node.inputs))):
            return None
        if node.definition.is_view:
            output, source = node.definition.alias[0]
            arrays[node.outputs[output]] = array_of(node.inputs[source]).reshape(specs[0].extents)
            continue
        kernel = node.definition.kernels.get("cpu")
        if kernel is None:
            return None
        given = tuple(read_only(array_of(v)) for v in node.inputs)
        outputs = tuple(np.empty(s.extents, s.dtype.as_numpy_dtype) for s in specs)
        spec = NodeSpec(node.attrs, tuple(v.spec for v in node.inputs), specs)
        scratch = tuple(np.empty(s.extents, s.dtype.as_numpy_dtype) for s in kernel.scratch_specs(spec))
        arrays.update(zip(node.outputs, outputs, strict=True))
        calls.append(kernel.bind(KernelCall(node.attrs, given, outputs, scratch)))
        blamed.append((node.definition.name, node.name, node.source))
    return PreparedRegion(inputs, calls, blamed, [array_of(value) for value in program.fetches])


def with_free(ops: Sequence[Operation]) -> list[Operation]:
    """The ops and the constants and variables that they read, in program order."""
    free = {t.op for op in ops for t in op.inputs if is_free(t.op)}
    return sorted({*ops, *free}, key=lambda op: op.id)


def run_timed(
    region: StaticRegion, inputs: Sequence[Array], run_region: RunRegion, tell: Tell
) -> Sequence[Array]:
    """A region's outputs; tells its span, and those of its ops if it runs as NumPy calls."""
    began_s, form = perf_counter(), region.small(inputs)
    try:
        return (
            run_region(region, inputs, None)
            if form is None
            else form.compute_timed(inputs, TimedCalls(tell, OP))
        )
    finally:
        tell(f"Region {region.ops[0].name}", WORK, began_s, perf_counter())
