"""Queues and what runs beside training: coordinators, queue runners and input pipelines."""

from tensorbow.queues.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from tensorbow.queues.barrier import Barrier
from tensorbow.queues.coordinator import Coordinator
from tensorbow.queues.critical_section import CriticalSection
from tensorbow.queues.input_pipelines import (
    batch,
    batch_join,
    input_producer,
    limit_epochs,
    range_input_producer,
    shuffle_batch,
    shuffle_batch_join,
    slice_input_producer,
    string_input_producer,
)
from tensorbow.queues.kept_batches import (
    maybe_batch,
    maybe_batch_join,
    maybe_shuffle_batch,
    maybe_shuffle_batch_join,
)
from tensorbow.queues.looper_thread import LooperThread
from tensorbow.queues.map_staging_area import MapStagingArea
from tensorbow.queues.python_functions import py_func
from tensorbow.queues.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from tensorbow.queues.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue
from tensorbow.queues.session_tensors import (
    TensorHandle,
    delete_session_tensor,
    get_session_handle,
    get_session_tensor,
    takes_handle,
)
from tensorbow.queues.staging_area import StagingArea

__all__ = [
    "Barrier",
    "ConditionalAccumulator",
    "Coordinator",
    "CriticalSection",
    "FIFOQueue",
    "LooperThread",
    "MapStagingArea",
    "PaddingFIFOQueue",
    "PriorityQueue",
    "QueueBase",
    "QueueRunner",
    "RandomShuffleQueue",
    "SparseConditionalAccumulator",
    "StagingArea",
    "TensorHandle",
    "add_queue_runner",
    "batch",
    "batch_join",
    "delete_session_tensor",
    "get_session_handle",
    "get_session_tensor",
    "input_producer",
    "limit_epochs",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "py_func",
    "range_input_producer",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "start_queue_runners",
    "string_input_producer",
    "takes_handle",
]
