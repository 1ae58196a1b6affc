"""The compiled functions of a step's round program, and whether it can have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

from tensorbow.kernels.merging import touch
from tensorbow.kernels.native.codegen.compiler import NativeCode
from tensorbow.kernels.native.codegen.functions import (
    ALIGNMENT,
    REFUSES,
    compile_groups,
    compile_unless_kept,
)
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.plan_key import plan_key, writers_key
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.plan import NativeSegments, native_call
from tensorbow.kernels.native.rounds.deferral import LateExchange, ended_before, most_under_way
from tensorbow.kernels.native.rounds.driver import ROUNDS, driver_module
from tensorbow.kernels.native.rounds.early_checks import index_checks
from tensorbow.kernels.native.rounds.exchange_pass import PASS, PassStage, blocks_of, chunk_of, pass_module
from tensorbow.kernels.native.rounds.exchange_plan import ExchangePlan, ExchangeReduction, plan_exchange
from tensorbow.kernels.native.rounds.pieces import NOT_CUT, SumPieces, cut_sums
from tensorbow.kernels.native.rounds.system_functions import add_yield
from tensorbow.program.plan import Group, Region, SegmentKind
from tensorbow.program.rounds import RoundProgramSpec, WorkerExchange
from tensorbow.specs import DType, float32

MEETINGS_LATER = 5  # of threads, at an exchange that ends later


@dataclass(frozen=True)
class Phase:
    """Calls of a replica up to an exchange, or to the end of a round, and that exchange.

    first, end: its functions of base addresses, by their numbers in `RoundCode.functions`. pass_address: of
    the pass, or 0. device_function: the number of the function that each device calls behind it, or -1. name:
    of the exchange, or "". With other workers: sums: what they exchange between two passes, as (offset in
    bytes, elements, dtype), none where they share memory; copies: gathers and broadcasts; uses_address: of
    the pass behind these, or 0; pieces: of the sums, where two workers exchange them one by one; ends: the
    variant whose exchange ends before this pass, where this one ends later itself.
    """

    first: int
    end: int
    pass_address: int
    device_function: int
    name: str
    uses_address: int = 0
    pieces: SumPieces = NOT_CUT
    sums: Sequence[tuple[int, int, DType]] = ()
    copies: Sequence[Group] = ()
    ends: int | None = None


class _Planned(NamedTuple):
    """A variant: the replicas' calls, a list for each part between two exchanges, and the exchanges."""

    works: list[list[Sequence[Group]]]
    plans: list[ExchangePlan]
    names: list[str]


class RoundCode:
    """The functions of a step's rounds, shared by all bindings of it.

    functions: addresses. calls: those of each function. phases: of each variant. meetings: how often threads
    meet in a round of each variant. sums_nbytes: of what this worker exchanges with others at a time. flags:
    how many it has for that, where workers share memory. shares_central: all workers have to have one z, of
    which each moves a part.
    """

    def __init__(self, segments: NativeSegments, rounds: RoundProgramSpec):
        """segments: the replicas' part of the step."""
        self._segments, self._workers = segments, rounds.workers
        # Not the step itself, which the backend knows by a weak reference for as long as it is in use.
        step = rounds.step
        self._step_segments, self._fetch_sources, self._state = step.segments, step.fetch_sources, step.state
        self.sums_nbytes = self.flags = 0
        self.shares_central = False
        self._alive = [segments.code()]
        self._everything = [group for segment in segments.executable.segments for group in segment.groups]
        self.functions: list[int] = []
        self.calls: list[Sequence[Group]] = []
        checks = [*index_checks(rounds.step, self._everything)]
        self._checked = len(checks)
        self.checks = [*{check.words: check for check in reversed(checks)}.values()][::-1]
        self.phases: list[list[Phase]] = []
        self.is_possible = add_yield()
        if self.is_possible:
            self.driver = self._add(_driver_of(segments.target, segments.folder)).function(ROUNDS)
            self._late: dict[int, LateExchange] = {}  # by variant that may have exchanges which end later
            self._others: list[Group] = []  # calls of variants without an exchange
            self._may_end_later = rounds.workers is not None and rounds.workers.overlapped is not None
            planned = [self._planned(rounds.step.variants[name]) for name in rounds.variants]
            plans = [plan for of_variant in planned for plan in of_variant.plans]
            if rounds.workers is not None and rounds.workers.may_share_central:
                self.shares_central = _may_share_central(plans)
            self.phases += map(self._phases_of, planned)
            if self._may_end_later:
                self._end_later()
        of_pass = 2 if rounds.workers is None else 3
        self.meetings = [
            sum(
                MEETINGS_LATER
                if phase.ends is not None
                else of_pass + 2 * _turns(phase) + (phase.device_function >= 0)
                for phase in phases
                if phase.pass_address
            )
            for phases in self.phases
        ]

    @cached_property
    def may_refuse(self) -> bool:
        """True if a call of the step may refuse its input."""
        return self._refusing > 0

    @cached_property
    def _refusing(self) -> int:
        """Number of calls that may refuse their input."""
        return self._segments.code().function(REFUSES)(0)

    @property
    def index_ranges(self) -> Sequence[tuple[int, range]] | None:
        """See RoundProgram.index_ranges."""
        if self._refusing > self._checked:
            return None
        return [(check.input, range(check.least, check.least + check.extent)) for check in self.checks]

    def _end_later(self) -> None:
        """Has exchanges end before a later one, where that changes no bits."""
        numbers = [*self._late]
        under_way = most_under_way([*self._late.values()], self._others)
        for number, variant in enumerate(numbers if under_way else ()):
            first, *rest = self.phases[variant]
            ends = numbers[ended_before(number, under_way, len(numbers))]
            self.phases[variant] = [replace(first, ends=ends), *rest]

    def _add(self, code: NativeCode) -> NativeCode:
        self._alive.append(code)
        return code

    def _planned(self, numbers: Sequence[int]) -> _Planned:
        """The exchanges of a variant, and what is around them, given the numbers of its segments."""
        works: list[list[Sequence[Group]]] = [[]]  # of replicas, by phase
        exchanges: list[tuple[Sequence[Group], Sequence[Group]]] = []
        names: list[str] = []  # of these
        last = SegmentKind.REPLICA
        for number in numbers:
            segment = self._step_segments[number]
            if segment.kind is SegmentKind.REPLICA:
                works[-1].append(self._segments.executable.segments[number].groups)
            elif segment.kind is SegmentKind.MIRRORED and last is SegmentKind.EXCHANGE:
                exchanges[-1] = exchanges[-1][0], segment.groups
            else:
                is_exchange = segment.kind is SegmentKind.EXCHANGE
                exchanges.append((segment.groups, ()) if is_exchange else ((), segment.groups))
                names.append(segment.name)
                works.append([])
            last = segment.kind
        plans: list[ExchangePlan] = []
        for number, (exchange, mirrored) in enumerate(exchanges):
            before, following = [*works[number][-1]] if works[number] else [], works[number + 1]
            plan = plan_exchange(
                exchange,
                mirrored,
                before,
                [group for groups in following for group in groups],
                [*self._everything, *chain.from_iterable(m for _, m in exchanges if m is not mirrored)],
                self._fetch_sources,
                lambda group: native_call(group, self._segments.target),
                early=self._may_end_later,
            )
            plans.append(plan)
            if len(plan.before_pass) < len(before):
                works[number][-1:] = [plan.before_pass]
            if plan.checks_in_pass:  # each mean is checked once
                following = [
                    [group for group in groups if group not in plan.checks_in_pass] for groups in following
                ]
            works[number + 1] = [plan.after_pass, *following]
        return _Planned(works, plans, names)

    def _phases_of(self, planned: _Planned) -> list[Phase]:
        """The phases of a variant. Sets `is_possible` to False where there is no native code."""
        works, plans, names = planned
        phases = []
        if not plans:
            self._others += [group for groups in works[0] for group in groups]
        for number, work in enumerate(works):
            first = len(self.functions)
            for calls in work:
                self._add_function(calls)
            end = len(self.functions)
            if number == len(plans):
                phases.append(Phase(first, end, 0, -1, ""))
                continue
            plan, name = plans[number], names[number]
            function = end if plan.device_calls else -1
            self._add_function(plan.device_calls)
            if self._workers is None:
                phases.append(Phase(first, end, self._pass(plan), function, name))
                continue
            late = self._late_exchange(plan, works, self._workers)
            ends_later = late is not None and self._workers.overlapped is not None
            offsets, sums, pieces = self._place_sums(plan, self._workers, ends_later)
            if late is None:
                self._may_end_later = False
            else:
                self._late[len(self.phases)] = late
            copies, flags = plan.gathers_and_broadcasts, list[int]()
            if self._workers.shares_memory:
                of_threads = max(self._workers.counts) if self.shares_central else 0
                flags = [*accumulate(map(blocks_of, plan.reductions), initial=of_threads)]
                self.flags = max(self.flags, flags.pop())
                first_pass, sums = (
                    self._pass(plan, PassStage.SHARED, offsets, flags, self._workers.halves),
                    [],
                )
                plan = replace(plan, reductions=[])
            else:
                first_pass = self._pass(plan, PassStage.SUMS, offsets, slot=pieces.slot)
            uses = self._pass(plan, PassStage.USES, offsets, slot=pieces.slot) if sums or copies else 0
            phases.append(Phase(first, end, first_pass, function, name, uses, pieces, sums, copies))
        return phases

    def _late_exchange(
        self, plan: ExchangePlan, works: Sequence[Sequence[Sequence[Group]]], workers: WorkerExchange
    ) -> LateExchange | None:
        """The exchange of a variant with this one alone, if it may be one that ends later."""
        nbytes = sum(each.total.inputs[0].nbytes for each in plan.reductions)
        is_sum = not plan.gathers_and_broadcasts and not any(each.checks for each in plan.reductions)
        if len(works) != 2 or not is_sum or nbytes < workers.overlap_nbytes:
            return None
        uses = [use for each in plan.reductions for use in each.uses] + plan.device_calls
        totals = [ref for each in plan.reductions for ref in each.total.outputs]
        made = [each.made_by for each in plan.reductions if each.made_by is not None]
        before, after = ([group for groups in work for group in groups] for work in works)
        written = [*totals, *(ref for use in uses for ref in use.writes)]
        return LateExchange(before, made, after, written, [ref for use in uses for ref in use.reads])

    def _place_sums(
        self, plan: ExchangePlan, workers: WorkerExchange, ends_later: bool
    ) -> tuple[list[int], list[tuple[int, int, DType]], SumPieces]:
        """Offset of each sum of an exchange, and what workers exchange: vectors, one per dtype, or pieces.

        ends_later: behind the sums of other exchanges that may be under way. Sets `is_possible` to False
        where workers cannot exchange them.
        """
        end = self.sums_nbytes if ends_later else 0
        packs = workers.shares_memory and workers.halves
        offsets, vectors = [0] * len(plan.reductions), list[tuple[int, int, DType]]()
        sources = [each.total.inputs[0] for each in plan.reductions]
        for dtype in dict.fromkeys(source.dtype for source in sources):
            begin = end
            for number, source in enumerate(sources):
                if source.dtype == dtype:
                    offsets[number] = end
                    nbytes = source.nbytes // 2 if packs and dtype == float32 else source.nbytes
                    end += -(-nbytes // ALIGNMENT) * ALIGNMENT
            vectors.append((begin, (end - begin) // dtype.size, dtype))
        pieces = NOT_CUT
        if workers.swap_of is not None and not ends_later and not plan.gathers_and_broadcasts:
            chunks = [
                chunk_of(each) * source.dtype.size
                for each, source in zip(plan.reductions, sources, strict=True)
            ]
            pieces = cut_sums([*zip(offsets, [source.nbytes for source in sources], chunks, strict=True)])
            end = pieces.nbytes
        self.sums_nbytes = max(self.sums_nbytes, end)
        copies = [
            workers.share_of(0, [range(group.outputs[0].nbytes)]) for group in plan.gathers_and_broadcasts
        ]
        if None in copies or None in [workers.sum_of(0, size, dtype) for _, size, dtype in vectors]:
            self.is_possible = False
        return offsets, vectors, pieces

    def _add_function(self, groups: Sequence[Group]) -> None:
        """Adds the function of some calls, if there are any: that of a whole segment, or a new one."""
        if not groups:
            return
        if not all(isinstance(group.kernel, NativeKernel) for group in groups):
            self.is_possible = False
            return
        segments, step = self._segments, self._segments.executable
        for number, segment in enumerate(step.segments):
            if segment.groups is groups:
                address = self._alive[0].address(str(segments.function_of(number)))
                break
        else:
            code = compile_groups([groups], step.state["status"], segments.target, segments.folder)
            address = self._add(code).address("run0")
        self.functions.append(address)
        self.calls.append(groups)

    def _pass(
        self,
        plan: ExchangePlan,
        stage: PassStage = PassStage.WHOLE,
        offsets: Sequence[int] = (),
        flags: Sequence[int] = (),
        halves: bool = False,
        slot: int = 0,
    ) -> int:
        """The address of the pass of an exchange; 0 if some of it has no native code."""
        if not self.is_possible:
            return 0
        segments = self._segments
        status, reductions = segments.executable.state["status"], plan.reductions
        groups = [
            [each.total, *([] if each.made_by is None else [each.made_by]), *each.uses] for each in reductions
        ]
        shares_central = self.shares_central and stage is PassStage.SHARED and bool(reductions)
        how = [(each.made_by is not None, each.keeps, each.checks) for each in reductions]
        copies = [(g.definition.name, g.attrs, g.inputs, g.outputs) for g in plan.gathers_and_broadcasts]
        key = plan_key(groups, status)
        options = stage, tuple(offsets), tuple(flags), halves, shares_central, slot
        key = None if key is None else f"{PASS} {options} {how} {copies} {key}"
        gathers_and_broadcasts, target = plan.gathers_and_broadcasts, segments.target
        make = partial(pass_module, reductions, gathers_and_broadcasts, status, target, *options)
        return self._add(compile_unless_kept(key, make, segments.target, segments.folder)).address(PASS)


def _turns(phase: Phase) -> int:
    """Number of times that threads wait in a phase while one of them calls the other workers."""
    return len(phase.pieces.parts) or int(phase.uses_address != 0)


def _may_share_central(plans: Sequence[ExchangePlan]) -> bool:
    """True if z is moved in passes alone, each element by what happens to that element: with one z for all
    workers each of them can move a part.

    Calls of devices without a sum, as of a restart, give z the same values however often they are made.
    """

    def writes_central(groups: Sequence[Group]) -> bool:
        return any(ref.region is Region.CENTRAL for group in groups for ref in group.writes)

    def is_central(each: ExchangeReduction) -> bool:
        own = {Region.CENTRAL, Region.STATE, Region.CONSTANT}
        totals = [*each.total.outputs]
        read = [ref for use in each.uses for ref in use.reads if not touch([ref], totals)]
        written = [ref for use in each.uses for ref in use.writes]
        only = all(ref.region is Region.CENTRAL for ref in written)
        return only and not each.keeps and not each.checks and all(ref.region in own for ref in read)

    summing = [plan for plan in plans if plan.reductions]
    reductions = [each for plan in summing for each in plan.reductions]
    return (
        any(writes_central(each.uses) for each in reductions)
        and all(map(is_central, reductions))
        and not any(writes_central(plan.device_calls) for plan in plans)
    )


@cache
def _driver_of(target: Target, folder: Path | None) -> NativeCode:
    """The driver is the same for all steps."""
    return compile_unless_kept(writers_key("driver"), partial(driver_module, target), target, folder)


def code_of(segments: NativeSegments, rounds: RoundProgramSpec) -> RoundCode:
    """The code of a step, by names of variants; each is compiled once, and kept with its segments."""
    codes = segments.round_codes
    key = *rounds.variants, rounds.workers and rounds.workers.kind
    if key not in codes:
        codes[key] = RoundCode(segments, rounds)
    code: RoundCode = codes[key]
    return code
