"""One run of a dynamic plan: ready counts, frames and iterations, dead tensors (white paper, section 4.4)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np

from tensorbow.array_likes import string_array
from tensorbow.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    TensorBowError,
)
from tensorbow.executor.dynamic_plan import DynamicNode, DynamicPlan, Frame, NodeKind
from tensorbow.executor.region import RunRegion
from tensorbow.executor.simple_loop import SimpleLoop, run_timed
from tensorbow.executor.step_spans import StepSpans, Tell
from tensorbow.executor.string_kernels import string_kernel
from tensorbow.graph import HostCall, Operation, Resources, Tensor, add_iteration, blame, loop_name
from tensorbow.specs import Array, as_dtype, compatible, render_dims
from tensorbow.timeline import OP, WAIT, WORK

VARIABLE: Any = object()  # stands for the value of a fetched variable, which is read when the step has ended
DEAD: Any = object()  # the value of a tensor whose branch is not taken
FIRED = 1 << 30  # count of a Merge that has run


class Iteration:
    """State of one iteration of a running frame: its tag is the frame and the number."""

    __slots__ = ("children", "dead", "entered", "number", "outstanding", "pending", "running", "values")

    def __init__(self, running: RunningFrame, number: int):
        self.running = running
        self.number = number
        self.pending: list[int] = running.pending.copy()
        self.values: list[Any] = running.values.copy()
        self.dead = bytearray(running.dead)
        self.outstanding = 0  # nodes that are ready or running, and frames inside
        self.children: dict[Frame, RunningFrame | None] = {}
        self.entered: dict[Frame, dict[Any, Any]] = {}  # what has come to loops that run as a whole


class RunningFrame:
    """A frame that has been entered from one iteration of the frame around."""

    __slots__ = (
        "around", "dead", "entering", "frame", "held_back", "iterations", "oldest", "pending",
        "ready", "values",
    )  # fmt: skip

    def __init__(self, frame: Frame, around: Iteration | None):
        self.frame = frame
        self.around = around
        # What every iteration begins with: constants, and what has come in by constant Enters.
        self.pending = [node.waits for node in frame.nodes]
        self.values: list[Any] = [None] * frame.slots
        self.dead = bytearray(len(frame.nodes))
        self.ready = [node for node in frame.nodes if node.waits == 0]
        for slot, value in frame.constants:
            self.values[slot] = value
        self.entering = frame.enters  # Enters still to come
        self.iterations: dict[int, Iteration] = {}
        self.oldest = 0
        self.held_back: deque[tuple[DynamicNode, Any, int]] = (
            deque()
        )  # NextIterations beyond parallel_iterations

    @property
    def limit(self) -> int:
        """Iterations that may be under way at once."""
        return 1 if self.frame.sequential else self.frame.parallel_iterations


class DynamicStep:
    """Runs a dynamic plan once, in the calling thread; asynchronous ops end in threads of their own.

    When one op fails, or `cancel` is called, nothing more is started and what waits is cancelled.
    """

    def __init__(
        self,
        plan: DynamicPlan,
        run_region: RunRegion,
        resources: Resources,
        left_s: Callable[[], float | None] | None = None,
        spans: StepSpans | None = None,
        shared: Resources | None = None,
    ):
        """left_s: seconds until the step's deadline; raises after it. spans: takes those of all nodes.

        shared: objects of this step, for its ops; closed at its end.
        """
        self._spans = spans
        self._called_s: dict[tuple[DynamicNode, Iteration], float] = {}  # begin of asynchronous calls, traced
        self._left_s = left_s
        self._plan = plan
        self._run_region = run_region
        self._resources = resources
        self._shared = Resources() if shared is None else shared
        self._ready: list[tuple[DynamicNode, Iteration]] = []
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._finished: deque[tuple[DynamicNode, Iteration, Any]] = deque()  # by asynchronous ops
        self._waiting: dict[object, Callable[[], object] | None] = {}  # how each of them is cancelled
        self._error: BaseException | None = None
        self._fetched: dict[tuple[DynamicNode, int], Any] = {}
        by_kind = {
            NodeKind.REGION: self._run_static,
            NodeKind.HOST: self._call_host,
            NodeKind.SWITCH: self._switch,
            NodeKind.MERGE: self._merge,
            NodeKind.PASS: self._pass,
            NodeKind.ENTER: self._go_in,
            NodeKind.EXIT: self._go_out,
            NodeKind.NEXT: self._go_on,
            NodeKind.DONE: self._finish,
        }
        self._runners: list[Callable[[DynamicNode, Iteration], bool]] = [by_kind[k] for k in NodeKind]

    def cancel(self, error: BaseException) -> None:
        """Ends the step with an error; thread-safe."""
        with self._lock:
            self._error = self._error or error
            self._came.notify_all()

    def run(self, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """The values of the plan's elements: arrays, None for operations.

        Raises the first error of an op, and CancelledError.
        """
        plan = self._plan
        root = RunningFrame(plan.root, None)
        first = root.iterations[0] = Iteration(root, 0)
        first.outstanding = 1  # the step itself
        wanted = {result for result in plan.results if isinstance(result, tuple)}
        self._wanted: dict[DynamicNode, list[int]] = {}
        for node, output in wanted:
            self._wanted.setdefault(node, []).append(output)
        for node in root.ready:
            self._push(node, first)
        for tensor, readers in plan.sources:
            for node, slot in readers:
                self._deliver(node, slot, feeds[tensor], first)
        try:
            with np.errstate(all="ignore"):
                self._loop()
        except BaseException as error:
            self.cancel(error)
            raise
        finally:
            self._cancel_waiting()
            self._shared.close()
        return [self._value(element, feeds) for element in plan.elements]

    def _value(self, element: Tensor | Operation, feeds: Mapping[Tensor, Array]) -> Any:
        if isinstance(element, Operation):
            return None
        result = self._plan.results[self._plan.elements.index(element)]
        if isinstance(result, Tensor):
            if result in feeds:
                return feeds[result]
            if result.op.definition.name != "Const":
                return VARIABLE
            return result.op.attrs["value"]
        if result is None:
            raise InternalError(f"{element.name} has no result")
        value = self._fetched.get(result, DEAD)
        if value is DEAD:
            raise InvalidArgumentError(
                f"fetch {element.name}: it has no value, since the branch that makes it was not taken; fetch "
                f"the result of the cond (made at {element.op.source})"
            )
        return value

    # The loop ---------------------------------------------------------------------------------

    def _loop(self) -> None:
        ready, left_s = self._ready, self._left_s
        run = self._run if self._spans is None else self._run_timed
        while True:
            while ready:
                if self._error is not None:
                    raise self._error
                if left_s is not None:
                    left_s()
                node, iteration = ready.pop()
                try:
                    run(node, iteration)
                except Exception as error:
                    self._place(error, iteration)
                    raise
                if self._finished:
                    self._take_finished()
            with self._lock:
                while not self._finished and self._waiting and self._error is None:
                    self._came.wait(None if left_s is None else left_s())
                if self._error is not None:
                    raise self._error
                if not self._finished:
                    return
            self._take_finished()

    def _take_finished(self) -> None:
        while True:
            with self._lock:
                if not self._finished:
                    return
                node, iteration, outputs = self._finished.popleft()
            if self._called_s and node.op is not None:
                began_s = self._called_s.pop((node, iteration))
                self._teller(iteration)(f"{node.op.type} {node.op.name}", WAIT, began_s, perf_counter())
            try:
                checked = self._checked(node, outputs)
            except InvalidArgumentError as error:
                self._place(error, iteration)
                raise
            self._emit(node, iteration, checked)
            self._end(iteration)

    def _place(self, error: BaseException, iteration: Iteration) -> None:
        """Adds the loops and iterations in which an op has failed to its error."""
        if error is self._error or isinstance(error, (CancelledError, DeadlineExceededError)):
            return  # it ends the step from outside
        around: Iteration | None = iteration
        while around is not None and around.running.around is not None:
            add_iteration(error, around.running.frame.name, around.number)
            around = around.running.around

    def _push(self, node: DynamicNode, iteration: Iteration) -> None:
        iteration.outstanding += 1
        self._ready.append((node, iteration))

    def _run(self, node: DynamicNode, iteration: Iteration) -> None:
        if iteration.dead[node.index]:
            self._pass_dead(node, iteration)
        elif self._runners[node.kind](node, iteration):  # its outputs come later
            return
        iteration.outstanding = left = iteration.outstanding - 1
        if left == 0:
            self._end_iteration(iteration)

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

    def _teller(self, iteration: Iteration, *more: int, frame: str = "") -> Tell:
        """What takes the spans of an iteration; of number `more` of a loop in it that runs as a whole."""
        if self._spans is None:
            raise InternalError("a step that is not traced")
        numbers, around = list(more[::-1]), iteration
        while around.running.around is not None:
            numbers.append(around.number)
            around = around.running.around
        return self._spans.teller(loop_name(frame or iteration.running.frame.name), tuple(numbers[::-1]))

    # What a node of each kind does; True if its outputs come later ----------------------------

    def _run_static(self, node: DynamicNode, iteration: Iteration) -> bool:
        region, values = node.region, iteration.values
        if region is None:
            raise InternalError(f"node {node.name} has no region")
        last = node.first + node.count
        inputs = values[node.first : last]
        values[node.first : last] = node.blank  # frees them once they are used
        if self._spans is None:
            form = region.small(inputs)
            outputs = form.compute(inputs) if form is not None else self._run_region(region, inputs)
        else:
            outputs = run_timed(region, inputs, self._run_region, self._teller(iteration))
        self._emit(node, iteration, outputs)
        return False

    def _pass(self, node: DynamicNode, iteration: Iteration) -> bool:
        self._emit(node, iteration, (iteration.values[node.first],))
        return False

    def _merge(self, node: DynamicNode, iteration: Iteration) -> bool:
        values = iteration.values
        for slot in range(node.first, node.first + node.count):
            if values[slot] is not None and values[slot] is not DEAD:
                self._emit(node, iteration, (values[slot],))
                return False
        raise InternalError(f"Merge {node.name} has no input")

    def _switch(self, node: DynamicNode, iteration: Iteration) -> bool:
        data, pred = iteration.values[node.first], iteration.values[node.first + 1]
        self._emit(node, iteration, (DEAD, data) if pred else (data, DEAD))
        return False

    def _go_on(self, node: DynamicNode, iteration: Iteration) -> bool:
        self._next(node, iteration, iteration.values[node.first])
        return False

    def _go_in(self, node: DynamicNode, iteration: Iteration) -> bool:
        self._enter(node, iteration, iteration.values[node.first])
        return False

    def _go_out(self, node: DynamicNode, iteration: Iteration) -> bool:
        around = iteration.running.around
        if around is None:
            raise InternalError(f"{node.name} leaves no frame")
        self._emit(node, around, (iteration.values[node.first],))
        return False

    def _finish(self, node: DynamicNode, iteration: Iteration) -> bool:
        self._emit(node, iteration, ())
        return False

    def _emit(self, node: DynamicNode, iteration: Iteration, outputs: Sequence[Any]) -> None:
        """Hands outputs to their readers, in the iteration where these are."""
        for value, readers in zip(outputs, node.readers, strict=True):
            for reader, slot in readers:
                self._deliver(reader, slot, value, iteration)
        if node.controls:
            for reader in node.controls:
                self._count_down(reader, iteration)
        if node.followers:
            for reader in node.followers:
                self._count_down(reader, iteration)
        if node.fetched:
            for output in self._wanted.get(node, ()):
                self._fetched[(node, output)] = outputs[output]

    def _deliver(self, reader: DynamicNode, slot: int, value: Any, iteration: Iteration) -> None:
        iteration.values[slot] = value
        index = reader.index
        pending = iteration.pending
        if reader.merges:
            pending[index] -= 1
            if value is not DEAD and pending[index] < FIRED // 2:
                pending[index] = FIRED
                self._push(reader, iteration)
            elif pending[index] == 0:
                iteration.dead[index] = 1
                self._push(reader, iteration)
            return
        if value is DEAD:
            iteration.dead[index] = 1
        count = pending[index] = pending[index] - 1
        if count == 0:
            iteration.outstanding += 1
            self._ready.append((reader, iteration))

    def _count_down(self, reader: DynamicNode, iteration: Iteration, dead: bool = False) -> None:
        if dead:
            iteration.dead[reader.index] = 1
        count = iteration.pending[reader.index] = iteration.pending[reader.index] - 1
        if count == 0:
            self._push(reader, iteration)

    def _pass_dead(self, node: DynamicNode, iteration: Iteration) -> None:
        if node.kind == NodeKind.NEXT:
            return
        if node.kind == NodeKind.EXIT:  # of an iteration that is not the last
            return
        if node.kind == NodeKind.ENTER:
            self._skip_frame(node, iteration)
            return
        for readers in node.readers:
            for reader, slot in readers:
                self._deliver(reader, slot, DEAD, iteration)
        for reader in node.controls:
            self._count_down(reader, iteration, dead=True)
        for reader in node.followers:
            self._count_down(reader, iteration)

    # Frames -----------------------------------------------------------------------------------

    def _enter(self, node: DynamicNode, iteration: Iteration, value: Any) -> None:
        frame = node.target
        if frame.simple is not None:
            self._enter_simple(node, frame.simple, iteration, value)
            return
        running = iteration.children.get(frame)
        if running is None:
            running = iteration.children[frame] = RunningFrame(frame, iteration)
            iteration.outstanding += 1
            self._begin(running, 0)
        running.entering -= 1
        if node.op is not None and node.op.attrs["is_constant"]:
            for reader, slot in node.readers[0]:
                running.values[slot] = value
                self._base_down(running, reader)
            for reader in (*node.controls, *node.followers):
                self._base_down(running, reader)
            for each in list(running.iterations.values()):
                self._emit(node, each, (value,))
        else:
            self._emit(node, running.iterations[0], (value,))
        if running.iterations.get(0) is not None and running.iterations[0].outstanding == 0:
            self._iterate(running)

    def _enter_simple(self, node: DynamicNode, loop: SimpleLoop, iteration: Iteration, value: Any) -> None:
        """Takes what enters a simple loop; with the last of it the loop runs, here."""
        frame = node.target
        entered = iteration.entered.setdefault(frame, {})
        entered[node.op] = value
        if len(entered) < frame.enters:
            return
        numbers = count()
        try:
            teller = None if self._spans is None else partial(self._teller, iteration, frame=frame.name)
            values = loop.run(entered, self._run_region, self._check, numbers, teller)
        except Exception as error:
            if error is not self._error and not isinstance(error, DeadlineExceededError):
                add_iteration(error, frame.name, next(numbers) - 1)
            raise
        iteration.entered[frame] = {}
        for leaving in frame.exits:
            if leaving.op is not None:
                self._emit(leaving, iteration, (values[loop.exits[leaving.op]],))
        if frame.done is not None:
            self._count_down(frame.done, iteration)

    def _check(self) -> None:
        """Raises the error that ends the step, if there is one."""
        if self._error is not None:
            raise self._error
        if self._left_s is not None:
            self._left_s()

    def _base_down(self, running: RunningFrame, reader: DynamicNode) -> None:
        running.pending[reader.index] -= 1
        if running.pending[reader.index] == 0:
            running.ready.append(reader)

    def _skip_frame(self, node: DynamicNode, iteration: Iteration) -> None:
        """A dead Enter: the frame never runs, and its exits are dead."""
        frame = node.target
        if frame in iteration.children:
            return
        iteration.children[frame] = None
        for leaving in frame.exits:
            for readers in leaving.readers:
                for reader, slot in readers:
                    self._deliver(reader, slot, DEAD, iteration)
            for reader in leaving.controls:
                self._count_down(reader, iteration, dead=True)
        if frame.done is not None:
            self._count_down(frame.done, iteration)

    def _begin(self, running: RunningFrame, number: int) -> Iteration:
        iteration = running.iterations[number] = Iteration(running, number)
        for node in running.ready:
            self._push(node, iteration)
        return iteration

    def _next(self, node: DynamicNode, iteration: Iteration, value: Any) -> None:
        running = iteration.running
        number = iteration.number + 1
        if number - running.oldest >= running.limit:
            running.held_back.append((node, value, number))
            return
        following = running.iterations.get(number) or self._begin(running, number)
        self._emit(node, following, (value,))

    def _end(self, iteration: Iteration) -> None:
        """A node has run; the last one of an iteration ends it."""
        iteration.outstanding -= 1
        if iteration.outstanding == 0:
            self._end_iteration(iteration)

    def _end_iteration(self, iteration: Iteration) -> None:
        running = iteration.running
        if running.around is not None and iteration.number == running.oldest:
            self._iterate(running)

    def _iterate(self, running: RunningFrame) -> None:
        """Ends iterations in which nothing is left to run, and begins those that waited for them."""
        while True:
            oldest = running.iterations.get(running.oldest)
            if oldest is not None:
                if oldest.outstanding or (running.oldest == 0 and running.entering):
                    return
                del running.iterations[running.oldest]
                running.oldest += 1
            held, running.held_back = running.held_back, deque()
            for node, value, number in held:  # all of the iteration that may begin now
                following = running.iterations.get(number) or self._begin(running, number)
                self._emit(node, following, (value,))
            if not running.iterations:
                break
        around = running.around
        if around is None:
            raise InternalError("the outermost frame ended")
        around.children[running.frame] = None
        if running.frame.done is not None:
            self._count_down(running.frame.done, around)
        self._end(around)

    # Host functions ---------------------------------------------------------------------------

    def _call_host(self, node: DynamicNode, iteration: Iteration) -> bool:
        """Calls an op's host function; True if its outputs come later."""
        op = node.op
        if op is None:
            raise InternalError(f"node {node.name} stands for no operation")
        host = op.definition.host or string_kernel(op)
        inputs = tuple(iteration.values[node.first : node.first + node.count])
        if not op.definition.asynchronous:
            call = HostCall(op.name, op.attrs, inputs, self._resources, self._shared, _late, _late)
            try:
                outputs = host(call)
            except Exception as error:
                raise _blamed(op, error) from error
            if (
                type(outputs) is np.ndarray and outputs.dtype == node.dtype and outputs.shape == node.shape
            ):  # the usual case: one array, which fits
                self._emit(node, iteration, (outputs,))
            else:
                self._emit(node, iteration, self._checked(node, outputs))
            return False
        token = object()
        with self._lock:
            self._waiting[token] = None
        done, fail = partial(self._done, token, node, iteration), partial(self._fail, token, op, iteration)
        call = HostCall(op.name, op.attrs, inputs, self._resources, self._shared, done, fail)
        try:
            cancel = host(call)
        except Exception as error:
            raise _blamed(op, error) from error
        with self._lock:
            if token in self._waiting:
                self._waiting[token] = cancel
        return True

    def _done(self, token: object, node: DynamicNode, iteration: Iteration, outputs: Sequence[Array]) -> None:
        with self._lock:
            if token in self._waiting:
                del self._waiting[token]
                self._finished.append((node, iteration, outputs))
                self._came.notify_all()

    def _fail(self, token: object, op: Operation, iteration: Iteration, error: BaseException) -> None:
        with self._lock:
            if token in self._waiting:
                del self._waiting[token]
                blamed = _blamed(op, error)
                self._place(blamed, iteration)
                self._error = self._error or blamed
                self._came.notify_all()

    def _cancel_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for cancel in waiting.values():
            if cancel is not None:
                cancel()

    def _checked(self, node: DynamicNode, outputs: Any) -> list[Array]:
        """The outputs of a host function as arrays that fit the op's static specs."""
        op = node.op
        if op is None:
            raise InternalError(f"node {node.name} stands for no operation")
        given = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if not op.outputs and outputs is None:
            return []
        if len(given) != len(op.outputs):
            raise InvalidArgumentError(
                f"{op.type} {op.name}: its host function returned {len(given)} outputs, expected "
                f"{len(op.outputs)} (made at {op.source})"
            )
        arrays = []
        for tensor, value in zip(op.outputs, given, strict=True):
            array = string_array(value) if tensor.dtype.is_string else np.asarray(value)
            if as_dtype(array.dtype) != tensor.dtype or not compatible(tensor.spec.shape, array.shape):
                raise InvalidArgumentError(
                    f"{op.type} {op.name}: output {tensor.index} of its host function is "
                    f"{array.dtype.name}{render_dims(array.shape)}, expected {tensor.spec} "
                    f"(made at {op.source})"
                )
            arrays.append(array)
        return arrays


def _late(_: object) -> None:
    raise InternalError("done and fail are for asynchronous ops; return the outputs")


def _blamed(op: Operation, error: BaseException) -> BaseException:
    if isinstance(error, CancelledError) or not isinstance(error, Exception):
        return error
    kind = type(error) if isinstance(error, TensorBowError) else InvalidArgumentError
    return kind(blame(op.type, op.name, error, op.source))
