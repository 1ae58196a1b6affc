"""Optimisers, learning-rate schedules and gradient clipping."""

from tensorbow.optimizers.clipping import clip_by_global_norm, global_norm
from tensorbow.optimizers.gradient_descent import GradientDescentOptimizer, MomentumOptimizer
from tensorbow.optimizers.optimizer import Optimizer
from tensorbow.optimizers.schedules import (
    Constant,
    PiecewiseConstant,
    Schedule,
    as_schedule,
    piecewise_constant,
)

__all__ = [
    "Constant",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "PiecewiseConstant",
    "Schedule",
    "as_schedule",
    "clip_by_global_norm",
    "global_norm",
    "piecewise_constant",
]
