"""The list of experiments is that of the folder, and running them goes on after a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
GOOD = """
import os
import sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--output") + 1])
(folder / "good.json").write_text(" ".join(sys.argv[1:]))
(folder / "folder").write_text(os.environ["TENSORBOW_DATA"])
(folder / "summary before").write_text((folder / "summary.json").read_text())
"""


def test_every_experiment_of_the_folder_is_listed_once_and_has_a_script() -> None:
    from experiments import EXPERIMENTS

    scripts = {path.stem for path in FOLDER.glob("*.py") if "parser(__doc__, " in path.read_text()}
    names = [experiment.name for experiment in EXPERIMENTS]
    assert sorted(names) == sorted(scripts - {"run_all"})


def test_list_says_what_there_is_and_runs_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from experiments import EXPERIMENTS
    from run_all import main

    assert main(["--list", "--output", str(tmp_path)]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert shown == [experiment.name for experiment in EXPERIMENTS if not experiment.alone]
    assert not list(tmp_path.iterdir())
    assert main(["--list", "--only", "tau"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def statuses(summary: Path) -> dict[str, Any]:
    return {row["experiment"]: row["status"] for row in json.loads(summary.read_text())["runs"]}


def test_a_summary_of_other_runs_is_begun_anew(tmp_path: Path) -> None:
    from run_all import summarise

    path = tmp_path / "summary.json"
    for text in ('{"small": true, "runs": [{"experiment": "a", "status": 0}]}', "{"):
        path.write_text(text)
        summarise({"experiment": "b", "status": 0}, False, path)
        assert statuses(path) == {"b": 0}


@pytest.mark.slow
def test_a_failure_does_not_keep_others_from_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import experiments
    import run_all

    scripts = {"bad": "raise SystemExit(3)", "slow": "import time; time.sleep(60)", "good": GOOD}
    monkeypatch.setattr(experiments, "FOLDER", tmp_path)
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
    chosen = [experiments.Experiment(name, "Something", "how", data=name == "good") for name in scripts]
    monkeypatch.setattr(run_all, "EXPERIMENTS", chosen)
    out = tmp_path / "out"
    out.mkdir()
    earlier = {"small": True, "runs": [{"experiment": name, "status": 0} for name in ("slow", "other")]}
    (out / "summary.json").write_text(json.dumps(earlier))
    monkeypatch.setenv("TENSORBOW_DATA", "inherited")
    status = run_all.main(["--small", "--output", str(out), "--data", str(tmp_path), "--limit", "2"])
    assert status == 1
    assert (out / "folder").read_text() == str(tmp_path)
    assert statuses(out / "summary.json") == {"other": 0, "bad": 3, "slow": None, "good": 0}
    assert statuses(out / "summary before") == {"other": 0, "bad": 3, "slow": None}
    assert (out / "good.json").read_text() == f"--small --output {out} --data {tmp_path}"
    shown = capfd.readouterr()
    assert "failed: bad, slow" in shown.err
    assert "1 of 3 experiments done" in shown.out


@pytest.mark.parametrize(
    ("wrong", "says"), [(["--only", "vgg"], "invalid choice"), (["--data", "nowhere"], "expected a folder")]
)
def test_wrong_options(wrong: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    from run_all import main

    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
