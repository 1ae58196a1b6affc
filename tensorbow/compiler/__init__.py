"""Compiler passes: prune, fold, merge, protect, group (with cut), plan memory, join, bind.

For several devices also place (by costs: `placement`) and partition; for replicas of several parts `parts`.
"""

from tensorbow.compiler.bind import Binding, RegionMemory, Scratch
from tensorbow.compiler.compile import AVERAGING_STATE, compile_step
from tensorbow.compiler.cut import Mirrored
from tensorbow.compiler.dynamic_mode import NeedsDynamicModeError
from tensorbow.compiler.group import GRADIENT, STEP
from tensorbow.compiler.make_batch_step import PICKS, compile_batch
from tensorbow.compiler.multi_device import (
    MultiDeviceExecutable,
    compile_multi_device,
    compile_placed,
    fold_for_devices,
    of_one_device,
)
from tensorbow.compiler.parts import PartedExecutable, PartSpec, compile_parts, sends_of
from tensorbow.compiler.place import DeviceSet, Placer
from tensorbow.compiler.variable_layout import VariableLayout

__all__ = [
    "AVERAGING_STATE",
    "GRADIENT",
    "PICKS",
    "STEP",
    "Binding",
    "DeviceSet",
    "Mirrored",
    "MultiDeviceExecutable",
    "NeedsDynamicModeError",
    "PartSpec",
    "PartedExecutable",
    "Placer",
    "RegionMemory",
    "Scratch",
    "VariableLayout",
    "compile_batch",
    "compile_multi_device",
    "compile_parts",
    "compile_placed",
    "compile_step",
    "fold_for_devices",
    "of_one_device",
    "sends_of",
]
