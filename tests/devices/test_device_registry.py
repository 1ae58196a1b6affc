from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tensorbow import devices
from tensorbow.devices import CpuDevice, DeviceName, NullDevice, get_device, register_device_kind, registry
from tensorbow.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError


@pytest.fixture(autouse=True)
def _fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    monkeypatch.setattr(registry, "_devices", {})
    yield
    devices.close_devices()


def test_cpu_devices_are_made_on_demand_and_shared() -> None:
    seven = get_device("/cpu:7")
    assert isinstance(seven, CpuDevice)
    assert seven.name == DeviceName(kind="CPU", index=7)
    assert get_device("/device:CPU:7") is seven
    assert get_device("/cpu:0") is not seven
    assert isinstance(get_device("/null:1"), NullDevice)


def test_one_device_even_if_many_threads_ask() -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(get_device("/cpu:3"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_a_closed_device_is_opened_anew() -> None:
    first = get_device("/cpu:0")
    first.close()
    assert get_device("/cpu:0") is not first
    devices.close_devices()
    assert not registry._devices


@pytest.mark.parametrize(
    ("name", "remedy"), [("/cpu:*", "/cpu:0"), ("", "/cpu:0"), ("/job:worker", "/cpu:0"), ("gpu", "/gpu:0")]
)
def test_a_partial_name_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"expected a kind and an index.*; write '{remedy}'$"):
        get_device(name)


def test_unknown_kinds_and_other_tasks_are_not_found() -> None:
    with pytest.raises(NotFoundError, match=r"expected one of the kinds cpu, gpu, null.* got '/tpu:0'"):
        get_device("/tpu:0")
    with pytest.raises(NotFoundError, match="a device of this process"):
        get_device("/job:worker/task:1/cpu:0")


def test_a_user_adds_a_kind() -> None:
    def open_board(name: DeviceName) -> NullDevice:
        if name.index is None or name.index >= 2:
            raise NotFoundError(f"expected board 0 or 1, got {name.short}")
        return NullDevice(name)

    register_device_kind("Board", open_board, count=lambda: 2)
    assert "board" in devices.device_kinds()
    assert get_device("/board:1").name.short == "/board:1"
    with pytest.raises(NotFoundError, match="board 0 or 1"):
        get_device("/board:2")
    with pytest.raises(AlreadyExistsError, match="board"):
        register_device_kind("board", open_board, count=lambda: 2)
    register_device_kind("board", open_board, count=lambda: 1, replace=True)
    with pytest.raises(InvalidArgumentError, match="kind"):
        register_device_kind("job", open_board, count=lambda: 0)


def test_the_list_shows_what_can_be_counted_and_what_is_open() -> None:
    assert [row["name"] for row in devices.available_devices()] == ["/device:CPU:0"]
    get_device("/cpu:2")
    get_device("/null:0")
    rows = devices.available_devices()
    assert [row["name"] for row in rows] == ["/device:CPU:0", "/device:CPU:2", "/device:NULL:0"]
    assert all(row["description"] for row in rows)


def test_all_is_what_is_exported() -> None:
    assert sorted(devices.__all__) == devices.__all__
    assert all(hasattr(devices, name) for name in devices.__all__)
