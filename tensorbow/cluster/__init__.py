"""Graphs over processes: tasks at addresses run their parts of a step and send values to one another.

`ClusterSpec` names the tasks, `Server` makes this process one of them, `tb.Session(server.target)` runs
graphs on them (TensorFlow white paper, section 3.3; TF-Replicator, section 2.1). The session of the client
places and prunes a step and sends it to the tasks once; they cut it alike and compile their parts. A run then
costs each task one message and one answer, and the tasks send values to one another directly, by run and
stage. A step in the dynamic mode is cut by the session: `StepCut`; the dynamic executor of each task runs its
part.

Messages are JSON and raw arrays over TCP, between processes that know one secret token.
"""

from tensorbow.cluster.cluster_spec import ClusterSpec
from tensorbow.cluster.device_setter import replica_device_setter
from tensorbow.cluster.server import Server

__all__ = ["ClusterSpec", "Server", "replica_device_setter"]
