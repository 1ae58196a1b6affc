"""Placement by costs (white paper, section 3.2.1): what ops cost, and a simulated step that places them.

Rule of this room: nothing here runs, opens or times a device. Costs and limits come in as numbers.
"""

from tensorbow.compiler.placement.cost_model import CostModel, NodeCost, flops_of
from tensorbow.compiler.placement.greedy import Assignment, PlacedGroup, SimulatedOp, place_greedily, simulate
from tensorbow.compiler.placement.spread import Machine, Spread, spread_program, spread_variables

__all__ = [
    "Assignment",
    "CostModel",
    "Machine",
    "NodeCost",
    "PlacedGroup",
    "SimulatedOp",
    "Spread",
    "flops_of",
    "place_greedily",
    "simulate",
    "spread_program",
    "spread_variables",
]
