"""Swap: values that are not read for long lie in pinned host memory meanwhile, not in the slab.

The white paper (section 4.1) names it for models that do not fit. What the forward pass makes early is read
again at the end of the backward pass: it is copied out behind its last reader before that, and copied back
before the first one after. Copies are copies, so the bits of results stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from allocators import Lifetime, plan_slab
from tensorbow.compiler.group import SegmentDraft
from tensorbow.compiler.placement import CostModel, NodeCost, flops_of
from tensorbow.compiler.plan_memory import ALIGNMENT, live_nbytes
from tensorbow.compiler.swap_schedule import Gap, PlannedSwap, Timing, choose, longest_gap
from tensorbow.compiler.variable_layout import VariableLayout
from tensorbow.graph import Kernel, OpDef
from tensorbow.kernels.backends import backend_of_kind
from tensorbow.ops.definition import kernel_for
from tensorbow.program.nodes import Node, Program, Unit, Value, storage_of
from tensorbow.program.plan import Ref, Region, SegmentKind
from tensorbow.program.swaps import AwaitSwapIn, AwaitSwapOut, SwapIn, SwapOut, SwappedView

NEVER, HIDDEN, SMALLEST = "never", "hidden", "smallest"
HOW = (NEVER, HIDDEN, SMALLEST)
LEAST_NBYTES = 1 << 16  # of a value: copies of smaller ones take as long
COSTS = CostModel()


def can_swap(kind: str) -> bool:
    """True for a kind of device that has memory of its own, beside the host's, and copies both ways."""
    backend_of_kind(kind)  # has its kernels registered
    return kind in SwapOut.kernels


def no_effect(kind: str) -> str:
    """A line that says why nothing is swapped on other devices."""
    return f"swap: no effect on devices of kind {kind}, which compute in host memory; use a GPU, or recompute"


def swap(
    program: Program,
    drafts: Sequence[SegmentDraft],
    layout: VariableLayout,
    kind: str,
    how: str,
    below: int = 0,
    *,
    of_loops: bool = False,
) -> None:
    """Adds swaps to the segment with the largest sum of live bytes.

    kind: of the device, one for which `can_swap` is true. how: hidden, where copies take no longer than what
    is computed meanwhile, by the estimates of `placement`; or smallest, where the computation waits for
    copies. below: bytes of a slab that needs no swap. of_loops: only what loops with
    `swap_memory` make.
    """
    live = live_nbytes(program, drafts, layout)
    if not live:
        return
    first = 0
    places: list[tuple[int, range]] = []
    for number, draft in enumerate(drafts):
        places.append((number, range(first, first + len(draft.units))))
        first += len(draft.units)
    peak = live.index(max(live))
    number, own = next((number, own) for number, own in places if peak in own)
    draft = drafts[number]
    if draft.kind is not SegmentKind.REPLICA:
        return
    elsewhere = max((nbytes for at, nbytes in enumerate(live) if at not in own), default=0)
    seconds = [_seconds(unit, kind) for unit in draft.units]
    borders = [at for at, unit in enumerate(draft.units) if not unit.kernel.capturable]
    timing = Timing(seconds, lambda nbytes: sum(COSTS.transfer_s(kind, "cpu", nbytes)), borders)
    gaps = _gaps(program, drafts, number, seconds)
    if of_loops:
        gaps = {gap: value for gap, value in gaps.items() if value.node is not None and value.node.swaps}
    chosen = choose(
        live[own.start : own.stop], [*gaps], timing, hidden=how == HIDDEN, below=max(below, elsewhere)
    )
    if chosen:
        host_nbytes = _insert(draft, {swap: gaps[swap.gap] for swap in chosen}, kind)
        nbytes = sum(swap.gap.nbytes for swap in chosen)
        copies_s = sum(timing.copy_s(swap.gap.nbytes) for swap in chosen)
        program.notes.append(
            f"swapped: {len(chosen)} values of {nbytes:,} bytes lie in {host_nbytes:,} bytes of host memory "
            f"between their uses ({how}); by estimates {copies_s * 1e6:,.0f} us of copies each way, beside "
            f"{sum(seconds) * 1e6:,.0f} us of kernels"
        )


def _seconds(unit: Unit, kind: str) -> float:
    """The estimated time of a unit: one call with the operations of all its nodes."""
    flops = sum(
        flops_of(
            node.definition.name,
            node.attrs,
            [value.spec.extents for value in node.inputs],
            [value.spec.extents for value in node.outputs],
        )
        for node in unit.nodes
    )
    nbytes = sum(value.spec.nbytes for value in (*unit.inputs, *unit.outputs))
    return COSTS.estimated_s(NodeCost(unit.head.definition.name, (), (), flops, nbytes), kind)


def _gaps(
    program: Program, drafts: Sequence[SegmentDraft], number: int, seconds: Sequence[float]
) -> dict[Gap, Value]:
    """The values that only a segment makes and reads, each by the longest time in which it does not."""
    units = drafts[number].units
    kept = {storage_of(value) for value in program.fetches}
    kept |= {
        storage_of(value)
        for other, draft in enumerate(drafts)
        if other != number
        for unit in draft.units
        for value in (*unit.inputs, *unit.outputs)
    }
    accesses: dict[Value, list[int]] = {}
    for at, unit in enumerate(units):
        definition = unit.head.definition
        kept |= {storage_of(unit.inputs[index]) for index in definition.writes}
        if definition.update is not None:  # gradients lie at home
            kept.add(storage_of(unit.inputs[definition.update[1]]))
        for value in unit.outputs:
            if storage_of(value) is value and value.ref is None:
                accesses.setdefault(value, []).append(at)
            else:
                kept.add(storage_of(value))
        for root in dict.fromkeys(map(storage_of, unit.inputs)):
            if root in accesses:
                accesses[root].append(at)
    gaps: dict[Gap, Value] = {}
    for value, times in accesses.items():
        if value not in kept and value.spec.nbytes >= LEAST_NBYTES:
            rounded = -(-value.spec.nbytes // ALIGNMENT) * ALIGNMENT
            gap = longest_gap(rounded, times, seconds)
            if gap is not None:
                gaps[gap] = value
    return gaps


@dataclass(frozen=True)
class _Copies:
    """The units of a swap, and the value that takes the place of what was swapped out."""

    out: Unit
    out_ends: Unit
    back: Unit
    back_ends: Unit
    value: Value


def _insert(draft: SegmentDraft, chosen: dict[PlannedSwap, Value], kind: str) -> int:
    """Puts the copies between a segment's units; returns the bytes of host memory."""
    before: list[list[tuple[int, int, Unit]]] = [[] for _ in range(len(draft.units) + 1)]
    readers: dict[Value, tuple[int, Value]] = {}  # by storage, the unit from which on another one is read
    lifetimes = [Lifetime(swap.gap.nbytes, swap.gap.last, swap.gap.next) for swap in chosen]
    host = plan_slab(lifetimes, alignment=ALIGNMENT)
    for (swap, value), offset in zip(chosen.items(), host.offsets, strict=True):
        gap = swap.gap
        copies = _copies(value, offset, draft.units[gap.next].head, kind)
        for rank, (at, unit) in enumerate(
            (
                (gap.last + 1, copies.out),
                (swap.out_ends, copies.out_ends),
                (swap.in_begins, copies.back),
                (gap.next, copies.back_ends),
            )
        ):
            before[at].append((rank, gap.next if rank > 1 else gap.last, unit))
        readers[value] = gap.next, copies.value
    units: list[Unit] = []
    views: dict[Value, Value] = {}
    for at, added in enumerate(before):
        units += [unit for *_, unit in sorted(added, key=lambda each: each[:2])]
        units += [_reading(unit, at, readers, views) for unit in draft.units[at : at + 1]]
    draft.units = units
    return host.peak_nbytes


def _reading(unit: Unit, at: int, readers: dict[Value, tuple[int, Value]], views: dict[Value, Value]) -> Unit:
    """A unit that reads what was copied back, where that is so from its position on."""
    inputs: list[Value] = []
    for value in unit.inputs:
        first, copied = readers.get(storage_of(value), (at + 1, value))
        if at >= first and value not in views:
            node = _node(SwappedView, value.name, [copied], unit.head)
            views[value] = Value(value.name, value.spec, node)
            node.outputs = [views[value]]
        inputs.append(views[value] if at >= first else value)
    return unit if inputs == unit.inputs else replace(unit, inputs=inputs)


def _copies(value: Value, offset: int, reader: Node, kind: str) -> _Copies:
    """The units that copy a value to host memory at an offset, and back before a reader."""
    maker = value.node or reader
    ref = Ref(Region.SWAPPED, offset, value.spec.extents, value.spec.dtype)
    note = f"{value.name} lies in host memory until {reader.name} reads it"
    out = _node(SwapOut, f"{value.name}/swap_out", [value], maker, note)
    kept = Value(f"{value.name}/kept", value.spec, out, ref=ref)
    out.outputs = [kept]
    out_ends = _node(AwaitSwapOut, f"{value.name}/swapped_out", [value, kept], maker)
    back = _node(SwapIn, f"{value.name}/swap_in", [kept], reader, f"for {reader.name}")
    copied = Value(value.name, value.spec, back)
    back.outputs = [copied]
    back_ends = _node(AwaitSwapIn, f"{value.name}/swapped_in", [copied, kept], reader)
    return _Copies(_unit(out, kind), _unit(out_ends, kind), _unit(back, kind), _unit(back_ends, kind), copied)


def _node(definition: OpDef, name: str, inputs: Iterable[Value], beside: Node, note: str = "") -> Node:
    return Node(
        name,
        definition,
        {},
        [*inputs],
        beside.position,
        beside.source,
        note=note,
        device=beside.device,
        unfused=True,
    )


def _unit(node: Node, kind: str) -> Unit:
    kernel: Kernel = kernel_for(node.definition, kind)
    return Unit((node,), kernel, node.inputs, node.outputs)
