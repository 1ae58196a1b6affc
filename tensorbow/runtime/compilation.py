"""Compilation of fetches into a step, on the session's device alone or over several devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tensorbow.compiler import DeviceSet, MultiDeviceExecutable, Placer, compile_multi_device, compile_step
from tensorbow.compiler.place import lines_of
from tensorbow.compiler.prune import prune
from tensorbow.graph import Operation, Tensor
from tensorbow.kernels import backend_for
from tensorbow.program import Executable
from tensorbow.runtime.device_variables import DeviceVariables
from tensorbow.specs import TensorSpec


def compile_on_devices(
    elements: Sequence[Tensor | Operation],
    feeds: Mapping[Tensor, TensorSpec],
    devices: DeviceSet,
    variables: DeviceVariables,
    *,
    soft: bool,
    within: Collection[Operation] | None = None,
    compiles_loops: bool = True,
) -> Executable | MultiDeviceExecutable:
    """Places and compiles what the fetches need; gives an Executable if one device runs it all.

    within: see `prune`. compiles_loops: see `fold`.

    Raises InvalidArgumentError for a device scope that cannot be met, and everything `compile_step` raises.
    """
    targets = [e if isinstance(e, Operation) else e.op for e in elements if e not in feeds]
    needed = prune(targets, feeds, within)
    placer = Placer(devices, soft=soft, fixed=variables.placement)
    placement = placer.place(needed)
    reasons = {**variables.notes, **placer.notes}
    notes = lines_of({op: reasons[op] for op in needed if op in reasons})
    home = devices.home
    if all(device is home for device in placement.values()):
        layout = variables.layouts[str(home.name)]
        executable = compile_step(
            elements, feeds, layout, backend_for(home), within=within, compiles_loops=compiles_loops
        )
        return replace(executable, notes=(*notes, *executable.notes))
    names = {op: str(device.name) for op, device in placement.items()}
    by_name = {str(device.name): device for device in (home, *placement.values())}
    layouts = variables.layouts
    return compile_multi_device(
        needed, elements, feeds, names, str(home.name), by_name, layouts, notes, compiles_loops
    )
