"""`replica_device_setter`: variables on parameter tasks, other ops on the worker (TensorFlow 1's name)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from tensorbow.cluster.cluster_spec import ClusterSpec
from tensorbow.devices import DeviceName
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation
from tensorbow.kinds import FUNCTION, Count, Flag, Kind, Names, Text, checked, optional
from tensorbow.ops.host_variables import VARIABLES
from tensorbow.ops.state import VariableReference


def _read_cluster(value: Any) -> ClusterSpec:
    return value if isinstance(value, ClusterSpec) else ClusterSpec(value)


AsCluster: TypeAlias = Annotated[
    Any, optional(Kind("a tb.train.ClusterSpec, or a dictionary of addresses by job", _read_cluster))
]
Strategy: TypeAlias = Annotated["Callable[[Operation], int] | None", optional(FUNCTION)]


@checked
def replica_device_setter(
    ps_tasks: Count = 0,
    ps_device: Text = "/job:ps",
    worker_device: Text = "/job:worker",
    merge_devices: Flag = True,
    cluster: AsCluster = None,
    ps_ops: Names | None = None,
    ps_strategy: Strategy = None,
) -> Callable[[Operation], str] | None:
    """A function for `tb.device`: variables take turns on the parameter tasks, other ops are the worker's.

    ps_tasks: their number; cluster: takes it from the job of ps_device instead. ps_ops: types of the ops
    that go to parameter tasks, by default variables; slots of optimisers follow their variables. ps_strategy:
    gives the number of the task for an op; by default round robin. merge_devices: must be True, as scopes
    merge.

    Returns None without parameter tasks. Raises InvalidArgumentError.
    """
    if not merge_devices:
        raise InvalidArgumentError(
            "replica_device_setter: merge_devices=False is not supported; leave it out"
        )
    home = DeviceName.parse(ps_device)
    DeviceName.parse(worker_device)
    if cluster is not None:
        if home.job is None or home.job not in cluster.jobs:
            raise InvalidArgumentError(
                f"replica_device_setter: expected a job of the cluster as ps_device, got {ps_device!r}; "
                f"its jobs are: {', '.join(cluster.jobs)}"
            )
        ps_tasks = cluster.num_tasks(home.job)
    if not ps_tasks:
        return None
    types = frozenset(ps_ops if ps_ops is not None else [each.name for each in VARIABLES])
    turns: dict[str, int] = {}  # by name of the op: a scope's function may be asked again

    def chosen(op: Operation) -> str:
        if op.type not in types:
            return worker_device
        if op.definition is VariableReference and (op.attrs["slot_of"] or op.colocation):
            return ""  # follows its variable
        if op.name not in turns:
            turns[op.name] = len(turns) % ps_tasks if ps_strategy is None else int(ps_strategy(op))
        return str(home.merge(DeviceName(task=turns[op.name])))

    return chosen
