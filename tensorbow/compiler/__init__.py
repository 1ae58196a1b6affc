"""From a graph to an executable: prune, place, fold, merge, partition, protect, group, plan memory, bind."""

from tensorbow.compiler.bind import Binding, RegionMemory, Scratch
from tensorbow.compiler.compile import compile_step
from tensorbow.compiler.group import GRADIENT, STEP, UPDATE
from tensorbow.compiler.layout import VariableLayout
from tensorbow.compiler.place import DeviceSet, Placer
from tensorbow.compiler.spread import SpreadExecutable, compile_spread

__all__ = [
    "GRADIENT",
    "STEP",
    "UPDATE",
    "Binding",
    "DeviceSet",
    "Placer",
    "RegionMemory",
    "Scratch",
    "SpreadExecutable",
    "VariableLayout",
    "compile_spread",
    "compile_step",
]
