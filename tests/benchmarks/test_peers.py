"""The peers' processes and how they are judged, without a peer."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def clocked(monkeypatch: pytest.MonkeyPatch, loss: float) -> tuple[Callable[[int], float], list[int]]:
    """A trainer of 100 steps a second by a clock of its own, and how many steps it was asked for."""
    import peers

    clock = 0.0
    asked: list[int] = []

    def run(steps: int) -> float:
        nonlocal clock
        asked.append(steps)
        clock += steps / 100
        return loss

    monkeypatch.setattr(peers.time, "perf_counter", lambda: clock)
    return run, asked


def test_a_window_ends_by_the_clock_and_looks_at_it_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import timed

    run, asked = clocked(monkeypatch, loss=0.5)
    window = timed(run, batch_size=4)
    assert window(1.0) == pytest.approx(400.0)
    assert 100 <= sum(asked) <= 105
    assert asked[0] == 1
    assert set(asked[1:]) == {5}
    assert window(0.0) == pytest.approx(400.0)


def test_a_rate_of_a_loss_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import timed

    run, _ = clocked(monkeypatch, loss=float("nan"))
    with pytest.raises(FloatingPointError, match="the loss is nan"):
        timed(run, batch_size=4)(0.1)


def test_the_settings_take_all_cores_in_one_process_or_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    import peers

    monkeypatch.setattr(peers, "find_spec", lambda name: name == "jax" or None)
    names = [setting.name for setting in peers.peer_settings("logreg", 2, True)]
    assert names == [
        "JAX jit, 2 threads",
        "JAX jit, 2 processes",
        "JAX jit, 64 steps a call, 2 threads",
        "JAX jit, 64 steps a call, 2 processes",
    ]
    assert [setting.name for setting in peers.peer_settings("lenet", 1, False)] == ["JAX jit, 1 thread"]
    convolutions = peers.peer_settings("lenet", 2, True)  # which XLA runs slowly in a loop
    assert [setting.steps_per_call for setting in convolutions] == [1, 1]
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert peers.peer_settings("lenet", 2, False) == []


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_peer_that_does_not_start_says_why() -> None:
    from peers import PeerError, PeerProcesses, PeerSetting

    examples = np.zeros((4, 28, 28, 1), np.float32), np.zeros(4, np.int64)
    with pytest.raises(PeerError, match=r"PyTorch eager, 2 processes: ModuleNotFoundError: .*torch"):
        PeerProcesses(PeerSetting("torch", "eager", 2, 1), "lenet", 2, examples)


def test_peers_that_do_not_start_are_left_out_with_their_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import peers

    closed: list[str] = []

    class Started:
        def __init__(self, setting: Any, model: str, batch_size: int, examples: Any):
            if setting.library == "torch":
                raise peers.PeerError("no torch")
            self.close = lambda: closed.append(f"{setting.name} {batch_size}")

    monkeypatch.setattr(peers, "PeerProcesses", Started)
    torch, jax = peers.PeerSetting("torch", "eager", 2, 1), peers.PeerSetting("jax", "jit", 2, 1)
    with ExitStack() as stack:
        started, missing = peers.open_peers(stack, "lenet", {torch: 4, jax: 8}, (None, None))
        assert (list(started), missing) == ([jax.name], {torch.name: "no torch"})
        assert not closed
    assert closed == [f"{jax.name} 8"]
    assert capsys.readouterr().out == "left out: no torch\n"


def a_peer(*pair: Any) -> Any:
    """Process whose first answer and answering function are those of `pair`."""
    from peers import PeerProcess

    return PeerProcess("peer", copy.copy, pair)


def test_a_process_answers_until_an_error_and_no_more() -> None:
    from peers import PeerError

    peer = a_peer("ready", float)
    assert peer.answer(60) == "ready"
    peer.ask("2.5")
    assert peer.answer(60) == 2.5
    peer.ask("two")
    with pytest.raises(PeerError, match=r"^peer: ValueError: could not convert string"):
        peer.answer(60)
    with pytest.raises(PeerError, match=r"^peer: its process ended"):
        peer.ask("2.5")


@pytest.mark.parametrize("asked", [False, True], ids=["between windows", "in a window"])
def test_one_dead_process_ends_all_of_its_setting(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import peers

    started = [a_peer(None, os._exit if asked else float), a_peer(None, float)]
    unused = iter(started)
    monkeypatch.setattr(peers, "PeerProcess", lambda *_: next(unused))
    both = peers.PeerProcesses(peers.PeerSetting("jax", "jit", 2, 1), "lenet", 2, (None, None))
    if not asked:
        started[0]._process.kill()
        started[0]._process.join()
    for _ in range(2):
        with pytest.raises(peers.PeerError, match="its process ended"):
            both(3)
    assert not any(process._process.is_alive() for process in started)


def test_a_second_process_that_does_not_start_ends_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import peers

    first = a_peer(None, float)

    outcomes = iter([first])

    def start(*_: Any) -> Any:
        for process in outcomes:
            return process
        raise peers.PeerError("no process")

    monkeypatch.setattr(peers, "PeerProcess", start)
    with pytest.raises(peers.PeerError, match="no process"):
        peers.PeerProcesses(peers.PeerSetting("jax", "jit", 2, 1), "lenet", 2, (None, None))
    assert not first._process.is_alive()


def test_a_target_is_held_against_the_best_peer_of_its_kind() -> None:
    from cpu_floors import LAUNCHED, Target, judged
    from harness import Measured
    from peers import PeerSetting

    def rates(**values: float) -> dict[str, Any]:
        return {name: Measured([value]) for name, value in values.items()}

    settings = [
        PeerSetting("jax", "jit", 2, 1),
        PeerSetting("jax", "jit", 2, 1, 16),
        PeerSetting("torch", "eager", 1, 2),
    ]
    one, many, eager = (setting.name for setting in settings)
    ours, launched = "TensorBow sma", f"TensorBow sma{LAUNCHED}"
    measured = rates(**{one: 100.0, many: 300.0, eager: 20.0, ours: 150.0, launched: 450.0})
    assert judged(Target(ours, 1.5, True), measured, settings) == {
        "ours": ours,
        "best_peer": one,
        "ratio": 1.5,
        "floor": 1.5,
        "reached": True,
    }
    stretch = judged(Target(launched, 1.6, False), measured, settings)
    assert (stretch["best_peer"], stretch["ratio"], stretch["stretch"]) == (many, 1.5, 1.6)
    assert not stretch["reached"]
    alone = judged(Target(ours, 1.0, True), measured, [])
    assert (alone["best_peer"], alone["ratio"], alone["reached"]) == (None, None, False)


def test_a_peer_by_batch_size_has_the_setting_that_was_best_nearest_to_it() -> None:
    from fig_5_10 import best_by_floors
    from peers import PeerSetting

    settings = [PeerSetting("jax", "jit", 1, 2), PeerSetting("jax", "jit", 2, 1)]
    first, second = (setting.name for setting in settings)

    def rates(batch_size: int, model: str = "lenet", **values: float) -> dict[str, Any]:
        found = {name: {"median": value} for name, value in values.items()}
        return {"model": model, "batch_size": batch_size, "images_per_second": found}

    rows = [
        rates(4, **{first: 1.0, second: 2.0, "PyTorch eager, 2 threads": 9.0}),
        rates(32, **{first: 3.0, second: 2.0}),
        rates(64, model="logreg", **{first: 1.0, second: 9.0}),
    ]
    result = {"rows": rows}
    assert best_by_floors(result, "lenet", 1, settings) == settings[1]
    assert best_by_floors(result, "lenet", 128, settings) == settings[0]
    assert best_by_floors(result, "resnet32", 4, settings) is None
    assert best_by_floors(None, "lenet", 4, settings) is None
    assert best_by_floors(result, "lenet", 4, [PeerSetting("jax", "jit", 4, 1)]) is None


def test_a_case_that_is_measured_again_leaves_the_others(tmp_path: Path) -> None:
    from cpu_floors import with_earlier

    def row(model: str, batch_size: int, command: str) -> dict[str, Any]:
        return {"model": model, "batch_size": batch_size, "command": command}

    result = tmp_path / "cpu_floors.json"
    again = [row("lenet", 16, "later")]
    assert with_earlier(again, result) == again
    earlier = [row("lenet", 4, "first"), row("lenet", 16, "first"), row("logreg", 16, "first")]
    result.write_text(json.dumps({"details": {"rows": earlier}}))
    assert with_earlier(again, result) == [earlier[0], *again, earlier[2]]
