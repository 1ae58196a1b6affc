"""`while_loop`: a loop in the graph (TensorFlow white paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from tensorbow.control_flow.contexts import LoopContext, checked_result, refuse_exchanges
from tensorbow.control_flow.slices import SlicesNest, opened
from tensorbow.control_flow.tensor_array import TensorArray
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import ControlFlowContext, Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Function, Name, called, checked, whole
from tensorbow.nest import flatten, pack
from tensorbow.ops.argument_kinds import CountOrTensor
from tensorbow.ops.control import identity, stop_gradient
from tensorbow.ops.control_flow import LoopCond, common_shape
from tensorbow.ops.elementwise import add, less, logical_and
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import Dims, as_dims, compatible, int32, render_dims

__all__ = ["while_loop"]

Iterations = Annotated[int, whole(1)]


@checked
def while_loop(
    cond: Function,
    body: Function,
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: Iterations = 10,
    back_prop: Flag = True,
    swap_memory: Flag = False,
    name: Name = None,
    maximum_iterations: CountOrTensor | None = None,
    return_same_structure: Flag = False,
) -> Any:
    """Repeats `body` while `cond` is true, and returns the loop variables after the last iteration.

    cond: (*loop_vars) -> a bool scalar. body: (*loop_vars) -> their next values, of the same dtypes, in the
        same nest. What they read from outside does not change in the loop.
    loop_vars: a nest of tensors, IndexedSlices, SparseTensors and TensorArrays. Shapes stay the same, unless
        `shape_invariants`, a nest of shapes, says which extents may change (None). The shape of IndexedSlices
        is that of their values, of a SparseTensor [rank]: the number of its values may change then.
    parallel_iterations: iterations that may be under way at once, where ops in the loop wait or take long:
        dequeues, `py_func(..., stateful=False)`, reading of files, compiled loops inside. Ops with effects
        run in the order of the iterations; a loop that writes variables runs one iteration at a time. It has
        no effect on loops that are compiled or unrolled, or of quick ops alone. No result depends on it.
    back_prop: False stops gradients. maximum_iterations: an int32 scalar.
    swap_memory: what the gradient of the loop needs lies in the host's memory meanwhile, if a GPU runs it: of
        an unrolled loop as far as nothing waits for the copies (`tb.ConfigProto(swap="hidden")` does so for
        the whole step), of one that the dynamic executor runs all of it. No effect otherwise: on a CPU it
        lies there anyway; planned steps over several devices do not swap.
    return_same_structure: return a list of one variable as a list, not as the variable.

    A loop whose number of iterations is known once the feeds' shapes are is unrolled in the plan; another one
    whose shapes do not change is compiled on CPU devices. Both may stand in a step of replicas; a step with
    any other runs in the dynamic mode. Raises
    InvalidArgumentError for no loop variables, and for a body that changes their number, dtypes or shapes.
    """
    nest = opened(loop_vars)
    arrays = {n: leaf for n, leaf in enumerate(flatten(nest)) if isinstance(leaf, TensorArray)}
    leaves = [leaf.flow if isinstance(leaf, TensorArray) else as_tensor(leaf) for leaf in flatten(nest)]
    if not leaves:
        raise InvalidArgumentError("while_loop: loop_vars is empty; give at least one tensor")
    shapes = _invariants(nest, leaves, shape_invariants)
    of_variables = "a function of the loop variables, as loop_vars has them"

    def with_arrays(values: Sequence[Tensor]) -> list[Any]:
        return [arrays[n].with_flow(each) if n in arrays else each for n, each in enumerate(values)]

    def unpacked(values: Sequence[Tensor]) -> Any:
        packed = pack(nest, iter(with_arrays(values)))
        return packed if isinstance(nest, (list, tuple)) and not hasattr(nest, "_fields") else (packed,)

    def condition(values: Sequence[Tensor]) -> Any:
        return called(cond, *unpacked(values), op="while_loop", argument="cond", expected=of_variables)

    def following(values: Sequence[Tensor]) -> Sequence[Any]:
        given = unpacked(values)
        result = opened(called(body, *given, op="while_loop", argument="body", expected=of_variables))
        single = isinstance(nest, (list, tuple)) and len(nest) == 1
        if single and not (isinstance(result, (list, tuple)) and len(result) == 1):
            result = [result]
        found = flatten(result)
        if len(found) != len(values):
            raise InvalidArgumentError(
                f"while_loop: body returns {len(found)} values for {len(values)} loop variables; return the "
                "next value of each"
            )
        for number, each in enumerate(found):
            if isinstance(each, TensorArray) != (number in arrays):
                raise InvalidArgumentError(
                    f"while_loop: body's result {number} is {'a' if number not in arrays else 'no'} "
                    "TensorArray, other than the loop variable; return the array after its writes"
                )
        return [each.flow if isinstance(each, TensorArray) else each for each in found]

    with graph_of(leaves).as_default(), name_scope(name or "while"):
        if maximum_iterations is not None:
            most = as_tensor(maximum_iterations, int32)
            leaves, shapes = [as_tensor(0, int32), *leaves], [(), *shapes]
            exits = build_loop(
                lambda values: logical_and(less(values[0], most), condition(values[1:])),
                lambda values: [add(values[0], 1), *following(values[1:])],
                leaves,
                shapes,
                parallel_iterations,
                swap_memory=swap_memory,
            ).exits[1:]
        else:
            exits = build_loop(
                condition, following, leaves, shapes, parallel_iterations, swap_memory=swap_memory
            ).exits
        if not back_prop:
            exits = [stop_gradient(each) for each in exits]
    result = pack(nest, iter(with_arrays(exits)))
    alone = isinstance(nest, (list, tuple)) and len(nest) == 1 and not return_same_structure
    return result[0] if alone else result


def build_loop(
    condition: Callable[[Sequence[Tensor]], Any],
    body: Callable[[Sequence[Tensor]], Sequence[Any]],
    initial: Sequence[Tensor],
    shapes: Sequence[Dims | None],
    parallel_iterations: int,
    forward: ControlFlowContext | None = None,
    swap_memory: bool = False,
) -> LoopContext:
    """A loop in the current context. shapes: of the loop variables in all iterations."""
    graph = initial[0].graph
    outer, guards, first = graph.context, graph.current_controls, graph.version
    frame = graph.unique_name("while_context")
    loop = LoopContext(graph, outer, guards, frame, parallel_iterations, forward, swap_memory)
    with loop.outside():
        initial = [
            identity(each) if each.op.context is None and not each.op.inputs else each for each in initial
        ]
    merges = [loop.add_variable(each, shape) for each, shape in zip(initial, shapes, strict=True)]
    loop.pivot = merges[0].op
    with graph.in_context(loop):
        pred = checked_result(condition(merges), "while_loop: result of cond")
        loop.condition = LoopCond(pred)
    switched = [loop.switch(merged) for merged in merges]
    loop.exits = [left for left, _ in switched]
    loop.variables = [value for _, value in switched]
    loop.pivot = loop.variables[0].op
    with graph.in_context(loop):
        results = [
            identity(checked_result(each, f"while_loop: body's result {number}"))
            for number, each in enumerate(body(loop.variables))
        ]
    for number, (merged, result, shape) in enumerate(zip(merges, results, shapes, strict=True)):
        _check_result(number, merged, result, shape)
        loop.results.append(result)
        loop.close(merged, result)
    loop.last = graph.version - 1
    refuse_exchanges(loop, graph, first, loop.condition)
    return loop


def _check_result(number: int, merged: Tensor, result: Tensor, shape: Dims | None) -> None:
    made = f"(made at {result.op.source})"
    if result.dtype != merged.dtype:
        raise InvalidArgumentError(
            f"while_loop: loop variable {number} is {merged.dtype.name}, and body returns "
            f"{result.dtype.name} for it; use tb.cast {made}"
        )
    found = result.spec.shape
    if shape is not None and (found is None or common_shape([shape, found]) != shape):
        got = "a tensor of unknown rank" if found is None else render_dims(found)
        raise InvalidArgumentError(
            f"while_loop: loop variable {number} has shape {render_dims(shape)}, and body returns {got} "
            f"for it; give shape_invariants with None where the extent changes, or set_shape {made}"
        )


def _invariants(nest: Any, leaves: Sequence[Tensor], given: Any) -> list[Dims | None]:
    if given is None:
        return [leaf.spec.shape for leaf in leaves]
    listed = list(_shapes(given, nest))
    if len(listed) != len(leaves):
        raise InvalidArgumentError(
            f"while_loop: shape_invariants has {len(listed)} shapes for {len(leaves)} loop variables; "
            "give one for each"
        )
    shapes = [as_dims(each) for each in listed]
    for number, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True)):
        if not compatible(leaf.spec.shape, shape):
            raise InvalidArgumentError(
                f"while_loop: shape_invariants of loop variable {number} is {render_dims(shape or ())}, "
                f"which does not fit {leaf.name}, {leaf.spec}"
            )
    return shapes


def _shapes(given: Any, nest: Any) -> list[Any]:
    """The shapes in a nest of shapes like `nest`; a shape is a TensorShape, a list, or None."""
    if isinstance(nest, SlicesNest):
        rows = as_dims(given)
        shapes = [None] * 3 if rows is None else [rows, rows[:1], [len(rows)]]
        return shapes[: len(nest.parts)]
    if isinstance(nest, SparseTensor):
        (rank,) = as_dims(given) or (None,)
        return [[None, rank], [None], [rank]]
    if isinstance(nest, dict):
        return [shape for key in nest for shape in _shapes(given[key], nest[key])]
    if isinstance(nest, (list, tuple)):
        if not isinstance(given, (list, tuple)) or len(given) != len(nest):
            raise InvalidArgumentError(
                f"while_loop: shape_invariants must have the structure of loop_vars, {len(nest)} elements"
            )
        return [shape for item, part in zip(given, nest, strict=True) for shape in _shapes(item, part)]
    return [given]
