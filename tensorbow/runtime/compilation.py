"""Compilation of fetches into a step, on the session's device alone or over several devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from tensorbow.compiler import (
    Binding,
    DeviceSet,
    MultiDeviceExecutable,
    Placer,
    VariableLayout,
    compile_multi_device,
    compile_placed,
    compile_step,
)
from tensorbow.compiler.merge import merge
from tensorbow.compiler.place import lines_of
from tensorbow.compiler.placement import NodeCost
from tensorbow.compiler.prune import drop_unused, needed_for
from tensorbow.compiler.recompute import NEVER, SMALLEST
from tensorbow.compiler.swap import HIDDEN, can_swap
from tensorbow.compiler.swap import SMALLEST as SWAP_MOST
from tensorbow.devices import Device
from tensorbow.graph import Operation, Tensor
from tensorbow.kernels import backend_for
from tensorbow.ops.state import VariableReference
from tensorbow.program import Executable, Region
from tensorbow.runtime.config_proto import AUTO
from tensorbow.runtime.container import REGIONS as OF_VARIABLES
from tensorbow.runtime.spreading import GreedyPlacement
from tensorbow.specs import TensorSpec


class PlacedVariables(Protocol):
    """Variables that have devices."""

    @property
    def placement(self) -> Mapping[Operation, Device]:
        """The device of each variable."""

    @property
    def notes(self) -> Mapping[Operation, str]:
        """Notes on variables that are not on the requested device."""

    @property
    def layouts(self) -> Mapping[str, VariableLayout]:
        """The variable layout of each device, by the device's full name."""


def compile_on_devices(
    elements: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    devices: DeviceSet,
    variables: PlacedVariables,
    *,
    soft: bool,
    within: Collection[Operation] | None = None,
    compiles_loops: bool = True,
    greedy: GreedyPlacement | None = None,
    lossy: bool = False,
    recompute: str = NEVER,
    swap: str = NEVER,
    free_nbytes: Callable[[], int] | None = None,
) -> tuple[Executable | MultiDeviceExecutable, Mapping[str, NodeCost]]:
    """Places and compiles what the fetches need; gives an Executable if one device runs it all.

    within: see `prune`. compiles_loops: see `fold`. greedy: places by costs what requests no device; the
    costs of the step's ops come back, by name. lossy: see `partition`.
    recompute, swap: of a step on one device, see `ConfigProto`. free_nbytes: gives the bytes of that device
    that it may use.

    Raises InvalidArgumentError for a device scope that cannot be met, and everything `compile_step` raises.
    """
    needed = needed_for(elements, feeds, within)
    placer = Placer(devices, soft=soft, fixed=variables.placement, spreads=greedy is not None)
    groups = placer.options(needed)
    placement = {op: options[0] for ops, options in groups for op in ops}
    reasons = {**variables.notes, **placer.notes_of(placement)}
    notes = lines_of({op: reasons[op] for op in needed if op in reasons})
    home = devices.home
    layouts = variables.layouts
    costs: Mapping[str, NodeCost] = {}
    if greedy is not None and len({device for _, options in groups for device in options}) > 1:
        kept = {name: layout.region_nbytes[Region.GRADIENTS] for name, layout in layouts.items()}
        placed = greedy.place_step(needed, elements, feeds, groups, kept, compiles_loops)
        if placed is None:
            notes.append("placement: not by costs, as a loop of the step cannot be unrolled")
        else:
            program, spread = placed
            notes += spread.lines()
            costs = spread.costs
            by_name = {str(d.name): d for _, options in groups for d in (home, *options)}
            used = {by_name[node.device] for node in program.nodes}
            placed_variables = {
                op.name: str(d.name) for op, d in placement.items() if op.definition is VariableReference
            }
            if not used <= {home} or any(name != str(home.name) for name in placed_variables.values()):
                finished = drop_unused(merge(program))
                return compile_placed(
                    finished, placed_variables, str(home.name), by_name, layouts, notes, lossy=lossy
                ), costs
            placement = dict.fromkeys(placement, home)
    if all(device is home for device in placement.values()):
        layout = layouts[str(home.name)]

        def compiled(repeats: str, swaps: str, below: int = 0) -> Executable:
            return compile_step(
                elements,
                feeds,
                layout,
                backend_for(home),
                within=within,
                compiles_loops=compiles_loops,
                recompute=repeats,
                swap=swaps,
                swap_below=below,
            )

        executable = compiled(NEVER if recompute == AUTO else recompute, NEVER if swap == AUTO else swap)
        if free_nbytes is not None:
            for repeats, swaps in _ways_to_shrink(recompute, swap, home.kind):
                excess = (
                    sum(Binding.blocks(executable, dict.fromkeys(OF_VARIABLES, 0), ring=1)) - free_nbytes()
                )
                if excess <= 0:
                    break
                executable = compiled(repeats, swaps, max(0, executable.peak_nbytes - excess))
        return replace(executable, notes=(*notes, *executable.notes)), costs
    names = {op: str(device.name) for op, device in placement.items()}
    by_name = {str(device.name): device for device in (home, *placement.values())}
    return compile_multi_device(
        needed, elements, feeds, names, str(home.name), by_name, layouts, notes, compiles_loops, lossy=lossy
    ), costs


def _ways_to_shrink(recompute: str, swap: str, kind: str) -> list[tuple[str, str]]:
    """The ways to recompute and to swap that are tried in turn for a step that has no room, where auto."""
    repeats = NEVER if recompute == AUTO else recompute
    if swap != AUTO or not can_swap(kind):
        return [(SMALLEST, NEVER if swap == AUTO else swap)] if recompute == AUTO else []
    hidden, smallest = (repeats, HIDDEN), (SMALLEST if recompute == AUTO else repeats, SWAP_MOST)
    return [hidden, (SMALLEST, HIDDEN), smallest] if recompute == AUTO else [hidden, smallest]
