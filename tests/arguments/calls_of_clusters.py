"""A good call of servers and what describes clusters, for the walk over odd arguments."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

CLUSTER = {"ps": ["127.0.0.1:1", "127.0.0.1:2"]}
OF_SUPERVISORS = {
    **{"master": "text", "config": "nothing", "max_wait_secs": "number"},
    **dict.fromkeys(("start_standard_services", "wait_for_checkpoint"), "flag"),
}

PIECES = ("init_op", "local_init_op", "ready_op", "ready_for_local_init_op", "global_step")


def supervisor(method: str) -> Any:
    tb.Variable(np.ones(2, np.float32), name="w")
    return getattr(tb.train.Supervisor(), method)


CALLS: Mapping[str, Call] = {
    "train.ClusterSpec": Call(
        lambda: {"cluster": CLUSTER}, {"cluster": "mapping"}, names=("address", "device name")
    ),
    **{
        f"ClusterSpec.{method}": Call(
            lambda: {"job_name": "ps"},
            {"job_name": "text"},
            target=lambda method=method: getattr(tb.train.ClusterSpec(CLUSTER), method),
            names=("ClusterSpec",),
        )
        for method in ("num_tasks", "task_indices", "job_tasks")
    },
    "ClusterSpec.task_address": Call(
        lambda: {"job_name": "ps", "task_index": 1},
        {"job_name": "text", "task_index": "count"},
        target=lambda: tb.train.ClusterSpec(CLUSTER).task_address,
        names=("ClusterSpec",),
    ),
    "train.Server": Call(
        lambda: {"server_or_cluster_def": CLUSTER, "task_index": 1, "start": False},
        {
            **{"server_or_cluster_def": "object", "job_name": "name", "task_index": "count"},
            **{"protocol": "nothing", "config": "nothing", "start": "flag", "token": "name"},
        },
        names=("ClusterSpec", "address", "device name"),
    ),
    "Server.create_local_server": Call(lambda: {"start": False}, {"config": "nothing", "start": "flag"}),
    "train.replica_device_setter": Call(
        lambda: {"ps_tasks": 2},
        {
            **{"ps_tasks": "count", "ps_device": "text", "worker_device": "text", "merge_devices": "flag"},
            **{"cluster": "mapping or none", "ps_ops": "elements", "ps_strategy": "function or none"},
        },
        names=("device name", "ClusterSpec", "address"),
    ),
    "train.Supervisor": Call(
        lambda: {"logdir": tempfile.mkdtemp()},
        {
            **{"graph": "nothing", "is_chief": "flag", "logdir": "text or none", "saver": "nothing"},
            **dict.fromkeys(PIECES, "nothing"),
            **dict.fromkeys(("summary_op", "summary_writer", "session_manager"), "nothing"),
            **dict.fromkeys(("recovery_wait_secs", "save_summaries_secs", "save_model_secs"), "number"),
            **{"checkpoint_basename": "text", "init_fn": "function or none", "stop_grace_secs": "number"},
            **{"init_feed_dict": "mapping or none", "local_init_run_options": "nothing"},
        },
        {
            **dict.fromkeys(PIECES, frozenset({"tensor", "variable"})),
            **{"graph": frozenset({"graph"}), "logdir": frozenset({"path"})},
        },
    ),
    "Supervisor.prepare_or_wait_for_session": Call(
        dict,
        OF_SUPERVISORS,
        target=lambda: supervisor("prepare_or_wait_for_session"),
        names=("Supervisor", "Session"),
    ),
    "Supervisor.managed_session": Call(
        dict,
        {**OF_SUPERVISORS, "close_summary_writer": "flag"},
        target=lambda: supervisor("managed_session"),
        names=("Supervisor", "Session"),
    ),
    "Supervisor.stop": Call(
        dict,
        {"threads": "anything", "close_summary_writer": "flag", "ignore_live_threads": "flag"},
        target=lambda: supervisor("stop"),
    ),
    "Supervisor.request_stop": Call(dict, {"ex": "anything"}, target=lambda: supervisor("request_stop")),
}
