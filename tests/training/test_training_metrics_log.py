from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tensorbow.errors import ResourceExhaustedError
from tensorbow.training import MetricsLog


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_are_appended(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m")
    log.append({"round": 1, "loss": 0.5})
    log.append({"round": 2, "loss": float("nan"), "accuracy": float("-inf")})
    assert records(tmp_path / "m") == [
        {"round": 1, "loss": 0.5},
        {"round": 2, "loss": None, "accuracy": None},
    ]


def test_a_resumed_run_drops_what_it_repeats_and_what_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "m"
    log = MetricsLog(path)
    for round in (1, 2, 3):
        log.append({"round": round})
    with open(path, "a") as file:
        file.write('\n3\n{"round": true}\n{"round": "1"}\n' + "[" * 100_000 + '\n{"round": 2, "lo')
    MetricsLog(path, resume_at=2).append({"round": 9})
    assert [record["round"] for record in records(path)] == [1, 2, 9]


def test_a_record_that_lacks_only_its_end_of_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text('{"round": 1}\n{"round": 2}')
    MetricsLog(path, resume_at=2).append({"round": 3})
    assert [record["round"] for record in records(path)] == [1, 2, 3]


def test_a_new_run_starts_an_empty_file_and_may_take_from_another(tmp_path: Path) -> None:
    old = tmp_path / "old"
    MetricsLog(old).append({"round": 1})
    MetricsLog(tmp_path / "new", resume_at=5, source=old)
    assert records(tmp_path / "new") == [{"round": 1}]
    MetricsLog(old)
    assert old.read_bytes() == b""
    MetricsLog(tmp_path / "third", resume_at=5, source=tmp_path / "none")


def test_a_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    log = MetricsLog(path)
    log.append({"round": 1})

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceExhaustedError, match="No space left on device"):
        log.append({"round": 2})
    assert records(path) == [{"round": 1}]
