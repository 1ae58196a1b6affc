"""Regions of dynamic steps that touch nothing shared, and are short: one call in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter, sleep

from tensorbow.compiler import Binding
from tensorbow.devices import Device
from tensorbow.errors import CancelledError, ResourceExhaustedError
from tensorbow.executor import RegionCall, StaticRegion
from tensorbow.program import Executable, Region
from tensorbow.runtime.single_device_step import LONGEST_HERE_S
from tensorbow.runtime.step_cache import CACHED_STEPS, StepCache
from tensorbow.specs import Array

CLOSED = "the session was closed while the step ran"
LOOKS_S = 1e-4  # between looks whether calls have ended
LONG_RUNS = 3  # in a row, after which a region runs where an interrupt can end the wait for it


class BoundRegion:
    """A region with memory of its own, where steady inputs of a loop, such as weights, stay for its run."""

    def __init__(self, binding: Binding):
        self.binding = binding
        self.runs = False
        self._loop_run: object = None  # whose steady inputs are there

    def run(self, quick: QuickRegion, arrays: Sequence[Array], loop_run: object) -> list[Array]:
        """The outputs. loop_run: see RunRegion."""
        plan = self.binding.plan
        if loop_run is None or loop_run is not self._loop_run:
            plan.write({name: arrays[index] for index, name in quick.steady}, {})
            self._loop_run = loop_run
        plan.write({name: arrays[index] for index, name in quick.call.inputs}, {})
        return quick.call.launch(plan)


class QuickRegion:
    """A compiled region, and its bindings that are idle."""

    def __init__(self, executable: Executable, region: StaticRegion):
        self.executable = executable
        read = [(i, tensor.name) for i, tensor in enumerate(region.inputs) if i not in region.baked]
        self.steady = [pair for pair in read if pair[0] in region.steady]
        others = [pair for pair in read if pair[0] not in region.steady]
        self.call = RegionCall(executable, others, [None] * len(executable.fetch_sources))
        self.idle: list[BoundRegion] = []  # taken and given back by single calls, which are atomic
        self.all: list[BoundRegion] = []  # an interrupt may have kept one from being given back to `idle`
        self.long_runs = 0  # the last ones in a row that took long


class QuickRegions:
    """Quick regions by region and shapes of the inputs. Thread-safe.

    A step's way through the cache, the locks of variables and a stream costs several times what a small
    region does.
    """

    def __init__(self, cache: StepCache, device: Device, owner: str):
        """cache: whose first stream group has the memory. device: the session's."""
        self._cache, self._device, self._owner = cache, device, owner
        self._known: dict[object, QuickRegion | None] = {}  # None: it does not run here
        self._lock = cache.lock  # guards changes of the field above, and of the group's allocator
        self._closed = False

    def run(self, region: StaticRegion, arrays: Sequence[Array], loop_run: object) -> list[Array] | None:
        """The outputs; None for a region that does not run here; see RunRegion. Raises the error of an op."""
        key = region, region.key(arrays)
        quick = self._known.get(key)
        if quick is None or quick.long_runs >= LONG_RUNS:
            return None
        bound: BoundRegion | None
        try:
            bound = quick.idle.pop()
        except IndexError:
            bound = self._bind(key, quick)
        if bound is None:
            return None
        bound.runs = True
        try:
            if self._closed:  # read after `runs` is set, which `close` reads after it has set this
                return None
            began_s = perf_counter()
            outputs = bound.run(quick, arrays, loop_run)
            is_long = perf_counter() - began_s > LONGEST_HERE_S
            quick.long_runs = quick.long_runs + 1 if is_long else 0
            return outputs
        finally:
            bound.runs = False
            quick.idle.append(bound)

    def _bind(self, key: object, quick: QuickRegion) -> BoundRegion | None:
        """Memory of its own; None if there is too little, or another thread has made one for the key."""
        with self._lock:
            if self._closed:
                raise CancelledError(CLOSED)
            if self._known.setdefault(key, quick) is not quick:
                return None
            group = self._cache.group_of(self._device)
            try:
                binding = Binding(quick.executable, group, {}, ring=0, owner=self._owner)
            except ResourceExhaustedError:  # the cache has memory for it, which is shared by all steps
                if not quick.all:
                    self._known[key] = None
                return None
            quick.all.append(BoundRegion(binding))
            return quick.all[-1]

    def ran(
        self, region: StaticRegion, arrays: Sequence[Array], took_s: float, compiled: Callable[[], object]
    ) -> None:
        """Takes note of a run elsewhere. compiled: gives the region's executable.

        It runs here from now on, if it reads and writes nothing shared, and always ends; after some long runs
        elsewhere again, until it is short.
        """
        key, known = (region, region.key(arrays)), self._known
        if key in known:
            quick = known[key]
            if quick is not None and took_s < LONGEST_HERE_S:
                quick.long_runs = 0
            elif quick is not None and quick.idle:
                with self._lock:
                    _free_idle(quick)
            return
        executable, quick = compiled(), None
        if isinstance(executable, Executable) and _is_quick(executable):
            quick = QuickRegion(executable, region)
        with self._lock:
            if len(self._known) >= CACHED_STEPS:
                self.trim()
                self._known = {key: each for key, each in self._known.items() if each and each.all}
            self._known.setdefault(key, quick)  # another thread may have made one meanwhile

    def trim(self) -> None:
        """Frees the memory of all that does not run."""
        with self._lock:
            for quick in filter(None, self._known.values()):
                _free_idle(quick)

    def close(self) -> None:
        """Waits for the calls that run, and frees all memory."""
        with self._lock:
            self._closed = True
            known = [quick for quick in self._known.values() if quick is not None]
        for quick in known:
            while any(bound.runs for bound in quick.all):
                sleep(LOOKS_S)
            for bound in quick.all:
                bound.binding.close()
            quick.all.clear()


def _free_idle(quick: QuickRegion) -> None:
    """Frees the memory of a region's idle bindings; the lock is held."""
    with suppress(IndexError):  # other threads take some meanwhile
        while True:
            bound = quick.idle.pop()
            quick.all.remove(bound)
            bound.binding.close()


def _is_quick(executable: Executable) -> bool:
    """True for a step without variables, counters and endless loops; its inputs are where it only reads."""
    shared = executable.reads_first or executable.reads_maybe or executable.writes or executable.counters
    kept = all(ref.region is Region.INPUT for ref in executable.inputs.values())
    return kept and not shared and not executable.may_not_end
