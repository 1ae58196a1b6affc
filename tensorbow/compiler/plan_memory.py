"""Plan memory: assign an address to every value, and pack temporaries by lifetime into one slab."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from allocators import Lifetime, SlabPlan, plan_slab
from allocators.granule import round_up
from tensorbow.compiler.group import SegmentDraft
from tensorbow.compiler.variable_layout import VariableLayout
from tensorbow.errors import InternalError
from tensorbow.program.nodes import Program, Unit, Value, storage_of
from tensorbow.program.plan import Ref, Region, SegmentKind
from tensorbow.specs import DType, uint8

ALIGNMENT = 256  # bytes, of everything in SLAB; fed, fetched and constant values use 64


@dataclass(eq=False)
class _Storage:
    """A piece of slab memory, and the indices of the first and last unit for which it is live."""

    nbytes: int
    first: int
    last: int
    home: Ref | None = None  # set when it lies in GRADIENTS instead


@dataclass
class MemoryPlan:
    """The memory of every value and scratch array."""

    refs: dict[Value, Ref]
    scratch: dict[Unit, tuple[Ref, ...]]
    region_nbytes: dict[Region, int]
    constants: bytes
    inputs: dict[str, Ref]
    fetches: tuple[Ref, ...]
    state: dict[str, Ref]
    peak_nbytes: int
    lower_bound_nbytes: int
    notes: list[str] = field(default_factory=list)
    stacks: dict[Ref, Ref] = field(default_factory=dict)  # memory in the slab by the words of a stack


def plan_memory(
    program: Program,
    drafts: Sequence[SegmentDraft],
    layout: VariableLayout,
    state: Mapping[str, DType],
    homes: Mapping[Value, Ref] | None = None,
) -> MemoryPlan:
    """Assigns regions and offsets. state: the scalars of STATE. homes: memory for some results of the step.

    Views share their root's memory. What a segment receives lies in the slab, from that segment on until its
    last reader. An output reuses an input's memory only where its kernel allows it and nothing reads the
    input later. The gradient of a variable lies at the variable's offset in GRADIENTS.
    Results of exchanges and mirrored nodes share no memory, as replicas read them at times of their own.
    """
    units = [unit for draft in drafts for unit in draft.units]
    mirrored = (draft for draft in drafts if draft.kind is not SegmentKind.REPLICA)
    once = dict.fromkeys(unit for draft in mirrored for unit in draft.units)
    given = [v.ref for unit in units for v in (*unit.inputs, *unit.outputs) if v.ref is not None]
    fixed = (Region.CENTRAL, Region.EXCHANGE, Region.RESULTS, Region.CONTROL, Region.SWAPPED)
    ends = {region: _end(region, given) for region in fixed}
    results = _Packer(Region.RESULTS, ALIGNMENT, ends[Region.RESULTS])
    handed = _Packer(Region.EXCHANGE, ALIGNMENT, ends[Region.EXCHANGE])
    storages, notes = _slab_storages(program, drafts, once)
    _assign_gradients(
        units, storages, layout, {ref.offset for ref in given if ref.region is Region.GRADIENTS}
    )
    _assign_homes(homes or {}, storages)
    for unit in units:
        if unit in once:
            _assign_once(unit, storages, results, handed)
    slab, offsets, scratch = _pack_slab(units, storages, once, results)
    assigner = _RefAssigner(program, layout, storages, offsets, state)
    for unit in units:
        for value in (*unit.inputs, *unit.outputs):
            assigner.assign(value)
    for value in program.fetches:
        assigner.assign(value)
    ring = _Packer(Region.RING)
    fetches = tuple(ring.add(v.spec.extents, v.spec.dtype) for v in program.fetches)
    regions = {
        **layout.region_nbytes,
        Region.SLAB: slab.peak_nbytes,
        Region.INPUT: assigner.inputs.nbytes,
        Region.RING: ring.nbytes,
        Region.STATE: assigner.state.nbytes,
        Region.CONSTANT: assigner.constants.nbytes,
        Region.CENTRAL: ends[Region.CENTRAL],
        Region.EXCHANGE: handed.nbytes,
        Region.RESULTS: results.nbytes,
        Region.CONTROL: ends[Region.CONTROL],
        Region.SWAPPED: ends[Region.SWAPPED],
    }
    return MemoryPlan(
        refs=assigner.refs,
        scratch=scratch,
        region_nbytes=regions,
        constants=_joined(assigner.blobs, assigner.constants.nbytes),
        inputs=assigner.fed,
        fetches=fetches,
        state=assigner.state_refs,
        peak_nbytes=slab.peak_nbytes,
        lower_bound_nbytes=slab.lower_bound_nbytes,
        notes=notes,
        stacks={
            words.ref: Ref(Region.SLAB, offsets[storage], (words.stack_nbytes,), uint8)
            for words, storage in storages.items()
            if words.ref is not None and words.stack_nbytes
        },
    )


def live_nbytes(program: Program, drafts: Sequence[SegmentDraft], layout: VariableLayout) -> list[int]:
    """Bytes of the slab that are live at each unit of the segments, scratch included, before it is packed."""
    units = [unit for draft in drafts for unit in draft.units]
    once = {u for draft in drafts if draft.kind is not SegmentKind.REPLICA for u in draft.units}
    storages, _ = _slab_storages(program, drafts, once)
    _assign_gradients(units, storages, layout)
    handed = {storages.get(storage_of(u.inputs[0])) for u in units if u.head.definition.exchange}
    changes = [0] * (len(units) + 2)
    for storage in dict.fromkeys(storages.values()):
        if storage.home is None and storage not in handed:
            changes[storage.first] += round_up(storage.nbytes, ALIGNMENT)
            changes[storage.last + 1] -= round_up(storage.nbytes, ALIGNMENT)
    scratch = (
        0 if unit in once else sum(round_up(spec.nbytes, ALIGNMENT) for spec in unit.scratch)
        for unit in units
    )
    return [nbytes + own for nbytes, own in zip(accumulate(changes), scratch, strict=False)]


def _end(region: Region, refs: Sequence[Ref]) -> int:
    """The aligned end of the last of some refs in a region."""
    end = max((ref.offset + ref.nbytes for ref in refs if ref.region is region), default=0)
    return round_up(end, ALIGNMENT)


def _assign_once(unit: Unit, storages: dict[Value, _Storage], results: _Packer, handed: _Packer) -> None:
    """Assigns memory to results of units that run once per device, and to what replicas hand to exchanges."""
    if unit.head.definition.exchange:
        storage = storages.get(storage_of(unit.inputs[0]))
        if storage is not None and storage.home is None:
            spec = storage_of(unit.inputs[0]).spec
            storage.home = handed.add(spec.extents, spec.dtype)
    for value in unit.outputs:
        if value.ref is None and storage_of(value) is value:
            value.ref = results.add(value.spec.extents, value.spec.dtype)


def _pack_slab(
    units: Sequence[Unit], storages: dict[Value, _Storage], once: Collection[Unit], results: _Packer
) -> tuple[SlabPlan, dict[_Storage, int], dict[Unit, tuple[Ref, ...]]]:
    """Packs the slab; returns it with the offset of every storage and the memory of scratch.

    once: units that run once per device, whose scratch lies among the results.
    """
    slab = list(dict.fromkeys(s for s in storages.values() if s.home is None))
    lifetimes = [Lifetime(s.nbytes, s.first, s.last) for s in slab]
    scratch_specs = [(unit, index, unit.scratch) for index, unit in enumerate(units) if unit not in once]
    for _, index, specs in scratch_specs:
        lifetimes.extend(Lifetime(spec.nbytes, index, index) for spec in specs)
    plan = plan_slab(lifetimes, alignment=ALIGNMENT)
    rest = iter(plan.offsets[len(slab) :])
    scratch = {
        unit: tuple(Ref(Region.SLAB, next(rest), spec.extents, spec.dtype) for spec in specs)
        for unit, _, specs in scratch_specs
    }
    for unit in once:
        scratch[unit] = tuple(results.add(spec.extents, spec.dtype) for spec in unit.scratch)
    return plan, dict(zip(slab, plan.offsets, strict=False)), scratch


def _slab_storages(
    program: Program, drafts: Sequence[SegmentDraft], once: Collection[Unit]
) -> tuple[dict[Value, _Storage], list[str]]:
    """One storage with its lifetime per value that lies in the slab and is no view, and notes.

    The words of a stack stand for its frames, which lie there from the first loop that has it to the last.

    A node in several variants makes the same value in each, which lives from the first to the last use.
    """
    units = [unit for draft in drafts for unit in draft.units]
    storages = _received_storages(program, drafts)
    for index, unit in enumerate(units):
        for value in unit.outputs:
            if storage_of(value) is value and value.ref is None and unit not in once:
                storages.setdefault(value, _Storage(value.spec.nbytes, index, index)).last = index
        for value in unit.inputs:
            storage = storages.get(storage_of(value))
            if value.stack_nbytes and unit not in once:
                storage = storages.setdefault(value, _Storage(value.stack_nbytes, index, index))
            if storage is not None:
                storage.last = index
    for value in program.fetches:
        storage = storages.get(storage_of(value))
        if storage is not None:
            storage.last = len(units)
    notes: list[str] = []
    held = {storage: [value] for value, storage in storages.items()}
    for index, unit in enumerate(units):
        for output, source in unit.kernel.inplace:
            _take_over(unit, output, source, index, storages, held, notes)
    return storages, notes


def _received_storages(program: Program, drafts: Sequence[SegmentDraft]) -> dict[Value, _Storage]:
    """A storage for each value that a segment receives: it is copied in before the segment's first unit."""
    storages: dict[Value, _Storage] = {}
    index = 0
    for draft in drafts:
        for key in draft.receives:
            value = program.feeds[key]
            storages.setdefault(value, _Storage(value.spec.nbytes, index, index)).last = index
        index += len(draft.units)
    return storages


def _take_over(
    unit: Unit,
    output: int,
    source: int,
    index: int,
    storages: dict[Value, _Storage],
    held: dict[_Storage, list[Value]],
    notes: list[str],
) -> None:
    """Lets an output reuse the memory of an input that is read for the last time here, where that is safe.

    index: the unit's. held: the values in each storage, the reverse of `storages`.
    """
    if output >= len(unit.outputs) or source >= len(unit.inputs):
        return
    result, operand = unit.outputs[output], unit.inputs[source]
    root = storage_of(operand)
    old, new = storages.get(root), storages.get(result)
    if old is None or new is None or old is new or new.first != index or old.last != index:
        return
    if held[new][0] is not result:  # it already works in another operand's memory
        return
    if any(storages.get(storage_of(v)) is old for v in unit.outputs):
        return
    same = operand.spec.shape == result.spec.shape and operand.spec.dtype == result.spec.dtype
    twins = [i for i, v in enumerate(unit.inputs) if storages.get(storage_of(v)) is old]
    if not same or old.nbytes != new.nbytes:
        return
    if any((output, i) not in unit.kernel.inplace or unit.inputs[i].spec != operand.spec for i in twins):
        return
    old.last = new.last
    for value in held[new]:
        storages[value] = old
    held[old] += held.pop(new)
    notes.append(f"{unit.head.name}: works in the memory of {operand.name}")


def _assign_homes(homes: Mapping[Value, Ref], storages: Mapping[Value, _Storage]) -> None:
    """Assigns the caller's memory to values that lie in the slab and fill it."""
    for value, ref in homes.items():
        root = storage_of(value)
        storage = storages.get(root)
        if storage is not None and storage.home is None and storage.nbytes == ref.nbytes:
            storage.home = Ref(ref.region, ref.offset, root.spec.extents, root.spec.dtype)


def _assign_gradients(
    units: Sequence[Unit],
    storages: dict[Value, _Storage],
    layout: VariableLayout,
    taken: Collection[int] = (),
) -> None:
    """Assigns gradients to GRADIENTS; a second live gradient of the same variable stays in the slab.

    taken: offsets there at which gradients lie that the step does not make.
    """
    residents: dict[str, list[_Storage]] = {}  # by variable
    for unit in units:
        update = unit.head.definition.update
        if update is None:
            continue
        variable = storage_of(unit.inputs[update[0]]).variable
        storage = storages.get(storage_of(unit.inputs[update[1]]))
        if variable is None or storage is None or storage.home is not None:
            continue
        home = layout.ref(variable.name)
        if home.region is not Region.WEIGHTS or storage.nbytes != home.nbytes or home.offset in taken:
            continue
        others = residents.setdefault(variable.name, [])
        if not any(storage.first <= other.last and other.first <= storage.last for other in others):
            storage.home = Ref(Region.GRADIENTS, home.offset, home.shape, home.dtype)
            others.append(storage)


class _Packer:
    """Assigns memory in a region, one value behind the other."""

    def __init__(self, region: Region, alignment: int = 64, nbytes: int = 0):
        """nbytes: of the region, that are taken."""
        self.region = region
        self.alignment = alignment
        self.nbytes = nbytes

    def add(self, shape: tuple[int, ...], dtype: DType) -> Ref:
        """The memory of one more tensor; an empty tensor gets an address of its own too."""
        ref = Ref(self.region, self.nbytes, shape, dtype)
        self.nbytes += -(-max(ref.nbytes, 1) // self.alignment) * self.alignment
        return ref


class _RefAssigner:
    """Assigns a Ref to each value: a view shares its root's, others go to the region of their kind."""

    def __init__(
        self,
        program: Program,
        layout: VariableLayout,
        storages: dict[Value, _Storage],
        offsets: dict[_Storage, int],
        state: Mapping[str, DType],
    ):
        self._layout = layout
        self._storages = storages
        self._offsets = offsets
        self.refs: dict[Value, Ref] = {}
        self.constants = _Packer(Region.CONSTANT)
        self.blobs: dict[int, bytes] = {}  # constants by offset
        self.inputs = _Packer(Region.INPUT)
        self.fed = {name: self._input(value) for name, value in program.feeds.items()}
        self.state = _Packer(Region.STATE, 8)
        self.state_refs = {key: self.state.add((), dtype) for key, dtype in state.items()}

    def _input(self, value: Value) -> Ref:
        """The memory of a feed, or of a received value."""
        storage = self._storages.get(value)
        if storage is None:
            return self.inputs.add(value.spec.extents, value.spec.dtype)
        return storage.home or Ref(Region.SLAB, self._offsets[storage], value.spec.extents, value.spec.dtype)

    def assign(self, value: Value) -> None:
        """Assigns a Ref to a value and to its storage root."""
        if value in self.refs:
            return
        root = storage_of(value)
        base = self.refs.get(root) or self._root_ref(root)
        for each in dict.fromkeys((root, value)):
            self.refs[each] = Ref(base.region, base.offset, each.spec.extents, each.spec.dtype)

    def _root_ref(self, root: Value) -> Ref:
        spec = root.spec
        if root.ref is not None:
            return root.ref
        if root.state_key:
            return self.state_refs[root.state_key]
        if root.constant is not None:
            ref = self.constants.add(spec.extents, spec.dtype)
            self.blobs[ref.offset] = root.constant.tobytes()
            return ref
        if root.feed is not None:
            return self.fed[root.feed]
        if root.variable is not None:
            return self._layout.ref(root.variable.name)
        if root.scalar is not None:
            key = root.scalar.attrs["key"]
            if key not in self.state_refs:
                self.state_refs[key] = self.state.add((), spec.dtype)
            return self.state_refs[key]
        storage = self._storages[root]
        return storage.home or Ref(Region.SLAB, self._offsets[storage], spec.extents, spec.dtype)


def _joined(blobs: dict[int, bytes], nbytes: int) -> bytes:
    result = bytearray(nbytes)
    for offset, blob in blobs.items():
        result[offset : offset + len(blob)] = blob
    return bytes(result)


def check_no_overlap(drafts: Sequence[SegmentDraft], plan: MemoryPlan) -> None:
    """Raises InternalError if a unit writes memory that it also reads and may not alias."""
    for unit in (unit for draft in drafts for unit in draft.units):
        variables = {plan.refs[unit.inputs[index]] for index in unit.head.definition.writes}
        allowed = {*unit.kernel.inplace, *unit.head.definition.alias}
        for o, output in enumerate(unit.outputs):
            for s, source in enumerate(unit.inputs):
                a, b = plan.refs[output], plan.refs[source]
                if output.ref is not None:  # by a rewriting, whose ops go element by element
                    continue
                if (o, s) in allowed or (unit.kernel.pointwise and a in variables):
                    continue
                if overlap(a, b):
                    raise InternalError(
                        f"{unit.head.name}: output {output.name} overlaps input {source.name}"
                    )


def overlap(a: Ref, b: Ref) -> bool:
    """True if two refs share a byte."""
    return a.region == b.region and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
