"""Event files for TensorBoard: summaries, graphs and traces of runs (TensorFlow white paper, section 9.1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import AsGraph, Graph, get_default_graph
from tensorbow.input_ops.records import tf_record_iterator
from tensorbow.kinds import AsPath, Count, Positive, PositiveNumber, Text, checked, instance, refuse
from tensorbow.ops.summaries import event_protocol, is_summary, merge_all
from tensorbow.runtime import (
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    get_global_step,
)
from tensorbow.training.checkpoints import make_folder
from tensorbow.training.session_creators import AsScaffold
from tensorbow.variables import Variable


class FileWriter:
    """Writes summaries, graphs and traces to a new event file in a folder, which TensorBoard shows.

    A thread of its own writes; `flush` waits for it. Use it with `with`, or close it.
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
        """graph: written to the file, for TensorBoard's graph page. max_queue: events that wait.

        flush_secs: the file is brought up to date every so many seconds. Raises FailedPreconditionError
        without tensorboardX, ResourceExhaustedError if the folder cannot be made.
        """
        event_protocol()
        make_folder(Path(logdir))
        self._logdir, self._options = str(logdir), (max_queue, flush_secs, filename_suffix)
        self._writer: Any = None
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
    def add_event(self, event: Any, global_step: Count | None = None) -> None:
        """Adds an `Event` message; sets its time, and its step if one is given."""
        _, events = event_protocol()
        if not isinstance(event, events.Event):
            raise refuse("add_event", "event", "an Event message", event)
        if self._writer is None:
            raise FailedPreconditionError(
                f"FileWriter {self._logdir}: it is closed; reopen() begins a new file"
            )
        self._writer.add_event(event, global_step)

    def get_logdir(self) -> str:
        """The folder."""
        return self._logdir

    def flush(self) -> None:
        """Writes what waits; does nothing after `close`."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Writes what waits and closes the file; idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def reopen(self) -> None:
        """Begins a new file after `close`; does nothing before."""
        if self._writer is None:
            from tensorboardX import FileWriter as EventWriter

            self._writer = EventWriter(self._logdir, *self._options)

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
        """The writer of a folder, made on first use."""
        with FileWriterCache._lock:
            key = str(Path(logdir).resolve())
            if key not in FileWriterCache._writers:
                FileWriterCache._writers[key] = FileWriter(logdir)
            return FileWriterCache._writers[key]

    @staticmethod
    def clear() -> None:
        """Closes and forgets all writers."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._writers.values():
                writer.close()
            FileWriterCache._writers.clear()


AsFileWriter: TypeAlias = Annotated[FileWriter, instance(FileWriter, expected="a tb.summary.FileWriter")]


class SummarySaverHook(SessionRunHook):
    """Writes summaries every so many steps of a monitored session (TensorFlow 1's name)."""

    @checked
    def __init__(
        self,
        save_steps: Positive,
        output_dir: AsPath | None = None,
        summary_writer: AsFileWriter | None = None,
        summary_op: Any = None,
        scaffold: AsScaffold | None = None,
    ):
        """summary_op: a summary; by default the scaffold's, or all of the graph, merged, if it has any.

        Raises InvalidArgumentError unless exactly one of output_dir and summary_writer is given, for a
        summary_op that is none, and for both a summary_op and a scaffold.
        """
        if summary_op is not None and scaffold is not None:
            raise InvalidArgumentError(
                "SummarySaverHook: expected summary_op or scaffold, got both; give one"
            )
        if (output_dir is None) == (summary_writer is None):
            raise InvalidArgumentError(
                "SummarySaverHook: expected output_dir or summary_writer, "
                f"got {'neither' if output_dir is None else 'both'}"
            )
        if summary_op is not None and not is_summary(summary_op):
            raise refuse("SummarySaverHook", "summary_op", "a summary of tb.summary", summary_op)
        self._every, self._folder = save_steps, output_dir
        self._writer, self._summary, self._scaffold = summary_writer, summary_op, scaffold
        self._global_step: Variable | None = None
        self._step = 0

    def begin(self) -> None:
        """Finds the summaries and the global step, and opens the file."""
        self._global_step = get_global_step()
        if self._summary is None and self._scaffold is None:
            self._summary = merge_all()
        if self._writer is None and self._folder is not None:
            self._writer = FileWriter(self._folder, get_default_graph())

    def after_create_session(self, session: Session) -> None:
        """Takes the scaffold's summary, which is made with the session."""
        if self._scaffold is not None:
            self._summary = self._scaffold.summary_op

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetches the summary where one is due: with the first step, and every `save_steps` after."""
        due = self._summary is not None and self._step % self._every == 0
        fetches = {"summary": self._summary} if due else {}
        if due and self._global_step is not None:
            fetches["step"] = self._global_step
        return SessionRunArgs(fetches) if fetches else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the summary, as of the global step, or of the number of runs if there is none."""
        if run_values.results is not None and self._writer is not None:
            step = run_values.results.get("step", self._step)
            self._writer.add_summary(run_values.results["summary"], step)
        self._step += 1

    def end(self, session: Session) -> None:
        """Writes what waits; closes the file if it is the hook's own."""
        if self._writer is not None:
            self._writer.flush()
            if self._folder is not None:
                self._writer.close()
                self._writer = None


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
