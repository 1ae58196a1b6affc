"""A count of the fed shapes that a step was compiled for: each new one costs a compilation."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tensorbow.graph import Tensor, warn_at_user_line
from tensorbow.specs import render_dims

MANY_SHAPES = 16  # of one step, with which a session warns
REMEMBERED = 256  # steps whose shapes are counted


class ShapeCounts:
    """Shapes by step; warns once if there are `MANY_SHAPES` of one."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._told = False

    def add(self, fetched: Hashable, shapes: Mapping[Tensor, tuple[int, ...]]) -> None:
        """Counts a new compilation of a step. fetched: its fetches; shapes: those of its feeds."""
        if self._told or not shapes:
            return
        if len(self._counts) >= REMEMBERED:
            self._counts.clear()
        key = fetched, frozenset(shapes)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if count < MANY_SHAPES:
            return
        self._told = True
        fed = ", ".join(f"{tensor.name} {render_dims(extents)}" for tensor, extents in shapes.items())
        warn_at_user_line(
            f"session: one step has been compiled for {count} different shapes of its feeds, now {fed}; each "
            "new shape is compiled anew: pad the batches to one length, or to a few (buckets), and mask the "
            "rest; drop_remainder=True of a Dataset's batch leaves the last, shorter batch out"
        )
