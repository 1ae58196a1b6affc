"""One run of a dynamic plan that is one sequence: nothing waits, so that it needs no counts, lock or pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorbow.errors import CancelledError, InternalError
from tensorbow.executor.dynamic_plan import DynamicPlan
from tensorbow.executor.region import RunRegion
from tensorbow.executor.sequence import SequenceCalls
from tensorbow.graph import Resources, StepResources, Tensor
from tensorbow.specs import Array


class QuickStep:
    """Runs a plan of one sequence once, in the calling thread; not traced, and without a deadline."""

    def __init__(
        self,
        plan: DynamicPlan,
        run_region: RunRegion,
        resources: Resources,
        stop: Callable[[BaseException], None],
    ):
        """stop: see DynamicStep. Raises InternalError for a plan of several nodes."""
        if plan.only is None:
            raise InternalError("a plan of several nodes: expected one sequence; make a DynamicStep")
        self.error: BaseException | None = None  # ends it
        self._lock = threading.Lock()  # guards error
        self._plan, self._sequence, self._inputs = plan, *plan.only
        self._stop = stop
        self._shared = StepResources(resources, Resources())
        self._calls = SequenceCalls(run_region, self._shared, self, self._check, limited=False)

    def cancel(self, error: BaseException) -> None:
        """Ends the step with the first such error; a part that runs goes on to its end. Thread-safe."""
        with self._lock:
            self.error = error = self.error or error
        self._stop(error)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def run(self, feeds: Mapping[Tensor, Array]) -> list[Any]:
        """The values of the plan's elements: arrays, None for operations. Raises as `DynamicStep.run`."""
        try:
            with np.errstate(all="ignore"):
                outputs = self._sequence.run([feeds[tensor] for tensor in self._inputs], self._calls)
            self._check()
        except BaseException as error:
            self.cancel(error)
            if isinstance(error, CancelledError) and self.error is not None:
                raise self.error from None  # because of which it was cancelled
            raise
        finally:
            self._shared.step.close()
        return [
            outputs[result[1]] if isinstance(result, tuple) else self._plan.given(result, feeds)
            for result in self._plan.results
        ]
