"""The dynamic executor: steps whose control flow or shapes depend on data (TensorFlow white paper, 4.4)."""

from tensorbow.executor.dynamic_plan import VARIABLE, DynamicPlan
from tensorbow.executor.dynamic_step import DynamicStep
from tensorbow.executor.inter_op_pool import InterOpPool, default_threads
from tensorbow.executor.quick_step import QuickStep
from tensorbow.executor.region import StaticRegion
from tensorbow.executor.step_spans import StepSpans

__all__ = [
    "VARIABLE",
    "DynamicPlan",
    "DynamicStep",
    "InterOpPool",
    "QuickStep",
    "StaticRegion",
    "StepSpans",
    "default_threads",
]
