"""Control flow: conditions and loops in the graph, built of the ops of `tensorbow.ops.control_flow`."""

from tensorbow.control_flow.conditional import case, cond
from tensorbow.control_flow.elements import foldl, foldr, map_fn, scan
from tensorbow.control_flow.loops import while_loop
from tensorbow.control_flow.tensor_array import TensorArray

__all__ = ["TensorArray", "case", "cond", "foldl", "foldr", "map_fn", "scan", "while_loop"]
