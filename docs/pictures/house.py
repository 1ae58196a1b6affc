"""Draws the house of the design page: rooms (packages) on floors, each above what it imports.

python docs/pictures/house.py      (writes house.svg; colours come from the theme, see _static/pages.css)
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

WIDTH, LEFT, RIGHT = 760, 20, 740
ROOF, HEIGHT, GAP, TITLE = 92, 58, 6, 20


class Room(NamedTuple):
    """A package, a few words about it, its width and the distribution's top package that it belongs to."""

    name: str
    words: str = ""
    width: float = 1
    package: str = "tensorbow"


FLOORS = {
    "replicas of your program": [
        Room("replicator", "one step_fn, many replicas", 2.1, "replicator"),
        Room("scheduler.session", "a session that trains", 1.8, "scheduler"),
        Room("scheduler.training", "Trainer, run folders", 1.9, "scheduler"),
        Room("scheduler.sweeps", "members, halving", 1.8, "scheduler"),
        Room("interop", "ONNX, PyTorch", 1.3),
    ],
    "replicas kept together": [
        Room("engine", "rounds and tasks", package="scheduler"),
        Room("batches", "order, prefetch", package="scheduler"),
        Room("replicas", "memory, resizing", package="scheduler"),
        Room("averaging", "graph rewriting", package="scheduler"),
        Room("decisions", "pure functions", package="scheduler"),
    ],
    "one step, run": [
        Room("models, data, training", "zoo, data sets, savers"),
        Room("runtime", "Session, executor"),
    ],
    "one step, compiled": [
        Room("compiler", "prune, place, plan memory", 2),
        Room("native", "llvmlite"),
        Room("gpu", "CUDA graphs"),
        Room("reference", "NumPy"),
        Room("null", "counts only"),
    ],
    "one step, described": [
        Room("program", "segments, groups", 1.2),
        Room("optimizers, layers", "updates, variables", 1.5),
        Room("gradients, variables", width=1.6),
        Room("ops", "spec, gradient, kernel", 1.5),
        Room("graph", width=0.8),
    ],
    "ground": [
        Room("devices", "streams, events: cpu, gpu, null", 2.4),
        Room("allocators", "best fit with coalescing", 2, "allocators"),
        Room("specs, errors", width=1.4),
    ],
}


def text(style: str, x: float, y: float, words: str) -> str:
    """A line of text."""
    return f'<text class="{style}" x="{x:.1f}" y="{y}">{words}</text>'


def floor(title: str, rooms: list[Room], top: int) -> list[str]:
    """The rooms of a floor, side by side."""
    lines = [text("floor", LEFT, top + 13, title)]
    share = (RIGHT - LEFT - GAP * (len(rooms) - 1)) / sum(room.width for room in rooms)
    x, y = float(LEFT), top + TITLE
    for room in rooms:
        width = share * room.width
        colour = f"var(--house-{room.package})"
        lines.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="5" '
            f'style="stroke:{colour};fill:{colour}"/>'
        )
        lines.append(text("name", x + width / 2, y + (26 if room.words else 35), room.name))
        if room.words:
            lines.append(text("what", x + width / 2, y + 44, room.words))
        x += width + GAP
    return lines


def main() -> None:
    """Writes house.svg beside this file."""
    step = TITLE + HEIGHT + GAP
    bottom = ROOF + 12 + len(FLOORS) * step + 10
    lines = [
        f'<svg class="house" viewBox="0 0 {WIDTH} {bottom + 4}" role="img" '
        'xmlns="http://www.w3.org/2000/svg" '
        'aria-label="Packages from the roof, your program and the command line, down to the ground, '
        'devices and allocators. Each floor imports from those below it.">',
        f'<path class="roof" d="M {WIDTH // 2} 10 L {WIDTH - 6} {ROOF} L 6 {ROOF} Z"/>',
        text("name", WIDTH / 2, 58, "your program"),
        text("what", WIDTH / 2, 78, "import tensorbow as tb &#160;·&#160; tensorbow train lenet"),
        f'<path class="wall" d="M {LEFT - 8} {ROOF} V {bottom} H {RIGHT + 8} V {ROOF}"/>',
    ]
    for number, (title, rooms) in enumerate(FLOORS.items()):
        lines += floor(title, rooms, ROOF + 12 + number * step)
    path = Path(__file__).with_name("house.svg")
    path.write_text("\n".join([*lines, "</svg>", ""]), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
