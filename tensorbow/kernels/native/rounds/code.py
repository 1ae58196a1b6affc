"""The compiled functions of a step's round program, and whether it can have one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from llvmlite import ir

from tensorbow.kernels.merging import touch
from tensorbow.kernels.native.codegen.compiler import NativeCode
from tensorbow.kernels.native.codegen.functions import compile_groups, compile_unless_kept
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.plan_key import plan_key, writers_key
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.plan import NativeSegments
from tensorbow.kernels.native.rounds.driver import (
    BEFORE,
    GRADIENT,
    ROUNDS,
    UPDATE,
    add_yield,
    driver_module,
    refusing,
)
from tensorbow.kernels.native.rounds.passes import PASS, averaging_module, has_parts, is_averaged, mean_module
from tensorbow.ops.averaging import GradientCheck
from tensorbow.program.plan import Group
from tensorbow.program.rounds import Averaging, Exchange, GradientAveraging


@dataclass
class ExchangeCode:
    """One kind of exchange: the addresses of its functions, and the calls of those around the pass."""

    before: int
    after: int
    whole: int  # the pass
    calls: tuple[Sequence[Group], Sequence[Group]]


class RoundCode:
    """The functions of a step's rounds, shared by all bindings of it."""

    def __init__(self, segments: NativeSegments, exchanges: Sequence[Exchange]):
        self._segments = segments
        plain = segments.code()
        self._alive: list[NativeCode] = [plain]
        runs = segments.run_of(GRADIENT), segments.run_of(UPDATE)
        self.is_possible = None not in runs and add_yield()
        if not self.is_possible:
            return
        self.gradient, self.update = (plain.address(str(name)) for name in runs)
        self.driver = self._add(_driver_of(segments.target, segments.folder)).function(ROUNDS)
        self.exchanges: list[ExchangeCode] = []
        for exchange in exchanges:
            if isinstance(exchange, Averaging):
                code = self._averaging(exchange)
            else:
                code = self._mean(exchange)
            if code is None:
                self.is_possible = False
                return
            self.exchanges.append(code)

    def calls(self, which: int) -> Sequence[Group]:
        """The calls of the function that a replica's REFUSED_BY names."""
        function, kind = refusing(which)
        if function < BEFORE:
            return self._segments.executable.segments[function].groups
        return self.exchanges[kind].calls[function - BEFORE]

    def _add(self, code: NativeCode) -> NativeCode:
        self._alive.append(code)
        return code

    def _averaging(self, exchange: Averaging) -> ExchangeCode | None:
        """The updates with averaging as a pass, and what comes before and after; None if they cannot be."""
        segments, step = self._segments, self._segments.executable
        groups = step.segments[exchange.segment].groups
        averaged = [group for group in groups if is_averaged(group)]
        if not _may_be_a_pass(groups):
            return None
        first = groups.index(averaged[0])
        before = groups[:first]
        after = [group for group in groups[first:] if not is_averaged(group)]
        status = step.state["status"]
        around = self._add(compile_groups([before, after], status, segments.target, segments.folder))
        how = exchange.has_momentum, exchange.previous
        make = partial(averaging_module, averaged, status, *how, segments.target)
        whole = self._pass(f"{how}", averaged, make)
        return ExchangeCode(around.address("run0"), around.address("run1"), whole, (before, after))

    def _mean(self, exchange: GradientAveraging) -> ExchangeCode | None:
        """The mean of gradients as a pass, which checks it; None if the update on it is not native code."""
        segments, step = self._segments, self._segments.executable
        if segments.run_of(exchange.segment) is None:
            return None
        status = step.state["status"]
        after = [
            group for group in step.segments[exchange.segment].groups if group.definition is not GradientCheck
        ]
        around = self._add(compile_groups([[], after], status, segments.target, segments.folder))
        whole = self._pass(
            "mean", exchange.means, partial(mean_module, exchange.means, status, segments.target)
        )
        return ExchangeCode(around.address("run0"), around.address("run1"), whole, ([], after))

    def _pass(self, name: str, groups: Sequence[Group], make: Callable[[], ir.Module]) -> int:
        segments = self._segments
        key = plan_key([groups], segments.executable.state["status"])
        key = None if key is None else f"{PASS} {name} {key}"
        return self._add(compile_unless_kept(key, make, segments.target, segments.folder)).address(PASS)


@cache
def _driver_of(target: Target, folder: Path | None) -> NativeCode:
    """The driver is the same for all steps."""
    return compile_unless_kept(writers_key("driver"), partial(driver_module, target), target, folder)


def _may_be_a_pass(groups: Sequence[Group]) -> bool:
    """True if updates with averaging can be a pass of their own, and the other calls come before or after."""
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


def _key(exchange: Exchange) -> Hashable:
    if isinstance(exchange, Averaging):
        return exchange
    return exchange.segment, *((mean.outputs, mean.attrs["replicas"]) for mean in exchange.means)


class RoundCodes:
    """The codes of a backend, by executable and kinds of exchanges; each is compiled once."""

    def __init__(self) -> None:
        self._codes: weakref.WeakKeyDictionary[NativeSegments, dict[tuple[Hashable, ...], RoundCode]]
        self._codes = weakref.WeakKeyDictionary()

    def find(self, segments: NativeSegments, exchanges: Sequence[Exchange]) -> RoundCode:
        """The code of a step."""
        codes = self._codes.setdefault(segments, {})
        key = tuple(map(_key, exchanges))
        if key not in codes:
            codes[key] = RoundCode(segments, exchanges)
        return codes[key]
