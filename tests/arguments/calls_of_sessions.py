"""A good call of sessions, hooks and the global step, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

GRAPH = frozenset({"graph"})
FETCHED = frozenset({"text", "empty text", "str subclass", "tensor", "empty list", "empty dict", "variable"})
DEVICE = frozenset({"text", "empty text", "str subclass"})


def session(method: str) -> Any:
    tb.Variable(np.ones(2, np.float32), name="w")
    tb.constant(1.0, name="known")
    return getattr(tb.Session(), method)


def begun() -> Any:
    """`partial_run` of a session that takes any handle for that of a new partial run."""
    made = session("partial_run").__self__

    class AnyHandle(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return super().get(made.partial_run_setup("known:0"))

    made._partial_runs = AnyHandle()
    return made.partial_run


def traced() -> Any:
    """`place_again` of a session that takes the times of any run."""
    made = tb.Session(placement="greedy")
    made._greedy.measure = lambda *_: 1
    return made.place_again


def monitored(method: str) -> Any:
    tb.Variable(np.ones(2, np.float32), name="w")
    tb.constant(1.0, name="known")
    return getattr(tb.train.MonitoredSession(), method)


def replicated(method: str) -> Any:
    tb.constant(1.0, name="known")
    return getattr(tb.TensorBowSession(), method)


RUN: Mapping[str, Any] = {"fetches": "known:0"}

CALLS: Mapping[str, Call] = {
    "Session": Call(
        dict,
        {
            "target": "text",
            "graph": "nothing",
            "config": "nothing",
            "device": "object",
            "devices": "nothing",
            "allow_soft_placement": "flag",
            "placement": "text",
        },
        {"graph": GRAPH, "device": DEVICE, "devices": frozenset({"empty list"})},
        names=("device",),
    ),
    "InteractiveSession": Call(
        dict,
        {"target": "fill", "graph": "nothing", "config": "nothing"},
        {"graph": GRAPH},
    ),
    "ConfigProto": Call(
        dict,
        {
            **dict.fromkeys(
                ("allow_soft_placement", "log_device_placement", "compiles_loops", "lossy_transfers"), "flag"
            ),
            **dict.fromkeys(("intra_op_parallelism_threads", "inter_op_parallelism_threads"), "count"),
            "operation_timeout_in_ms": "count",
            **dict.fromkeys(("recompute", "swap"), "text"),
            "device_count": "mapping",
            "gpu_options": "object",
            "graph_options": "object",
        },
    ),
    "GPUOptions": Call(
        dict,
        {
            "per_process_gpu_memory_fraction": "fraction",
            "allow_growth": "flag",
            "visible_device_list": "text",
            "allocator_type": "fill",
        },
    ),
    "GraphOptions": Call(dict, {"optimizer_options": "object"}),
    "OptimizerOptions": Call(
        dict,
        {
            **dict.fromkeys(
                ("do_common_subexpression_elimination", "do_constant_folding", "do_function_inlining"), "flag"
            ),
            **dict.fromkeys(("opt_level", "global_jit_level"), "axis"),
        },
        dict.fromkeys(("opt_level", "global_jit_level"), frozenset({"2**40"})),
    ),
    "RunOptions": Call(
        dict,
        {
            **dict.fromkeys(("trace_level", "timeout_in_ms"), "count"),
            **dict.fromkeys(("report_tensor_allocations_upon_oom", "output_partition_graphs"), "flag"),
        },
    ),
    **{
        f"{kind}.{method}": Call(
            lambda: RUN,
            {
                **{"fetches": "object", "feed_dict": "nothing", "feed_list": "nothing"},
                **{"options": "nothing", "run_metadata": "nothing"},
            },
            {
                "fetches": FETCHED,
                "feed_dict": frozenset({"empty dict"}),
                "feed_list": frozenset({"empty list"}),
            },
            target=lambda make=make, method=method: make(method),
        )
        for kind, make, methods in (
            ("Session", session, ("run", "explain", "make_callable")),
            ("MonitoredSession", monitored, ("run",)),
            ("TensorBowSession", replicated, ("explain",)),
        )
        for method in methods
    },
    "Session.partial_run_setup": Call(
        lambda: {"fetches": "known:0"},
        {"fetches": "object", "feeds": "nothing"},
        {"fetches": FETCHED, "feeds": frozenset({"empty list"})},
        target=lambda: session("partial_run_setup"),
    ),
    "Session.partial_run": Call(
        lambda: {"handle": "partial-run-0", "fetches": "known:0"},
        {"handle": "text", "fetches": "object", "feed_dict": "nothing"},
        {"fetches": FETCHED, "feed_dict": frozenset({"empty dict"})},
        target=lambda: begun(),
    ),
    "Session.load_variables": Call(
        lambda: {"values": {"w": [1.0, 2.0]}},
        {"values": "object"},
        {"values": frozenset({"empty dict"})},
        target=lambda: session("load_variables"),
    ),
    "Session.place_again": Call(
        lambda: {"run_metadata": tb.RunMetadata()}, {"run_metadata": "object"}, target=lambda: traced()
    ),
    "MonitoredSession.load_variables": Call(
        lambda: {"values": {"w": [1.0, 2.0]}},
        {"values": "object"},
        {"values": frozenset({"empty dict"})},
        target=lambda: monitored("load_variables"),
    ),
    "MonitoredSession.on_close": Call(
        lambda: {"callback": lambda: None},
        {"callback": "object"},
        {"callback": frozenset({"function", "class"})},
        target=lambda: monitored("on_close"),
    ),
    "Session.reset": Call(
        dict,
        {"target": "text", "containers": "nothing"},
        {"containers": frozenset({"empty list"})},
    ),
    "train.MonitoredSession": Call(
        dict,
        {
            **{"hooks": "object", "target": "text", "graph": "nothing"},
            **{"is_chief": "flag", "max_wait_secs": "number or none", "session_creator": "nothing"},
            "stop_grace_period_secs": "number",
        },
        {"graph": GRAPH, "hooks": frozenset({"empty list"})},
        names=("Session",),
    ),
    "train.MonitoredTrainingSession": Call(
        dict,
        {
            "checkpoint_dir": "text or none",
            "hooks": "object",
            "save_checkpoint_secs": "nothing",
            "save_checkpoint_steps": "nothing",
            **{"master": "text", "target": "text", "is_chief": "flag", "max_wait_secs": "number"},
            "stop_grace_period_secs": "number",
            "graph": "nothing",
            "scaffold": "nothing",
            "chief_only_hooks": "object",
            **dict.fromkeys(("save_summaries_steps", "save_summaries_secs"), "nothing"),
            "log_step_count_steps": "count or none",
            "summary_dir": "text or none",
        },
        {
            "graph": GRAPH,
            **dict.fromkeys(("hooks", "chief_only_hooks"), frozenset({"empty list", "empty tuple"})),
            **dict.fromkeys(("checkpoint_dir", "summary_dir"), frozenset({"path"})),
        },
        names=("Session", "checkpoint_dir"),
    ),
    "train.Scaffold": Call(
        dict,
        {
            **dict.fromkeys(("init_op", "local_init_op", "ready_op", "ready_for_local_init_op"), "nothing"),
            **dict.fromkeys(("init_feed_dict", "local_init_feed_dict"), "names or none"),
            **{"init_fn": "function or none", "summary_op": "nothing", "saver": "nothing"},
            "copy_from_scaffold": "nothing",
        },
        dict.fromkeys(
            ("init_op", "local_init_op", "ready_op", "ready_for_local_init_op"), frozenset({"tensor"})
        ),
    ),
    "Scaffold.get_or_default": Call(
        lambda: {"arg_name": "init_op", "collection_key": "init_op", "default_constructor": tb.no_op},
        {"arg_name": "text", "collection_key": "text", "default_constructor": "function"},
    ),
    "train.ChiefSessionCreator": Call(
        dict,
        {
            **{"scaffold": "nothing", "master": "text", "config": "nothing", "max_wait_secs": "number"},
            **dict.fromkeys(("checkpoint_dir", "checkpoint_filename_with_path"), "text or none"),
        },
        dict.fromkeys(("checkpoint_dir", "checkpoint_filename_with_path"), frozenset({"path"})),
    ),
    "train.WorkerSessionCreator": Call(
        dict, {"scaffold": "nothing", "master": "text", "config": "nothing", "max_wait_secs": "number"}
    ),
    "train.SessionManager": Call(
        dict,
        {
            **dict.fromkeys(("local_init_op", "ready_op", "ready_for_local_init_op", "graph"), "nothing"),
            **{"recovery_wait_secs": "number", "local_init_run_options": "nothing"},
            "local_init_feed_dict": "mapping or none",
        },
        {
            **dict.fromkeys(("local_init_op", "ready_op", "ready_for_local_init_op"), frozenset({"tensor"})),
            "graph": frozenset({"graph"}),
        },
    ),
    "SessionManager.prepare_session": Call(
        lambda: {"master": "", "init_op": tb.no_op()},
        {
            **{"master": "text", "init_op": "object", "saver": "nothing", "wait_for_checkpoint": "flag"},
            **dict.fromkeys(("checkpoint_dir", "checkpoint_filename_with_path"), "text or none"),
            **{"max_wait_secs": "number", "config": "nothing", "init_feed_dict": "mapping or none"},
            "init_fn": "function or none",
        },
        {
            **dict.fromkeys(("checkpoint_dir", "checkpoint_filename_with_path"), frozenset({"path"})),
            "init_op": frozenset({"tensor"}),
        },
        target=lambda: tb.train.SessionManager().prepare_session,
        names=("SessionManager", "Session"),
    ),
    "SessionManager.recover_session": Call(
        lambda: {"master": ""},
        {
            **{"master": "text", "saver": "nothing", "wait_for_checkpoint": "flag"},
            **dict.fromkeys(("checkpoint_dir", "checkpoint_filename_with_path"), "text or none"),
            **{"max_wait_secs": "number", "config": "nothing"},
        },
        dict.fromkeys(("checkpoint_dir", "checkpoint_filename_with_path"), frozenset({"path"})),
        target=lambda: tb.train.SessionManager().recover_session,
        names=("SessionManager", "Session"),
    ),
    "SessionManager.wait_for_session": Call(
        lambda: {"master": ""},
        {"master": "text", "config": "nothing", "max_wait_secs": "number"},
        target=lambda: tb.train.SessionManager().wait_for_session,
        names=("SessionManager", "Session"),
    ),
    "train.CheckpointSaverHook": Call(
        lambda: {"checkpoint_dir": "folder", "save_steps": 3},
        {
            "checkpoint_dir": "text",
            "save_secs": "nothing",
            "save_steps": "count",
            "saver": "nothing",
            "scaffold": "nothing",
            "checkpoint_basename": "text",
            "listeners": "nothing",
            "save_graph_def": "flag",
        },
        {"checkpoint_dir": frozenset({"path"}), "listeners": frozenset({"empty list", "empty tuple"})},
        names=("checkpoint",),
    ),
    "train.LoggingTensorHook": Call(
        lambda: {"tensors": [tb.constant(1.0)], "every_n_iter": 2},
        {
            "tensors": "anything",
            "every_n_iter": "count or none",
            "every_n_secs": "nothing",
            "at_end": "flag",
            "formatter": "function",
        },
        {"formatter": frozenset({"none"})},
    ),
    "train.NanTensorHook": Call(
        lambda: {"loss_tensor": tb.constant(1.0)}, {"loss_tensor": "anything", "fail_on_nan_loss": "flag"}
    ),
    "train.StepCounterHook": Call(
        lambda: {"every_n_steps": 3},
        {"every_n_steps": "count", "every_n_secs": "nothing", "output_dir": "text or none"}
        | {"summary_writer": "nothing"},
        {"output_dir": frozenset({"path"})},
    ),
    "train.FinalOpsHook": Call(
        lambda: {"final_ops": tb.constant(1.0)},
        {"final_ops": "anything", "final_ops_feed_dict": "mapping"},
        {"final_ops_feed_dict": frozenset({"none"})},
    ),
    "train.FeedFnHook": Call(lambda: {"feed_fn": dict}, {"feed_fn": "function"}),
    "train.SingularMonitoredSession": Call(
        dict,
        {
            **{"hooks": "object", "scaffold": "nothing", "master": "text", "config": "nothing"},
            **{"checkpoint_dir": "text or none", "checkpoint_filename_with_path": "text or none"},
            "stop_grace_period_secs": "number",
        },
        {"hooks": frozenset({"empty list"}), "checkpoint_dir": frozenset({"path"})},
        names=("Session", "Saver", "ChiefSessionCreator", "not a valid checkpoint"),
    ),
    "train.SecondOrStepTimer": Call(
        lambda: {"every_steps": 3}, {"every_secs": "nothing", "every_steps": "count or none"}
    ),
    **{
        f"SecondOrStepTimer.{method}": Call(
            lambda: {"step": 3},
            {"step": "axis"},
            {"step": frozenset({"2**40"})},
            target=lambda method=method: getattr(tb.train.SecondOrStepTimer(every_steps=3), method),
        )
        for method in ("should_trigger_for_step", "update_last_triggered_step")
    },
    "train.assert_global_step": Call(
        lambda: {"global_step_tensor": tb.constant(3)},
        {"global_step_tensor": "object"},
        names=("global step",),
    ),
    "train.GlobalStepWaiterHook": Call(
        lambda: {"wait_until_step": 3}, {"wait_until_step": "axis"}, {"wait_until_step": frozenset({"2**40"})}
    ),
    "train.StopAtStepHook": Call(
        lambda: {"num_steps": 3}, {"num_steps": "count or none", "last_step": "count or none"}
    ),
    **{
        f"train.{name}": Call(dict, {"graph": "nothing"}, {"graph": GRAPH})
        for name in ("get_global_step", "create_global_step", "get_or_create_global_step")
    },
}
