"""Summaries and event files, read back as TensorBoard reads them."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph.protobuf.message_classes import message_classes

pytest.importorskip("tensorboardX")
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.graph_pb2 import GraphDef as GraphMessage
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata

RUN_METADATA = {  # in the wire format of TensorFlow
    "NodeExecStats": "string node_name 1, int64 all_start_micros 2, int64 op_start_rel_micros 3, "
    "int64 op_end_rel_micros 4, int64 all_end_rel_micros 5, string timeline_label 8, uint32 thread_id 10",
    "DeviceStepStats": "string device 1, repeated NodeExecStats node_stats 2",
    "StepStats": "repeated DeviceStepStats dev_stats 1",
    "RunMetadata": "StepStats step_stats 1",
}
pytestmark = pytest.mark.usefixtures("graph")


def events(folder) -> list[Event]:
    """The events of the files of a folder: records of length, checksum, message, checksum."""
    found = []
    for path in sorted(folder.iterdir()):
        blob = path.read_bytes()
        while blob:
            length = int.from_bytes(blob[:8], "little")
            found.append(Event.FromString(blob[12 : 12 + length]))
            blob = blob[16 + length :]
    return found


def parsed(blob: bytes) -> dict[str, Summary.Value]:
    assert type(blob) is bytes
    return {value.tag: value for value in Summary.FromString(blob).value}


def test_summaries_of_a_step(tmp_path, graph):
    x = tb.placeholder(tb.float32, [None], name="x")
    w = tb.Variable(np.array([1.0, 2.0], np.float32), name="w")
    with tb.name_scope("train"):
        tb.summary.scalar("mean loss", tb.reduce_mean(x))
        tb.summary.scalar("mean loss", tb.reduce_sum(x), family="sums")
    tb.summary.histogram("weights", w)
    tb.summary.text("about", ["one", "two"])
    alone = tb.summary.scalar("alone", 3, collections=["mine"])
    merged = tb.summary.merge_all()
    assert tb.summary.merge_all("none") is None
    with tb.Session() as session, tb.summary.FileWriter(tmp_path, graph) as writer:
        session.run(tb.global_variables_initializer())
        total, (blob, own) = session.run([tb.reduce_sum(x), (merged, alone)], {x: [1.0, 3.0]})
        writer.add_summary(blob, np.int64(7))
        writer.add_summary(own, 8)
        assert session.make_callable(merged, [x])([1.0, 3.0]) == blob
        assert session.run(merged, {merged: np.frombuffer(b"ab", np.uint8)}).tobytes() == b"ab"
    values = parsed(blob)
    assert total == 4
    assert values["train/mean_loss"].simple_value == 2
    assert values["sums/train/sums/mean_loss"].simple_value == 4
    assert values["about"].tensor.string_val == [b"one", b"two"]
    assert values["about"].metadata.plugin_data.plugin_name == "text"
    histogram = values["weights"].histo
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (1, 2, 2, 3)
    assert histogram.sum_squares == 5
    first, *written = events(tmp_path)
    assert first.file_version
    assert {node.name for node in GraphMessage.FromString(written[0].graph_def).node} >= {"x", "w", "w/read"}
    assert [(e.step, len(e.summary.value)) for e in written[1:]] == [(7, 4), (8, 1)]
    with pytest.raises(FailedPreconditionError, match="closed; reopen"):
        writer.add_summary(blob)


def test_buckets_of_a_histogram():
    values = np.array([-3.0, 0.0, 0.0, 1e-13, 5.0, 1e30, np.finfo(np.float64).max])
    summary = tb.summary.histogram("h", tb.constant(values))
    with tb.Session() as session:
        histogram = parsed(session.run(summary))["h"].histo
    limits, counts = np.array(histogram.bucket_limit), np.array(histogram.bucket)
    assert np.all(np.diff(limits) > 0)
    assert counts.sum() == len(values)
    for low, high, count in zip([-np.inf, *limits], limits, counts, strict=False):
        inside = (values >= low) & ((values < high) | (high == limits[-1]))
        assert inside.sum() == count
        assert count == 0 or high == limits[-1] or low >= high * (1.11 if high < 0 else 0.9) - 2e-12
    with (
        tb.Session() as session,
        pytest.raises(InvalidArgumentError, match=r"bad: expected finite"),
    ):
        session.run(tb.summary.histogram("bad", tb.constant([1.0, np.nan])))


def test_images():
    image_module = pytest.importorskip("PIL.Image")
    shades = np.array([[[[0.0], [2.0]], [[-1.0], [np.nan]]]], np.float32)
    colours = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    batch = tb.placeholder(tb.uint8, [None, 3, 4, 3])
    one = tb.summary.image("shades", tb.constant(shades), max_outputs=1)
    several = tb.summary.image("colours", batch)
    with tb.Session() as session:
        blobs = session.run([one, several], {batch: colours})
    values = {**parsed(blobs[0]), **parsed(blobs[1])}
    assert sorted(values) == ["colours/image/0", "colours/image/1", "shades/image"]

    def pixels(tag):
        return np.asarray(image_module.open(io.BytesIO(values[tag].image.encoded_image_string)))

    assert np.array_equal(pixels("colours/image/1"), colours[1])
    assert pixels("shades/image").tolist() == [[127, 255], [63, 255]]
    assert (values["shades/image"].image.height, values["shades/image"].image.colorspace) == (2, 1)


def test_summaries_of_replicas_are_averaged():
    x = tb.placeholder(tb.float32, [None])
    w = tb.Variable(np.float32(1.0), name="w")
    loss = tb.reduce_mean(w * x)
    update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
    summary = tb.summary.scalar("loss", loss)
    with tb.Session("tensorbow", replicas_per_device=2) as session:
        session.run(tb.global_variables_initializer())
        _, blob = session.run([update, summary], {x: [1.0, 1.0, 3.0, 3.0]})
        assert "replicas" in str(session.explain([update, summary], {x: [1.0, 1.0, 3.0, 3.0]}))
    assert parsed(blob)["loss"].simple_value == 2


def test_a_hook_writes_summaries_of_the_global_step(tmp_path):
    step = tb.train.get_or_create_global_step()
    x = tb.Variable(np.float32(2.0))
    tb.summary.scalar("x", x)
    update = tb.train.GradientDescentOptimizer(0.5).minimize(x * 1.0, global_step=step)
    hooks = [tb.train.SummarySaverHook(2, output_dir=tmp_path), tb.train.StopAtStepHook(5)]
    with tb.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(update)
    written = [(e.step, e.summary.value[0].simple_value) for e in events(tmp_path) if e.summary.value]
    assert written == [(1, 2), (3, 1), (5, 0)]
    with pytest.raises(InvalidArgumentError, match=r"output_dir or summary_writer, got neither"):
        tb.train.SummarySaverHook(2)


def test_events_are_in_the_file_after_a_flush_and_in_a_new_one_after_reopen(tmp_path):
    with tb.summary.FileWriter(tmp_path, max_queue=2, flush_secs=1e6) as writer:
        for step in range(3):
            writer.add_summary(Summary(), step)
        (path,) = tmp_path.iterdir()
        assert [e.step for e in events(tmp_path) if not e.file_version] == [0, 1]
        writer.flush()
        assert [e.step for e in events(tmp_path) if not e.file_version] == [0, 1, 2]
        writer.close()
        writer.reopen()  # in the same second
        writer.add_summary(Summary(), 3)
    assert len(list(tmp_path.iterdir())) == 2
    assert [e.step for e in events(tmp_path) if not e.file_version] == [0, 1, 2, 3]
    assert [e.file_version for e in tb.train.summary_iterator(path)] == ["brain.Event:2", "", "", ""]


def test_a_suffix_ends_the_name_of_the_file(tmp_path):
    with tb.summary.FileWriter(tmp_path, filename_suffix=".eval"):
        (path,) = tmp_path.iterdir()
    assert path.name.startswith("events.out.tfevents.")
    assert path.name.endswith(".eval")
    assert path.name.count(".eval") == 1


def test_one_writer_for_each_folder(tmp_path):
    cache = tb.summary.FileWriterCache
    writer = cache.get(tmp_path / "a")
    assert cache.get(tmp_path / "b" / ".." / "a") is writer
    cache.clear()
    assert cache.get(tmp_path / "a") is not writer
    cache.clear()


def test_misuse_is_refused(tmp_path):
    x = tb.placeholder(tb.float32, [2])
    summary = tb.summary.histogram("x", x)
    with pytest.raises(InvalidArgumentError, match=r"expected tensor to be a scalar, got float32\[2\]"):
        tb.summary.scalar("x", x)
    with pytest.raises(InvalidArgumentError, match=r"image: expected tensor to have shape \[batch"):
        tb.summary.image("x", x)
    with pytest.raises(InvalidArgumentError, match=r"merge: expected inputs to be summaries, got <tb.Tensor"):
        tb.summary.merge([summary, x])
    y = tb.identity(summary)
    with (
        tb.Session() as session,
        pytest.raises(InvalidArgumentError, match=r"Summary x.* is made when it is fetched"),
    ):
        session.run(y, {x: [1, 2]})
    with tb.summary.FileWriter(tmp_path) as writer:
        with pytest.raises(InvalidArgumentError, match="fetch it by session"):
            writer.add_summary(summary)
        with pytest.raises(InvalidArgumentError, match="bytes of other content"):
            writer.add_summary(b"\xff\xff\xff")
        with pytest.raises(InvalidArgumentError, match="global_step"):
            writer.add_summary(b"", 1.5)


def test_texts_of_string_tensors():
    with tb.Graph().as_default(), tb.Session() as session:
        rows = tb.placeholder(tb.string, [None, 2])
        table, line = tb.summary.text("table", rows), tb.summary.text("line", tb.as_string(3))
        merged = tb.summary.merge([table, line, tb.summary.scalar("count", tb.size(rows))])
        values = parsed(session.run(merged, {rows: [["a", "b"], ["c", "\xe9"]]}))
        with pytest.raises(InvalidArgumentError, match=r"expected tensor to be of strings, got float32\[\]"):
            tb.summary.text("number", tb.constant(1.0))
    assert values["table"].tensor.string_val == [b"a", b"b", b"c", "\xe9".encode()]
    assert [dim.size for dim in values["table"].tensor.tensor_shape.dim] == [2, 2]
    assert values["line"].tensor.string_val == [b"3"]
    assert values["count"].simple_value == 4


def test_summaries_made_by_hand():
    made = tb.Summary(value=[tb.Summary.Value(tag="loss", simple_value=0.5)])
    assert tb.Summary is tb.summary.Summary
    assert tb.summary.Summary.FromString(made.SerializeToString()).value[0].simple_value == 0.5


def test_sounds():
    sounds = np.stack([np.float32([[0.5, -1], [0, 2]])] * 3)
    rate = tb.placeholder(tb.float32, [])
    stereo = tb.summary.audio("tone", tb.constant(sounds), rate, max_outputs=2)
    mono = tb.summary.audio("hum", sounds[:, :, 0], 44100, max_outputs=1, collections=["mine"])
    with tb.Session() as session:
        values = parsed(session.run(tb.summary.merge([stereo, mono]), {rate: 8000}))
        with pytest.raises(InvalidArgumentError, match="a rate of at least 1 Hz, got a rate of 0"):
            session.run(stereo, {rate: 0})
    assert [*values] == ["tone/audio/0", "tone/audio/1", "hum/audio"]
    audio = values["tone/audio/1"].audio
    assert (audio.sample_rate, audio.num_channels, audio.length_frames) == (8000, 2, 2)
    assert audio.content_type == "audio/wav"
    with wave.open(io.BytesIO(audio.encoded_audio_string)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 2, 2)
        codes = np.frombuffer(file.readframes(2), "<i2")
    assert codes.tolist() == [16384, -32768, 0, 32767]
    assert (values["hum/audio"].audio.sample_rate, values["hum/audio"].audio.num_channels) == (44100, 1)
    assert tb.get_collection("mine") == [mono]
    for wrong in (np.zeros([2], np.float32), np.zeros([2, 3, 1], np.int32)):
        with pytest.raises(InvalidArgumentError, match=r"expected tensor to be float32 \[batch, frames"):
            tb.summary.audio("x", wrong, 8000)


def test_tensors_as_they_are():
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="mine"))
    numbers = tb.summary.tensor_summary(
        "codes",
        tb.constant([[1, 2, 3]], tb.int16),
        "three of them",
        summary_metadata=metadata,
        display_name="C",
    )
    words = tb.summary.tensor_summary("words", tb.constant(["a", "bc"]), family="texts")
    with tb.Session() as session:
        values = parsed(session.run(tb.summary.merge([numbers, words])))
    value = values["codes"]
    assert (value.metadata.display_name, value.metadata.summary_description) == ("C", "three of them")
    assert value.metadata.plugin_data.plugin_name == "mine"
    assert [each.size for each in value.tensor.tensor_shape.dim] == [1, 3]
    assert np.frombuffer(value.tensor.tensor_content, "<i2").tolist() == [1, 2, 3]
    assert [*values["texts/texts/words"].tensor.string_val] == [b"a", b"bc"]
    with pytest.raises(InvalidArgumentError, match="summary_metadata to be a SummaryMetadata"):
        tb.summary.tensor_summary("x", 1.0, summary_metadata="mine")


def test_times_of_a_run(tmp_path):
    x = tb.placeholder(tb.float32, [None], name="x")
    total = tb.reduce_sum(tb.exp(x), name="total")
    metadata = tb.RunMetadata()
    with tb.Session() as session, tb.summary.FileWriter(tmp_path) as writer:
        session.run(total, {x: [1.0]}, tb.RunOptions(trace_level=tb.RunOptions.FULL_TRACE), metadata)
        writer.add_run_metadata(metadata, "step7", 7)
        with pytest.raises(InvalidArgumentError, match="expected a new tag, got 'step7' again"):
            writer.add_run_metadata(metadata, "step7", 8)
    _, event = events(tmp_path)
    assert (event.step, event.tagged_run_metadata.tag) == (7, "step7")
    message = message_classes("run_metadata", RUN_METADATA, {}, {})("RunMetadata").FromString(
        event.tagged_run_metadata.run_metadata
    )
    (device,), (written,) = metadata.step_stats.dev_stats, message.step_stats.dev_stats
    assert written.device == device.device
    names = ("node_name", "timeline_label", "all_start_micros", "all_end_rel_micros", "thread_id")
    assert device.node_stats
    for node, other in zip(device.node_stats, written.node_stats, strict=True):
        assert [getattr(node, name) for name in names] == [getattr(other, name) for name in names]
