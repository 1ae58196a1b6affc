"""`--sync easgd` and `--dispatch fcfs` on the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Call

QUICK = ("train", "logreg", "--dataset", "synthetic", "--epochs", 1)


@pytest.mark.slow
def test_a_run_by_elastic_averaging(call: Call) -> None:
    ended = call(*QUICK, "--sync", "easgd", "--tau", 2, "--output", "run", "--json")
    assert (ended.status, ended.err) == (0, "")
    *lines, last = ended.out.splitlines()
    result = json.loads(last)
    assert (result["sync"], result["replicas"]) == ("easgd", 2)
    assert result["test_accuracy"] > 0.9
    assert any("2 x batch 16, easgd, on cpu:0" in line for line in lines)
    with open("run/metrics.jsonl") as file:
        assert json.loads(file.readline())["alpha"] == pytest.approx(0.45)
    again = call("train", "--resume", "auto", "--output", "run", "--epochs", 2, "--sync", "sma")
    assert "is of another run: --sync was 'easgd', is 'sma'; use the same options" in again.line
    assert call("train", "--resume", "auto", "--output", "run", "--epochs", 2).status == 0


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--replicas-per-gpu", "auto"), ("--sync", "none")], ids=str)
def test_a_run_by_first_come_first_served(call: Call, more: tuple[str, ...]) -> None:
    ended = call(*QUICK, "--dispatch", "fcfs", "--output", "run", "--json", *more)
    assert (ended.status, ended.err) == (0, "")
    said = " ".join(ended.out.split())
    assert "goes to the replica that is free first" in said
    assert "not reproducible: the assignment depends on timing" in said
    assert json.loads(ended.out.splitlines()[-1])["test_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--sync", "easgd", "--mu", 0.5),
            "--mu: expected 0 with sync 'easgd', whose z has no momentum, got",
        ),
        (("--dispatch", "lifo"), "--dispatch: expected one of round_robin, fcfs, got 'lifo'"),
        (("--dispatch", "fcfs", "--sync", "ssgd"), "--dispatch: expected round_robin with ssgd, which steps"),
        (
            ("--dispatch", "fcfs", "--ssgd-epoch", 1),
            "--ssgd-epoch: expected dispatch round_robin, since ssgd",
        ),
        (("--sync", "easgd", "--alpha", 0.7), "--alpha: expected 0 < alpha < 0.6667 for 2 replicas, mu 0"),
    ],
    ids=str,
)
def test_what_does_not_go_together(call: Call, words: tuple[str, ...], message: str) -> None:
    ended = call(*QUICK, *words)
    assert ended.status == 2
    assert message in ended.line


def test_the_help_says_what_fcfs_gives_up(call: Call) -> None:
    said = " ".join(call("train", "--help").out.split())
    assert "first come, first served" in said
    assert "fcfs is not reproducible" in said.partition("--dispatch")[2]
    assert "[sma|ssgd|easgd|diloco|none]" in said


def test_what_is_explained(call: Call) -> None:
    elastic = call("explain", "logreg", "--sync", "easgd", "--tau", 3)
    assert "one step in 3 ends with an 'update, averaging'" in elastic.out
    first_come = call("explain", "logreg", "--dispatch", "fcfs", "--tau", 3)
    said = " ".join(first_come.out.split())
    assert "every step ends with 'update', and after 6 steps 'averaging' follows on every replica" in said
    assert "averaging 0" in said
    assert "update, averaging" not in said


@pytest.mark.slow
def test_tune_takes_both(call: Call) -> None:
    words = ("--dataset", "synthetic", "--max-replicas", 2, "--window-seconds", 0.01, "--json")
    ended = call("tune", "logreg", *words, "--sync", "easgd", "--dispatch", "fcfs")
    assert (ended.status, ended.err) == (0, "")
    facts = json.loads(ended.out.splitlines()[-1])
    assert (facts["sync"], facts["dispatch"]) == ("easgd", "fcfs")
    assert "--sync easgd --dispatch fcfs" in facts["command"]
