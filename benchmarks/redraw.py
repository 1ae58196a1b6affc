"""Draws the pictures of stored results again, without measuring.

    python benchmarks/redraw.py [NAME ...] [--output FOLDER]

Every result in `results/` and its folders is drawn by the script that wrote it, beside its JSON file, which
stays as it is. NAME: experiments; default: all.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drawing import NotDrawableError, write_picture
from experiments import EXPERIMENTS, Experiment
from results_page import RESULTS


def stored(names: Sequence[str], folder: Path = RESULTS) -> Iterator[tuple[Experiment, Path]]:
    """Experiments of these names, or all, with the files of their finished results."""
    for experiment in EXPERIMENTS:
        if not names or experiment.name in names:
            for path in sorted(folder.rglob(f"{experiment.name}.json")):
                if not json.loads(path.read_text()).get("unfinished"):
                    yield experiment, path


def drawing_of(experiment: Experiment) -> Callable[[Any, dict[str, Any]], None]:
    """The function `draw(figure, result)` of an experiment's script."""
    draw: Callable[[Any, dict[str, Any]], None] = importlib.import_module(experiment.script.stem).draw
    return draw


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks/redraw.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [experiment.name for experiment in EXPERIMENTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--output", type=Path, help="folder of the pictures; default: beside the results")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown {', '.join(unknown)}; choose of {', '.join(known)}")
    for experiment, path in stored(options.names):
        picture = (options.output or RESULTS) / path.relative_to(RESULTS).with_suffix(".png")
        picture.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_picture(drawing_of(experiment), json.loads(path.read_text()), picture)
        except NotDrawableError as error:
            print(f"{path.stem}: left as it is; {error}")
        else:
            print(f"{path.stem}: wrote {picture}")


if __name__ == "__main__":
    main()
