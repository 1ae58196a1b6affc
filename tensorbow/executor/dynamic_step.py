"""One run of a dynamic plan: ready counts, frames and iterations, dead tensors (white paper, section 4.4)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from tensorbow.errors import CancelledError, DeadlineExceededError, InternalError, InvalidArgumentError
from tensorbow.executor.dynamic_plan import DynamicNode, DynamicPlan, Frame, NodeKind
from tensorbow.executor.inter_op_pool import InterOpPool
from tensorbow.executor.region import RunRegion
from tensorbow.executor.sequence import SequenceCalls, blamed_host, checked_outputs
from tensorbow.executor.step_spans import StepSpans, Tell
from tensorbow.executor.string_kernels import string_kernel
from tensorbow.graph import (
    DEAD,
    HostCall,
    Operation,
    Resources,
    StepResources,
    Tensor,
    add_iteration,
    label_of,
    loop_name,
)
from tensorbow.specs import Array
from tensorbow.timeline import OP, WAIT, WORK

VARIABLE: Any = object()  # stands for the value of a fetched variable, which is read when the step has ended
LONG_S = 2e-4  # seconds of a sequence that is worth another thread
FIRED = 1 << 30  # count of a Merge that has run


class Iteration:
    """State of one iteration of a running frame: its tag is the frame and the number."""

    __slots__ = ("children", "dead", "number", "outstanding", "pending", "running", "values")

    def __init__(self, running: RunningFrame, number: int):
        self.running = running
        self.number = number
        self.pending: list[int] = running.pending.copy()
        self.values: list[Any] = running.values.copy()
        self.dead = bytearray(running.dead)
        self.outstanding = 0  # nodes that are ready or running, and frames inside
        self.children: dict[Frame, RunningFrame | None] = {}


class RunningFrame:
    """A frame that has been entered from one iteration of the frame around."""

    __slots__ = (
        "around", "dead", "entering", "frame", "held_back", "iterations", "oldest", "pending",
        "ready", "turns", "values",
    )  # fmt: skip

    def __init__(self, frame: Frame, around: Iteration | None):
        self.frame = frame
        self.around = around
        # What every iteration begins with: constants, and what has come in by constant Enters.
        self.pending = [node.waits + node.ordered for node in frame.nodes]
        self.values: list[Any] = [None] * frame.slots
        self.dead = bytearray(len(frame.nodes))
        self.ready = [node for node in frame.nodes if node.waits + node.ordered == 0]
        self.turns = dict.fromkeys(frame.ordered, 0)  # the iteration whose turn it is
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
        pool: InterOpPool | None = None,
        within: Callable[[Callable[[], None]], None] | None = None,
        stop: Callable[[BaseException], None] | None = None,
        shared: Resources | None = None,
    ):
        """left_s: seconds until the step's deadline; raises after it. spans: takes those of all nodes.

        pool: of slow ops; without one all run here. within: calls a function on the pool as in this thread,
        with what belongs to the run. stop: ends what regions are at, once the step has failed. shared:
        objects of this step, for its ops; closed at its end.
        """
        self._pool, self._within, self._stop = pool, within, stop
        self._slow: list[tuple[DynamicNode, Iteration]] = []  # ready, but not for this thread
        self._computing = 0  # sequences on the pool
        self._spans = spans
        self._called_s: dict[tuple[DynamicNode, Iteration], float] = {}  # begin of asynchronous calls, traced
        self._left_s = left_s
        self._plan = plan
        self._run_region = run_region
        self._shared = StepResources(resources, Resources() if shared is None else shared)
        self._ready: list[tuple[DynamicNode, Iteration]] = []
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._finished: deque[tuple[DynamicNode, Iteration, Any]] = deque()  # by asynchronous ops
        self._waiting: dict[_Wait, Callable[[], object] | None] = {}  # how each of them is cancelled
        self.waited_for: list[str] = []  # ops that it waited for when its time limit ended it
        self.error: BaseException | None = None  # ends it
        self._fetched: dict[tuple[DynamicNode, int], Any] = {}
        by_kind = {
            NodeKind.SEQUENCE: self._run_sequence,
            NodeKind.HOST: self._call_host,
            NodeKind.SWITCH: self._switch,
            NodeKind.MERGE: self._merge,
            NodeKind.PASS: self._pass,
            NodeKind.ENTER: self._go_in,
            NodeKind.EXIT: self._go_out,
            NodeKind.NEXT: self._go_on,
            NodeKind.DONE: self._finish,
            NodeKind.SEND: self._send,
        }
        self._calls = self._new_calls(None)
        self._runners: list[Callable[[DynamicNode, Iteration], bool]] = [by_kind[k] for k in NodeKind]

    def cancel(self, error: BaseException) -> None:
        """Ends the step with an error; thread-safe."""
        with self._lock:
            self.error = error = self.error or error
            self._came.notify_all()
        if self._stop is not None:
            self._stop(error)

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
            if isinstance(error, DeadlineExceededError):
                with self._lock:
                    self.waited_for = [_described(wait.node) for wait in self._waiting]
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
        ready, slow, left_s = self._ready, self._slow, self._left_s
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
        slow, pool = self._slow, self._pool
        if pool is None or not (self._left_s is not None or self._ready or len(slow) > 1 or self._waiting):
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
        try:
            outputs = host(HostCall(op, tuple(inputs), self._shared))
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
        return SequenceCalls(self._run_region, self._shared, self, self._check, limited, teller)

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
                    self._pass_dead(node, iteration)
                    self._end(iteration)
                    continue
                try:
                    outputs = checked_outputs(node.op, outputs)
                except InvalidArgumentError as error:
                    self._place(error, iteration)
                    raise
            self._emit(node, iteration, outputs)
            self._end(iteration)

    def _place(self, error: BaseException, iteration: Iteration) -> None:
        """Adds the loops and iterations in which an op has failed to its error."""
        if error is self.error or isinstance(error, (CancelledError, DeadlineExceededError)):
            return  # it ends the step from outside
        around: Iteration | None = iteration
        while around is not None and around.running.around is not None:
            add_iteration(error, around.running.frame.name, around.number)
            around = around.running.around

    def _push(self, node: DynamicNode, iteration: Iteration) -> None:
        iteration.outstanding += 1
        if (
            node.slow
            and not iteration.dead[node.index]
            and (node.sequence is None or node.sequence.duration_s > LONG_S)
        ):
            self._slow.append((node, iteration))
        else:
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

    def _teller(self, iteration: Iteration, loops: Sequence[tuple[str, int]] = ()) -> Tell:
        """Receiver of the spans of an iteration. loops: in it, that a sequence runs, and their iterations."""
        if self._spans is None:
            raise InternalError("a step that is not traced")
        numbers, around = [number for _, number in reversed(loops)], iteration
        while around.running.around is not None:
            numbers.append(around.number)
            around = around.running.around
        frame = loops[-1][0] if loops else iteration.running.frame.name
        return self._spans.teller(loop_name(frame), tuple(numbers[::-1]))

    # What a node of each kind does; True if its outputs come later ----------------------------

    def _run_sequence(self, node: DynamicNode, iteration: Iteration) -> bool:
        calls = self._calls if self._spans is None else self._new_calls(iteration)
        self._emit(node, iteration, self._computed(node, iteration, calls))
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
        if node.ordered:
            self._pass_turn(node, iteration)
        if node.fetched:
            for output in self._wanted.get(node, ()):
                self._fetched[(node, output)] = outputs[output]

    def _pass_turn(self, node: DynamicNode, iteration: Iteration) -> None:
        """Lets an ordered node run in the next iteration."""
        running, number = iteration.running, iteration.number + 1
        running.turns[node] = number
        following = running.iterations.get(number)
        if following is not None:
            self._count_down(node, following)

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
            self._push(reader, iteration)

    def _count_down(self, reader: DynamicNode, iteration: Iteration, dead: bool = False) -> None:
        if dead:
            iteration.dead[reader.index] = 1
        count = iteration.pending[reader.index] = iteration.pending[reader.index] - 1
        if count == 0:
            self._push(reader, iteration)

    def _pass_dead(self, node: DynamicNode, iteration: Iteration) -> None:
        if node.kind == NodeKind.NEXT:
            return
        if node.kind == NodeKind.SEND:
            self._call_send(node, iteration, (DEAD,))
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
        if node.ordered:
            self._pass_turn(node, iteration)

    # Frames -----------------------------------------------------------------------------------

    def _enter(self, node: DynamicNode, iteration: Iteration, value: Any) -> None:
        frame = node.target
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

    def _check(self) -> None:
        """Raises the error that ends the step, if there is one."""
        if self.error is not None:
            raise self.error
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
        for node, turn in running.turns.items():
            if turn == number:
                self._count_down(node, iteration)
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
        if node.slow:
            self._emit(node, iteration, self._computed(node, iteration, self._calls))
            return False
        host = op.definition.host or string_kernel(op)
        inputs = tuple(iteration.values[node.first : node.first + node.count])
        token = _Wait(node)
        with self._lock:
            self._waiting[token] = None
        done, fail = partial(self._done, token, node, iteration), partial(self._fail, token, op, iteration)
        call = HostCall(op, inputs, self._shared)
        call.done, call.fail = done, fail
        if op.definition.flow:
            call.iterations = _iterations(iteration)
        try:
            cancel = host(call)
        except Exception as error:
            raise blamed_host(op, error) from error
        with self._lock:
            if token in self._waiting:
                self._waiting[token] = cancel
        return True

    def _send(self, node: DynamicNode, iteration: Iteration) -> bool:
        self._call_send(node, iteration, tuple(iteration.values[node.first : node.first + node.count]))
        self._emit(node, iteration, ())
        return False

    def _call_send(self, node: DynamicNode, iteration: Iteration, inputs: tuple[Any, ...]) -> None:
        """Calls the host function of a Send; its input may be dead."""
        op = node.op
        if op is None or op.definition.host is None:
            raise InternalError(f"node {node.name} sends nothing")
        call = HostCall(op, inputs, self._shared)
        call.iterations = _iterations(iteration)
        try:
            op.definition.host(call)
        except Exception as error:
            raise blamed_host(op, error) from error

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


def _iterations(iteration: Iteration) -> tuple[int, ...]:
    """The numbers of an iteration and of those around it, the outermost first."""
    numbers: list[int] = []
    while iteration.running.around is not None:
        numbers.append(iteration.number)
        iteration = iteration.running.around
    return tuple(reversed(numbers))


def _described(node: DynamicNode) -> str:
    """An op that waits, for a message; of a Receive what it waits for."""
    if node.op is not None and node.op.definition.flow == "receive":
        return f"{node.op.attrs['key'].removeprefix('^')} of {node.op.attrs['sender']}"
    if node.op is None:
        return f"{node.name} and ops with it"
    return label_of(node.op.type, node.name)
