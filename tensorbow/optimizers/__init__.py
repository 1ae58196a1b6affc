"""Optimisers, learning-rate schedules and gradient clipping."""

from tensorbow.optimizers.adaptive import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    RMSPropOptimizer,
)
from tensorbow.optimizers.clipping import clip_by_global_norm, clip_by_norm, global_norm
from tensorbow.optimizers.decay import (
    CosineDecay,
    ExponentialDecay,
    OneCycle,
    PolynomialDecay,
    WarmUp,
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    natural_exp_decay,
    polynomial_decay,
    warm_up,
)
from tensorbow.optimizers.decay_with_restarts import cosine_decay_restarts, linear_cosine_decay
from tensorbow.optimizers.gradient_descent import (
    SLOT_FORM,
    GradientDescentOptimizer,
    MomentumOptimizer,
    slots_hold_rate,
)
from tensorbow.optimizers.moving_average import ExponentialMovingAverage
from tensorbow.optimizers.optimizer import Optimizer, ScheduledBy
from tensorbow.optimizers.regularized import (
    AdagradDAOptimizer,
    FtrlOptimizer,
    ProximalAdagradOptimizer,
    ProximalGradientDescentOptimizer,
)
from tensorbow.optimizers.schedules import (
    Constant,
    PiecewiseConstant,
    Schedule,
    as_schedule,
    piecewise_constant,
)
from tensorbow.optimizers.scipy_interface import ScipyOptimizerInterface

__all__ = [
    "SLOT_FORM",
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "Constant",
    "CosineDecay",
    "ExponentialDecay",
    "ExponentialMovingAverage",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "OneCycle",
    "Optimizer",
    "PiecewiseConstant",
    "PolynomialDecay",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "Schedule",
    "ScheduledBy",
    "ScipyOptimizerInterface",
    "WarmUp",
    "as_schedule",
    "clip_by_global_norm",
    "clip_by_norm",
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "global_norm",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "piecewise_constant",
    "polynomial_decay",
    "slots_hold_rate",
    "warm_up",
]
