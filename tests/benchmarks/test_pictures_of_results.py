"""Pictures of the stored results: each is drawn from its JSON alone, and can be read 800 pixels wide."""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tensorbow.pictures import styled_figure

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
STORED = sorted(path.stem for path in (FOLDER / "results").glob("*.json"))
WITHOUT_DATA = "resnet_against_torch"  # imports PyTorch, and its stored result has no curves
WIDTH = 8.0  # inches
PAGE_WIDTH, LEAST_HEIGHT = 800, 11  # pixels of a picture on a page, and of a text's em there


@pytest.fixture(autouse=True)
def siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import one another by plain name; drawing needs matplotlib."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(FOLDER))


def texts_of_ticks_not_drawn(figure: Any) -> set[Any]:
    """Texts of left-over ticks, and of those whose places are beyond the ends of an axis."""
    found = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = {*axis.get_major_ticks(), *axis.get_minor_ticks()}
        drawn = {tick for tick in ticks if low <= tick.get_loc() <= high}
        for tick in {*axis.majorTicks, *axis.minorTicks} - drawn:
            found |= {tick.label1, tick.label2}
    return found


def faults(figure: Any) -> list[str]:
    """Texts of a drawn figure that are too small, cut off, or cover one another."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    scale = PAGE_WIDTH / figure.bbox.width
    boxes, found, hidden = [], [], texts_of_ticks_not_drawn(figure)
    for text in figure.findobj(Text):
        if not text.get_visible() or not text.get_text().strip() or text in hidden:
            continue
        box = text.get_window_extent()
        if text.get_fontsize() * figure.dpi / 72 * scale < LEAST_HEIGHT:
            found.append(f"{text.get_text()!r} is too small")
        if min(box.x0, box.y0) < -2 or box.x1 > figure.bbox.width + 2 or box.y1 > figure.bbox.height + 2:
            found.append(f"{text.get_text()!r} is cut off")
        if text.get_rotation() in (0, 90):  # a slanted text does not fill its box
            boxes.append((text.get_text(), box.padded(-1)))
    for (one, first), (other, second) in combinations(boxes, 2):
        if first.overlaps(second):
            found.append(f"{one!r} covers {other!r}")
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name in STORED if name != WITHOUT_DATA])
def test_a_stored_result_is_drawn_from_its_json_and_can_be_read(name: str) -> None:
    pytest.importorskip("llvmlite", reason="some scripts measure native code")
    from experiments import named
    from redraw import drawing_of

    result = json.loads((FOLDER / "results" / f"{name}.json").read_text())
    with styled_figure(WIDTH, 4.5) as figure:
        drawing_of(named(name))(figure, result)
        assert faults(figure) == []
        assert figure.axes
        assert all(axes.has_data() for axes in figure.axes)
        assert figure.get_figwidth() == WIDTH


def test_faults_of_a_picture_are_found() -> None:
    with styled_figure(WIDTH, 4.5) as figure:
        axes = figure.add_subplot()
        axes.set_xticks([0, 0.1, 1], ["a long text", "another long text", "1"])
        axes.text(0.5, 0.5, "tiny", fontsize=6)
        axes.text(0.98, 0.3, "a text that leaves the picture", in_layout=False)
        assert faults(figure) == [
            "'tiny' is too small",
            "'a text that leaves the picture' is cut off",
            "'a long text' covers 'another long text'",
        ]


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
