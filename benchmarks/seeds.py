"""Settings trained to a goal, seed by seed, so that runs of the same seed are close together in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cells import Cell, Cells
from medians import summary
from time_to_accuracy import Goal, Replicas, RunSetting, course, described


def over_seeds(
    cells: Cells, goal: Goal, settings: Sequence[RunSetting], seeds: int, name: Callable[[RunSetting], str]
) -> list[dict[str, Any]]:
    """Row for each setting, with its medians and ranges; runs stored in `cells` are not repeated.

    name: names a setting in progress messages.
    """
    for seed in range(seeds):
        for setting in settings:

            def run(setting: RunSetting = setting, seed: int = seed) -> Cell:
                return course(Replicas(setting, goal, seed), goal)

            cell = cells.get(described(setting), seed, run)
            found = f"{cell['seconds_to_target']} s, {cell['epochs_to_target']} epochs"
            print(f"seed {seed}  {name(setting)} {found}", flush=True)
    return [{"setting": setting, **summary(cells.of(described(setting)))} for setting in settings]
