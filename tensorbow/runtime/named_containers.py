"""Named containers: variables that the sessions of a process share by name (TensorFlow, `tf.container`).

The process keeps one value of each shared variable per device. A session works on a copy in its own
memory, where its compiled steps find it: before a step it takes what others have written, after a step that
writes it hands the new value over, both under the container's lock. So a step sees and leaves whole states,
and one that fails leaves the shared value as it was.

Replicas have variables of their own: a step they learn refuses those of a named container.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import Operation
from tensorbow.runtime.device_variables import DeviceVariables
from tensorbow.runtime.shared_lock import SharedLock
from tensorbow.specs import Array, render_dims


@dataclass(eq=False)
class _Store:
    """The shared values of one container on one device; `lock` owns the tables."""

    key: tuple[str, str]  # (device, container): the order in which locks are taken
    lock: SharedLock = field(default_factory=SharedLock)
    values: dict[str, Array] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)  # each write has a number of its own


_stores: dict[tuple[str, str], _Store] = {}
_stores_lock = threading.Lock()
_writes = itertools.count(1)


def _store(device: str, container: str) -> _Store:
    with _stores_lock:
        return _stores.setdefault((device, container), _Store((device, container)))


def reset_containers(containers: Sequence[str] | None = None) -> None:
    """Takes the values away from all variables of these containers, or of all; waits for running steps.

    Raises NotFoundError, before any is reset, for a container that no session has used.
    """
    with _stores_lock:
        known = {container for _, container in _stores}
        missing = [name for name in containers or () if name not in known]
        if missing:
            there = ", ".join(sorted(known)) or "none"
            raise NotFoundError(f"reset: there is no container '{missing[0]}'; there are: {there}")
        chosen = [s for (_, name), s in sorted(_stores.items()) if not containers or name in containers]
    for store in chosen:
        with store.lock.exclusive:
            store.values.clear()
            store.versions.clear()


class SharedVariables:
    """A session's view of the containers its graph names. Guarded by who calls, like `DeviceVariables`."""

    def __init__(self, variables: DeviceVariables):
        self._variables = variables
        self._seen: dict[str, int] = {}  # the version that the session's copy has
        self.stores: dict[str, _Store] = {}  # by variable

    def grow(self, variables: Iterable[Operation]) -> None:
        """Takes note of variables that are new and have a place."""
        for variable in variables:
            container, device = variable.attrs["container"], self._variables.places.get(variable)
            if container and device is not None and variable.name not in self.stores:
                self.stores[variable.name] = _store(str(device.name), container)

    def touched_by(self, reads: Collection[str], writes: Collection[str]) -> bool:
        """Whether a step on these variables needs a shared one."""
        return bool(self.stores) and not self.stores.keys().isdisjoint((*reads, *writes))

    @contextmanager
    def held(self, reads: Collection[str], writes: Collection[str]) -> Iterator[None]:
        """For a step that reads and writes these variables: they are current, and other sessions wait.

        What was written is handed over at the end, unless the block raises. The caller runs alone in its
        session. Raises InvalidArgumentError when another session's variable has another shape or dtype.
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
                    self._seen.pop(name, None)  # the copy may be half written
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
