"""The mechanisms that only make native code faster, each with a switch, so that its gain can be measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _fusion() -> Any:
    return field(default=True, metadata={"fusion": True})


@dataclass(frozen=True)
class Switches:
    """Which mechanisms native code is made with."""

    maps: bool = _fusion()  # element-wise ops of one shape as one pass
    epilogues: bool = _fusion()  # element-wise ops on a contraction's result while it is in registers
    batch_norms: bool = _fusion()  # normalisations summed and ended in the passes of their neighbours
    backward: bool = _fusion()  # both gradients of a normalised convolution in one call
    row_pooling: bool = _fusion()  # pooling of rows that a contraction has just made
    pool_gradients: bool = _fusion()  # pooling's gradient with that of the ReLU
    winograd: bool = True  # convolutions by minimal filtering
    read_ahead: bool = True  # the next part of a far matrix fetched during the present one
    merged_updates: bool = True  # updates of neighbouring variables as one pass
    averaged_updates: bool = True  # an update and the averaging around it as one pass
    factored_gradients: bool = True  # weight gradients of dense layers kept as their factors
    examples: bool = True  # batches made of the data set by native code
    joint_rounds: bool = True  # rounds of all replicas, averaging included, in one call


ALL = Switches()
