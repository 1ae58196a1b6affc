"""The compiled functions of a step's joint launches, and whether it can have some."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from tensorbow.kernels.merging import touch
from tensorbow.kernels.native.codegen.compiler import NativeCode
from tensorbow.kernels.native.codegen.functions import compile_groups, compile_unless_kept
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.plan_key import plan_key, writers_key
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.plan import NativeSegments
from tensorbow.kernels.native.rounds.averaging_pass import PASS, has_parts, is_averaged, pass_module
from tensorbow.kernels.native.rounds.driver import ROUNDS, STEPS, add_yield, driver_module
from tensorbow.kernels.native.rounds.words import SharedWord
from tensorbow.program.joint import JointAveraging
from tensorbow.program.plan import Group

GRADIENT, UPDATE = 0, 1  # segments of every step


class JointCode:
    """The functions of a step's joint launches, shared by all bindings of it."""

    def __init__(self, segments: NativeSegments, averaging: int | None, has_momentum: bool):
        """averaging: the segment of the update with averaging."""
        target, folder, step = segments.target, segments.folder, segments.executable
        plain = segments.code()
        self._alive: list[NativeCode] = [plain]
        runs = segments.run_of(GRADIENT), segments.run_of(UPDATE)
        self.is_possible = None not in runs and add_yield()
        if not self.is_possible:
            return
        # The calls of each function, by the word that holds its address: one of them may refuse its input.
        self.calls: dict[SharedWord, Sequence[Group]] = {}
        self.functions: dict[SharedWord, int] = {}
        for which, segment, name in zip(
            (SharedWord.GRADIENT, SharedWord.UPDATE), (GRADIENT, UPDATE), runs, strict=True
        ):
            self.functions[which] = plain.address(str(name))
            self.calls[which] = step.segments[segment].groups
        driver = self._add(_driver_of(target, folder))
        self.driver, self.rounds_driver = driver.function(STEPS), driver.function(ROUNDS)
        if averaging is not None:
            self._add_averaging(segments, averaging, has_momentum, target, folder)

    def _add(self, code: NativeCode) -> NativeCode:
        self._alive.append(code)
        return code

    def _add_averaging(
        self,
        segments: NativeSegments,
        averaging: int,
        has_momentum: bool,
        target: Target,
        folder: Path | None,
    ) -> None:
        step = segments.executable
        groups = step.segments[averaging].groups
        averaged = [group for group in groups if is_averaged(group)]
        self.is_possible = _may_be_joint(groups)
        if not self.is_possible:
            return
        first = groups.index(averaged[0])
        before = groups[:first]
        after = [group for group in groups[first:] if not is_averaged(group)]
        status = step.state["status"]
        around = self._add(compile_groups([before, after], status, target, folder))
        pass_code = compile_unless_kept(
            None if (key := plan_key([averaged], status)) is None else f"{PASS} {has_momentum} {key}",
            partial(pass_module, averaged, status, has_momentum, target),
            target,
            folder,
        )
        self.functions[SharedWord.PASS] = self._add(pass_code).address(PASS)
        for which, name, calls in ((SharedWord.BEFORE, "run0", before), (SharedWord.AFTER, "run1", after)):
            self.functions[which], self.calls[which] = around.address(name), calls


@cache
def _driver_of(target: Target, folder: Path | None) -> NativeCode:
    """The driver is the same for all steps."""
    return compile_unless_kept(writers_key("driver"), partial(driver_module, target), target, folder)


def _may_be_joint(groups: Sequence[Group]) -> bool:
    """Whether updates with averaging can be a pass of their own, and the other calls come before or after."""
    averaged = [group for group in groups if is_averaged(group)]
    if not averaged or not all(map(has_parts, averaged)):
        return False
    first = groups.index(averaged[0])
    for place, group in enumerate(groups):
        if not isinstance(group.kernel, NativeKernel):
            return False
        if place < first or is_averaged(group):
            continue
        for later in groups[place + 1 :]:
            if is_averaged(later) and (
                touch(group.writes, (*later.reads, *later.writes)) or touch(group.reads, later.writes)
            ):
                return False
    return True


class JointCodes:
    """The codes of a backend, by executable and the way of averaging; each is compiled once."""

    def __init__(self) -> None:
        self._codes: weakref.WeakKeyDictionary[NativeSegments, dict[tuple[int | None, bool], JointCode]]
        self._codes = weakref.WeakKeyDictionary()

    def find(self, segments: NativeSegments, averaging: JointAveraging | None) -> JointCode:
        """The code of a step."""
        codes = self._codes.setdefault(segments, {})
        how = (None, False) if averaging is None else (averaging.segment, averaging.has_momentum)
        if how not in codes:
            codes[how] = JointCode(segments, *how)
        return codes[how]
