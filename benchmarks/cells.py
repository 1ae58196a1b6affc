"""Results of single runs, one for each setting and seed, kept in an experiment's JSON file as they come.

An experiment that is interrupted goes on where it was: what its file holds is not measured again, unless
`--fresh` says so, or the file is of another goal, or of another machine or other versions where time counts.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import harness
from results_page import as_json

Cell = dict[str, Any]


class Cells:
    """The runs of an experiment. A cell is what a run gave, with its `setting` and `seed`."""

    def __init__(self, options: argparse.Namespace, goal: dict[str, Any], timed: bool = True):
        """goal: what the runs have in common, as JSON can hold it. timed: whether the machine matters.

        Reads what is there.
        """
        self._path = harness.output_path(options, f"{options.experiment}.json")
        self._goal, self._timed = goal, timed
        self._described = harness.described(options, options.experiment)
        self._found: dict[str, Any] = {} if options.fresh else self._kept()
        self.all: list[Cell] = self._found.get("details", {}).get("cells", [])

    def _kept(self) -> dict[str, Any]:
        """What the file holds, if it is of use."""
        try:
            found = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            print(f"{self._path} is damaged: all is measured again")
            return {}
        elsewhere = self._timed and any(found.get(k) != self._described[k] for k in ("machine", "versions"))
        if elsewhere or found.get("details", {}).get("goal") != self._goal:
            print(f"{self._path} is of another machine, versions or goal: all is measured again")
            return {}
        return dict(found)

    def get(self, setting: dict[str, Any], seed: int, measure: Callable[[], Cell]) -> Cell:
        """The cell of a setting and seed: what was kept, or else what `measure` gives, which is kept then."""
        for cell in self.all:
            if cell["setting"] == setting and cell["seed"] == seed:
                return cell
        cell = {"setting": setting, "seed": seed, **measure()}
        self.all.append(cell)
        written = {**self._found, **self._described, "unfinished": True}
        written["details"] = {**self._found.get("details", {}), **self.result()}
        partial = self._path.with_suffix(".partial")
        partial.write_text(as_json(written) + "\n")
        os.replace(partial, self._path)
        return cell

    def of(self, setting: dict[str, Any]) -> list[Cell]:
        """All there are of a setting."""
        return [cell for cell in self.all if cell["setting"] == setting]

    def result(self) -> dict[str, Any]:
        """Goal and cells, for `harness.save`."""
        return {"goal": self._goal, "cells": self.all}
