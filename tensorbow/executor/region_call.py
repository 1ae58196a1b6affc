"""Calls of compiled regions whose inputs and results the host addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.program import BoundPlan, Executable
from tensorbow.specs import Array


class RegionCall:
    """A compiled region, and what a call of it copies."""

    def __init__(
        self,
        executable: Executable,
        inputs: Sequence[tuple[int, str]],
        homes: Sequence[tuple[Array, bool] | None],
    ):
        """inputs: number and name of those that are written. homes: of each result the array that it is to
        lie in, and if it is made there; None for a new array in each call."""
        self.executable, self.inputs, self.state = executable, inputs, tuple(executable.state)
        self._segments = range(len(executable.segments))
        self._new = [(ref.shape, ref.dtype.as_numpy_dtype) for ref in executable.fetch_sources]
        self._homes = [(index, *home) for index, home in enumerate(homes) if home is not None]

    def launch(self, plan: BoundPlan) -> list[Array]:
        """Launches a bound region; its results in their homes, or in new arrays."""
        made = [np.empty(shape, dtype) for shape, dtype in self._new] if not self._homes else self._placed()
        targets: list[Array | None] = [*made]
        for index, _, is_there in self._homes:
            if is_there:
                targets[index] = None
        for segment in self._segments:
            plan.launch_into(segment, targets)
        return made

    def _placed(self) -> list[Array]:
        homes = {index: home for index, home, _ in self._homes}
        return [
            homes[index] if index in homes else np.empty(shape, dtype)
            for index, (shape, dtype) in enumerate(self._new)
        ]
