"""Imports every module of native templates, so that they are registered."""

from tensorbow.kernels.native.ops import (
    argmax,
    batch_norm,
    conv,
    copies,
    depthwise,
    elementwise,
    examples,
    exchanges,
    finite_check,
    gathers,
    losses,
    matmul,
    pooling,
    random,
    reductions,
    while_loops,
)

__all__ = [
    "argmax",
    "batch_norm",
    "conv",
    "copies",
    "depthwise",
    "elementwise",
    "examples",
    "exchanges",
    "finite_check",
    "gathers",
    "losses",
    "matmul",
    "pooling",
    "random",
    "reductions",
    "while_loops",
]
