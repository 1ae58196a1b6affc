from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.files import remove_unfinished
from tensorbow.training import Checkpoint, RollingCheckpoints, make_folder


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


def test_content_that_cannot_be_is_passed_over(tmp_path: Path) -> None:
    save(RollingCheckpoints(tmp_path), 1, 2)

    def check(checkpoint: Checkpoint) -> None:
        if checkpoint.metadata["round"] == 2:
            raise DataLossError("strange")

    found, problems = RollingCheckpoints(tmp_path).newest(check)
    assert found is not None
    assert (found.metadata["round"], problems) == (1, ["passed over a damaged checkpoint: strange"])


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
