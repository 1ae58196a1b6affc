"""Event files for TensorBoard: summaries, graphs and traces of runs (TensorFlow white paper, section 9.1)."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import AsGraph, Graph
from tensorbow.graph.protobuf.message_classes import message_classes
from tensorbow.input_ops.records import TFRecordWriter, tf_record_iterator
from tensorbow.kinds import AsPath, Count, Positive, PositiveNumber, Text, checked, instance, refuse
from tensorbow.ops.summaries import event_protocol, is_summary
from tensorbow.runtime.config_proto import AsRunMetadata, RunMetadata
from tensorbow.training.checkpoints import make_folder

_NUMBERS = itertools.count()  # of the process's files, so that two of one second are different

_NODE_FIELDS = {  # with their kinds and numbers in TensorFlow's NodeExecStats
    "node_name": ("string", 1),
    "all_start_micros": ("int64", 2),
    "op_start_rel_micros": ("int64", 3),
    "op_end_rel_micros": ("int64", 4),
    "all_end_rel_micros": ("int64", 5),
    "timeline_label": ("string", 8),
    "thread_id": ("uint32", 10),
}
_STEP_STATS = {
    "NodeExecStats": ", ".join(f"{kind} {name} {at}" for name, (kind, at) in _NODE_FIELDS.items()),
    "DeviceStepStats": "string device 1, repeated NodeExecStats node_stats 2",
    "StepStats": "repeated DeviceStepStats dev_stats 1",
    "RunMetadata": "StepStats step_stats 1",
}
MOST_WAITING = (1 << 31) - 1  # events, of a queue of Python


class FileWriter:
    """Writes summaries, graphs and traces to a new event file in a folder, which TensorBoard shows.

    Threads may share it. Use it with `with`, or close it.
    """

    @checked
    def __init__(
        self,
        logdir: AsPath,
        graph: AsGraph | None = None,
        max_queue: Positive = 10,
        flush_secs: PositiveNumber = 120.0,
        filename_suffix: Text = "",
    ):
        """graph: written to the file, for TensorBoard's graph page. max_queue: events that wait
        in memory, at most.

        flush_secs: an event that comes so many seconds after those that wait brings the file up to date.
        Raises FailedPreconditionError without tensorboardX, ResourceExhaustedError if the folder cannot be
        made.
        """
        if max_queue > MOST_WAITING:
            raise refuse("FileWriter", "max_queue", f"a whole number from 1 to {MOST_WAITING}", max_queue)
        event_protocol()
        self._logdir, self._suffix = str(logdir), filename_suffix
        self._most, self._flush_s = max_queue, flush_secs
        self._waiting, self._flushed_s = 0, 0.0
        self._lock, self._tags = threading.Lock(), set[str]()
        self._file: TFRecordWriter | None = None
        self.reopen()
        if graph is not None:
            self.add_graph(graph)

    @checked
    def add_summary(self, summary: Any, global_step: Count | None = None) -> None:
        """Adds a fetched summary (bytes), or a `Summary` message, as of a step.

        Raises InvalidArgumentError for bytes that are no summary.
        """
        protocol, events = event_protocol()
        if isinstance(summary, bytes):
            message = protocol.Summary()
            try:
                message.ParseFromString(summary)
            except Exception:
                raise InvalidArgumentError(
                    f"add_summary: expected the value of a summary, got {len(summary)} bytes of other content"
                ) from None
            summary = message
        elif not isinstance(summary, protocol.Summary):
            remedy = "; fetch it by session.run first" if is_summary(summary) else ""
            raise refuse("add_summary", "summary", f"a fetched summary{remedy}", summary)
        self.add_event(events.Event(summary=summary), global_step)

    @checked
    def add_graph(self, graph: AsGraph, global_step: Count | None = None) -> None:
        """Adds a graph for TensorBoard's graph page."""
        _, events = event_protocol()
        self.add_event(events.Event(graph_def=graph_message(graph).SerializeToString()), global_step)

    @checked
    def add_run_metadata(
        self, run_metadata: AsRunMetadata, tag: Text, global_step: Count | None = None
    ) -> None:
        """Adds the times of a run's ops, which TensorBoard's graph page shows under `tag`.

        Raises InvalidArgumentError for a tag that the file has already.
        """
        _, events = event_protocol()
        if tag in self._tags:
            raise InvalidArgumentError(f"add_run_metadata: expected a new tag, got {tag!r} again")
        self._tags.add(tag)
        content = run_metadata_message(run_metadata)
        self.add_event(
            events.Event(tagged_run_metadata=events.TaggedRunMetadata(tag=tag, run_metadata=content)),
            global_step,
        )

    @checked
    def add_event(self, event: Any, global_step: Count | None = None) -> None:
        """Adds an `Event` message; sets its time, and its step if one is given."""
        _, events = event_protocol()
        if not isinstance(event, events.Event):
            raise refuse("add_event", "event", "an Event message", event)
        event.wall_time = time.time()
        if global_step is not None:
            event.step = int(global_step)
        with self._lock:
            if self._file is None:
                raise FailedPreconditionError(
                    f"FileWriter {self._logdir}: it is closed; reopen() begins a new file"
                )
            self._file.write(event.SerializeToString())
            self._waiting += 1
            if self._waiting >= self._most or event.wall_time > self._flushed_s + self._flush_s:
                self._flush(self._file)

    def _flush(self, file: TFRecordWriter) -> None:
        file.flush()
        self._waiting, self._flushed_s = 0, time.time()

    def get_logdir(self) -> str:
        """The folder."""
        return self._logdir

    def flush(self) -> None:
        """Writes what waits; does nothing after `close`."""
        with self._lock:
            if self._file is not None:
                self._flush(self._file)

    def close(self) -> None:
        """Writes what waits and closes the file; idempotent."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def reopen(self) -> None:
        """Begins a new file after `close`; does nothing before."""
        with self._lock:
            if self._file is not None:
                return
            make_folder(Path(self._logdir))
            _, events = event_protocol()
            now, number = time.time(), next(_NUMBERS)
            name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{number:06}"
            self._file = TFRecordWriter(str(Path(self._logdir) / f"{name}{self._suffix}"))
            weakref.finalize(self, self._file.close)  # of a writer that is forgotten
            self._file.write(events.Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
            self._flush(self._file)

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class FileWriterCache:
    """The process's writers, one for each folder."""

    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @staticmethod
    @checked
    def get(logdir: AsPath) -> FileWriter:
        """The writer of a folder, made on first use, and reopened if it was closed."""
        with FileWriterCache._lock:
            key = str(Path(logdir).resolve())
            if key not in FileWriterCache._writers:
                FileWriterCache._writers[key] = FileWriter(logdir)
            writer = FileWriterCache._writers[key]
            writer.reopen()
            return writer

    @staticmethod
    def clear() -> None:
        """Closes and forgets all writers."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._writers.values():
                writer.close()
            FileWriterCache._writers.clear()


AsFileWriter: TypeAlias = Annotated[FileWriter, instance(FileWriter, expected="a tb.summary.FileWriter")]


@cache
def _messages() -> Any:
    return message_classes("step_stats", _STEP_STATS, {}, {})


def run_metadata_message(run_metadata: RunMetadata) -> bytes:
    """TensorFlow's message RunMetadata with the times of the ops, in the wire format."""
    message = _messages()("RunMetadata")()
    for device in run_metadata.step_stats.dev_stats:
        stats = message.step_stats.dev_stats.add(device=device.device)
        for node in device.node_stats:
            fields = {name: getattr(node, name) for name in _NODE_FIELDS}
            stats.node_stats.add(**fields)
    content: bytes = message.SerializeToString()
    return content


def graph_message(graph: Graph) -> Any:
    """A graph as TensorBoard's page shows it: its operations with inputs, devices and shapes of outputs."""
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboardX.proto.versions_pb2 import VersionDef

    def shapes(dims: tuple[int | None, ...] | None) -> Any:
        if dims is None:
            return TensorShapeProto(unknown_rank=True)
        return TensorShapeProto(dim=[TensorShapeProto.Dim(size=-1 if d is None else d) for d in dims])

    nodes = []
    for op in graph.get_operations():
        inputs = [tensor.name.removesuffix(":0") for tensor in op.inputs]
        inputs += [f"^{each.name}" for each in op.control_inputs]
        outputs = AttrValue.ListValue(shape=[shapes(tensor.spec.shape) for tensor in op.outputs])
        attrs: Mapping[str, Any] = {"_output_shapes": AttrValue(list=outputs)}
        nodes.append(NodeDef(name=op.name, op=op.type, device=str(op.device), input=inputs, attr=attrs))
    return GraphDef(node=nodes, versions=VersionDef(producer=22))


@checked
def summary_iterator(path: AsPath) -> Iterator[Any]:
    """An iterator over the events of an event file, each tensorboardX's message Event, in their order.

    Raises NotFoundError for a missing file, DataLossError for a damaged one, FailedPreconditionError without
    the extra `tensorboard`.
    """
    _, protocol = event_protocol()
    return map(protocol.Event.FromString, tf_record_iterator(path))
