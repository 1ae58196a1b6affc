"""Plan of the native code of an exchange: one fused pass over all replicas, and the calls that are left.

Element-wise calls that make the summed values, and element-wise calls that use the sum on each device, are
fused into the pass: an update with averaging, the sum of corrections and the move of z; or the sum and mean
of gradients with the check of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from tensorbow.kernels.merging import cut, touch
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.ops.maps import emit_rule
from tensorbow.ops.averaging import GradientCheck, GradientMean
from tensorbow.ops.exchanges import AllSum
from tensorbow.program.plan import Group, Ref


@dataclass(frozen=True)
class ExchangeReduction:
    """A sum over all replicas, chunk by chunk, with what is done with a chunk before and after it.

    total: the AllSum. made_by: a replica's call that makes what is summed, unless that is in memory. uses:
    calls of each device. keeps: stores the sum, for calls outside the pass read it. checks: tells of a sum
    that is not finite.
    """

    total: Group
    made_by: Group | None
    uses: tuple[Group, ...]
    keeps: bool
    checks: bool


@dataclass
class ExchangePlan:
    """An exchange as a pass, and what is left.

    before_pass, after_pass: calls of the replica's segment before the exchange that are no parts of the pass.
    device_calls: calls of each device behind the pass. checks_in_pass: checks of the segment behind the
    exchange that are parts of the pass.
    """

    before_pass: list[Group]
    after_pass: list[Group] = field(default_factory=list)
    reductions: list[ExchangeReduction] = field(default_factory=list)
    gathers_and_broadcasts: list[Group] = field(default_factory=list)
    device_calls: list[Group] = field(default_factory=list)
    checks_in_pass: list[Group] = field(default_factory=list)


def plan_exchange(
    exchange: Sequence[Group],
    mirrored: Sequence[Group],
    before: Sequence[Group],
    following: Sequence[Group],
    everything: Sequence[Group],
    fetched: Sequence[Ref],
    native: Callable[[Group], Group],
    early: bool = False,
) -> ExchangePlan:
    """Plans an exchange.

    early: calls that nothing of the exchange waits for come behind it. mirrored: calls of each device behind
    it. before, following: calls of the replica's segments around it. everything: all other calls. fetched:
    what is copied at the end. native: gives a call its native code, if there is some.
    """
    sums = [_flat(group) for group in exchange if group.definition is AllSum]
    plan = ExchangePlan([*before])
    plan.gathers_and_broadcasts = [group for group in exchange if group.definition is not AllSum]
    copied = [ref for group in plan.gathers_and_broadcasts for ref in group.outputs]
    uses: list[list[Group]] = [[] for _ in sums]
    for group in map(native, mirrored):
        homes = [n for n, total in enumerate(sums) if _uses_chunk(group, total, uses[n])]
        is_late = touch(group.inputs, copied) or any(_conflict(o, group) for o in plan.device_calls)
        if len(homes) == 1 and not is_late:
            uses[homes[0]].append(_flat(group))
        else:
            plan.device_calls.append(group)
    made = [_makers(total.inputs[0], before, everything) for total in sums]
    in_pass = {number for makers in made for number in makers}
    in_memory = [ref for total, makers in zip(sums, made, strict=True) if not makers for ref in total.inputs]
    in_memory += [ref for group in plan.gathers_and_broadcasts for ref in group.inputs]
    first = _needed_before(before, in_pass, in_memory) if in_pass else None
    if first is None:
        made = [[] for _ in sums]
    else:
        plan.before_pass = [before[number] for number in sorted(first)]
        plan.after_pass = [
            g for number, g in enumerate(before) if number not in in_pass and number not in first
        ]
    if early and not in_pass:
        _move_behind(plan, in_memory, [*exchange, *mirrored])
    readers = [*everything, *plan.device_calls]
    for total, chain, makers in zip(sums, uses, made, strict=True):
        means = [group for group in chain if group.definition is GradientMean]
        checked = [group for group in following if _is_check_of(group, means)]
        plan.checks_in_pass += checked
        keeps = touch(total.outputs, fetched) or any(touch(total.outputs, g.reads) for g in readers)
        whole = ExchangeReduction(_as_map(total), None, tuple(map(_as_map, chain)), keeps, bool(checked))
        plan.reductions += [_part(whole, before[number]) for number in makers] or [whole]
    return plan


def _move_behind(plan: ExchangePlan, in_memory: Sequence[Ref], others: Sequence[Group]) -> None:
    """Moves the calls behind the last one that makes what is exchanged behind the pass, if that is the same.

    in_memory: what is exchanged. others: calls of the exchange, and of devices behind it.
    """
    calls = plan.before_pass
    made = [number for number, group in enumerate(calls) if touch(group.writes, in_memory)]
    later = calls[made[-1] + 1 :] if made else []
    if not any(_conflict(other, group) for group in later for other in others):
        plan.before_pass, plan.after_pass = calls[: len(calls) - len(later)], [*later, *plan.after_pass]


def _size(ref: Ref) -> int:
    return math.prod(ref.shape)


def _flat(group: Group) -> Group:
    def flat(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(replace(ref, shape=(_size(ref),)) for ref in refs)

    return replace(group, inputs=flat(group.inputs), outputs=flat(group.outputs))


def _as_map(group: Group) -> Group:
    return replace(group, kernel=NativeKernel(emit=emit_rule, emit_part=emit_rule))


def _uses_chunk(group: Group, total: Group, chain: Sequence[Group]) -> bool:
    """True if a call reads a sum, or what calls make of it, and goes element by element over just that."""
    refs, kernel = (*group.inputs, *group.outputs), group.kernel
    sizes = {_size(ref) for ref in refs}
    is_map = isinstance(kernel, NativeKernel) and kernel.emit is emit_rule  # by itself, not fused with others
    if not is_map or group.scratch or sizes != {_size(total.outputs[0])}:
        return False
    made = [ref for other in (total, *chain) for ref in other.outputs]
    return touch(group.inputs, made)


def _conflict(first: Group, second: Group) -> bool:
    """True if swapping two calls could change a result."""
    return touch(first.writes, (*second.reads, *second.writes)) or touch(first.reads, second.writes)


def _makers(source: Ref, before: Sequence[Group], everything: Sequence[Group]) -> list[int]:
    """Numbers of the calls that make what is summed, part by part, if nothing else reads it; else none."""
    makers = [number for number, group in enumerate(before) if touch(group.outputs, (source,))]
    if not all(_has_parts(before[number]) for number in makers):
        return []
    end = source.offset
    for ref in sorted((before[number].outputs[0] for number in makers), key=lambda ref: ref.offset):
        if ref.offset != end:
            return []
        end += ref.nbytes
    if end != source.offset + source.nbytes:
        return []
    refs = (source,)
    others = (group for group in everything if not touch(group.outputs, refs))
    return [] if any(touch(group.reads, refs) for group in others) else makers


def _has_parts(group: Group) -> bool:
    """True if a call can be done part by part."""
    kernel = group.kernel
    return isinstance(kernel, NativeKernel) and kernel.emit_part is not None and len(group.outputs) == 1


def _needed_before(
    groups: Sequence[Group], makers: Collection[int], in_memory: Sequence[Ref]
) -> set[int] | None:
    """Numbers of the calls that must run before the pass; all others run behind it.

    makers: numbers of the calls that are parts of the pass. in_memory: what it reads beside. None if the
    order does not allow that.
    """
    needed = [*in_memory, *(ref for number in makers for ref in groups[number].reads)]
    first = set[int]()
    for number in range(len(groups) - 1, -1, -1):
        group = groups[number]
        if number not in makers and (number < min(makers) or touch(group.writes, needed)):
            first.add(number)
            needed += group.reads
    for number, group in enumerate(groups):
        later = range(number + 1, len(groups))
        passed = [other for other in later if other in first and number not in first]
        passed += [
            other for other in later if other in makers and number not in first and number not in makers
        ]
        if any(_conflict(group, groups[other]) for other in passed):
            return None
    return first


def _is_check_of(group: Group, means: Sequence[Group]) -> bool:
    """True if a call checks a mean: it is finite if the sum is."""
    if group.definition is not GradientCheck:
        return False
    ranges = [(ref.region, ref.offset, ref.nbytes) for mean in means for ref in mean.outputs]
    ref = group.inputs[0]
    return (ref.region, ref.offset, ref.nbytes) in ranges


def _part(whole: ExchangeReduction, maker: Group) -> ExchangeReduction:
    """The elements of a reduction that a call makes."""
    (source,), (made,) = whole.total.inputs, maker.outputs
    size, first = _size(source), (made.offset - source.offset) // source.dtype.size
    parts = [cut(group, size, first, first + _size(made)) for group in (whole.total, *whole.uses)]
    return replace(whole, total=parts[0], made_by=maker, uses=tuple(parts[1:]))
