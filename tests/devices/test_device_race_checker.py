from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from tensorbow.devices import (
    Access,
    CpuDevice,
    Event,
    LaunchLog,
    LaunchRecord,
    NullDevice,
    Stream,
    find_races,
    race_checker,
)
from tests.program_rig.examples import given_few

WEIGHTS, GRADIENT, CENTRAL = Access(0x1000, 0x100), Access(0x2000, 0x100), Access(0x3000, 0x100)


def nothing() -> None:
    pass


def averaging_rounds(*, missing_wait: bool = False, num_replicas: int = 3, num_rounds: int = 4) -> LaunchLog:
    """Replicas on devices of their own, corrections summed on a synchronisation stream of the first."""
    log = LaunchLog()
    devices = [NullDevice(f"/gpu:{i}", log=log) for i in range(num_replicas)]
    computes = [device.new_stream("compute") for device in devices]
    gather = devices[0].new_stream("sync")
    central_ready = gather.record()
    for step in range(num_rounds):
        done = []
        for i, stream in enumerate(computes):
            stream.enqueue(nothing, label=f"gradient {step}", reads=[WEIGHTS], writes=[GRADIENT])
            if not (missing_wait and step == 2 and i == 1):
                stream.wait(central_ready)
            central = CENTRAL._replace(device="/gpu:0")
            stream.enqueue(
                nothing, label=f"correct {step}.{i}", reads=[GRADIENT, central], writes=[WEIGHTS, GRADIENT]
            )
            done.append(stream.record())
        for event in done:
            gather.wait(event)
        corrections = [GRADIENT._replace(device=f"/device:GPU:{i}") for i in range(num_replicas)]
        gather.enqueue(nothing, label=f"average {step}", reads=corrections, writes=[CENTRAL])
        central_ready = gather.record()
        for stream in computes:
            stream.wait(central_ready) if not missing_wait else None
    return log


def test_a_correct_schedule_has_no_races() -> None:
    assert find_races(averaging_rounds()) == []


def test_a_missing_wait_is_found_and_explained() -> None:
    races = find_races(averaging_rounds(missing_wait=True))
    text = "\n".join(map(str, races))
    assert "race on /device:GPU:0 [0x3000, 0x3100), 256 bytes" in text
    assert "'average 1' on stream /gpu:0 sync and 'correct 2.1' on stream /gpu:1 compute" in text


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [("reads", "reads", 0), ("reads", "writes", 1), ("writes", "reads", 1), ("writes", "writes", 1)],
)
def test_a_conflict_needs_a_write(first: str, second: str, races: int) -> None:
    device = NullDevice()
    device.new_stream("a").enqueue(nothing, label="first", **{first: [Access(0, 8)]})  # type: ignore[arg-type]
    device.new_stream("b").enqueue(nothing, label="second", **{second: [Access(4, 8)]})  # type: ignore[arg-type]
    found = find_races(device.log)
    assert [race.ranges for race in found] == [((4, 4),)] * races


def test_addresses_of_different_devices_do_not_meet() -> None:
    log = LaunchLog()
    for i in range(2):
        NullDevice(f"/gpu:{i}", log=log).new_stream("a").enqueue(
            nothing, label="write", writes=[Access(0, 8)]
        )
    assert find_races(log) == []


def test_the_host_orders_by_waiting_and_not_by_callbacks_or_polling() -> None:
    def run(how: str) -> int:
        device = NullDevice()
        first, second = device.new_stream("first"), device.new_stream("second")
        first.enqueue(nothing, label="write", writes=[Access(0, 8)])
        event = first.record()
        if how == "event":
            event.synchronize()
        elif how == "stream":
            first.synchronize()
        elif how == "close":
            first.close()
        elif how == "poll":
            assert event.done()
        elif how == "callback":
            event.on_done(lambda _: second.enqueue(nothing, label="in callback", reads=[Access(0, 8)]))
            return len(find_races(device.log))
        second.enqueue(nothing, label="read", reads=[Access(0, 8)])
        return len(find_races(device.log))

    results = {how: run(how) for how in ("event", "stream", "close", "poll", "callback", "nothing")}
    assert results == {"event": 0, "stream": 0, "close": 0, "poll": 1, "callback": 1, "nothing": 1}


def test_an_event_of_elsewhere_orders_nothing() -> None:
    device = NullDevice()
    first, second = device.new_stream("first"), device.new_stream("second")
    with CpuDevice() as cpu:
        first.enqueue(nothing, label="write", writes=[Access(0, 8)])
        second.wait(cpu.new_stream("compute").record())
        second.enqueue(nothing, label="read", reads=[Access(0, 8)])
    assert len(find_races(device.log)) == 1


def test_an_event_orders_what_came_before_it_only() -> None:
    device = NullDevice()
    first, second = device.new_stream("first"), device.new_stream("second")
    first.enqueue(nothing, label="before", writes=[Access(0, 8)])
    event = first.record()
    first.enqueue(nothing, label="after", writes=[Access(8, 8)])
    second.wait(event)
    second.enqueue(nothing, label="read", reads=[Access(0, 16)])
    assert [(race.earlier.label, race.later.label) for race in find_races(device.log)] == [("after", "read")]


def test_a_range_split_by_other_accesses_is_one_race() -> None:
    device = NullDevice()
    first, second = device.new_stream("first"), device.new_stream("second")
    for start in (0, 10, 30):
        first.enqueue(nothing, label="touch", reads=[Access(start, 10)])
    first.enqueue(nothing, label="write", reads=[Access(5, 10)], writes=[Access(0, 20), Access(30, 10)])
    second.enqueue(nothing, label="read", reads=[Access(0, 100)])
    (race,) = find_races(device.log)
    assert race.ranges == ((0, 20), (30, 10))
    assert "[0x0, 0x14), [0x1e, 0x28), 30 bytes" in str(race)


# ---- against a model: reachability in the graph of all records, all pairs --------------------------------

ranges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=2)
calls = st.one_of(
    st.tuples(st.just("launch"), st.integers(0, 3), ranges, ranges),
    st.tuples(st.just("record"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(0, 3), st.integers(0, 99)),
    st.tuples(st.just("synchronize event"), st.integers(0, 99)),
    st.tuples(st.just("synchronize stream"), st.integers(0, 3)),
)


def random_program(generator: random.Random) -> list[tuple]:  # type: ignore[type-arg]
    """Long enough, and with enough waits, that ordered and unordered conflicts both abound."""

    def some_ranges() -> list[tuple[int, int]]:
        return [
            (generator.randrange(7), generator.randrange(6)) for _ in range(generator.choice((0, 1, 1, 2)))
        ]

    program: list[tuple] = []  # type: ignore[type-arg]
    num_streams = generator.choice((2, 3, 4))
    for _ in range(generator.randrange(5, 40)):
        stream = generator.randrange(num_streams)
        call = generator.choices(("launch", "record", "wait", "synchronize event"), (8, 5, 5, 0.3))[0]
        if call == "launch":
            program.append((call, stream, some_ranges(), some_ranges()))
        else:
            program.append((call, stream, -generator.choice((1, 1, 1, 2, 3, 5))))
    return program


def replay(program: Sequence[tuple]) -> list[LaunchRecord]:  # type: ignore[type-arg]
    log = LaunchLog()
    devices = [NullDevice(f"/gpu:{i}", log=log) for i in range(2)]
    streams: list[Stream] = [device.new_stream(name) for device in devices for name in "ab"]
    events: list[Event] = []
    for number, (call, target, *rest) in enumerate(program):
        if call == "launch":
            # every other range lies on the first device, whosever stream it is
            reads, writes = ([Access(a, n, ("", "/gpu:0")[a % 2]) for a, n in side] for side in rest)
            streams[target].enqueue(nothing, label=str(number), reads=reads, writes=writes)
        elif call == "record":
            events.append(streams[target].record())
        elif call == "synchronize stream":
            streams[target].synchronize()
        elif events and call == "wait":
            streams[target].wait(events[rest[0] % len(events)])
        elif events:
            events[target % len(events)].synchronize()
    return log.records()


def naive_races(records: list[LaunchRecord]) -> dict[tuple[str, str], set[tuple[str, int]]]:
    """Conflicting (device, byte)s of each unordered pair, by labels of (earlier, later)."""

    def touched(record: LaunchRecord, accesses: Sequence[Access]) -> set[tuple[str, int]]:
        own = str(record.stream.device.name)
        return {
            ("/device:GPU:0" if access.device else own, byte)
            for access in accesses
            for byte in range(access.address, access.address + access.nbytes)
        }

    before: list[set[int]] = []
    for i, record in enumerate(records):
        direct: set[int] = set()
        for j, other in enumerate(records[:i]):
            same_stream = other.stream is record.stream and other.kind != "synchronize"
            if record.kind == "synchronize":
                if (other.event is record.event and other.kind == "record") or (
                    record.event is None and same_stream
                ):
                    direct.add(j)
            else:
                awaited = record.kind == "wait" and other.kind == "record" and other.event is record.event
                if same_stream or awaited or other.kind == "synchronize":
                    direct.add(j)
        before.append(direct.union(*(before[j] for j in direct)))
    races = {}
    for j, later in enumerate(records):
        for i, earlier in enumerate(records[:j]):
            if earlier.kind == later.kind == "launch" and i not in before[j]:
                writes_before, writes_after = touched(earlier, earlier.writes), touched(later, later.writes)
                touched_before = writes_before | touched(earlier, earlier.reads)
                touched_after = writes_after | touched(later, later.reads)
                conflict = (writes_before & touched_after) | (touched_before & writes_after)
                if conflict:
                    races[earlier.label, later.label] = conflict
    return races


@pytest.mark.slow
@given_few(100, 600, st.lists(calls, max_size=40))
def test_the_checker_agrees_with_the_model(program: list[tuple]) -> None:  # type: ignore[type-arg]
    compare_with_the_model(program)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_the_checker_agrees_with_the_model_on_long_programs(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(150):
        compare_with_the_model(random_program(generator))


def compare_with_the_model(program: list[tuple]) -> None:  # type: ignore[type-arg]
    records = replay(program)
    expected = naive_races(records)
    found: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for race in find_races(records):
        pair = found.setdefault((race.earlier.label, race.later.label), set())
        pair |= {
            (race.device, byte)
            for address, nbytes in race.ranges
            for byte in range(address, address + nbytes)
        }
    for pair, conflict in found.items():
        assert conflict <= expected[pair]
    for later in {later for _, later in expected}:
        # every byte on which a launch races is named, if not with every launch it races with
        wanted = set().union(*(bytes_ for pair, bytes_ in expected.items() if pair[1] == later))
        named = set().union(*(bytes_ for pair, bytes_ in found.items() if pair[1] == later))
        assert named == wanted


@pytest.mark.slow
def test_a_long_log_is_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """An access looks at the pieces that its own bytes are in, however many launches there were."""
    looked_at: list[int] = []
    touch = race_checker._Segment.touch
    monkeypatch.setattr(race_checker._Segment, "touch", lambda *given: looked_at.append(1) or touch(*given))
    log = LaunchLog()
    device = NullDevice(log=log)
    streams = [device.new_stream(f"stream {i}") for i in range(8)]
    for step in range(1250):
        for i, stream in enumerate(streams):
            base = i << 20
            stream.enqueue(
                nothing,
                label="work",
                reads=[Access(base, 1 << 18), Access(base + step % 50 * 4096, 4096)],
                writes=[Access(base + (1 << 18) + step % 60 * 4096, 8192)],
            )
            if step % 10 == 0:
                streams[(i + 1) % 8].wait(stream.record())
    assert find_races(log) == []
    assert len(looked_at) < 60 * 30_000  # of 1250 x 8 launches with 3 accesses each
