"""Bound steps on one device: they run on the stream's thread, or directly in the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

from tensorbow.compiler import Binding
from tensorbow.devices import Stream
from tensorbow.errors import FailedPreconditionError, raise_if_any
from tensorbow.program import BoundPlan
from tensorbow.runtime.explain import Explanation
from tensorbow.runtime.kept_values import Keep, KeptValues
from tensorbow.runtime.run_watch import RunWatch, current_watch
from tensorbow.timeline import CURRENT, OP

LOOP_GRACE_S = 1.0  # seconds that a loop has to end after an interrupt
LONGEST_HERE_S = 2e-3  # longest step in the caller's thread; for longer ones a thread switch costs little


class SingleDeviceStep:
    """A bound step on one device. Only one run at a time uses it."""

    def __init__(self, binding: Binding, label: str):
        """binding: closed with the step. label: of the launches."""
        self.binding = binding
        self.executable = binding.executable
        self.groups = (binding.group,)
        self._label = label

    def run(self, inputs: Mapping[str, Any], state: Mapping[str, Any], keep: Keep | None = None) -> list[Any]:
        """Runs the step, waits for its end, and returns copies of the fetched values.

        keep: of a region: inputs may lie on devices, and large results stay on one with memory of its own.

        It runs in the calling thread if its last run was short, its stream is idle, its device computes on
        the host, and a Python interrupt cannot leave its writes half done (it only reads, or is one native
        call). Otherwise it runs on the stream's thread; an interrupt is then raised once the step has ended.

        Raises the error of the op that failed; stream and step stay usable.
        """
        binding, label = self.binding, self._label
        plan, stream = binding.plan, binding.group.compute
        segments = range(len(self.executable.segments))
        watch = current_watch()
        kept = None if keep is None else KeptValues(binding, inputs, keep)

        def work() -> None:
            if kept is None:
                binding.write(inputs, state)
            else:
                kept.write(state)
            for segment in segments:
                launch(plan, segment, stream, watch, kept)

        # A trace or a watch runs ops one by one.
        in_one_piece = binding.is_whole and CURRENT.tracer is None and watch is None
        in_one_piece = in_one_piece and not self.executable.may_not_end  # interrupts must come through
        here = binding.waits or (binding.duration_s < LONGEST_HERE_S and in_one_piece)
        started_s = perf_counter()
        timer = self._timer(watch) if watch is not None and self.executable.may_not_end else None
        try:
            done = stream.run_here(work, label=label) if here else None
            if done is None:
                touched = [plan.accesses(segment) for segment in segments]
                stream.enqueue(
                    work,
                    label=label,
                    reads=[access for reads, _ in touched for access in reads],
                    writes=[access for _, writes in touched for access in writes],
                )
                stream.synchronize()
            else:
                raise_if_any(done.error)
        except BaseException:  # or an interrupted wait: the step may still use its memory
            done = None  # see raise_if_any
            self._settle()
            if timer is not None and watch is not None:
                watch.left_s()
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
                plan.resume()
        binding.duration_s = perf_counter() - started_s
        if kept is not None:
            return [kept.fetched(number, view) for number, view in enumerate(plan.fetch_arrays(0))]
        return [view.copy() if view.shape else view[()] for view in plan.fetch_arrays(0)]

    def _timer(self, watch: RunWatch) -> threading.Timer | None:
        """A timer that stops loops at the deadline, if there is one."""
        left_s = watch.left_s()
        if left_s is None:
            return None
        timer = threading.Timer(left_s, self.binding.plan.stop)
        timer.daemon = True
        timer.start()
        return timer

    def stop(self) -> None:
        """Ends loops that run: the step fails with CancelledError; thread-safe."""
        self.binding.plan.stop()

    def resume(self) -> None:
        """Lets loops of later runs go on; thread-safe."""
        self.binding.plan.resume()

    def _settle(self) -> None:
        """Waits for the end of a failed step, whose loops are stopped; makes the stream usable again."""
        stops = threading.Timer(LOOP_GRACE_S, self.stop) if self.executable.may_not_end else None
        if stops is not None:
            stops.daemon = True
            stops.start()
        try:
            _settle(self.binding.group.compute)
        finally:
            if stops is not None:
                stops.cancel()
                stops.join()
                self.binding.plan.resume()

    def explain(self) -> Explanation:
        """Explanation with addresses."""
        return Explanation.of_binding(self.binding)

    def close(self) -> None:
        """Frees the memory; idempotent."""
        self.binding.close()


def launch(
    plan: BoundPlan, segment: int, stream: Stream, watch: RunWatch | None, kept: KeptValues | None = None
) -> None:
    """Runs a segment in its stream's turn; traced or watched, op by op where the host computes."""
    if kept is not None and kept.left:
        plan.launch_keeping(segment, kept.left)
        return
    tracer = CURRENT.tracer
    if tracer is None and watch is None:
        plan.launch(segment)
        return

    def tell(op: str, began_s: float, ended_s: float) -> None:
        if tracer is not None:
            tracer.add(stream.track, op, OP, began_s, ended_s)
        if watch is not None:
            watch.add(stream.track, op, began_s, ended_s)

    plan.launch_traced(segment, 0, tell)


def _settle(stream: Stream) -> None:
    """Waits for the end of a failed step and makes the stream usable again."""
    try:
        stream.synchronize()
    except Exception:
        pass  # the caller raises it
    except BaseException as error:
        if error is not stream.error:  # a second interrupt, which is raised; not the step's own error
            raise
    finally:
        with suppress(FailedPreconditionError):
            stream.reset()
