"""Variables of a session: allocated as its graph grows, and locked by the runs that touch them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from tensorbow.compiler import NeedsDynamicModeError
from tensorbow.errors import FailedPreconditionError
from tensorbow.graph import Graph
from tensorbow.ops.state import VariableReference
from tensorbow.runtime.device_variables import DeviceVariables
from tensorbow.runtime.named_containers import SharedVariables
from tensorbow.runtime.shared_lock import SharedLock
from tensorbow.runtime.step_cache import StepCache


class SessionVariables:
    """Allocates the variables of a session's graph; a run waits for those that write what it touches.

    The addresses in a compiled step are those of one `layout_version`; new variables may begin another.
    """

    def __init__(self, graph: Graph, devices: DeviceVariables, cache: StepCache):
        """cache: cleared where addresses change."""
        self.devices = devices
        self.shared = SharedVariables(devices)
        self.lock = SharedLock()  # by name
        self.layout_version = 0
        self.closing = False  # whether `close` of the session was called
        self._graph, self._cache = graph, cache
        self._graph_version = -1  # graph version whose variables are allocated

    def require_open(self) -> None:
        """Raises FailedPreconditionError if the session is closed, or about to be."""
        if self.closing:
            raise FailedPreconditionError("the session is closed; make a new one")

    @property
    def are_allocated(self) -> bool:
        """True if those of the whole graph are allocated."""
        return self._graph_version == self._graph.version

    def follow_graph(self) -> None:
        """Takes over operations added to the graph; waits for running steps only if variables are new."""
        seen = self._graph_version
        if seen == self._graph.version:
            return
        operations = self._graph.get_operations()
        if seen < 0 or any(op.definition is VariableReference for op in operations[seen:]):
            with self.lock.exclusive:
                self.require_open()
                self._grow()
        else:
            with self._cache.lock:
                self._graph_version = max(self._graph_version, len(operations))

    def _grow(self) -> None:
        """Allocates all variables of the graph and drops steps with old addresses. No step may be running."""
        with self._cache.lock:
            operations = self._graph.get_operations()
            variables = [op for op in operations if op.definition is VariableReference]
            if self.devices.grow(variables):
                self.layout_version += 1
                self._cache.clear()
            self.shared.grow(variables)
            self._graph_version = len(operations)

    def load(self, values: Mapping[str, Any]) -> None:
        """Sets variables by name from arrays. Raises NotFoundError, InvalidArgumentError."""
        with self.lock.exclusive:
            self.require_open()
            self._grow()
            with self.shared.held((), tuple(values)):
                self.devices.load(values)

    def require_values(self, names: Set[str], maybe: Set[str]) -> None:
        """Raises FailedPreconditionError for variables without a value.

        maybe: those that only branches and loops touch; the dynamic mode finds out whether these run.
        """
        if maybe:
            missing = self.devices.without_value(maybe)
            if missing:
                why = f"{', '.join(missing[:3])} has no value, and may not be needed"
                raise NeedsDynamicModeError(f"a compiled branch or loop: {why}", why, passing=True)
        self.devices.require_initialized(names)
