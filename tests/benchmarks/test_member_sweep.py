"""The peers of `member_sweep`: the order of their examples, and which of them is best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import one another by plain name."""
    monkeypatch.syspath_prepend(str(FOLDER))


def test_a_member_sees_every_example_once_in_an_epoch_in_its_own_order() -> None:
    from member_sweep_peers import BATCH_SIZE, Orders

    both, second = Orders(96, 3, 2), Orders(96, 4, 1)
    parts = [both.next(steps) for steps in (2, 3, 1, 6)]
    assert [part.shape for part in parts] == [(steps, 2, BATCH_SIZE) for steps in (2, 3, 1, 6)]
    rows = np.concatenate(parts).swapaxes(0, 1).reshape(2, 2, 96)  # member, epoch, example
    assert (np.sort(rows) == np.arange(96)).all()
    assert len({order.tobytes() for order in rows.reshape(4, 96)}) == 4
    assert (second.next(12).ravel() == rows[1].ravel()).all()


def test_the_best_peer_of_each_kind() -> None:
    from harness import Measured
    from member_sweep import ENGINE, best_peers

    rates = {
        ENGINE: 9.0,
        "PyTorch vmap": 2.0,
        "PyTorch sequential": 3.0,
        "JAX vmap": 4.0,
        "JAX sequential": 5.0,
    }
    measured = {name: Measured([rate]) for name, rate in rates.items()}
    assert best_peers(measured) == {
        "of all": "JAX sequential",
        "of PyTorch": "PyTorch sequential",
        "of JAX": "JAX sequential",
        "with vmap": "JAX vmap",
    }
    assert best_peers({ENGINE: Measured([9.0])}) == {}
