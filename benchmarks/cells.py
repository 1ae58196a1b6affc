"""Results of single runs, one for each setting and seed, written to an experiment's JSON file after each run.

An interrupted experiment resumes: results that its file holds are not measured again. The file is ignored
with `--fresh`, if it has another goal, or, for timed experiments, another machine or other versions.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import harness
from results_page import as_json

Cell = dict[str, Any]


def cells_of(cells: Sequence[Cell], **setting: Any) -> list[Cell]:
    """Cells whose setting has these values."""
    return [cell for cell in cells if setting.items() <= cell["setting"].items()]


class Cells:
    """Runs of an experiment. A cell is the result of one run, with its `setting` and `seed`."""

    def __init__(self, options: argparse.Namespace, goal: dict[str, Any], timed: bool = True):
        """goal: settings that all runs share, as JSON values. timed: results depend on the machine.

        Reads the earlier results.
        """
        self._path = harness.output_path(options, f"{options.experiment}.json")
        self._goal, self._timed = goal, timed
        self._described = harness.described(options, options.experiment)
        self._found: dict[str, Any] = {} if options.fresh else self._kept()
        self.all: list[Cell] = self._found.get("details", {}).get("cells", [])

    def _kept(self) -> dict[str, Any]:
        """Content of the results file; empty if it is missing, damaged or not comparable."""
        try:
            found = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            print(f"{self._path} is damaged: measuring everything again")
            return {}
        elsewhere = self._timed and any(found.get(k) != self._described[k] for k in ("machine", "versions"))
        if elsewhere or found.get("details", {}).get("goal") != self._goal:
            print(f"{self._path} is of another machine, versions or goal: measuring everything again")
            return {}
        return dict(found)

    def get(self, setting: dict[str, Any], seed: int, measure: Callable[[], Cell]) -> Cell:
        """Cell of a setting and seed: the stored one, or else the result of `measure`, then stored."""
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
        """Cells of a setting."""
        return [cell for cell in self.all if cell["setting"] == setting]

    def result(self) -> dict[str, Any]:
        """Goal and cells, for `harness.save`."""
        return {"goal": self._goal, "cells": self.all}
