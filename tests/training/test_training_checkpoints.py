from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.checkpoint_files import arrays_file
from tensorbow.errors import AlreadyExistsError, DataLossError, InvalidArgumentError
from tensorbow.files import remove_unfinished
from tensorbow.training import Checkpoint, RollingCheckpoints, checkpoints, make_folder


def save(checkpoints: RollingCheckpoints, *rounds: int) -> None:
    for round in rounds:
        checkpoints.save(round, {"w": np.full(3, round, np.float32)}, {"round": round})


def rounds(folder: Path) -> list[int]:
    return [round for round, _ in RollingCheckpoints(folder).paths()]


def test_the_newest_few_stay(tmp_path: Path) -> None:
    save(RollingCheckpoints(tmp_path, keep=2), 1, 20, 300, 4000)
    assert rounds(tmp_path) == [300, 4000]
    checkpoint, problems = RollingCheckpoints(tmp_path).newest()
    assert checkpoint is not None
    assert checkpoint.metadata["round"] == 4000
    assert not problems


def test_those_spared_stay_and_count_once(tmp_path: Path) -> None:
    rolling = RollingCheckpoints(tmp_path, keep=2)
    for round in (1, 2, 3, 4, 5, 6):
        rolling.save(round, {"w": np.zeros(3)}, {"round": round}, spared={2, 5, 9})
    assert rounds(tmp_path) == [2, 5, 6]
    rolling.save(7, {"w": np.zeros(3)}, {"round": 7}, spared={7})
    assert rounds(tmp_path) == [6, 7]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    keep=st.integers(1, 4),
    marks=st.lists(st.sets(st.integers(0, 9), max_size=2), min_size=1, max_size=10),
    full=st.sets(st.integers(0, 9)),
)
def test_the_newest_and_the_spared_are_there_at_any_time(
    keep: int, marks: list[set[int]], full: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rolling = RollingCheckpoints(tmp_path_factory.mktemp("rolling"), keep)
    there: list[int] = []
    for round, spared in enumerate(marks):
        before = set(rolling.spared)
        if round in full:
            rolling.make_room(round)
            left = there[-max(1, keep - 1) :]
            assert rounds(rolling.folder) == [r for r in there if r in left or r in before]
        rolling.save(round, {"w": np.zeros(1)}, {"round": round}, spared)
        held = [*(r for r in there if round not in full or r in left or r in before), round]
        there = [r for r in held if r in held[-keep:] or r in spared]
        assert rounds(rolling.folder) == there


@pytest.mark.parametrize(("keep", "left"), [(1, [3, 9]), (2, [3, 9]), (3, [3, 8, 9]), (20, [*range(1, 10)])])
def test_room_is_made_of_what_the_next_one_would_delete(tmp_path: Path, keep: int, left: list[int]) -> None:
    save(RollingCheckpoints(tmp_path, keep=20), *range(1, 10), 15)
    rolling = RollingCheckpoints(tmp_path, keep)
    rolling.spared = {3}
    assert rolling.make_room(10) is (keep < 20)
    assert rounds(tmp_path) == [*left, 15]
    assert rolling.make_room(10) is False


def test_none_to_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        RollingCheckpoints(tmp_path, keep=0)


def test_no_folder_has_no_checkpoints(tmp_path: Path) -> None:
    assert RollingCheckpoints(tmp_path / "none").newest() == (None, [])


def test_damaged_newer_ones_are_passed_over_with_a_line_each(tmp_path: Path) -> None:
    checkpoints = RollingCheckpoints(tmp_path)
    save(checkpoints, 1, 2, 3)
    for _, path in checkpoints.paths()[1:]:
        path.write_bytes(path.read_bytes()[:-1])
    found, problems = checkpoints.newest()
    assert found is not None
    assert found.metadata["round"] == 1
    assert ["000000003" in problems[0], "000000002" in problems[1]] == [True, True]


def claims(nbytes: int) -> bytes:
    """The header of a file with one array of so many bytes."""
    described = {"format": arrays_file.FORMAT, "crc32": 0, "metadata": {}}
    entry = {"dtype": "U8", "shape": [nbytes], "data_offsets": [0, nbytes]}
    text = json.dumps({"__metadata__": {arrays_file.KEY: json.dumps(described)}, "a": entry}).encode()
    return struct.pack("<Q", len(text)) + text


def sparse(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 1 << 42)


def larger_than_its_file(path: Path) -> None:
    path.write_bytes(claims(1 << 42))


def larger_than_memory(path: Path) -> None:
    path.write_bytes(head := claims(1 << 42))
    os.truncate(path, len(head) + (1 << 42))


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def renamed(path: Path) -> None:
    path.unlink()
    path.with_name("checkpoint-000000001.safetensors").rename(path)


SPOILED = {
    sparse: "does not begin with the size of a safetensors header",
    larger_than_its_file: "its header declares 4398046511104 bytes of values, and 0 follow",
    larger_than_memory: "does not fit into memory",
    a_fifo: "got a FIFO",
    a_folder: "got a folder",
    a_loop: "cannot read",
    a_link_to_nothing: "there is no file",
    renamed: "was renamed: what it holds is of round 1",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_a_newest_one_that_cannot_be_used_is_passed_over(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    rolling = RollingCheckpoints(tmp_path)
    save(rolling, 1, 2, 3)
    spoil(rolling.path_of(3))
    found, (problem,) = rolling.newest()
    assert found is not None
    assert found.metadata["round"] == 2
    assert problem.startswith("passed over an unusable checkpoint: ")
    assert SPOILED[spoil] in problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_one_that_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    rolling = RollingCheckpoints(tmp_path)
    save(rolling, 1, 2)
    rolling.path_of(2).chmod(0)
    found, (problem,) = rolling.newest()
    assert found is not None
    assert "Permission denied" in problem


def test_a_run_that_writes_meanwhile_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the folder and the reading of the newest all that was seen is deleted."""
    rolling = RollingCheckpoints(tmp_path, keep=1)
    save(rolling, 1)
    load, later = checkpoints.load_arrays, iter([2, 3])

    def overtaken(*arguments: object, **more: object) -> object:
        for round in later:
            save(rolling, round)
            break
        return load(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "load_arrays", overtaken)
    found, problems = rolling.newest()
    assert found is not None
    assert (found.metadata["round"], problems) == (3, [])


def test_content_that_cannot_be_is_passed_over(tmp_path: Path) -> None:
    save(RollingCheckpoints(tmp_path), 1, 2)

    def check(checkpoint: Checkpoint) -> None:
        if checkpoint.metadata["round"] == 2:
            raise DataLossError("strange")

    found, problems = RollingCheckpoints(tmp_path).newest(check)
    assert found is not None
    assert (found.metadata["round"], problems) == (1, ["passed over an unusable checkpoint: strange"])


def test_only_damaged_ones_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-000000007.safetensors").write_bytes(b"no")
    with pytest.raises(DataLossError, match=r"no checkpoint in .* can be read"):
        RollingCheckpoints(tmp_path).newest()


def test_a_damaged_later_one_never_costs_a_sound_one(tmp_path: Path) -> None:
    checkpoints = RollingCheckpoints(tmp_path, keep=1)
    save(checkpoints, 10)
    (tmp_path / "checkpoint-000000030.safetensors").write_bytes(b"no")
    save(checkpoints, 20)
    assert rounds(tmp_path) == [20, 30]
    found, problems = checkpoints.newest()
    assert found is not None
    assert (found.metadata["round"], len(problems)) == (20, 1)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "checkpoint-x.safetensors", ".hidden"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".tensorbow-123-1.tmp").write_text("left by a killed writer")
    checkpoints = RollingCheckpoints(tmp_path, keep=1)
    remove_unfinished(tmp_path)
    save(checkpoints, 1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".hidden",
        "checkpoint-000000002.safetensors",
        "checkpoint-x.safetensors",
        "notes.txt",
    ]


def test_one_that_cannot_be_deleted_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    checkpoints = RollingCheckpoints(tmp_path, keep=1)
    (tmp_path / ".tensorbow-123-7.tmp").write_text("left by a killed writer")
    monkeypatch.setattr(Path, "unlink", refuse)
    remove_unfinished(tmp_path)
    save(checkpoints, 1, 2)
    assert rounds(tmp_path) == [1, 2]
    monkeypatch.undo()
    remove_unfinished(tmp_path)
    save(checkpoints, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-000000003.safetensors"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    make_folder(tmp_path / "new" / "deep")
    make_folder(tmp_path / "new" / "deep")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidArgumentError, match="a file is in the way"):
            make_folder(path)
    for name in ("new", "file"):
        with pytest.raises(AlreadyExistsError):
            make_folder(tmp_path / name, new=True)
