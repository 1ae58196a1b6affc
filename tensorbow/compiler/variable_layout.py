"""Layout of variables in memory: one flat vector per dtype, the same in every replica and in z."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from allocators.granule import round_up
from tensorbow.errors import NotFoundError
from tensorbow.graph import Graph, Operation
from tensorbow.ops.state import VariableReference
from tensorbow.program.plan import Ref, Region
from tensorbow.specs import DTYPES

ALIGNMENT = 256  # bytes; between the vectors of different dtypes, never between variables


class VariableLayout:
    """Offsets of variables in the WEIGHTS, SLOTS and STATISTICS regions.

    WEIGHTS holds per dtype: decayed weights | other weights, packed without gaps. SLOTS repeats that layout
    once per slot name of the optimisers, so that update and averaging are passes over equal flat vectors.
    The same variables give the same layout in every process.
    """

    def __init__(self, variables: Iterable[Operation]):
        self.variables: tuple[Operation, ...] = tuple(variables)
        self._refs: dict[str, Ref] = {}
        self._flat: dict[Region, list[Ref]] = {}
        weights = [v for v in self.variables if v.attrs["role"] == "weights"]
        weights.sort(key=lambda v: not v.attrs["decayed"])  # stable: keeps the order of creation
        statistics = [v for v in self.variables if v.attrs["role"] == "statistics"]
        slots = [v for v in self.variables if v.attrs["role"] == "slots"]
        self.region_nbytes: dict[Region, int] = {}
        self.region_nbytes[Region.WEIGHTS] = self._pack(Region.WEIGHTS, weights)
        self.region_nbytes[Region.STATISTICS] = self._pack(Region.STATISTICS, statistics)
        self.region_nbytes[Region.SLOTS] = self._mirror(slots)
        self.region_nbytes[Region.GRADIENTS] = self.region_nbytes[Region.WEIGHTS]

    @classmethod
    def of_graph(cls, graph: Graph) -> VariableLayout:
        """The layout of all variables that a graph has now."""
        return cls(op for op in graph.get_operations() if op.definition is VariableReference)

    @classmethod
    def scattered(cls, variables: Iterable[Operation], offsets: Mapping[str, int]) -> VariableLayout:
        """The layout of variables that lie anywhere, so that new ones move none, all in STATISTICS.

        offsets: by name, in bytes from one address. Gradients and slots of such variables are not laid out
        like them.
        """
        layout = cls(())
        layout.variables = tuple(variables)
        for variable in layout.variables:
            spec = variable.outputs[0].spec
            layout._refs[variable.name] = Ref(
                Region.STATISTICS, offsets[variable.name], spec.extents, spec.dtype
            )
        return layout

    def _pack(self, region: Region, variables: Sequence[Operation]) -> int:
        offset = 0
        for dtype in DTYPES.values():
            start = offset
            for variable in variables:
                if variable.attrs["dtype"] == dtype:
                    ref = Ref(region, offset, variable.outputs[0].spec.extents, dtype)
                    self._refs[variable.name] = ref
                    offset += ref.nbytes
            if offset > start:
                flat = Ref(region, start, ((offset - start) // dtype.size,), dtype)
                self._flat.setdefault(region, []).append(flat)
                offset = round_up(offset, ALIGNMENT)
        return offset

    def _mirror(self, slots: Sequence[Operation]) -> int:
        """Lays slots out. Slots shaped like their variable mirror WEIGHTS; others follow behind, packed.

        A second optimiser with the same slot of the same variable gets its own mirror.
        """
        stride = self.region_nbytes[Region.WEIGHTS]
        bases: dict[tuple[str, int], int] = {}
        taken: dict[tuple[str, str], int] = {}
        others: list[Operation] = []
        for slot in slots:
            home = self._refs.get(slot.attrs["slot_of"])
            same = home is not None and home.region is Region.WEIGHTS and home.dtype == slot.attrs["dtype"]
            if home is None or not same or home.shape != slot.outputs[0].spec.extents:
                others.append(slot)
                continue
            key = (slot.attrs["slot_name"], slot.attrs["slot_of"])
            mirror = taken[key] = taken.get(key, -1) + 1
            base = bases.setdefault((slot.attrs["slot_name"], mirror), len(bases) * stride)
            self._refs[slot.name] = Ref(Region.SLOTS, base + home.offset, home.shape, home.dtype)
        offset = len(bases) * stride
        for slot in others:
            ref = Ref(Region.SLOTS, offset, slot.outputs[0].spec.extents, slot.attrs["dtype"])
            self._refs[slot.name] = ref
            offset = round_up(offset + ref.nbytes, ALIGNMENT)
        return offset

    def ref(self, variable: str) -> Ref:
        """The memory of a variable, by its op's name. Raises NotFoundError."""
        try:
            return self._refs[variable]
        except KeyError:
            there = ", ".join(self._refs) or "none; make them before, in the session's graph"
            raise NotFoundError(f"no variable '{variable}'; there are: {there}") from None

    def refs(self) -> dict[str, Ref]:
        """The memory of all variables, by name."""
        return dict(self._refs)

    def flat(self, region: Region) -> tuple[Ref, ...]:
        """The flat vectors of WEIGHTS or STATISTICS, one per dtype."""
        return tuple(self._flat.get(region, ()))
