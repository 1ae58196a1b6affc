"""A good call of engines, replicators, savers and their files, for the walk over odd arguments."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

EMPTY = frozenset({"empty dict"})
CALLABLE = frozenset({"function", "class"})
NAMES = frozenset({"text", "empty text", "str subclass"})
GRAPH = frozenset({"graph"})
OPTIONS = (
    "sync",
    "tau",
    "alpha",
    "mu",
    "outer_learning_rate",
    "outer_momentum",
    "exchange_dtype",
    "backup",
    "staleness",
    "clear_velocity",
    "ssgd_from",
    "priority",
    "dispatch",
    "replica_mode",
    "ema",
)
STEP = {
    "step_fn": "object",
    "input_fn": "nothing",
    "input_replication": "choice",
    "input_split_fn": "nothing",
    "smaller_batch": "choice",
    "prefetch": "count",
    "data_on_device": "choice",
}
SYNCHRONISATION = {
    "sync": "choice",
    "tau": "count or none",
    "alpha": "positive or none",
    "mu": "fraction",
    "outer_learning_rate": "positive",
    "outer_momentum": "fraction",
    "exchange_dtype": "choice or none",
    "backup": "axis",
    "staleness": "object",
    "clear_velocity": "flag",
    "ssgd_from": "count or none",
    "priority": "axis",
    "dispatch": "choice",
    "replica_mode": "choice",
    "ema": "fraction or none",
}


def program() -> tb.StepProgram:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 2], name="x")
        w = tb.Variable(np.ones((2, 1), np.float32), name="w")
        loss = tb.reduce_mean(tb.matmul(x, w))
        return tb.StepProgram((x,), loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss))


def of_engine(method: str) -> Callable[[], Any]:
    def target() -> Any:
        engine = tb.LearningEngine(program(), 4, ["/cpu:0"], 1, tb.Synchronisation(ema=0.9))
        engine.initialize()
        return closing(engine, method)

    return target


def closing(owner: Any, method: str) -> Any:
    """A method that closes its object when it has been called."""

    def call(**arguments: Any) -> Any:
        with owner:
            return getattr(owner, method)(**arguments)

    return call


def replicator() -> tb.MultiGpuReplicator:
    return tb.MultiGpuReplicator(["/cpu:0"], 1)


def step() -> Any:
    return tb.get_variable("w", [2], initializer="zeros")


def session() -> Any:
    tb.Variable(np.ones(2, np.float32), name="w")
    made = tb.Session()
    made.run(tb.global_variables_initializer())
    return made


def saver(method: str) -> Any:
    if not tb.global_variables():
        session()
    return getattr(tb.train.Saver(), method)


def checkpoint() -> str:
    made = session()
    path: str = tb.train.Saver().save(made, f"{folder()}/m")
    return path


def folder() -> str:
    return tempfile.mkdtemp()


def inner(make: Callable[[], Any], method: str) -> Callable[[], Any]:
    return lambda: closing(make(), method)


def exported() -> str:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None], name="x")
        return tb.train.save_model(folder(), {"x": x}, {"y": x * 2.0}, {})


def with_product() -> str:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 3], name="x")
        y = tb.matmul(x, tb.Variable(np.ones((3, 2), np.float32), name="w"))
        return tb.train.save_model(folder(), {"x": x}, {"y": y}, {"w": np.ones((3, 2), np.float32)})


def saved() -> Any:
    return tb.train.SavedModel(exported())


CALLS: Mapping[str, Call] = {
    "Synchronisation": Call(dict, SYNCHRONISATION, names=OPTIONS),
    "Synchronisation.alpha_for": Call(
        lambda: {"replicas": 2}, {"replicas": "count"}, target=lambda: tb.Synchronisation().alpha_for
    ),
    "StepProgram": Call(
        lambda: dict(vars(program())),
        dict.fromkeys(("inputs", "update", "metrics", "others"), "object")
        | {
            "loss": "nothing",
            "recompute": "choice",
            "swap": "choice",
            "mode": "choice",
            "resources": "nothing",
        },
        {
            "inputs": frozenset({"empty list"}),
            "others": frozenset({"empty list"}),
            "metrics": EMPTY,
            "loss": frozenset({"tensor"}),
        },
        names=("the loss",),
    ),
    "StepProgram.specs": Call(
        lambda: {"batch_size": 4}, {"batch_size": "count"}, target=lambda: program().specs
    ),
    "StepProgram.initial_values": Call(
        dict, {"random_stream": "count"}, target=lambda: program().initial_values
    ),
    "LearningEngine": Call(
        lambda: {"program": program(), "shapes": 4, "devices": ["/cpu:0"], "replicas_per_device": 1},
        {
            "program": "object",
            "shapes": "object",
            "devices": "object",
            "replicas_per_device": "extents",
            "synchronisation": "nothing",
            "schedule": "nothing",
            "launch_ahead": "object",
            "steps_per_launch": "object or none",
            "on_nan": "choice",
            "transport": "nothing",
            "workers": "nothing",
            "seeds": "nothing",
            "devices_per_replica": "nothing",
            "room_for_steps": "object",
        },
        {"shapes": frozenset({"empty list"}), "devices": frozenset({"empty list"})},
        names=("devices", "shapes", "replicas per device"),
    ),
    "LearningEngine.initialize": Call(
        dict,
        {"values": "nothing", "known": "nothing"},
        {"values": EMPTY, "known": EMPTY},
        target=of_engine("initialize"),
        names=("value",),
    ),
    "LearningEngine.select": Call(
        lambda: {"number": 0}, {"number": "count"}, target=of_engine("select"), names=("program",)
    ),
    "LearningEngine.explain": Call(
        lambda: {"number": 0}, {"number": "count"}, target=of_engine("explain"), names=("program",)
    ),
    "LearningEngine.fuse": Call(
        lambda: {"fused": False}, {"fused": "flag", "required": "flag"}, target=of_engine("fuse")
    ),
    "LearningEngine.set_steps_per_launch": Call(
        lambda: {"steps": 1},
        {"steps": "count"},
        target=of_engine("set_steps_per_launch"),
        names=("steps_per_launch",),
    ),
    **{
        f"LearningEngine.{method}": Call(dict, {"round": "count or none"}, target=of_engine(method))
        for method in ("central_values", "ema_values")
    },
    "TensorBowSession": Call(
        dict,
        {
            "target": "text",
            "graph": "nothing",
            "config": "nothing",
            "devices": "object",
            "replicas_per_device": "extents",
            "synchronisation": "nothing",
            "on_nan": "choice",
            "workers": "nothing",
        },
        {"graph": GRAPH},
        names=("devices", "Session", "replicas per device"),
    ),
    "TensorBowSession.load_variables": Call(
        lambda: {"values": {}},
        {"values": "object"},
        {"values": EMPTY},
        target=inner(tb.TensorBowSession, "load_variables"),
    ),
    "TensorBowSession.replica_values": Call(
        lambda: {"replica": 0},
        {"replica": "count", "slots": "flag"},
        target=inner(tb.TensorBowSession, "replica_values"),
    ),
    "NonReplicator": Call(
        dict, {"device": "object", "ema": "fraction or none"}, {"device": NAMES}, names=("device", "ema")
    ),
    "MultiGpuReplicator": Call(
        dict,
        {
            "devices": "nothing",
            "replicas_per_gpu": "extents",
            "num_gpus": "nothing",
            "num_gpus_per_replica": "nothing",
            **{name: sort for name, sort in SYNCHRONISATION.items() if name != "priority"},
            "sync": "choice or none",
            "on_nan": "choice",
            "seeds": "nothing",
        },
        names=("devices", "replicas per device", *OPTIONS),
    ),
    "MultiWorkerReplicator": Call(
        dict,
        {"devices": "nothing", "replicas_per_gpu": "extents", "sync": "choice or none", "workers": "nothing"},
        names=("devices", "replicas per device", *OPTIONS),
    ),
    "MultiWorkerAsyncReplicator": Call(
        dict,
        {
            "num_workers": "positive",
            "num_shards": "positive",
            "staleness": "count or none",
            "folder": "text or none",
            "save_every": "positive",
            "worker_timeout_s": "positive",
            "address": "text or none",
            "device": "text",
            "gpus_per_worker": "positive",
        },
    ),
    "MultiWorkerAsyncReplicator.wrap_optimizer": Call(
        lambda: {"optimizer": tb.train.AdamOptimizer()},
        {"optimizer": "object"},
        target=lambda: tb.MultiWorkerAsyncReplicator().wrap_optimizer,
    ),
    "Replicator.wrap_optimizer": Call(
        lambda: {"optimizer": tb.train.AdamOptimizer()},
        {"optimizer": "object"},
        target=lambda: replicator().wrap_optimizer,
    ),
    **{
        f"Replicator.{method}": Call(
            lambda: {"step_fn": step},
            {**STEP, "steps": "count or none", "steps_per_launch": "object"},
            {"step_fn": CALLABLE, "input_fn": CALLABLE, "input_split_fn": CALLABLE},
            target=lambda method=method: getattr(replicator(), method),
            names=("step_fn", "input", "output"),
        )
        for method in ("run", "train")
    },
    "MultiGpuReplicator.tune": Call(
        lambda: {"step_fn": step, "most": 1, "window_seconds": 1e-4, "max_seconds": 1e-3},
        {**STEP, "most": "positive", "window_seconds": "positive", "max_seconds": "positive"},
        {"step_fn": CALLABLE, "input_fn": CALLABLE, "input_split_fn": CALLABLE},
        target=lambda: replicator().tune,
        names=("step_fn", "input", "output"),
    ),
    "Replicator.replica_values": Call(
        lambda: {"replica": 0},
        {"replica": "count", "slots": "flag"},
        target=lambda: initialized("replica_values"),
    ),
    **{
        f"Replicator.{method}": Call(
            lambda: {"value": np.ones((1, 2), np.float32)},
            {"value": "nothing", "axis": "count or none"},
            {"value": EMPTY | {"none", "empty list"}},
            target=lambda method=method: getattr(replicator(), method),
        )
        for method in ("reduce_mean", "reduce_sum")
    },
    "Replicator.local_results": Call(
        lambda: {"value": np.ones((1, 2), np.float32)},
        {"value": "nothing"},
        {"value": EMPTY | {"none", "empty list"}},
        target=lambda: replicator().local_results,
    ),
    "Replicator.read": Call(
        lambda: {"values": []},
        {"values": "nothing"},
        {"values": EMPTY | {"empty list"}},
        target=lambda: initialized("read"),
    ),
    "Replicator.load_variables": Call(
        lambda: {"values": {"w": [1.0, 2.0]}},
        {"values": "nothing"},
        {"values": EMPTY},
        target=lambda: initialized("load_variables"),
    ),
    "Replicator.init": Call(
        dict,
        {"session": "nothing", "values": "nothing"},
        {"values": EMPTY},
        target=lambda: initialized("init"),
    ),
    "InputContext.per_replica_batch_size": Call(
        lambda: {"global_batch_size": 4},
        {"global_batch_size": "count"},
        target=lambda: tb.InputContext(0, 1, 2).per_replica_batch_size,
    ),
    "DatasetBatches": Call(
        lambda: {
            "dataset": tb.data.make_synthetic(16, 8, height=4, width=4, classes=4)[0],
            "batch_size": 2,
            "replicas": 2,
            "seed": 1,
        },
        {
            "dataset": "object",
            "batch_size": "count",
            "replicas": "count",
            "seed": "count",
            "depth": "count",
            "changes": "extents",
            "steps_per_launch": "count",
            "earlier": "nothing",
            "share": "nothing",
        },
        names=("examples",),
    ),
    "EarlyStopping": Call(
        lambda: {"metric": "test_loss", "patience": 3},
        {"metric": "text", "patience": "count", "min_delta": "positive", "mode": "choice or none"},
    ),
    "TensorBoard": Call(lambda: {"folder": folder()}, {"folder": "text or none", "every": "count"}),
    "fit": Call(
        lambda: {"model": "logreg", "data": "synthetic", "epochs": 1, "progress": False},
        {
            "model": "anything",
            "data": "anything",
            "replicas": "anything",
            "weights": "anything",
            "callbacks": "object",
            "progress": "flag",
        },
        takes={"callbacks": frozenset({"empty list"})},
        names=("replicas_per_device", "model ", "data/", "do not fill one batch"),
    ),
    "sweep": Call(
        lambda: {
            **{"model": "logreg", "data": "synthetic", "grid": {"learning_rate": [0.01]}, "epochs": 1},
            **{"output": str(Path(folder()) / "sweep"), "progress": False},
        },
        {
            "model": "anything",
            "data": "anything",
            "grid": "object",
            "ranges": "object",
            "random": "anything",
            "seeds": "anything",
            "output": "text or none",
            "resume": "flag",
            "progress": "flag",
        },
        dict.fromkeys(("grid", "ranges"), frozenset({"none", "empty dict"})),
        names=("model ", "data/", "validation_split"),
    ),
    "Trainer": Call(
        lambda: {"config": tb.TrainingConfig(model="logreg", dataset="synthetic")},
        {
            "config": "object",
            "model": "object or none",
            "data": "tensor or none",
            "weights": "nothing",
            "progress": "nothing",
            "numbered": "flag",
            "callbacks": "object",
            "workers": "nothing",
        },
        takes={"callbacks": frozenset({"empty list"}), "model": frozenset({"function", "class"})},
        names=("model ", "data/", "do not fill one batch"),
    ),
    "train.Saver": Call(
        lambda: {"var_list": [tb.Variable(np.ones(2, np.float32), name="w")]},
        {
            "var_list": "variable or none",
            "max_to_keep": "count or none",
            "best_metric": "name",
            "mode": "choice",
            "keep_checkpoint_every_n_hours": "positive",
            "sharded": "flag",
            "saver_def": "object or none",
            **dict.fromkeys(("allow_empty", "reshape", "restore_sequentially"), "flag"),
            **{"pad_step_number": "flag", "defer_build": "flag"},
        },
    ),
    "train.export_meta_graph": Call(
        dict,
        {
            **{"filename": "text", "graph": "object or none", "saver_def": "object or none"},
            **{"clear_devices": "flag", "as_text": "flag", "export_scope": "nothing"},
        },
        {
            "filename": frozenset({"none"}),
            "graph": frozenset({"graph"}),
            "export_scope": frozenset({"none", "empty text"}),
        },
        names=("cannot write",),
    ),
    "train.import_meta_graph": Call(
        lambda: {"meta_graph_or_file": tb.train.export_meta_graph()},
        {
            "meta_graph_or_file": "text",
            "clear_devices": "flag",
            "import_scope": "name",
            "input_map": "nothing",
        },
        {"input_map": frozenset({"empty dict"})},
        names=("there is no file", "a regular file"),
    ),
    "Saver.save": Call(
        lambda: {"session": session(), "save_path": f"{folder()}/m"},
        {
            "session": "object",
            "save_path": "object",
            "global_step": "count or none",
            "metrics": "nothing",
            "latest_filename": "object",
            "write_meta_graph": "flag",
            "write_state": "flag",
        },
        {
            "save_path": NAMES,
            "latest_filename": frozenset({"text", "str subclass"}),
            "global_step": frozenset({"-1"}) | NAMES,
            "metrics": EMPTY,
        },
        target=lambda: saver("save"),
        names=("run",),
    ),
    "train.global_step": Call(
        lambda: {"sess": tb.Session(), "global_step_tensor": tb.constant(3)},
        {"sess": "object", "global_step_tensor": "nothing"},
        names=("run",),
    ),
    "train.latest_checkpoint": Call(
        lambda: {"checkpoint_dir": folder()},
        {"checkpoint_dir": "text", "latest_filename": "text"},
    ),
    "train.best_checkpoint": Call(
        lambda: {"checkpoint_dir": folder()},
        {"checkpoint_dir": "text", "latest_filename": "text"},
    ),
    "train.get_checkpoint_state": Call(
        lambda: {"checkpoint_dir": folder()},
        {"checkpoint_dir": "text", "latest_filename": "text"},
    ),
    "train.update_checkpoint_state": Call(
        lambda: {"save_dir": folder(), "model_checkpoint_path": "model-1"},
        {
            "save_dir": "text",
            "model_checkpoint_path": "text",
            "all_model_checkpoint_paths": "nothing",
            "latest_filename": "text",
        },
        {"all_model_checkpoint_paths": frozenset({"empty list"})},
    ),
    "train.warm_start": Call(
        lambda: {"ckpt_to_initialize_from": checkpoint()},
        {
            "ckpt_to_initialize_from": "text",
            "vars_to_warm_start": "object",
            "var_name_to_vocab_info": "nothing",
            "var_name_to_prev_var_name": "nothing",
        },
        {
            "vars_to_warm_start": frozenset({"none", "empty list", "empty text"}),
            **dict.fromkeys(("var_name_to_vocab_info", "var_name_to_prev_var_name"), EMPTY),
        },
        names=("load_checkpoint", "there is no", "Saver", "regular file"),
    ),
    "train.VocabInfo": Call(
        lambda: {"new_vocab": "a", "new_vocab_size": 2, "num_oov_buckets": 1, "old_vocab": "b"},
        {
            **{
                "new_vocab": "text",
                "old_vocab": "text",
                "new_vocab_size": "count",
                "num_oov_buckets": "axis",
            },
            **{"old_vocab_size": "axis", "backup_initializer": "function or none", "axis": "nothing"},
        },
        {**dict.fromkeys(("num_oov_buckets", "old_vocab_size"), frozenset({"2**40"}))},
    ),
    "train.get_checkpoint_mtimes": Call(
        lambda: {"checkpoint_prefixes": [f"{folder()}/model"]},
        {"checkpoint_prefixes": "anything"},
    ),
    "train.remove_checkpoint": Call(
        lambda: {"checkpoint_prefix": f"{folder()}/model"},
        {"checkpoint_prefix": "text"},
    ),
    "train.checkpoints_iterator": Call(
        lambda: {"checkpoint_dir": folder()},
        {
            "checkpoint_dir": "text",
            "min_interval_secs": "number",
            "timeout": "number or none",
            "timeout_fn": "function or none",
        },
    ),
    "train.checkpoint_exists": Call(
        lambda: {"checkpoint_prefix": f"{folder()}/model"},
        {"checkpoint_prefix": "text"},
    ),
    "train.write_graph": Call(
        lambda: {"graph": tb.Graph(), "logdir": folder(), "name": "g.json"},
        {"graph": "object", "logdir": "text", "name": "object", "as_text": "flag"},
        {"graph": GRAPH, "name": frozenset({"text", "str subclass"})},
    ),
    "train.SavedModel": Call(
        lambda: {"folder": exported()},
        {"folder": "text", "device": "object"},
        {"device": NAMES},
        names=("saved model", "variables.safetensors"),
    ),
    "SavedModel.run": Call(
        lambda: {"outputs": [], "x": [1.0]},
        {"outputs": "object"},
        {"outputs": frozenset({"empty list"})},
        target=inner(saved, "run"),
    ),
    "quantization.quantize_model": Call(
        lambda: {"source": with_product(), "folder": folder(), "inputs": {"x": np.ones((2, 3), np.float32)}},
        {"source": "text", "folder": "text", "inputs": "object"},
        names=("saved model", "variables.safetensors"),
    ),
    "train.save_model": Call(
        lambda: {
            "folder": folder(),
            "inputs": {},
            "outputs": {"y": tb.constant(1.0)},
            "values": {},
        },
        dict.fromkeys(("inputs", "outputs", "values"), "object") | {"folder": "text", "metadata": "nothing"},
        {"inputs": EMPTY, "outputs": EMPTY, "values": EMPTY, "metadata": EMPTY},
    ),
}


def initialized(method: str) -> Any:
    made = replicator()
    made.run(step)
    if method != "init":
        made.init()
    return closing(made, method)
