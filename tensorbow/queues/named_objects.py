"""Objects that sessions share by name, such as queues: those of the process, or of a task of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from tensorbow.errors import InvalidArgumentError


class NamedObjects:
    """Objects by container and name. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], tuple[object, Any]] = {}  # settings, and the object

    def get(self, container: str, name: str, make: Callable[[], Any], settings: object) -> Any:
        """The object of that name; made on first use.

        Raises InvalidArgumentError if it was made with other settings.
        """
        with self._lock:
            if (container, name) not in self._held:
                self._held[container, name] = (settings, make())
            known, value = self._held[container, name]
        if known != settings:
            raise InvalidArgumentError(
                f"shared_name '{name}' belongs to an object made with other settings: {known}, here "
                f"{settings}; choose another shared_name"
            )
        return value

    def containers(self) -> set[str]:
        """Names of the containers that have objects."""
        with self._lock:
            return {container for container, _ in self._held}

    def forget(self, containers: Collection[str] | None) -> None:
        """Closes the objects of these containers (None: of all); the next use makes new ones."""
        with self._lock:
            chosen = [key for key in self._held if not containers or key[0] in containers]
            closed = [self._held.pop(key)[1] for key in chosen]
        for each in closed:
            each.close()
