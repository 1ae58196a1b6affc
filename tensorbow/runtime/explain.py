"""Textual explanation of a compiled step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tensorbow.compiler import Binding, MultiDeviceExecutable
from tensorbow.compiler.partition import Send
from tensorbow.devices import Device
from tensorbow.executor import DynamicPlan, StaticRegion
from tensorbow.executor.sequence import CondPart, HostPart, LoopPart, RegionPart, SequencePart
from tensorbow.executor.stack_parts import StackPart
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Group, PlannedLaunch, Ref, Region


@dataclass(frozen=True)
class Explanation:
    """Segments, order, addresses, memory and placement reasons of a step. `str()` gives the text.

    backend: name of the backend. launches: per segment, how calls are grouped into launches; empty if each
    call is launched alone. workspace_nbytes: cuBLAS and cuDNN workspaces of the stream group.
    """

    executable: Executable
    bases: Mapping[Region, int]
    device: str
    mode: str = "planned"
    backend: str = ""
    launches: Sequence[Sequence[PlannedLaunch]] = ()
    workspace_nbytes: int = 0

    @staticmethod
    def of_device(executable: Executable, device: Device) -> Explanation:
        """Explains a step compiled for a device but not bound."""
        backend = backend_for(device)
        launches = [backend.launches(segment) for segment in executable.segments]
        nbytes = sum(backend.workspaces(device))
        return Explanation(
            executable,
            {},
            str(device.name),
            backend=backend.title,
            launches=launches,
            workspace_nbytes=nbytes,
        )

    @staticmethod
    def of_binding(binding: Binding) -> Explanation:
        """Explains a bound step: adds addresses, and what could not be captured."""
        unbound = Explanation.of_device(binding.executable, binding.group.device)
        launches = [binding.plan.launches(number) for number in range(len(binding.executable.segments))]
        return replace(unbound, bases=dict(binding.bases), launches=launches)

    @property
    def peak_nbytes(self) -> int:
        """Bytes of the slab: intermediate tensors and scratch."""
        return self.executable.peak_nbytes

    @property
    def lower_bound_nbytes(self) -> int:
        """Lower bound of the slab's bytes: the largest sum of bytes live at the same time."""
        return self.executable.lower_bound_nbytes

    def _address(self, ref: Ref) -> str:
        base = self.bases.get(ref.region)
        where = f"{ref.region.name.lower()}+{ref.offset}"
        return where if base is None else f"{where}@{base + ref.offset:#x}"

    def __str__(self) -> str:
        step = self.executable
        slack = (step.peak_nbytes / step.lower_bound_nbytes - 1) * 100 if step.lower_bound_nbytes else 0.0
        by = f" by {self.backend}" if self.backend else ""
        lines = [
            f"mode: {self.mode} (every shape is known), on {self.device}{by}",
            f"slab: {step.peak_nbytes:,} bytes at peak, scratch counted; lower bound "
            f"{step.lower_bound_nbytes:,} ({slack:.1f} % above)",
            "regions: "
            + ", ".join(
                f"{region.name.lower()} {step.region_nbytes[region]:,}"
                for region in Region
                if step.region_nbytes.get(region)
            ),
        ]
        if self.workspace_nbytes:
            lines.append(f"workspace: {self.workspace_nbytes:,} bytes for libraries, one after the other")
        for name, ref in step.inputs.items():
            what = "receive" if " from " in name else "feed"
            lines.append(f"{what} {name}: {ref.dtype.name}{list(ref.shape)} {self._address(ref)}")
        shown: list[tuple[str, Sequence[Group]]] = []
        for number, segment in enumerate(step.segments):
            if not segment.groups and len(step.segments) > 1:  # it runs elsewhere
                continue
            launches = self.launches[number] if self.launches else ()
            groups = [group for launch in launches for group in launch.groups] or segment.groups
            sends = sum(group.definition is Send for group in groups)
            passed_on = f", {sends} sends" if sends else ""
            lines.append(f"segment {segment.name}: {len(groups) - sends} kernel calls{passed_on}")
            lines.extend(_launch_lines(launches))
            repeated, earlier = _repeated(shown, groups)
            shown.append((segment.name, groups))
            for index, group in enumerate(groups):
                if index in repeated:
                    if index == repeated.start:
                        lines.append(f"  {index:3} to {repeated[-1]}: as {earlier}")
                    continue
                operands = ", ".join(self._address(ref) for ref in group.inputs)
                results = ", ".join(f"{list(r.shape)} {self._address(r)}" for r in group.outputs)
                lines.append(f"  {index:3} {group.definition.name:<24} {group.name}")
                lines.append(f"      ({operands}) -> {results or 'nothing'}")
                reasons = [group.note] if group.note else []
                if group.predicated:
                    reasons.append("skipped while the status is set")
                if scratch := sum(ref.nbytes for ref in group.scratch):
                    reasons.append(f"scratch {scratch:,} bytes")
                if reasons:
                    lines.append(f"      {'; '.join(reasons)}")
                if group.kernel.explain is not None:
                    lines.extend(f"      {line}" for line in group.kernel.explain(group.attrs))
        for source, ref in zip(step.fetch_sources, step.fetches, strict=True):
            lines.append(f"fetch {self._address(source)} -> ring+{ref.offset}")
        if step.notes:
            lines.append("why:")
            lines.extend(f"  {note}" for note in step.notes)
        return "\n".join(lines)


@dataclass(frozen=True)
class MultiDeviceExplanation:
    """Explanation of a step over several devices: order of the stages, values sent, and each part."""

    executable: MultiDeviceExecutable
    parts: Mapping[str, Explanation]  # by the device's full name
    mode: str = "planned"

    @property
    def peak_nbytes(self) -> int:
        """Bytes of all slabs."""
        return sum(part.peak_nbytes for part in self.executable.parts.values())

    @property
    def lower_bound_nbytes(self) -> int:
        """Sum of the lower bounds of all parts."""
        return sum(part.lower_bound_nbytes for part in self.executable.parts.values())

    def __str__(self) -> str:
        step = self.executable
        lines = [f"mode: {self.mode} over {len(step.parts)} devices: {', '.join(step.parts)}"]
        for number, stage in enumerate(step.stages):
            segment = step.parts[stage.device].segments[stage.segment]
            sends = [group for group in segment.groups if group.definition is Send]
            waits = f", after stage {', '.join(map(str, stage.waits))}" if stage.waits else ""
            lines.append(
                f"stage {number}: {stage.device} segment {segment.name}, "
                f"{len(segment.groups) - len(sends)} kernel calls{waits}"
            )
            for group in sends:
                shape = list(group.inputs[0].shape)
                name = group.attrs["key"].partition(" from ")[0]
                lines.append(f"  send {name} {group.inputs[0].dtype.name}{shape} to {group.attrs['to']}")
        for explanation in self.parts.values():
            lines.append("")
            lines.append(str(explanation))
        if step.notes:
            lines.append("\nwhy:")
            lines.extend(f"  {note}" for note in step.notes)
        return "\n".join(lines)


@dataclass(frozen=True)
class DynamicExplanation:
    """Explanation of a step in dynamic mode: why, and its loops, regions and other nodes, in their order."""

    plan: DynamicPlan
    device: str
    mode: str = "dynamic"

    def __str__(self) -> str:
        lines = [f"mode: {self.mode}, on {self.device}", f"why: {self.plan.reason}"]
        return "\n".join([*lines, *_nodes_of(self.plan)])


def _nodes_of(plan: DynamicPlan) -> list[str]:
    lines = []
    for frame in plan.frames:
        if frame is not plan.root:
            why = "it writes variables, or changes an object at several places"
            one = f", one iteration at a time: {why}" if frame.sequential else ""
            lines.append(f"loop {frame.name}: {len(frame.nodes)} nodes{one}")
        for node in frame.nodes:
            if node.sequence is None:
                lines.append(f"  {node.kind.name.lower():<8} {node.name}")
            else:
                lines.extend(f"  {line}" for line in _parts_of(node.sequence.parts))
    return lines


def _parts_of(parts: Sequence[SequencePart]) -> list[str]:
    """Lines of the parts of a sequence."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, HostPart):
            lines.append(f"host     {part.op.name}")
        elif isinstance(part, StackPart):
            lines.extend(_parts_of(part.parts))
        elif isinstance(part, CondPart):
            lines.append(f"cond {part.name}, run by the executor")
            for name, branch in zip(("false", "true"), part.branches, strict=True):
                lines.append(f"  if {name}")
                lines.extend(f"    {line}" for line in _parts_of(branch))
        elif isinstance(part, LoopPart):
            lines.append(f"loop {part.name}, run by the executor")
            for name, inner in (("while", part.condition), ("do", part.body)):
                lines.append(f"  {name}")
                lines.extend(f"    {line}" for line in _parts_of(inner))
        elif isinstance(part, RegionPart):
            lines.extend(_region_lines(part.region))
    return lines


def _region_lines(region: StaticRegion) -> list[str]:
    wholes = ", ".join(f"{unit.kind} {unit.name}" for unit in region.units)
    how = "NumPy calls if small" if region.may_be_small else "a planned step"
    if region.parts is not None:
        how = f"in parts, as {region.why}"
    elif wholes:
        how = f"{how}; with {wholes}, compiled"
    lines = [f"region   {region.ops[0].name}: {len(region.ops)} ops, {how}"]
    if region.parts is not None:
        return [*lines, *(f"  {line}" for line in _parts_of(region.parts.parts))]
    return [*lines, *(f"  {op.type:<24} {op.name}" for op in region.ops)]


def unbound(
    executable: Executable | MultiDeviceExecutable, device: Device, note: str
) -> Explanation | MultiDeviceExplanation:
    """Explains a step that could not be bound, for the reason `note`. device: of a step on one device."""
    executable = replace(executable, notes=(note, *executable.notes))
    if isinstance(executable, Executable):
        return Explanation.of_device(executable, device)
    parts = {n: Explanation.of_device(part, executable.devices[n]) for n, part in executable.parts.items()}
    return MultiDeviceExplanation(executable, parts)


SHORTEST = 2  # fewer equal calls in a row are printed again, not referred to


def _launch_lines(launches: Sequence[PlannedLaunch]) -> list[str]:
    """Lines that say which calls are launched together, and why the others are not."""
    lines, first = [], 0
    for launch in launches:
        last = first + len(launch.groups) - 1
        calls = f"call {first}" if last == first else f"calls {first} to {last}"
        if launch.reason:
            one_by_one = "by itself" if last == first else "one by one"
            lines.append(f"  {calls} launched {one_by_one}: {launch.reason}")
        else:
            lines.append(f"  {calls} {launch.form}")
        first = last + 1
    return lines


def _repeated(before: Sequence[tuple[str, Sequence[Group]]], groups: Sequence[Group]) -> tuple[range, str]:
    """The longest run of calls that an earlier segment also has, and where it is there."""
    found, where = range(0), ""
    for name, others in before:
        indices: dict[str, list[int]] = {}
        for index, other in enumerate(others):
            indices.setdefault(other.name, []).append(index)
        for start, group in enumerate(groups):
            for index in indices.get(group.name, ()):
                if start and index and groups[start - 1] == others[index - 1]:
                    continue  # part of a longer run
                both = zip(groups[start:], others[index:], strict=False)
                length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
                if length >= max(SHORTEST, len(found) + 1):
                    found = range(start, start + length)
                    where = f"{index} to {index + length - 1} of segment {name}"
    return found, where
