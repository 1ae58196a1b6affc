"""A good call of summaries and their writers, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

TEXTS = frozenset({"empty list"})
PATH = frozenset({"text", "str subclass", "empty text", "path"})


def writer(method: str) -> Any:
    return getattr(tb.summary.FileWriter("logs"), method)


def event() -> Any:
    return tb.summary.Event()


COMMON = {"name": "text", "collections": "nothing", "family": "name"}
COLLECTIONS = {"collections": TEXTS}

CALLS: Mapping[str, Call] = {
    "summary.scalar": Call(lambda: {"name": "s", "tensor": 1.0}, COMMON, COLLECTIONS, names=("summary",)),
    "summary.histogram": Call(
        lambda: {"name": "h", "values": [1.0]}, COMMON, COLLECTIONS, names=("summary",)
    ),
    "summary.image": Call(
        lambda: {"name": "i", "tensor": np.zeros((1, 2, 3, 1), np.float32)},
        {**COMMON, "max_outputs": "count"},
        COLLECTIONS,
        names=("summary",),
    ),
    "summary.audio": Call(
        lambda: {"name": "a", "tensor": np.zeros((1, 2, 1), np.float32), "sample_rate": 8000.0},
        {**COMMON, "max_outputs": "count", "sample_rate": "tensor"},
        COLLECTIONS,
        names=("summary",),
    ),
    "summary.tensor_summary": Call(
        lambda: {"name": "t", "tensor": [1.0]},
        {
            **COMMON,
            **dict.fromkeys(("summary_description", "display_name"), "name"),
            "summary_metadata": "object or none",
        },
        COLLECTIONS,
        names=("summary",),
    ),
    "summary.text": Call(
        lambda: {"name": "t", "tensor": "words"},
        {**COMMON, "tensor": "text"},
        {**COLLECTIONS, "tensor": TEXTS},
    ),
    "summary.merge": Call(
        lambda: {"inputs": [tb.summary.scalar("s", 1.0)]},
        {"inputs": "nothing", "collections": "nothing"},
        COLLECTIONS,
    ),
    "summary.merge_all": Call(dict, {"key": "text", "scope": "name"}, names=("get_collection", "scope")),
    "summary.FileWriter": Call(
        lambda: {"logdir": "logs"},
        {
            **{"logdir": "object", "graph": "nothing", "max_queue": "count"},
            **{"flush_secs": "positive", "filename_suffix": "text"},
        },
        {"logdir": PATH, "graph": frozenset({"graph"})},
        names=("output folder",),
    ),
    "FileWriter.add_summary": Call(
        lambda: {"summary": b"", "global_step": 1},
        {"summary": "object", "global_step": "count or none"},
        target=lambda: writer("add_summary"),
        names=("FileWriter",),
    ),
    "FileWriter.add_graph": Call(
        lambda: {"graph": tb.Graph()},
        {"graph": "object", "global_step": "count or none"},
        {"graph": frozenset({"graph"})},
        target=lambda: writer("add_graph"),
        names=("FileWriter",),
    ),
    "FileWriter.add_run_metadata": Call(
        lambda: {"run_metadata": tb.RunMetadata(), "tag": "a"},
        {"run_metadata": "object", "tag": "text", "global_step": "count or none"},
        target=lambda: writer("add_run_metadata"),
        names=("FileWriter",),
    ),
    "FileWriter.add_event": Call(
        lambda: {"event": event()},
        {"event": "object", "global_step": "count or none"},
        target=lambda: writer("add_event"),
        names=("FileWriter",),
    ),
    "FileWriterCache.get": Call(
        lambda: {"logdir": "logs"},
        {"logdir": "object"},
        {"logdir": PATH},
        names=("FileWriter", "get"),
    ),
    "train.SummarySaverHook": Call(
        lambda: {"save_steps": 1, "output_dir": "logs"},
        {
            "save_steps": "count",
            "output_dir": "object",
            **dict.fromkeys(("summary_writer", "summary_op", "scaffold", "save_secs"), "nothing"),
        },
        {"output_dir": PATH},
    ),
    "train.ProfilerHook": Call(
        lambda: {"save_steps": 1, "output_dir": "traces"},
        {"save_steps": "count", "save_secs": "nothing", "output_dir": "text"}
        | dict.fromkeys(("show_dataflow", "show_memory"), "flag"),
        {"output_dir": PATH},
    ),
}
