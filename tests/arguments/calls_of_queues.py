"""A good call of queues, coordinators and input pipelines, for the walk over odd arguments."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call


def queue() -> tb.QueueBase:
    return tb.FIFOQueue(3, tb.int32, shapes=[[]])


def staged() -> tb.StagingArea:
    return tb.StagingArea(tb.int32, shapes=[[]])


def _accumulator(kind: str) -> Any:
    if kind == "SparseConditionalAccumulator":
        return tb.SparseConditionalAccumulator(tb.float32, [2])
    return tb.ConditionalAccumulator(tb.float32, [2])


def of_queue(method: str) -> Any:
    return lambda: getattr(queue(), method)


def coordinator(method: str) -> Any:
    return lambda: getattr(tb.train.Coordinator(), method)


def runner() -> tb.train.QueueRunner:
    numbers = queue()
    return tb.train.QueueRunner(numbers, [numbers.enqueue(1)])


COMMON = {"shapes": "anything", "names": "anything", "shared_name": "name", "name": "text"}
MAKING = {
    **COMMON,
    "seed": "seed or none",
    "capacity": "number",
    "dtypes": "anything",
    "min_after_dequeue": "count",
}
PRODUCER = {
    "seed": "seed or none",
    **{"num_epochs": "count or none", "shuffle": "flag", "capacity": "count", "shared_name": "name"},
    **{"tensor_list": "anything", "limit": "anything", "input_tensor": "anything"},
}
BATCH = {
    "seed": "seed or none",
    **{"tensors": "anything", "tensors_list": "anything", "batch_size": "count", "num_threads": "count"},
    **{"capacity": "count", "min_after_dequeue": "count", "shapes": "anything", "shared_name": "name"},
    **dict.fromkeys(("enqueue_many", "dynamic_pad", "allow_smaller_final_batch"), "flag"),
}
MAYBE = {**BATCH, "keep_input": "anything"}
ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)

CALLS: Mapping[str, Call] = {
    "FIFOQueue": Call(lambda: {"capacity": 3, "dtypes": tb.int32, "shapes": [[]]}, MAKING),
    "PaddingFIFOQueue": Call(lambda: {"capacity": 3, "dtypes": tb.int32, "shapes": [[None]]}, MAKING),
    "PriorityQueue": Call(
        lambda: {"capacity": 3, "types": tb.int32, "shapes": [[]]}, {**MAKING, "types": "anything"}
    ),
    "RandomShuffleQueue": Call(
        lambda: {"capacity": 3, "min_after_dequeue": 1, "dtypes": tb.int32, "shapes": [[]]}, MAKING
    ),
    "StagingArea": Call(
        lambda: {"dtypes": tb.int32},
        {**MAKING, "capacity": "count", "memory_limit": "count"},
        {"shapes": frozenset({"empty list", "list of integers"}), "names": frozenset({"empty list"})},
    ),
    **{
        f"StagingArea.{method}": Call(
            lambda given=given: given,
            kinds,
            target=lambda method=method: getattr(staged(), method),
            names=("enqueue",),
        )
        for method, given, kinds in (
            ("put", {"values": 2}, {"values": "anything"}),
            ("peek", {"index": 0}, {"index": "anything"}),
            ("get", {}, {}),
            ("size", {}, {}),
            ("clear", {}, {}),
        )
    },
    "MapStagingArea": Call(
        lambda: {"dtypes": tb.int32},
        {**MAKING, "capacity": "count", "memory_limit": "count", "ordered": "flag"},
        {"shapes": frozenset({"empty list"}), "names": frozenset({"empty list"})},
    ),
    **{
        f"MapStagingArea.{method}": Call(
            lambda given=given: given,
            {"key": "anything", "vals": "anything", "indices": "anything"},
            target=lambda method=method: getattr(tb.MapStagingArea(tb.int32, shapes=[[]]), method),
        )
        for method, given in (
            ("put", {"key": 1, "vals": 2}),
            ("peek", {"key": 1}),
            ("get", {}),
            ("size", {}),
            ("incomplete_size", {}),
            ("clear", {}),
        )
    },
    "Barrier": Call(lambda: {"types": tb.int32}, {**COMMON, "types": "anything", "key_dtype": "dtype"}),
    **{
        f"Barrier.{method}": Call(
            lambda given=given: given,
            {
                **dict.fromkeys(("keys", "values", "num_elements", "timeout"), "anything"),
                "component_index": "count",
                **dict.fromkeys(("allow_small_batch", "cancel_pending_enqueues"), "flag"),
            },
            target=lambda method=method: getattr(tb.Barrier(tb.int32), method),
        )
        for method, given in (
            ("insert_many", {"component_index": 0, "keys": [1], "values": [2]}),
            ("take_many", {"num_elements": 1}),
            ("close", {}),
            ("ready_size", {}),
            ("incomplete_size", {}),
        )
    },
    **{
        name: Call(
            lambda: {"dtype": tb.float32, "shape": [2]},
            {**COMMON, "shape": "static shape", "reduction_type": "choice"},
        )
        for name in ("ConditionalAccumulator", "SparseConditionalAccumulator")
    },
    **{
        f"{kind}.{method}": Call(
            lambda given=given: given,
            dict.fromkeys(
                (
                    *("grad", "local_step", "num_required", "new_global_step"),
                    *("grad_indices", "grad_values", "grad_shape"),
                ),
                "anything",
            ),
            target=lambda kind=kind, method=method: getattr(_accumulator(kind), method),
            names=("take_grad",),
        )
        for kind, method, given in (
            ("ConditionalAccumulator", "apply_grad", {"grad": [1.0, 2.0]}),
            ("ConditionalAccumulator", "take_grad", {"num_required": 1}),
            ("ConditionalAccumulatorBase", "num_accumulated", {}),
            ("ConditionalAccumulatorBase", "set_global_step", {"new_global_step": 1}),
            ("SparseConditionalAccumulator", "apply_grad", {"grad_indices": [1], "grad_values": [2.0]}),
            ("SparseConditionalAccumulator", "take_grad", {"num_required": 1}),
            ("SparseConditionalAccumulator", "take_indexed_slices_grad", {"num_required": 1}),
        )
    },
    "SparseConditionalAccumulator.apply_indexed_slices_grad": Call(
        lambda: {"grad": tb.IndexedSlices(tb.constant([1.0]), [0], [2])},
        dict.fromkeys(("grad", "local_step"), "anything"),
        target=lambda: _accumulator("SparseConditionalAccumulator").apply_indexed_slices_grad,
        names=("apply_grad",),
    ),
    "CriticalSection": Call(dict, {"shared_name": "name"}),
    "CriticalSection.execute": Call(
        lambda: {"fn": lambda: tb.constant(1.0)},
        {"fn": "function"},
        target=lambda: tb.CriticalSection().execute,
        names=("identity",),
    ),
    "QueueBase.close": Call(dict, {"cancel_pending_enqueues": "flag"}, target=of_queue("close")),
    "QueueBase.dequeue": Call(dict, target=of_queue("dequeue")),
    "QueueBase.dequeue_many": Call(lambda: {"n": 2}, {"n": "anything"}, target=of_queue("dequeue_many")),
    "QueueBase.dequeue_up_to": Call(lambda: {"n": 2}, {"n": "anything"}, target=of_queue("dequeue_up_to")),
    "QueueBase.enqueue": Call(lambda: {"vals": 2}, {"vals": "anything"}, target=of_queue("enqueue")),
    "QueueBase.enqueue_many": Call(
        lambda: {"vals": [[2]]}, {"vals": "anything"}, target=of_queue("enqueue_many")
    ),
    "QueueBase.from_list": Call(
        lambda: {"index": 0, "queues": [queue()]},
        {"index": "anything", "queues": "anything"},
        names=("gather",),
    ),
    "QueueBase.is_closed": Call(dict, target=of_queue("is_closed")),
    "QueueBase.size": Call(dict, target=of_queue("size")),
    "Coordinator.join": Call(
        dict,
        {"threads": "anything", "stop_grace_period_secs": "anything", "ignore_live_threads": "flag"},
        target=coordinator("join"),
    ),
    "Coordinator.register_thread": Call(
        lambda: {"thread": threading.Thread()}, {"thread": "object"}, target=coordinator("register_thread")
    ),
    "Coordinator.request_stop": Call(dict, {"ex": "anything"}, target=coordinator("request_stop")),
    "get_session_handle": Call(lambda: {"data": [1.0]}, {"data": "tensor"}),
    **{
        name: Call(lambda more=more: {"handle": "x;0;1", **more}, {"handle": "object"})
        for name, more in (("get_session_tensor", {"dtype": tb.float32}), ("delete_session_tensor", {}))
    },
    "py_func": Call(
        lambda: {"func": np.sum, "inp": [ROWS], "Tout": tb.float32},
        {"func": "function", "inp": "anything", "Tout": "anything", "stateful": "flag"},
    ),
    "train.LooperThread": Call(
        lambda: {"coord": tb.train.Coordinator(), "timer_interval_secs": 1},
        {
            **{"coord": "object", "timer_interval_secs": "number or none", "target": "function or none"},
            **{"args": "list or none", "kwargs": "mapping or none"},
        },
        {"args": frozenset({"array", "nan array", "generator", "ragged list"})},
    ),
    "train.Coordinator": Call(dict, {"clean_stop_exception_types": "anything"}),
    "train.QueueRunner": Call(
        lambda: {"queue": (numbers := queue()), "enqueue_ops": [numbers.enqueue(1)]},
        {
            **{"queue": "object", "enqueue_ops": "anything", "close_op": "anything"},
            **{"cancel_op": "anything", "queue_closed_exception_types": "anything"},
        },
    ),
    "train.add_queue_runner": Call(lambda: {"qr": runner()}, {"qr": "object", "collection": "text"}),
    "train.start_queue_runners": Call(
        lambda: {"sess": tb.Session()},
        {
            **{"sess": "anything", "coord": "nothing", "collection": "text"},
            **{"daemon": "flag", "start": "flag"},
        },
    ),
    "train.batch": Call(lambda: {"tensors": [tb.constant(1)], "batch_size": 2}, BATCH),
    "train.batch_join": Call(lambda: {"tensors_list": [[tb.constant(1)]], "batch_size": 2}, BATCH),
    "train.shuffle_batch": Call(
        lambda: {"tensors": [tb.constant(1)], "batch_size": 2, "capacity": 9, "min_after_dequeue": 1}, BATCH
    ),
    "train.shuffle_batch_join": Call(
        lambda: {
            **{"tensors_list": [[tb.constant(1)]], "batch_size": 2},
            **{"capacity": 9, "min_after_dequeue": 1},
        },
        BATCH,
    ),
    "train.maybe_batch": Call(
        lambda: {"tensors": [tb.constant(1)], "keep_input": True, "batch_size": 2}, MAYBE
    ),
    "train.maybe_batch_join": Call(
        lambda: {"tensors_list": [[tb.constant(1)]], "keep_input": True, "batch_size": 2}, MAYBE
    ),
    "train.maybe_shuffle_batch": Call(
        lambda: {
            **{"tensors": [tb.constant(1)], "batch_size": 2, "keep_input": True},
            **{"capacity": 9, "min_after_dequeue": 1},
        },
        MAYBE,
    ),
    "train.maybe_shuffle_batch_join": Call(
        lambda: {
            **{"tensors_list": [[tb.constant(1)]], "batch_size": 2, "keep_input": True},
            **{"capacity": 9, "min_after_dequeue": 1},
        },
        MAYBE,
    ),
    "train.input_producer": Call(lambda: {"input_tensor": ROWS}, PRODUCER),
    "train.limit_epochs": Call(lambda: {"tensor": ROWS}, {"num_epochs": "count or none"}),
    "train.range_input_producer": Call(lambda: {"limit": 5}, PRODUCER),
    "train.string_input_producer": Call(
        lambda: {"string_tensor": ["a"]},
        {**PRODUCER, "string_tensor": "strings", "cancel_op": "anything"},
    ),
    "train.slice_input_producer": Call(lambda: {"tensor_list": [ROWS]}, PRODUCER),
}
