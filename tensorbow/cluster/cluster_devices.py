"""Devices of a cluster's tasks, as placement of ops sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tensorbow.cluster.links import Links
from tensorbow.compiler import DeviceSet
from tensorbow.devices import DeviceName


@dataclass(frozen=True)
class DeviceElsewhere:
    """A device of a task, as placement sees it."""

    name: DeviceName
    kind: str
    compute: str = "fp32"  # the task's own precision counts when it compiles


class ClusterDevices(DeviceSet):
    """The devices of a cluster: those that its tasks list, and any virtual CPU device of them."""

    def __init__(self, links: Links):
        self._links = links
        self._listed: set[str] = set()
        home = self._of_task(links.home.name)[0]
        super().__init__(home, self._of_task(links.home.name)[1:])

    def _of_task(self, task: str) -> list[Any]:
        self._listed.add(task)
        names = [DeviceName.parse(name) for name in self._links.link(task).devices]
        return [DeviceElsewhere(name, (name.kind or "").lower()) for name in names]

    def matching(self, wish: DeviceName) -> list[Any]:
        """Devices that match a full or partial name; asks tasks that match for theirs, in order."""
        if wish.job is None and wish.task is None:
            wish = replace(wish, job=self.home.name.job, task=self.home.name.task)
        for task in self._links.tasks():
            name = DeviceName.parse(task)
            if wish.job not in (None, name.job) or wish.task not in (None, name.task):
                continue
            if task not in self._listed:
                self._devices += self._of_task(task)
            found = super().matching(replace(wish, job=name.job, task=name.task))
            if not found and wish.kind == "CPU" and wish.index is not None:
                found = [DeviceElsewhere(replace(wish, job=name.job, task=name.task), "cpu")]  # type: ignore[list-item]
                self._devices += found
            if found:
                return list(found)
        return []

    def __str__(self) -> str:
        return f"tasks {', '.join(self._links.tasks())} with their devices"
