"""The dynamic executor: steps whose control flow or shapes depend on data (TensorFlow white paper, 4.4)."""

from tensorbow.executor.dynamic_plan import VARIABLE, DynamicPlan
from tensorbow.executor.dynamic_step import DynamicStep, owned, with_variables
from tensorbow.executor.inter_op_pool import InterOpPool, PoolShare, TaskPool, threads_beside_caller
from tensorbow.executor.op_places import OpPlaces
from tensorbow.executor.plan_nodes import Frame
from tensorbow.executor.quick_step import QuickStep
from tensorbow.executor.region import StaticRegion
from tensorbow.executor.region_call import RegionCall
from tensorbow.executor.step_spans import StepSpans
from tensorbow.executor.units import Units

__all__ = [
    "VARIABLE",
    "DynamicPlan",
    "DynamicStep",
    "Frame",
    "InterOpPool",
    "OpPlaces",
    "PoolShare",
    "QuickStep",
    "RegionCall",
    "StaticRegion",
    "StepSpans",
    "TaskPool",
    "Units",
    "owned",
    "threads_beside_caller",
    "with_variables",
]
