"""Readers: what each gives, several steps at a time, shared by name, and how their waits end."""

import contextlib
import threading

import pytest

import tensorbow as tb
from tensorbow.errors import (
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)

pytestmark = pytest.mark.usefixtures("graph")


def queue_of(session, items):
    queue = tb.FIFOQueue(99, tb.string, [[]])
    session.run(queue.enqueue_many([[str(item) for item in items]]))
    session.run(queue.close())
    return queue


def rest(session, fetches):
    """Results of a step until the input ends."""
    found = []
    with contextlib.suppress(OutOfRangeError):
        while True:
            found.append(session.run(fetches))
    return found


def all_of(reader, items):
    with tb.Session() as session:
        records = rest(session, reader.read(queue_of(session, items)))
        counts = session.run([reader.num_records_produced(), reader.num_work_units_completed()])
    assert counts == [len(records), len(items)]
    return records


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a").write_bytes(b"h\na1\na2\r\n\nlast")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(b"h\nc1\n")
    return [tmp_path / name for name in "abc"]


def key(path, number):
    return f"{path}:{number}".encode()


def test_lines(files):
    a, _, c = files
    assert all_of(tb.TextLineReader(), files) == [
        (key(a, 1), b"h"),
        (key(a, 2), b"a1"),
        (key(a, 3), b"a2"),
        (key(a, 4), b""),
        (key(a, 5), b"last"),
        (key(c, 1), b"h"),
        (key(c, 2), b"c1"),
    ]
    assert [value for _, value in all_of(tb.TextLineReader(skip_header_lines=1), files)] == [
        b"a1", b"a2", b"", b"last", b"c1",
    ]  # fmt: skip
    assert all_of(tb.TextLineReader(skip_header_lines=1), files)[-1] == (key(c, 2), b"c1")
    assert all_of(tb.TextLineReader(skip_header_lines=9), files) == []


def test_whole_files_and_items(files):
    assert all_of(tb.WholeFileReader(), files) == [(str(f).encode(), f.read_bytes()) for f in files]
    assert all_of(tb.IdentityReader(), ["x", "y"]) == [(b"x", b"x"), (b"y", b"y")]


def test_records_of_fixed_length(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(b"HHabcdefF")
    whole = tb.FixedLengthRecordReader(3, header_bytes=2, footer_bytes=1)
    assert all_of(whole, [path]) == [(key(path, 0), b"abc"), (key(path, 1), b"def")]
    steps = tb.FixedLengthRecordReader(3, header_bytes=2, footer_bytes=1, hop_bytes=1)
    assert [value for _, value in all_of(steps, [path])] == [b"abc", b"bcd", b"cde", b"def"]
    with tb.Session() as session:
        wrong = tb.FixedLengthRecordReader(4).read(queue_of(session, [path]))
        with pytest.raises(DataLossError, match=r"has 9 bytes between .* expected a multiple of 4"):
            session.run(wrong)


@pytest.mark.parametrize("kind", ["NONE", "ZLIB", "GZIP"])
def test_files_of_records(tmp_path, kind):
    options = tb.python_io.TFRecordOptions(kind)
    with tb.python_io.TFRecordWriter(tmp_path / "r", options) as writer:
        for record in (b"one", b"two"):
            writer.write(record)
    found = all_of(tb.TFRecordReader(options=options), [tmp_path / "r"])
    assert found == [(key(tmp_path / "r", 0), b"one"), (key(tmp_path / "r", 19), b"two")]


def test_a_damaged_file_fails_one_step_and_not_the_next_file(tmp_path):
    for name in "ab":
        with tb.python_io.TFRecordWriter(tmp_path / name) as writer:
            writer.write(b"record")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with tb.Session() as session:
        record = tb.TFRecordReader().read(
            queue_of(session, [tmp_path / "a", tmp_path / "none", tmp_path / "b"])
        )
        with pytest.raises(DataLossError, match=r"ReaderRead.*/a' is damaged at byte 0"):
            session.run(record)
        with pytest.raises(NotFoundError, match=r"there is no file .*/none"):
            session.run(record)
        assert session.run(record)[1] == b"record"


def test_several_records_of_one_file_at_once(files):
    with tb.Session() as session:
        reader = tb.TextLineReader()
        found = rest(session, reader.read_up_to(queue_of(session, files), 3))
    assert [values.tolist() for _, values in found] == [[b"h", b"a1", b"a2"], [b"", b"last"], [b"h", b"c1"]]
    assert [len(keys) for keys, _ in found] == [3, 2, 2]


def test_reset(files):
    with tb.Session() as session:
        reader, queue = tb.TextLineReader(), tb.FIFOQueue(9, tb.string, [[]])
        value = reader.read(queue)[1]
        session.run(queue.enqueue_many([[str(files[0]), str(files[2])]]))
        assert session.run([value])[0] == b"h"
        session.run(reader.reset())
        assert session.run(reader.num_records_produced()) == 0
        assert [session.run(value) for _ in range(2)] == [b"h", b"c1"]


def test_a_reader_waits_for_its_queue(files):
    queue = tb.FIFOQueue(9, tb.string, [[]])
    value = tb.TextLineReader().read(queue)[1]
    put = queue.enqueue(str(files[2]))
    found = []
    with tb.Session() as session:
        threads = [threading.Thread(target=lambda: found.append(session.run(value))) for _ in range(2)]
        for thread in threads:
            thread.start()
        session.run(put)
        for thread in threads:
            thread.join(30)
    assert sorted(found) == [b"c1", b"h"]


def test_threads_share_the_records(tmp_path):
    lines = [f"{number}".encode() for number in range(300)]
    for part in range(3):
        (tmp_path / str(part)).write_bytes(b"\n".join(lines[part * 100 : (part + 1) * 100]))
    found = []
    with tb.Session() as session:
        value = tb.TextLineReader().read(queue_of(session, [tmp_path / str(part) for part in range(3)]))[1]

        def work():
            try:
                while True:
                    found.append(session.run(value))
            except OutOfRangeError:
                pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(found) == sorted(lines)


def test_a_read_that_waits_is_ended(files):
    queue = tb.FIFOQueue(9, tb.string, [[]])
    reader = tb.TextLineReader()
    value, put = reader.read(queue)[1], queue.enqueue(str(files[2]))
    session = tb.Session()
    with pytest.raises(DeadlineExceededError):
        session.run(value, options=tb.RunOptions(timeout_in_ms=20))
    session.run(put)
    assert session.run(value) == b"h"  # the call that was given up has taken nothing
    assert session.run(value) == b"c1"
    errors = []

    def work():
        try:
            session.run(value)
        except CancelledError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not session._dynamic.running:
        thread.join(0.001)
    session.close()
    thread.join(30)
    assert len(errors) == 1


def test_readers_shared_by_name(files):
    with tb.Session() as one, tb.Session() as other:
        with tb.container("of_this_test"):
            reader = tb.TextLineReader(shared_name="lines")
            again = tb.TextLineReader(shared_name="lines")
            another_kind = tb.WholeFileReader(shared_name="lines")
            queue = tb.FIFOQueue(9, tb.string, [[]], shared_name="names")
        one.run(queue.enqueue(str(files[0])))
        assert one.run(reader.read(queue)[1]) == b"h"
        assert other.run(again.read(queue)[1]) == b"a1"
        with pytest.raises(InvalidArgumentError, match="shared_name 'lines' belongs to an object"):
            one.run(another_kind.read(queue))
        tb.Session.reset("", ["of_this_test"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.TextLineReader().read(tb.FIFOQueue(1, tb.int32)), "be one of strings, got one of int32"),
        (lambda: tb.TextLineReader().read("a"), "expected queue to be a queue of strings"),
        (lambda: tb.TextLineReader().read_up_to(tb.FIFOQueue(1, tb.string), 1.5), "an integer scalar"),
        (lambda: tb.FixedLengthRecordReader(0), "expected record_bytes to be"),
        (lambda: tb.TextLineReader(-1), "expected skip_header_lines to be"),
        (lambda: tb.TFRecordReader(options=3), "expected options to be"),
    ],
)  # fmt: skip
def test_refused(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make()


def test_refused_when_it_runs():
    with tb.Session() as session:
        reader, queue = tb.TextLineReader(), tb.FIFOQueue(1, tb.string)
        with pytest.raises(InvalidArgumentError, match="num_records is 0, expected at least 1"):
            session.run(reader.read_up_to(queue, 0))
        with pytest.raises(InvalidArgumentError, match="expected the handle of a queue, got that of a"):
            session.run(reader.read(reader.reader_ref))
