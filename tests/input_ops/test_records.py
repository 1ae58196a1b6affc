"""Checksums and files of records: the format's published values, every kind of damage, compression."""

import gzip
import struct
import sys
import types
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.input_ops import checksums
from tensorbow.input_ops.checksums import crc32c, crc32c_by_numpy, masked_crc32c

KINDS = tb.python_io.TFRecordCompressionType
RECORDS = [b"one", b"", b"three" * 1000, b"vier"]


def bitwise(data):
    """CRC-32C bit by bit, from its definition."""
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0x82F63B78 if total & 1 else 0)
    return total ^ 0xFFFFFFFF


# RFC 3720, appendix B.4, and the check value of the algorithm's catalogue.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_published_checksums(data, expected):
    assert crc32c_by_numpy(data) == crc32c(data) == bitwise(data) == expected


@pytest.mark.parametrize("size", [1, 63, 4095, 4096, 4097, 8192, 12345])
def test_checksums_in_lanes(size):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c_by_numpy(data) == bitwise(data)


def test_checksums_of_many_lanes_join():
    data = np.random.default_rng(0).bytes(1 << 19)
    whole = crc32c_by_numpy(data + b"end")
    parts = [crc32c_by_numpy(data[:1000]), data[1000:] + b"end"]
    total = parts[0] ^ 0xFFFFFFFF  # goes on from the first part's checksum, byte by byte
    for byte in parts[1]:
        total = checksums._TABLE[(total ^ byte) & 0xFF] ^ total >> 8
    assert whole == total ^ 0xFFFFFFFF


def test_compiled_checksums_are_used_where_they_are_installed(monkeypatch):
    checksums._compiled.cache_clear()
    module = types.ModuleType("google_crc32c")
    module.value = lambda data: 5
    monkeypatch.setitem(sys.modules, "google_crc32c", module)
    try:
        assert crc32c(b"") == 5
    finally:
        checksums._compiled.cache_clear()


def test_the_mask_is_the_formats():
    checksum = crc32c(b"abc")
    assert masked_crc32c(b"abc") == ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % (1 << 32)


def written(path, records=RECORDS, kind=KINDS.NONE):
    with tb.python_io.TFRecordWriter(path, tb.python_io.TFRecordOptions(kind)) as writer:
        for record in records:
            writer.write(record)
    return path


def read(path, kind=KINDS.NONE):
    return list(tb.python_io.tf_record_iterator(path, tb.python_io.TFRecordOptions(kind)))


def test_bytes_of_a_record(tmp_path):
    blob = written(tmp_path / "r", [b"abc"]).read_bytes()
    length = struct.pack("<Q", 3)
    assert blob == length + struct.pack("<I", masked_crc32c(length)) + b"abc" + struct.pack(
        "<I", masked_crc32c(b"abc")
    )


def test_a_file_of_another_writer_is_read(tmp_path):
    from tensorboardX import record_writer

    writer = record_writer.RecordWriter(str(tmp_path / "r"))
    for record in RECORDS:
        writer.write(record)
    writer.close()
    assert read(tmp_path / "r") == RECORDS
    assert written(tmp_path / "s").read_bytes() == (tmp_path / "r").read_bytes()


@pytest.mark.parametrize("kind", [KINDS.NONE, KINDS.ZLIB, KINDS.GZIP])
def test_records_come_back(tmp_path, kind):
    path = written(tmp_path / "r", kind=kind)
    assert read(path, kind) == RECORDS
    plain = written(tmp_path / "plain").read_bytes()
    blob = path.read_bytes()
    unpacked = {KINDS.NONE: bytes, KINDS.ZLIB: zlib.decompress, KINDS.GZIP: gzip.decompress}[kind](blob)
    assert unpacked == plain


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=5), st.sampled_from(["", "ZLIB", "GZIP"]))
def test_any_records_come_back(tmp_path_factory, records, kind):
    path = tmp_path_factory.mktemp("records") / "r"
    assert read(written(path, records, kind), kind) == records


def test_every_changed_byte_is_found(tmp_path):
    blob = written(tmp_path / "r", [b"abc", b"de"]).read_bytes()
    damaged = tmp_path / "damaged"
    for position in range(len(blob)):
        damaged.write_bytes(blob[:position] + bytes([blob[position] ^ 0x40]) + blob[position + 1 :])
        start = 0 if position < 19 else 19
        with pytest.raises(DataLossError, match=rf"damaged' is damaged at byte {start}, .*checksum"):
            read(damaged)


@pytest.mark.parametrize("kind", [KINDS.NONE, KINDS.ZLIB, KINDS.GZIP])
def test_every_truncation_is_found(tmp_path, kind):
    blob = written(tmp_path / "r", [b"abc", b"de"], kind).read_bytes()
    ends = {len(written(tmp_path / "one", [b"abc"]).read_bytes()), 0} if kind == KINDS.NONE else {0}
    for size in range(len(blob)):
        (tmp_path / "cut").write_bytes(blob[:size])
        if size in ends and kind != KINDS.ZLIB:
            assert len(read(tmp_path / "cut", kind)) == (size > 0)
            continue
        with pytest.raises(DataLossError, match="cut' is damaged at byte"):
            read(tmp_path / "cut", kind)


def test_records_before_the_damage_are_read(tmp_path):
    path = written(tmp_path / "r", [b"abc", b"de"])
    path.write_bytes(path.read_bytes()[:-1])
    records = tb.python_io.tf_record_iterator(path)
    assert next(records) == b"abc"
    with pytest.raises(DataLossError, match=r"at byte 19, .* the record declares 2 bytes, more than"):
        next(records)


def test_a_hostile_length_takes_no_memory(tmp_path):
    length = struct.pack("<Q", 1 << 60)
    (tmp_path / "r").write_bytes(length + struct.pack("<I", masked_crc32c(length)) + bytes(100))
    with pytest.raises(DataLossError, match="declares 1,152,921,504,606,846,976 bytes, more than the file"):
        read(tmp_path / "r")


def test_the_wrong_compression_is_found(tmp_path):
    for there, said in ((KINDS.NONE, KINDS.GZIP), (KINDS.ZLIB, KINDS.NONE), (KINDS.GZIP, KINDS.ZLIB)):
        with pytest.raises(DataLossError, match="no file of records of this compression"):
            read(written(tmp_path / "r", kind=there), said)


def test_what_writers_refuse(tmp_path):
    writer = tb.python_io.TFRecordWriter(tmp_path / "r")
    with pytest.raises(InvalidArgumentError, match="expected record to be bytes, got int 3"):
        writer.write(3)
    writer.write("text")
    writer.flush()
    assert read(tmp_path / "r") == [b"text"]
    writer.close()
    writer.close()
    with pytest.raises(FailedPreconditionError, match=r"the writer of .* is closed"):
        writer.write(b"a")
    with pytest.raises(FailedPreconditionError, match=r"cannot write .*none/r"):
        tb.python_io.TFRecordWriter(tmp_path / "none" / "r")
    with pytest.raises(NotFoundError, match="there is no file"):
        tb.python_io.tf_record_iterator(tmp_path / "missing")
    with pytest.raises(InvalidArgumentError, match="NONE, ZLIB or GZIP"):
        tb.python_io.TFRecordOptions("LZ4")
