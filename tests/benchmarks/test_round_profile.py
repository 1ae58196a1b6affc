"""Parts of a round's time, and the sum of a real profile of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def figures(round_us: float, streams_us: float, driver_us: float) -> dict[str, Any]:
    """Figures of a round of two replicas on two cores."""
    spent = {"streams_us": streams_us, "driver_us": driver_us}
    return {"round_us": round_us, "cores": 2, "replicas": 2, **spent}


def parts(row: dict[str, Any], native_us: float | None, independent: dict[str, Any]) -> list[float]:
    from round_profile import PARTS, shares

    found = shares(row, native_us, independent)
    assert sum(found.values()) == pytest.approx(row["cores"] * row["round_us"])
    assert min(found.values()) >= 0
    return [found[part] for part in PARTS]


def test_what_averaged_streams_take_more_is_averaging_and_the_rest_is_waiting() -> None:
    independent = figures(100.0, 150.0, 10.0)
    # native steps, beside them, averaging, scheduler, waiting
    assert parts(independent, 60.0, independent) == [120.0, 30.0, 0.0, 10.0, 40.0]
    assert parts(figures(140.0, 200.0, 20.0), 60.0, independent) == [120.0, 30.0, 50.0, 20.0, 60.0]
    assert parts(figures(140.0, 140.0, 20.0), 60.0, independent) == [120.0, 20.0, 0.0, 20.0, 120.0]


def test_steps_of_a_long_launch_take_no_more_than_was_taken() -> None:
    independent = figures(50.0, 70.0, 10.0)
    assert parts(independent, 60.0, independent) == [80.0, 0.0, 0.0, 0.0, 20.0]


def test_steps_that_the_driver_makes_itself_are_not_the_schedulers() -> None:
    independent = figures(100.0, 5.0, 60.0)
    assert parts(independent, 20.0, independent) == [40.0, 0.0, 0.0, 25.0, 135.0]


def test_without_native_code_the_steps_are_in_the_streams_part() -> None:
    independent = figures(100.0, 150.0, 10.0)
    assert parts(independent, None, independent) == [0.0, 150.0, 0.0, 10.0, 40.0]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system has no such statistics")
def test_a_real_round_is_accounted_for_by_thread() -> None:
    from ours import training_window
    from round_profile import profiled

    with training_window("logreg", 4, 2) as training:
        training.run_rounds(4)
        before = training.engine.round
        found = profiled(training, 0.05)
        assert training.engine.round > before
    assert found["round_us"] > 0
    assert found["driver_us"] > 0
    assert found["streams_us"] == pytest.approx(sum(found["by_stream_us"].values()))
    assert {"replica 0", "replica 1"} <= set(found["by_stream_us"])


def test_a_system_without_statistics_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import round_profile

    monkeypatch.setattr(round_profile, "Path", lambda name: tmp_path / name.lstrip("/"))
    with pytest.raises(SystemExit, match="expected Linux"):
        round_profile.threads_of_process()
