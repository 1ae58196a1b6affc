"""Data sets of lines and records, beside the files."""

from __future__ import annotations

import pytest

import tensorbow as tb
from tensorbow.data import Dataset
from tensorbow.errors import DataLossError, InvalidArgumentError, NotFoundError


def test_lines_of_files_are_interleaved(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{n}\n" for n in range(3)))
    paths = [str(tmp_path / f"{name}.txt") for name in "ab"]
    assert list(tb.data.TextLineDataset(paths)) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    files = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    lines = files.interleave(lambda path: tb.data.TextLineDataset(path).skip(1), cycle_length=2)
    assert list(lines) == [b"a1", b"b1", b"a2", b"b2"]
    assert list(tb.data.TextLineDataset(files).batch(4))[1].tolist() == [b"b1", b"b2"]
    shuffled = Dataset.list_files([paths[0], paths[1]], seed=1)
    assert sorted(shuffled) == [path.encode() for path in paths]
    orders = [batch.tolist() for batch in tb.data.TextLineDataset(shuffled).repeat(8).batch(6)]
    assert sorted(map(sorted, orders)) == [[b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]] * 8
    assert {order[0] for order in orders} == {b"a0", b"b0"}  # the files are shuffled anew
    with pytest.raises(NotFoundError, match=r"list_files: no file matches .*\.csv"):
        Dataset.list_files(str(tmp_path / "*.csv"))
    with pytest.raises(NotFoundError):
        list(tb.data.TextLineDataset(str(tmp_path / "none")))


def test_columns_of_lines_in_a_session(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("1,a,2.5\n2,b,3.5\n3,,4.5\n")

    def columns(line):
        number, word, value = tb.decode_csv(line, [[0], ["none"], [0.0]])
        return {"word": word, "value": value}, number

    data = tb.data.TextLineDataset(str(path)).map(columns).batch(2)
    with tb.Graph().as_default(), tb.Session() as session:
        features, number = data.make_one_shot_iterator().get_next()
        assert (features["word"].dtype, number.dtype) == (tb.string, tb.int32)
        session.run(number)
        found, last = session.run([features, number])
    assert (found["word"].tolist(), found["value"].tolist(), last.tolist()) == ([b"none"], [4.5], [3])


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records(tmp_path, compression):
    path, records = str(tmp_path / "records"), [b"one\x00\x00", b"", b"\x00"]
    kind = getattr(tb.python_io.TFRecordCompressionType, compression or "NONE")
    with tb.python_io.TFRecordWriter(path, tb.python_io.TFRecordOptions(kind)) as writer:
        for each in records:
            writer.write(each)
    data = tb.data.TFRecordDataset([path, path], compression)
    assert list(data) == records * 2
    assert [each.tolist() for each in data.batch(3)] == [records] * 2
    decoded = data.map(lambda record: tb.decode_raw(record, tb.uint8))
    assert next(iter(decoded)).tolist() == [*b"one\x00\x00"]
    with pytest.raises(InvalidArgumentError, match="TFRecordDataset: expected compression_type"):
        tb.data.TFRecordDataset(path, "zip")


def test_records_of_fixed_length(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(b"HabcdefF")
    assert list(tb.data.FixedLengthRecordDataset(str(path), 2, 1, 1)) == [b"ab", b"cd", b"ef"]
    with pytest.raises(DataLossError, match="expected a multiple of 4"):
        list(tb.data.FixedLengthRecordDataset(str(path), 4, 1, 1))
