"""ClusterSpec: the addresses of all tasks, by job (TensorFlow 1's name)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from tensorbow.devices import DeviceName
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.kinds import Kind, RefusedError, Text, checked, whole

_EXPECTED = "a dictionary of addresses by job, as {'ps': ['host:2222'], 'worker': ['host:2223']}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address such as `host:2222` or `[::1]:2222`. Raises InvalidArgumentError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise InvalidArgumentError(
            f"address: expected host:port, as 'localhost:2222', with a port below 65536, got {address!r:.80}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def task_name(job: str, task: int) -> str:
    """The name of a task in device names, as `/job:ps/task:0`."""
    return f"/job:{job}/task:{task}"


def _read_jobs(value: Any) -> dict[str, dict[int, str]]:
    if isinstance(value, ClusterSpec):
        return {job: dict(tasks) for job, tasks in value._jobs.items()}
    if not isinstance(value, Mapping):
        raise RefusedError
    jobs: dict[str, dict[int, str]] = {}
    for job, tasks in value.items():
        if not isinstance(job, str):
            raise RefusedError
        DeviceName(job=job)
        numbered = tasks if isinstance(tasks, Mapping) else None
        if numbered is None:
            if not isinstance(tasks, (list, tuple)):
                raise RefusedError
            numbered = dict(enumerate(tasks))
        for task, address in numbered.items():
            if (
                not isinstance(task, int)
                or isinstance(task, bool)
                or task < 0
                or not isinstance(address, str)
            ):
                raise RefusedError
            split_address(address)
        jobs[job] = dict(sorted(numbered.items()))
    return jobs


AsJobs: TypeAlias = Annotated[Any, Kind(_EXPECTED, _read_jobs)]
TaskIndex: TypeAlias = Annotated[int, whole(0)]


class ClusterSpec:
    """The tasks of a cluster: for each job a list of `host:port`, or a dictionary of them by task number."""

    @checked
    def __init__(self, cluster: AsJobs):
        """cluster: a dictionary by job, or another ClusterSpec. Raises InvalidArgumentError."""
        self._jobs: dict[str, dict[int, str]] = cluster
        addresses = [address for tasks in self._jobs.values() for address in tasks.values()]
        twice = next((a for a in addresses if addresses.count(a) > 1 and split_address(a)[1]), None)
        if twice is not None:
            raise InvalidArgumentError(f"ClusterSpec: expected an address for each task, got {twice!r} twice")

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, sorted."""
        return sorted(self._jobs)

    def _tasks(self, job: str) -> dict[int, str]:
        if job not in self._jobs:
            raise NotFoundError(
                f"ClusterSpec: no job {job!r:.80}; there are: {', '.join(self.jobs) or 'none'}"
            )
        return self._jobs[job]

    @checked
    def num_tasks(self, job_name: Text) -> int:
        """The number of tasks of a job. Raises NotFoundError for an unknown job."""
        return len(self._tasks(job_name))

    @checked
    def task_indices(self, job_name: Text) -> list[int]:
        """The numbers of a job's tasks. Raises NotFoundError for an unknown job."""
        return list(self._tasks(job_name))

    @checked
    def task_address(self, job_name: Text, task_index: TaskIndex) -> str:
        """The `host:port` of a task. Raises NotFoundError for an unknown job or task."""
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise NotFoundError(
                f"ClusterSpec: job {job_name!r} has no task {task_index}; there are: "
                f"{', '.join(map(str, tasks))}"
            )
        return tasks[task_index]

    @checked
    def job_tasks(self, job_name: Text) -> list[str | None]:
        """The addresses of a job's tasks by number, None for numbers that are left out."""
        tasks = self._tasks(job_name)
        return [tasks.get(task) for task in range(max(tasks, default=-1) + 1)]

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """The addresses by job: lists, and dictionaries for jobs that leave numbers out."""
        return {
            job: list(tasks.values()) if list(tasks) == list(range(len(tasks))) else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    def tasks(self) -> dict[str, str]:
        """The address of each task, by its name as `/job:ps/task:0`."""
        return {
            task_name(job, task): address
            for job, tasks in self._jobs.items()
            for task, address in tasks.items()
        }

    def __eq__(self, other: object) -> bool:
        return self._jobs == other._jobs if isinstance(other, ClusterSpec) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"
