"""One step on one device: launched on its stream, or run in the thread that waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

from tensorbow.compiler import Binding
from tensorbow.devices import Stream
from tensorbow.errors import FailedPreconditionError, raise_if_any
from tensorbow.specs import Array

LONGEST_HERE_S = 2e-3  # of steps in the caller's thread: longer ones do not mind the ways to the stream's


def run_step(
    binding: Binding, inputs: Mapping[str, Array], state: Mapping[str, Any], label: str
) -> list[Any]:
    """Runs a step and waits for its end; copies of the fetched values.

    A step whose last time was short runs in the calling thread, if its stream is idle and its device computes
    on the host, and if an interrupt of Python cannot leave its writes half done: it reads only, or is one
    native call. Any other step ends first, on the stream's thread, and then the interrupt is raised.

    Raises the error of the op that failed; stream and binding are usable afterwards.
    """
    plan, stream = binding.plan, binding.group.compute
    segments = range(len(binding.executable.segments))

    def work() -> None:
        binding.write(inputs, state)
        for segment in segments:
            plan.launch(segment)

    here = binding.waits or (binding.duration_s < LONGEST_HERE_S and binding.is_whole)
    started_s = perf_counter()
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
    except BaseException:  # also of an interrupted wait: the step may still be at work in its memory
        done = None  # see raise_if_any
        _settle(stream)
        raise
    binding.duration_s = perf_counter() - started_s
    return [view.copy() if view.shape else view[()] for view in plan.fetch_arrays(0)]


def _settle(stream: Stream) -> None:
    """After a step that failed: waits for its end, and makes the stream usable again."""
    try:
        stream.synchronize()
    except Exception:
        pass  # the caller raises it
    except BaseException as error:
        if error is not stream.error:  # that of the step itself; else a second interrupt, which goes on
            raise
    finally:
        with suppress(FailedPreconditionError):
            stream.reset()
