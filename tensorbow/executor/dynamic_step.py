"""One run of a dynamic plan: what its nodes compute, in the calling thread, on a pool, or while it waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from tensorbow.devices import DeviceValue
from tensorbow.errors import CancelledError, DeadlineExceededError, InternalError, InvalidArgumentError
from tensorbow.executor.dataflow import Dataflow
from tensorbow.executor.dynamic_plan import VARIABLE, DynamicPlan
from tensorbow.executor.inter_op_pool import TaskPool
from tensorbow.executor.iterations import Iteration
from tensorbow.executor.plan_nodes import DynamicNode, NodeKind
from tensorbow.executor.region import RunRegion
from tensorbow.executor.sequence import SequenceCalls, blamed_host, checked_outputs, on_host
from tensorbow.executor.step_spans import StepSpans, Tell
from tensorbow.executor.string_kernels import string_kernel
from tensorbow.graph import (
    DEAD,
    HostCall,
    Operation,
    Resources,
    StepResources,
    Tensor,
    loop_name,
)
from tensorbow.ops.host_variables import HostVariable, host_value
from tensorbow.specs import Array
from tensorbow.timeline import OP, WAIT, WORK


class _Wait:
    """An op that is under way on the pool, or waits."""

    __slots__ = ("node",)

    def __init__(self, node: DynamicNode):
        self.node = node


class DynamicStep:
    """Runs a dynamic plan once, in the calling thread; slow ops and long sequences run on a pool meanwhile.

    When one op fails, or `cancel` is called, nothing more is started and what waits is cancelled. An op of
    the host that is under way on the pool is left to end there, and its outputs are dropped.
    """

    def __init__(
        self,
        plan: DynamicPlan,
        run_region: RunRegion,
        resources: Resources,
        left_s: Callable[[], float | None] | None = None,
        spans: StepSpans | None = None,
        pool: TaskPool | None = None,
        within: Callable[[Callable[[], None]], None] | None = None,
        stop: Callable[[BaseException], None] | None = None,
        shared: Resources | None = None,
        functions_apart: bool = False,
        keeps_values: bool = False,
    ):
        """left_s: seconds until the step's deadline; raises after it. spans: takes those of all nodes.

        pool: of slow ops; without one all run here. within: calls a function on the pool as in this thread,
        with what belongs to the run. stop: ends what regions are at, once the step has failed. shared:
        objects of this step, for its ops; closed at its end. functions_apart: slow ops of the host run on the
        pool even where nothing else is to be done, so that `cancel` ends a step that is at one. keeps_values:
        `run_region` may leave values on a GPU, as DeviceValues, which the step copies to the host where that
        needs them.
        """
        self._pool, self._within, self._stop = pool, within, stop
        self._functions_apart = functions_apart
        self._computing = 0  # sequences on the pool
        self._spans = spans
        self._called_s: dict[tuple[DynamicNode, Iteration], float] = {}  # begin of asynchronous calls, traced
        self._left_s = left_s
        self._keeps_values = keeps_values
        self._plan = plan
        self._run_region = run_region
        self._shared = StepResources(resources, Resources() if shared is None else shared)
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._finished: deque[tuple[DynamicNode, Iteration, Any]] = deque()  # by asynchronous ops
        self._waiting: dict[_Wait, Callable[[], object] | None] = {}  # how each of them is cancelled
        self.waited_for: list[str] = []  # ops that it waited for when its time limit ended it
        self.error: BaseException | None = None  # ends it
        self._flow = Dataflow(plan)
        by_kind: dict[NodeKind, Callable[[DynamicNode, Iteration], bool | None]] = {
            NodeKind.SEQUENCE: self._run_sequence,
            NodeKind.HOST: self._call_host,
            NodeKind.SEND: self._send,
        }
        if plan.moves:
            by_kind.update(self._flow.moves())
        self._calls = self._new_calls(None)
        self._runners = by_kind

    def cancel(self, error: BaseException) -> None:
        """Ends the step with an error; thread-safe."""
        with self._lock:
            self.error = error = self.error or error
            self._came.notify_all()
        if self._stop is not None:
            self._stop(error)

    @property
    def waiting(self) -> list[str]:
        """The ops that it waits for now, as messages name them; thread-safe."""
        with self._lock:
            return [wait.node.described for wait in self._waiting]

    def run(self, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """The values of the plan's elements: arrays, None for operations; see `with_variables`.

        Raises the first error of an op, and CancelledError.
        """
        plan = self._plan
        self._flow.begin(feeds)
        try:
            with np.errstate(all="ignore"):
                self._loop()
        except BaseException as error:
            if isinstance(error, DeadlineExceededError):
                self.waited_for = self.waiting
            self.cancel(error)
            if isinstance(error, CancelledError) and self.error is not None:
                raise self.error from None  # because of which it was cancelled
            raise
        finally:
            self._cancel_waiting()
            with self._lock:
                while self._computing:
                    self._came.wait()
            self._shared.step.close()
        return [self._value(element, feeds) for element in plan.elements]

    def _value(self, element: Tensor | Operation, feeds: Mapping[Tensor, Array]) -> Any:
        if isinstance(element, Operation):
            return None
        result = self._plan.results[self._plan.elements.index(element)]
        if isinstance(result, Tensor):
            return self._plan.given(result, feeds)
        if result is None:
            raise InternalError(f"{element.name} has no result")
        value = self._flow.fetched.get(result, DEAD)
        if value is DEAD:
            raise InvalidArgumentError(
                f"fetch {element.name}: it has no value, since the branch that makes it was not taken; fetch "
                f"the result of the cond (made at {element.op.source})"
            )
        return value.host() if type(value) is DeviceValue else value

    # The loop ---------------------------------------------------------------------------------

    def _loop(self) -> None:
        ready, slow, left_s = self._flow.ready, self._flow.slow, self._left_s
        run = self._run if self._spans is None else self._run_timed
        while True:
            while ready or slow:
                if self.error is not None:
                    raise self.error
                if left_s is not None:
                    left_s()
                if slow and self._start_slow():
                    continue
                node, iteration = (ready or slow).pop()
                try:
                    run(node, iteration)
                except Exception as error:
                    self._place(error, iteration)
                    raise
                if self._finished:
                    self._take_finished()
            with self._lock:
                while not self._finished and self._waiting and self.error is None:
                    self._came.wait(None if left_s is None else left_s())
                if self.error is not None:
                    raise self.error
                if not self._finished:
                    return
            self._take_finished()

    def _start_slow(self) -> bool:
        """Starts slow nodes on the pool, if this thread has something else to do; True if it took all."""
        slow, pool = self._flow.slow, self._pool
        apart = self._functions_apart and bool(slow) and slow[0][0].kind is not NodeKind.SEQUENCE
        waits = apart or self._left_s is not None or self._waiting
        if pool is None or not (waits or self._flow.ready or len(slow) > 1):
            return False
        while slow:
            node, iteration = slow[0]
            token = _Wait(node)
            with self._lock:
                self._waiting[token] = None
                self._computing += node.kind is NodeKind.SEQUENCE
            task = partial(self._on_pool, token, node, iteration)
            if self._spans is not None:
                self._called_s[(node, iteration)] = perf_counter()
            if not pool.run(task if self._within is None else partial(self._within, task)):
                with self._lock:
                    del self._waiting[token]
                    self._computing -= node.kind is NodeKind.SEQUENCE
                self._called_s.pop((node, iteration), None)
                return False
            del slow[0]
        return True

    def _on_pool(self, token: _Wait, node: DynamicNode, iteration: Iteration) -> None:
        """Runs a slow node on a thread of the pool."""
        outputs: Sequence[Any] = ()
        failed: BaseException | None = None
        try:
            if self.error is None:
                with np.errstate(all="ignore"):
                    outputs = self._computed(node, iteration, self._new_calls(iteration))
        except BaseException as error:
            failed = error
        with self._lock:
            self._computing -= node.kind is NodeKind.SEQUENCE
            if token in self._waiting:
                del self._waiting[token]
                if failed is None:
                    self._finished.append((node, iteration, outputs))
                else:
                    self._place(failed, iteration)
                    self.error = self.error or failed
            self._came.notify_all()
        if failed is not None and self._stop is not None:
            self._stop(failed)

    def _computed(self, node: DynamicNode, iteration: Iteration, calls: SequenceCalls) -> Sequence[Any]:
        """The outputs of a sequence or of a slow op of the host."""
        values, last = iteration.values, node.first + node.count
        inputs = values[node.first : last]
        values[node.first : last] = node.blank  # frees them once they are used
        sequence = node.sequence
        if sequence is not None and not node.slow:
            return sequence.run(inputs, calls)
        if sequence is not None:
            began_s = perf_counter()
            outputs = sequence.run(inputs, calls)
            sequence.duration_s = perf_counter() - began_s
            return outputs
        op = node.op
        if op is None:
            raise InternalError(f"node {node.name} stands for no operation")
        host = op.definition.host or string_kernel(op)
        given = on_host(op, inputs) if self._keeps_values else tuple(inputs)
        try:
            outputs = host(HostCall(op, given, self._shared))
        except Exception as error:
            raise blamed_host(op, error) from error
        if type(outputs) is np.ndarray and outputs.dtype == node.dtype and outputs.shape == node.shape:
            return (outputs,)  # the usual case: one array, which fits
        return checked_outputs(op, outputs)

    def _new_calls(self, iteration: Iteration | None) -> SequenceCalls:
        """Calls of the parts of a sequence. iteration: in which it runs, for spans."""
        teller = None
        if self._spans is not None and iteration is not None:
            teller = partial(self._teller, iteration)
        limited = self._left_s is not None
        keeps = self._keeps_values
        return SequenceCalls(self._run_region, self._shared, self, self._check, limited, keeps, teller)

    def _take_finished(self) -> None:
        while True:
            with self._lock:
                if not self._finished:
                    return
                node, iteration, outputs = self._finished.popleft()
            if self._called_s and node.op is not None:
                began_s, category = self._called_s.pop((node, iteration)), OP if node.slow else WAIT
                self._teller(iteration)(f"{node.op.type} {node.op.name}", category, began_s, perf_counter())
            if node.op is not None and node.op.definition.asynchronous:
                if node.op.definition.flow and outputs[0] is DEAD:
                    self._flow.pass_dead(node, iteration)
                    self._flow.end(iteration)
                    continue
                if not node.fits(outputs):
                    try:
                        outputs = checked_outputs(node.op, outputs)
                    except InvalidArgumentError as error:
                        self._place(error, iteration)
                        raise
            self._flow.emit(node, iteration, outputs)
            self._flow.end(iteration)

    def _place(self, error: BaseException, iteration: Iteration) -> None:
        """Adds the loops and iterations to an error, unless it ends the step from outside."""
        if error is not self.error:
            iteration.place(error)

    def _run(self, node: DynamicNode, iteration: Iteration) -> None:
        if iteration.dead[node.index]:
            if node.kind is NodeKind.SEND:
                self._call_send(node, iteration, (DEAD,))
            self._flow.pass_dead(node, iteration)
        elif self._runners[node.kind](node, iteration):  # its outputs come later
            return
        iteration.outstanding = left = iteration.outstanding - 1
        if left == 0:
            self._flow.end_iteration(iteration)

    def _run_timed(self, node: DynamicNode, iteration: Iteration) -> None:
        """`_run`, and the span of a node that is an op; regions tell their own."""
        op = node.op
        if op is None or iteration.dead[node.index]:
            self._run(node, iteration)
            return
        tell, began_s = self._teller(iteration), perf_counter()
        if op.definition.asynchronous:
            self._called_s[(node, iteration)] = began_s
            self._run(node, iteration)
            return
        try:
            self._run(node, iteration)
        finally:
            category = OP if node.kind == NodeKind.HOST else WORK
            tell(f"{op.type} {op.name}", category, began_s, perf_counter())

    def _teller(self, iteration: Iteration, loops: Sequence[tuple[str, int]] = ()) -> Tell:
        """Receiver of the spans of an iteration. loops: in it, that a sequence runs, and their iterations."""
        if self._spans is None:
            raise InternalError("a step that is not traced")
        numbers = [number for _, number in (*reversed(loops), *iteration.loops())]
        frame = loops[-1][0] if loops else iteration.running.frame.name
        return self._spans.teller(loop_name(frame), tuple(numbers[::-1]))

    def _run_sequence(self, node: DynamicNode, iteration: Iteration) -> None:
        calls = self._calls if self._spans is None else self._new_calls(iteration)
        self._flow.emit(node, iteration, self._computed(node, iteration, calls))

    def _check(self) -> None:
        """Raises the error that ends the step, if there is one."""
        if self.error is not None:
            raise self.error
        if self._left_s is not None:
            self._left_s()

    # Host functions ---------------------------------------------------------------------------

    def _call_host(self, node: DynamicNode, iteration: Iteration) -> bool:
        """Calls an op's host function; True if its outputs come later."""
        op = node.op
        if op is None:
            raise InternalError(f"node {node.name} stands for no operation")
        if node.slow:
            self._flow.emit(node, iteration, self._computed(node, iteration, self._calls))
            return False
        host = op.definition.host or string_kernel(op)
        inputs = tuple(iteration.values[node.first : node.first + node.count])
        if self._keeps_values:
            inputs = on_host(op, inputs)
        token = _Wait(node)
        with self._lock:
            self._waiting[token] = None
        call = HostCall(op, inputs, self._shared)
        call.done = partial(self._done, token, node, iteration)
        call.fail = partial(self._fail, token, op, iteration)
        call.on_cancel = partial(self._cancel_by, token)
        if op.definition.flow:
            call.iterations = _numbers(iteration)
        try:
            host(call)
        except Exception as error:
            raise blamed_host(op, error) from error
        return True

    def _send(self, node: DynamicNode, iteration: Iteration) -> None:
        self._call_send(node, iteration, tuple(iteration.values[node.first : node.first + node.count]))
        self._flow.emit(node, iteration, ())

    def _call_send(self, node: DynamicNode, iteration: Iteration, inputs: tuple[Any, ...]) -> None:
        """Calls the host function of a Send; its input may be dead."""
        op = node.op
        if op is None or op.definition.host is None:
            raise InternalError(f"node {node.name} sends nothing")
        call = HostCall(op, inputs, self._shared)
        call.iterations = _numbers(iteration)
        try:
            op.definition.host(call)
        except Exception as error:
            raise blamed_host(op, error) from error

    def _cancel_by(self, token: _Wait, cancel: Callable[[], object]) -> None:
        with self._lock:
            if token in self._waiting:
                self._waiting[token] = cancel

    def _done(self, token: _Wait, node: DynamicNode, iteration: Iteration, outputs: Sequence[Array]) -> None:
        with self._lock:
            if token in self._waiting:
                del self._waiting[token]
                self._finished.append((node, iteration, outputs))
                self._came.notify_all()

    def _fail(self, token: _Wait, op: Operation, iteration: Iteration, error: BaseException) -> None:
        with self._lock:
            if token not in self._waiting:
                return
            del self._waiting[token]
            blamed = blamed_host(op, error)
            self._place(blamed, iteration)
            self.error = self.error or blamed
            self._came.notify_all()
        if self._stop is not None:
            self._stop(blamed)

    def _cancel_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for cancel in waiting.values():
            if cancel is not None:
                cancel()


def with_variables(
    elements: Sequence[Tensor | Operation],
    values: Sequence[Any],
    read: Callable[[list[Tensor | Operation]], Sequence[Any]],
    resources: Resources,
) -> list[Any]:
    """The values that a step has given for its elements, with those of fetched variables as they are now.

    read: gives the values of variables on devices. resources: have those of variables in host memory.
    """
    late = [element for element, value in zip(elements, values, strict=True) if value is VARIABLE]
    if not late:
        return [*values]
    on_host = [isinstance(each, Tensor) and each.op.definition is HostVariable for each in late]
    planned = [each for each, is_there in zip(late, on_host, strict=True) if not is_there]
    found = iter(read(planned) if planned else ())
    read_values = iter(
        owned(host_value(resources, each.op.name).read(each.op.name))
        if isinstance(each, Tensor) and is_there
        else next(found)
        for each, is_there in zip(late, on_host, strict=True)
    )
    return [next(read_values) if value is VARIABLE else value for value in values]


def owned(value: Any) -> Any:
    """A fetched value as the caller's own: a copy, or for rank 0 a NumPy scalar. What is no array stays."""
    if not isinstance(value, np.ndarray):
        return value
    return value.copy() if value.ndim else value[()]


def _numbers(iteration: Iteration) -> tuple[int, ...]:
    """The numbers of an iteration and of those around it, the outermost first."""
    return tuple(reversed([number for _, number in iteration.loops()]))
