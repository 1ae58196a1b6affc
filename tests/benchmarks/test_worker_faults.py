"""Faults of workers: what is asked of each, and rows of those that missed it."""

from __future__ import annotations

from typing import Any

import pytest

LINE = "worker 1 (a, process 7) was killed or has crashed at step 12"
GOOD = {"seconds": 0.5, "status": 1, "staying": 0, "lines": [LINE]}


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        ({}, []),
        ({"seconds": 10.5}, ["ends within 10 s"]),
        ({"status": 0}, ["its status is not 0"]),
        ({"staying": 1}, ["no process stays"]),
        ({"lines": [LINE, LINE]}, ["it says one line"]),
        ({"lines": [LINE.replace("worker 1", "worker 0")]}, ["it names worker 1"]),
        ({"lines": [LINE.replace("step 12", "step 0")]}, ["it tells the step"]),
        ({"lines": []}, ["it says one line", "it names worker 1", "it tells the step"]),
        ({"seconds": None, "why": "not measured"}, []),
    ],
)
def test_what_a_fault_misses_is_told(found: dict[str, Any], asked: list[str]) -> None:
    from worker_faults import FAULTS, missed

    assert FAULTS[0].name == "kill -9 of worker 1"
    assert missed(FAULTS[0], {**GOOD, **found}) == asked


def test_a_watchdog_has_its_time_and_a_program_that_does_not_start_no_step() -> None:
    from worker_faults import FAULTS, WATCHDOG_S, missed

    of_name = {fault.name: fault for fault in FAULTS}
    assert len(of_name) == len(FAULTS)
    late = {**GOOD, "seconds": 10.5}
    assert missed(of_name["worker 1 stops (SIGSTOP)"], late) == []
    assert missed(of_name["worker 1 stops (SIGSTOP)"], {**late, "seconds": WATCHDOG_S + 10.5}) != []
    at_start = {**GOOD, "lines": ["worker 1 (a, process 7), at step 0: ImportError"]}
    assert missed(of_name["failed import in worker 1"], at_start) == []
    assert missed(of_name["the link between two machines is cut"], GOOD) == []


def test_rows_tell_what_was_missed_and_which_runs_lost_bits() -> None:
    from worker_faults import FAULTS, OTHER_FAULT, WAYS, table

    run = {"moments_s": [1.0, 2.0], "at_start": 1, "restarts": 3, "resumed": 2, "status": 0}
    hang = "tensorbow: worker 1 (a, process 7) hangs at step 3: nothing heard for 5 s"
    assert OTHER_FAULT.match(hang)
    assert not OTHER_FAULT.match(f"tensorbow: {LINE}")
    others = {"diloco, staleness 1": {"others": [hang]}}
    cells: list[dict[str, Any]] = [
        {"setting": {"fault": FAULTS[0].name}, "seed": 0, **GOOD, "status": 0},
        *(
            {
                "setting": {"way": way, "run": "killed"},
                "seed": seed,
                **run,
                **others.get(way, {}),
                "same_bits": way != "ssgd",
            }
            for way in WAYS
            for seed in range(2)
        ),
    ]
    rows = {str(row[0]): row[1:] for row in table({"cells": cells}, FAULTS[:1]).rows}
    assert rows["kill -9 of worker 1"] == [0.5, 10.0, "missed", LINE]
    said = "6 restarts, of which 4 went on from a checkpoint before the next kill"
    said += "; 2 runs, 2 of them with the bits of the undisturbed one"
    assert rows["sma: 6 kills -9, 2 of them while starting"] == [None, None, "yes", said]
    assert rows["diloco, staleness 1: 6 kills -9, 2 of them while starting"][-1] == f"{said}; {hang}; {hang}"
    assert rows["ssgd: 6 kills -9, 2 of them while starting"][2] == "missed"
