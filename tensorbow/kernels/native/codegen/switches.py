"""The mechanisms that only make native code faster, each with a switch, so that its gain can be measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Switches:
    """Mechanisms that native code is made with."""

    winograd: bool = True  # convolutions by minimal filtering
    merged_updates: bool = True  # updates of neighbouring variables as one pass
    averaged_updates: bool = True  # an update and the averaging around it as one pass
    factored_gradients: bool = True  # weight gradients of dense layers kept as their factors
    whole_rounds: bool = True  # rounds of all replicas, averaging included, in one call


ALL = Switches()
