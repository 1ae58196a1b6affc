"""Control flow: conditions and loops in the graph, built of the ops of `tensorbow.ops.control_flow`."""

from tensorbow.control_flow.conditional import case, cond
from tensorbow.control_flow.loops import while_loop

__all__ = ["case", "cond", "while_loop"]
