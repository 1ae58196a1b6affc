"""From a graph to an executable: prune, fold, merge, protect, group, plan memory, bind."""

from tensorbow.compiler.bind import Binding, RegionMemory
from tensorbow.compiler.compile import compile_step
from tensorbow.compiler.group import GRADIENT, STEP, UPDATE
from tensorbow.compiler.layout import VariableLayout

__all__ = ["GRADIENT", "STEP", "UPDATE", "Binding", "RegionMemory", "VariableLayout", "compile_step"]
