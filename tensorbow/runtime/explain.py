"""What a compiled step does, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorbow.kernels import Executable, Ref, Region


@dataclass(frozen=True)
class Explanation:
    """Segments, order, addresses, memory and reasons of a step. `str()` gives the text."""

    executable: Executable
    bases: Mapping[Region, int]
    device: str
    mode: str = "planned"

    @property
    def peak_nbytes(self) -> int:
        """Bytes of the slab: intermediate tensors and scratch."""
        return self.executable.peak_nbytes

    @property
    def lower_bound_nbytes(self) -> int:
        """The largest sum of live bytes: no packing is smaller."""
        return self.executable.lower_bound_nbytes

    def _address(self, ref: Ref) -> str:
        base = self.bases.get(ref.region)
        where = f"{ref.region.name.lower()}+{ref.offset}"
        return where if base is None else f"{where}@{base + ref.offset:#x}"

    def __str__(self) -> str:
        step = self.executable
        slack = (step.peak_nbytes / step.lower_bound_nbytes - 1) * 100 if step.lower_bound_nbytes else 0.0
        lines = [
            f"mode: {self.mode} (every shape is known), on {self.device}",
            f"slab: {step.peak_nbytes:,} bytes at peak, scratch counted; lower bound "
            f"{step.lower_bound_nbytes:,} ({slack:.1f} % above)",
            "regions: "
            + ", ".join(
                f"{region.name.lower()} {step.region_nbytes[region]:,}"
                for region in Region
                if step.region_nbytes.get(region)
            ),
        ]
        for name, ref in step.inputs.items():
            lines.append(f"feed {name}: {ref.dtype.name}{list(ref.shape)} {self._address(ref)}")
        for segment in step.segments:
            lines.append(f"segment {segment.name}: {len(segment.groups)} kernel calls")
            for place, group in enumerate(segment.groups):
                operands = ", ".join(self._address(ref) for ref in group.inputs)
                results = ", ".join(f"{list(r.shape)} {self._address(r)}" for r in group.outputs)
                lines.append(f"  {place:3} {group.definition.name:<24} {group.name}")
                lines.append(f"      ({operands}) -> {results or 'nothing'}")
                reasons = [group.note] if group.note else []
                if group.predicated:
                    reasons.append("skipped while the status is set")
                if group.scratch:
                    reasons.append(f"scratch {sum(r.nbytes for r in group.scratch):,} bytes")
                if reasons:
                    lines.append(f"      {'; '.join(reasons)}")
        for source, ref in zip(step.fetch_sources, step.fetches, strict=True):
            lines.append(f"fetch {self._address(source)} -> ring+{ref.offset}")
        if step.notes:
            lines.append("why:")
            lines.extend(f"  {note}" for note in step.notes)
        return "\n".join(lines)
