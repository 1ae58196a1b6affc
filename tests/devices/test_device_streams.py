"""Guarantees of streams, events and groups, tested on each kind of device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorbow.devices import CpuDevice, Device, GpuDevice, NullDevice
from tensorbow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from tests.gpu_rig.runtimes import emulated_runtime


@pytest.fixture(params=["cpu", "null", "gpu"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    if request.param == "gpu":
        with emulated_runtime() as runtime, GpuDevice("/gpu:0", runtime) as opened:
            yield opened
    else:
        with {"cpu": CpuDevice, "null": NullDevice}[request.param]() as opened:
            yield opened


def test_an_event_is_done_once_and_tells_when(device: Device) -> None:
    stream = device.new_stream("compute")
    stream.enqueue(lambda: None, label="work")
    first = stream.record()
    first.synchronize(5)
    second = stream.record()
    second.synchronize(5)
    assert first.done()
    assert first.error is None
    assert first.time_s <= second.time_s


def test_a_callback_is_called_once_with_the_event(device: Device) -> None:
    stream = device.new_stream("compute")
    event = stream.record()
    calls: list[object] = []
    event.on_done(calls.append)
    event.synchronize(5)
    stream.synchronize(5)
    event.on_done(calls.append)
    assert calls == [event, event]


def test_who_waits_anyway_runs_work_here_or_submits_it(device: Device) -> None:
    """Only where the host computes can it be the caller who does."""
    stream = device.new_stream("compute")
    calls: list[str] = []
    event = stream.run_here(lambda: calls.append("work"), label="work")
    assert (event is None) == (device.kind != "cpu")
    assert bool(calls) == (device.kind == "cpu")
    if event is None:
        event = stream.submit(lambda: calls.append("work"), label="work")
    event.synchronize(5)
    assert event.error is None
    assert calls == ([] if device.kind == "null" else ["work"])
    stream.synchronize(5)
    stream.close()
    assert stream.run_here(lambda: calls.append("late"), label="late") is None


def test_a_closed_stream_refuses_everything_and_closes_again(device: Device) -> None:
    stream = device.new_stream("compute")
    event = stream.record()
    stream.close()
    stream.close()
    assert stream.closed
    stream.synchronize(5)
    for call in (
        lambda: stream.enqueue(lambda: None, label="late"),
        stream.record,
        lambda: stream.wait(event),
    ):
        with pytest.raises(
            FailedPreconditionError, match=r"compute: expected an open stream .* got a closed one"
        ):
            call()


def test_group_names_are_unique_while_open(device: Device) -> None:
    group = device.stream_group("replica 0")
    with pytest.raises(AlreadyExistsError, match="replica 0"):
        device.stream_group("replica 0")
    group.close()
    group.close()
    device.stream_group("replica 0").synchronize(5)


def test_a_group_allocates_from_a_partition_of_its_own_and_gives_it_back(device: Device) -> None:
    group = device.stream_group("replica 0", 1 << 20)
    other = device.stream_group("replica 1", 1 << 20, guaranteed_nbytes=1 << 12)
    block = group.allocate(1000, "weights")
    assert block is not None
    assert block.address % 256 == 0
    assert group.allocate(0) is None
    with pytest.raises(ResourceExhaustedError, match="weights"):
        group.allocate(2 << 20)
    assert other.allocate(1 << 19) is not None
    assert device.memory.held_nbytes > 0
    group.close()
    other.close()
    assert device.memory.held_nbytes == 0
    assert not device.memory.partitions


def test_a_limit_beyond_the_device_is_refused(device: Device) -> None:
    with pytest.raises(InvalidArgumentError, match=r"replica 0.*limit"):
        device.stream_group("replica 0", device.memory.limit_nbytes + 1)
    device.stream_group("replica 0")


def test_a_closed_device_makes_no_streams_and_has_no_memory(device: Device) -> None:
    group = device.stream_group("replica 0")
    group.allocate(1000)
    device.close()
    device.close()
    assert group.compute.closed
    assert device.closed
    assert device.memory.held_nbytes == 0
    for make in (device.new_stream, device.stream_group):
        with pytest.raises(FailedPreconditionError, match="closed device"):
            make("late")


def test_description_is_a_row(device: Device) -> None:
    row = device.describe()
    assert row["name"] == str(device.name)
    assert row["kind"] == device.kind
    assert row["memory_limit_nbytes"] == device.memory.limit_nbytes
    assert row["description"]


def test_reprs_name_device_and_stream(device: Device) -> None:
    group = device.stream_group("replica 0")
    assert device.name.short in repr(device)
    assert "replica 0" in repr(group)
    assert "replica 0" in repr(group.compute)
    event = group.compute.record()
    event.synchronize(5)
    assert "done" in repr(event)
