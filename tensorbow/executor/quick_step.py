"""One run of a dynamic plan whose nodes run one after the other: it needs no counts, and no pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorbow.errors import CancelledError, InternalError
from tensorbow.executor.dynamic_plan import DynamicPlan
from tensorbow.executor.plan_nodes import DynamicNode
from tensorbow.executor.region import RunRegion
from tensorbow.executor.sequence import SequenceCalls, blamed_host, checked_outputs
from tensorbow.executor.string_kernels import string_kernel
from tensorbow.graph import HostCall, Resources, StepResources, Tensor
from tensorbow.specs import Array


class QuickStep:
    """Runs a plan that is a chain once, in the calling thread; not traced, and without a deadline."""

    def __init__(
        self,
        plan: DynamicPlan,
        run_region: RunRegion,
        resources: Resources,
        stop: Callable[[BaseException], None],
    ):
        """stop: see DynamicStep. Raises InternalError for a plan that is no chain."""
        if plan.chain is None:
            raise InternalError("a plan with nodes side by side: expected a chain; make a DynamicStep")
        self.error: BaseException | None = None  # ends it
        self._plan, self._chain, self._stop = plan, plan.chain, stop
        self._shared = StepResources(resources, Resources())
        self._calls = SequenceCalls(run_region, self._shared, self, self._check, limited=False)
        # Of the asynchronous op that runs; the lock guards these, and `error`.
        self._lock = threading.Lock()
        self._outputs: Sequence[Array] | None = None
        self._came: threading.Condition | None = None  # made for a wait
        self._take_back: Callable[[], object] | None = None
        self._awaited_node: DynamicNode | None = None  # while the step waits for it

    @property
    def waiting(self) -> list[str]:
        """The op that it waits for now, as `DynamicStep.waiting`."""
        node = self._awaited_node
        return [] if node is None else [node.described]

    def cancel(self, error: BaseException) -> None:
        """Ends the step with the first such error; a part that runs goes on to its end. Thread-safe."""
        with self._lock:
            self.error = error = self.error or error
            self._open()
        self._stop(error)

    def _open(self) -> None:
        """Ends the wait; the caller holds the lock."""
        if self._came is not None:
            self._came.notify_all()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def run(self, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """The values of the plan's elements: arrays, None for operations. Raises as `DynamicStep.run`."""
        plan = self._plan
        fetched: dict[DynamicNode, Sequence[Any]] = {}
        values = plan.root.values.copy()
        for tensor, readers in plan.sources:
            for _, slot in readers:
                values[slot] = feeds[tensor]
        try:
            with np.errstate(all="ignore"):
                for node, sequence, own, moves in self._chain:
                    inputs = values[own]
                    values[own] = node.blank  # frees them once they are used
                    if sequence is None:
                        outputs = self._awaited(node, inputs)
                    else:
                        outputs = sequence.run(inputs, self._calls)
                    if self.error is not None:
                        raise self.error
                    for number, slot in moves:
                        values[slot] = outputs[number]
                    if node.fetched:
                        fetched[node] = outputs
        except BaseException as error:
            self.cancel(error)
            if isinstance(error, CancelledError) and self.error is not None:
                raise self.error from None  # because of which it was cancelled
            raise
        finally:
            self._shared.step.close()
        return [
            fetched[result[0]][result[1]] if isinstance(result, tuple) else plan.given(result, feeds)
            for result in plan.results
        ]

    # Asynchronous ops -------------------------------------------------------------------------

    def _awaited(self, node: DynamicNode, inputs: list[Any]) -> Sequence[Any]:
        """The outputs of an asynchronous op, which may come later."""
        op = node.op
        if op is None:
            raise InternalError(f"node {node.name} stands for no operation")
        self._outputs = self._take_back = None
        call = HostCall(op, tuple(inputs), self._shared)
        call.done, call.on_cancel = self._done, self._cancel_by
        call.fail = partial(self._fail, node)
        try:
            (op.definition.host or string_kernel(op))(call)
            if self._outputs is None:
                self._awaited_node = node
                self._wait()
                self._awaited_node = None
        except Exception as error:
            if error is self.error:
                raise
            raise blamed_host(op, error) from error
        finally:
            if self._outputs is None and self._take_back is not None:
                self._take_back()
        outputs = self._outputs
        return outputs if outputs is not None and node.fits(outputs) else checked_outputs(op, outputs)

    def _wait(self) -> None:
        """Waits for the answer to the call, or the error that ends the step, and raises that."""
        with self._lock:
            came = self._came = self._came or threading.Condition(self._lock)
            while self._outputs is None and self.error is None:
                came.wait()
        self._check()

    def _cancel_by(self, take_back: Callable[[], object]) -> None:
        self._take_back = take_back

    def _done(self, outputs: Sequence[Array]) -> None:
        with self._lock:
            if self._outputs is None and self.error is None:
                self._outputs = outputs
                self._open()

    def _fail(self, node: DynamicNode, error: BaseException) -> None:
        if node.op is not None:
            self.cancel(blamed_host(node.op, error))
