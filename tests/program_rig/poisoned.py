"""Steps run directly by compiler and backend, in memory that is filled with NaN before every launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.compiler import Binding, VariableLayout, compile_step
from tensorbow.devices import get_device
from tensorbow.kernels import backend_for
from tensorbow.program import Executable, Region
from tensorbow.program.nodes import SplitStep, Variant
from tensorbow.runtime import Container
from tensorbow.specs import TensorSpec, as_dtype


def update_only(step: SplitStep) -> list[Variant]:
    """Cuts a step before its update."""
    return [Variant("update", step.update, predicated=step.guarded)]


POISONED = (Region.SLAB, Region.GRADIENTS, Region.RING, Region.INPUT)


class PoisonedStep:
    """One step with its variables, on the calling thread. Close it."""

    def __init__(self, fetches: Sequence[Any], feeds: Mapping[Any, Any], **options: Any):
        self.device = get_device("/cpu:0")
        graph = next(f.graph for f in (*fetches, *feeds))
        self.feeds = feeds
        elements = [f._as_graph_element() if hasattr(f, "_as_graph_element") else f for f in fetches]
        specs = {t: TensorSpec(np.shape(v), as_dtype(np.asarray(v).dtype)) for t, v in feeds.items()}
        self.layout = VariableLayout.of_graph(graph)
        self.executable: Executable = compile_step(
            elements, specs, self.layout, backend_for(self.device), **options
        )
        self.group = self.device.stream_group(f"poisoned {id(self)}")
        try:
            self.container = Container(self.group, "poisoned")
            self.container.grow(self.layout.variables)
            self.binding = Binding(self.executable, self.group, self.container.bases)
        except BaseException:
            self.group.close()
            raise

    def poison(self) -> None:
        for region in POISONED:
            nbytes = self.executable.region_nbytes.get(region, 0)
            if nbytes:
                self.device.view(self.binding.bases[region], (nbytes,), np.uint8)[...] = 0xFF

    def run(self, **state: Any) -> list[np.ndarray]:
        self.poison()
        self.binding.write({t.name: v for t, v in self.feeds.items()}, state)
        for segment in range(len(self.executable.segments)):
            self.binding.plan.launch(segment)
        return [view.copy() for view in self.binding.plan.fetch_arrays(0)]

    def close(self) -> None:
        self.binding.close()
        self.container.close()
        self.group.close()

    def state(self, key: str) -> Any:
        """Value of a step scalar in memory."""
        ref = self.executable.state[key]
        address = self.binding.bases[Region.STATE] + ref.offset
        return self.device.read(address, ref.shape, ref.dtype.as_numpy_dtype)[()]

    def __enter__(self) -> PoisonedStep:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
