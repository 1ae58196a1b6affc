"""Numbers of draws: in a compiled loop a random op draws other numbers each time that it runs."""

from __future__ import annotations

import numpy as np

from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Kernel, KernelCall, OpDef
from tensorbow.program.stacks import HandleWord, words_at
from tensorbow.specs import TensorSpec, int64

SHIFT = 32  # bits of the counter for the step; those above count the draws in a step


def _next(call: KernelCall) -> None:
    counter, draws = call.inputs
    words = words_at(draws.ctypes.data, HandleWord.WORDS)
    np.add(counter, words[HandleWord.USED] << SHIFT, out=call.outputs[0])
    words[HandleWord.USED] += 1


NextDraw = OpDef(
    "NextDraw",
    spec=lambda inputs, attrs: TensorSpec((), int64),
    gradient=NOT_DIFFERENTIABLE,
    kernels={"cpu": Kernel(run=_next)},
    input_names=("counter", "draws"),
    attrs={"of": REQUIRED},
    doc="The counter of the next draw of the random op `of`. draws: words of CONTROL that count them.",
)
