"""Element-wise kernels as scalar expressions: the table of rules, and fusion of maps."""

from tensorbow.kernels.scalars.expression import Scalar, inputs_of, symbol, symbols
from tensorbow.kernels.scalars.fusion import ASSIGNMENTS, FusedMap, fuse_maps, is_fusable
from tensorbow.kernels.scalars.table import RULES, Rule, inplace_of, results_of

__all__ = [
    "ASSIGNMENTS",
    "RULES",
    "FusedMap",
    "Rule",
    "Scalar",
    "fuse_maps",
    "inplace_of",
    "inputs_of",
    "is_fusable",
    "results_of",
    "symbol",
    "symbols",
]
