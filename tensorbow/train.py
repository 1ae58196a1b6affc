"""`tb.train`: optimisers and learning rates, under TensorFlow's names."""

from tensorbow.optimizers import (
    Constant,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    PiecewiseConstant,
    Schedule,
    piecewise_constant,
)

__all__ = [
    "Constant",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "PiecewiseConstant",
    "Schedule",
    "piecewise_constant",
]
