"""Named containers: variables that the sessions of a process share by name (TensorFlow's `tf.container`).

The process keeps one value of each shared variable per device. A session works on a copy in its own
memory, at the addresses of its compiled steps. It copies the shared values in before a step that reads them
and out after a step that writes them, both under the container's lock. So a step sees and leaves consistent
values, and a failed step leaves the shared values unchanged.

Each replica has its own variables, so replicated training refuses variables of a named container.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import Operation
from tensorbow.queues.queue_ops import forget_shared, shared_containers
from tensorbow.runtime.device_variables import DeviceVariables
from tensorbow.runtime.shared_lock import SharedLock
from tensorbow.specs import Array, render_dims


@dataclass(eq=False)
class _Store:
    """Shared values of one container on one device; `lock` guards the dictionaries."""

    key: tuple[str, str]  # (device, container): locks are taken in this order
    lock: SharedLock = field(default_factory=SharedLock)
    values: dict[str, Array] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)  # of each value; every write has a new number


_stores: dict[tuple[str, str], _Store] = {}
_stores_lock = threading.Lock()
_writes = itertools.count(1)


def _store(device: str, container: str) -> _Store:
    with _stores_lock:
        return _stores.setdefault((device, container), _Store((device, container)))


def reset_containers(containers: Sequence[str] | None = None) -> None:
    """Removes variables' values and closes shared queues of these containers (None: all).

    Waits for running steps.

    Raises NotFoundError, before resetting any, for a container that no session has used.
    """
    with _stores_lock:
        known = {container for _, container in _stores} | shared_containers()
        missing = [name for name in containers or () if name not in known]
        if missing:
            there = ", ".join(sorted(known)) or "none"
            raise NotFoundError(f"reset: there is no container '{missing[0]}'; there are: {there}")
        chosen = [s for (_, name), s in sorted(_stores.items()) if not containers or name in containers]
    forget_shared(containers)
    for store in chosen:
        with store.lock.exclusive:
            store.values.clear()
            store.versions.clear()


class SharedVariables:
    """A session's access to named containers. The caller does the locking, as for `DeviceVariables`."""

    def __init__(self, variables: DeviceVariables):
        self._variables = variables
        self._seen: dict[str, int] = {}  # version of the session's copy
        self.stores: dict[str, _Store] = {}  # by variable

    def grow(self, variables: Iterable[Operation]) -> None:
        """Registers new variables of named containers that have a device."""
        for variable in variables:
            container, device = variable.attrs["container"], self._variables.placement.get(variable)
            if container and device is not None and variable.name not in self.stores:
                self.stores[variable.name] = _store(str(device.name), container)

    def touched_by(self, reads: Collection[str], writes: Collection[str]) -> bool:
        """True if a step that reads and writes these variables touches a shared one."""
        return bool(self.stores) and not self.stores.keys().isdisjoint((*reads, *writes))

    @contextmanager
    def held(self, reads: Collection[str], writes: Collection[str]) -> Iterator[None]:
        """Context of a step that reads and writes these variables: locks them and copies current values in.

        Copies written values out at the end, unless the block raises. The caller's session runs nothing else
        meanwhile. Raises InvalidArgumentError if another session's variable has another shape or dtype.
        """
        mine = {name: store for name in (*reads, *writes) if (store := self.stores.get(name)) is not None}
        written = [name for name in writes if name in mine]
        to_write = {mine[name] for name in written}
        with ExitStack() as stack:
            for store in sorted(set(mine.values()), key=lambda store: store.key):
                stack.enter_context(store.lock.exclusive if store in to_write else store.lock.shared)
            for name, store in mine.items():
                self._require_same(name, store)
            for name in reads:
                if name in mine:
                    self._take(name, mine[name])
            try:
                yield
            except BaseException:
                for name in written:
                    self._seen.pop(name, None)  # the copy may be half written: take it anew
                raise
            for name in written:
                self._hand_over(name, mine[name])

    def _require_same(self, name: str, store: _Store) -> None:
        value, ref = store.values.get(name), self._variables.of(name).layout.ref(name)
        if value is not None and (value.shape != ref.shape or value.dtype != ref.dtype.as_numpy_dtype):
            raise InvalidArgumentError(
                f"variable {name} of container '{store.key[1]}' is "
                f"{value.dtype.name}{render_dims(value.shape)} in another session, here it is "
                f"{ref.dtype.name}{render_dims(ref.shape)}; use another container or name, or Session.reset"
            )

    def _take(self, name: str, store: _Store) -> None:
        container = self._variables.of(name)
        version = store.versions.get(name)
        if version is None:
            container.initialized.discard(name)
            self._seen.pop(name, None)
        elif self._seen.get(name) != version:
            container.write(name, store.values[name])
            container.initialized.add(name)
            self._seen[name] = version

    def _hand_over(self, name: str, store: _Store) -> None:
        store.values[name] = self._variables.of(name).read(name)
        self._seen[name] = store.versions[name] = next(_writes)
