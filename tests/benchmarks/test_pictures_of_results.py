"""Pictures of the stored results: each is drawn from its JSON alone, and can be read 800 pixels wide."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tensorbow.pictures import styled_figure
from tests.picture_faults import faults

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
STORED = sorted(path.stem for path in (FOLDER / "results").glob("*.json"))
WITH_TORCH = "resnet_against_torch"  # imports PyTorch
WIDTH = 8.0  # inches


@pytest.fixture(autouse=True)
def needs_matplotlib() -> None:
    pytest.importorskip("matplotlib")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", STORED)
def test_a_stored_result_is_drawn_from_its_json_and_can_be_read(name: str) -> None:
    pytest.importorskip("llvmlite", reason="some scripts measure native code")
    if name == WITH_TORCH:
        pytest.importorskip("torch")
    from drawing import NotDrawableError
    from experiments import named
    from redraw import drawing_of

    result = json.loads((FOLDER / "results" / f"{name}.json").read_text())
    with styled_figure(WIDTH, 4.5) as figure:
        try:
            drawing_of(named(name))(figure, result)
        except NotDrawableError as error:
            pytest.skip(str(error))
        assert faults(figure) == []
        assert figure.axes
        assert all(axes.has_data() for axes in figure.axes)
        assert figure.get_figwidth() == WIDTH


@pytest.mark.slow
def test_redrawing_writes_pictures_and_leaves_results_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import redraw

    pytest.importorskip("llvmlite")
    before = (FOLDER / "results" / "tau.json").read_bytes()
    monkeypatch.setattr(sys, "argv", ["redraw.py", "tau", "--output", str(tmp_path)])
    redraw.main()
    assert (tmp_path / "tau.png").read_bytes().startswith(b"\x89PNG")
    assert (FOLDER / "results" / "tau.json").read_bytes() == before
    monkeypatch.setattr(sys, "argv", ["redraw.py", "tao"])
    with pytest.raises(SystemExit):
        redraw.main()
    assert "unknown tao; choose of cpu_floors" in capsys.readouterr().err


def test_a_contestant_has_one_colour_everywhere() -> None:
    from drawing import CONTESTANTS, SIZES, SYNCHRONISERS, contestant_colour, lighter, shades

    assert contestant_colour("PyTorch eager, 2 threads") == contestant_colour("PyTorch") != CONTESTANTS["JAX"]
    others = {*SIZES, *(colour for name, colour in SYNCHRONISERS.items() if name != "sma")}
    assert not others & {CONTESTANTS["PyTorch"], CONTESTANTS["JAX"]}
    assert (lighter("#102030", 0.0), lighter("#102030", 1.0)) == ("#102030", "#ffffff")
    assert shades("#102030", 2)[-1] == "#102030"
