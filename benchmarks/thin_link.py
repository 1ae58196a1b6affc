"""Two workers over a link of 100 Mbit/s beside the same link unshaped: rate of LeNet and accuracy, by DiLoCo.

    python benchmarks/thin_link.py [--data FOLDER] [--rates] [--small] [--seeds 3] [--megabits 100]

Each worker is in a network namespace of its own; a virtual link joins them, which token buckets shape at both
ends. One job trains by turns with the link shaped and unshaped, each window a number of whole periods of tau
rounds. A run of rounds waits at its end for the exchange under way, so windows begin and end just before an
outer step: each has as many whole exchanges as periods. DiLoCo averages every 200 rounds (b=16, one replica
each); with staleness 1 the exchange overlaps the next rounds, without they wait for it; with bfloat16 half
the bytes are sent. SMA with tau = 1 is the usual way, for comparison. The accuracy is that of runs of several
epochs, for each seed over both links. Needs the extra `mpi`, Linux, root, and iproute2.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import LIMIT, SYNCHRONISERS, finish_figure, lighter
from harness import Measured, await_end, output_path, parser, positive_float, positive_int, save
from ours import training_window
from results_page import MISSED, Table

import tensorbow as tb

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tests.cluster_rig.two_machines import TwoMachines

NAME = "thin_link"
MODEL, BATCH_SIZE, TAU, LAUNCH = "lenet", 16, 200, 10  # LAUNCH: rounds
WEIGHTS = 1_111_946  # of the model
DILOCO = {"sync": "diloco", "tau": TAU}
WAYS: dict[str, dict[str, Any]] = {
    "diloco, overlapped": {**DILOCO, "staleness": 1},
    "diloco, overlapped, bfloat16": {**DILOCO, "staleness": 1, "exchange_dtype": "bfloat16"},
    "diloco, waited for": DILOCO,
    "sma": {"sync": "sma"},
}
ASKED = ("diloco, overlapped", "diloco, overlapped, bfloat16")
LEAST, WITHIN = 0.9, 0.001  # of the unshaped rate; of the accuracy
LOOK_S = 0.002  # between two looks at the folder
FILLED = 1448 / 1514  # bytes of an Ethernet frame that TCP fills, of those that a token bucket counts


# The job --------------------------------------------------------------------------------------------


def serve(folder: Path) -> None:
    """Does what files of a folder ask for, one after the other, as a worker of the job."""
    group, windows = tb.worker_group(), {}
    for number in range(sys.maxsize):
        while not (asked := folder / f"{number}.asked").exists():
            time.sleep(LOOK_S)
        order = json.loads(asked.read_text())
        if order is None:
            return
        if "train" in order:
            answer = trained(**order["train"])
        else:
            way = order["way"]
            if way not in windows:
                options = dict(WAYS[way])
                windows[way] = training_window(
                    MODEL,
                    BATCH_SIZE,
                    1,
                    sync=options.pop("sync"),
                    tau=options.pop("tau", 1),
                    steps_per_launch=LAUNCH,
                    synchronisation=options,
                    engine_options={"workers": group},
                )
            group.barrier()
            began = time.perf_counter()
            windows[way].run_rounds(order["rounds"])
            group.barrier()
            answer = order["rounds"] / (time.perf_counter() - began)
        if group.rank == 0:
            written = folder / "writing"
            written.write_text(json.dumps(answer))
            written.rename(folder / f"{number}.done")


def trained(way: str, seed: int, epochs: int, data: str | None) -> dict[str, Any]:
    """Accuracy on the test split of a run, and a digest of its model."""
    where: dict[str, Any] = {"dataset": "mnist", "data_dir": data} if data else {"dataset": "digits"}
    fitted = tb.fit(
        MODEL,
        replicas=1,
        progress=False,
        epochs=epochs,
        seed=seed,
        batch_size=BATCH_SIZE,
        **where,
        **WAYS[way],
    )
    with fitted as run:
        digest = hashlib.sha256()
        for name, value in sorted(run.values.items()):
            digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return {"accuracy": run.result.test_accuracy, "digest": digest.hexdigest()}


class Job:
    """Workers on two machines that execute commands."""

    def __init__(self, machines: TwoMachines, folder: Path):
        words = [sys.executable, "-m", "tensorbow", "launch", *machines.words, "--watchdog", "0"]
        self.far = machines.far
        self._folder, self._number = folder, 0
        self._process = subprocess.Popen(
            [*words, __file__, "serve", str(folder)],
            env={**os.environ, "TENSORBOW_EXCHANGE": "mpi"},  # namespaces share memory, machines do not
        )

    def ask(self, order: dict[str, Any] | None) -> Any:
        """The answer of worker 0. Raises RuntimeError if the job has ended."""
        waiting, done = self._folder / "waiting", self._folder / f"{self._number}.done"
        waiting.write_text(json.dumps(order))
        waiting.rename(self._folder / f"{self._number}.asked")
        self._number += 1
        while order is not None and not done.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"{NAME}: the job has ended by itself")
            time.sleep(LOOK_S)
        return None if order is None else json.loads(done.read_text())

    def end(self) -> None:
        """Ends the workers, by force when they do not by themselves."""
        try:
            if self._process.poll() is None:
                self.ask(None)
                await_end(self._process, 30)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(30)


@contextmanager
def job_over_a_link() -> Iterator[Job]:
    """A job of two workers with a link between them. Raises PermissionError without network namespaces."""
    from tests.cluster_rig.two_machines import two_machines

    with tempfile.TemporaryDirectory() as name, two_machines(Path(name)) as machines:
        job = Job(machines, Path(name))
        try:
            yield job
        finally:
            job.end()


# Measuring ------------------------------------------------------------------------------------------


def measured(job: Job, megabits: float, windows: int, periods: int) -> list[dict[str, Any]]:
    """Rounds per second of each way, by turns over the unshaped and the shaped link."""
    from tests.cluster_rig.two_machines import shape

    rounds = {way: periods * TAU if "diloco" in way else 20 for way in WAYS}
    for way in WAYS:
        job.ask({"way": way, "rounds": 2 * TAU - LAUNCH if "diloco" in way else 10})
    found: dict[str, dict[str, list[float]]] = {way: {"unshaped": [], "shaped": []} for way in WAYS}
    for turn in range(windows):
        for way in WAYS:
            for link in ("unshaped", "shaped") if turn % 2 else ("shaped", "unshaped"):
                shape(megabits if link == "shaped" else None, job.far)
                found[way][link].append(job.ask({"way": way, "rounds": rounds[way]}))
        print(f"{NAME}: window {turn + 1} of {windows}", file=sys.stderr)
    return [
        {
            "way": way,
            **{f"{link}_rounds_per_second": Measured(rates).as_json() for link, rates in links.items()},
            "kept": round(
                statistics.median(s / u for s, u in zip(links["shaped"], links["unshaped"], strict=True)), 3
            ),
        }
        for way, links in found.items()
    ]


def accuracies(
    job: Job, megabits: float, seeds: int, epochs: int, data: str | None
) -> dict[str, dict[str, Any]]:
    """By way: accuracies by seed over the unshaped link and the shaped one, and if models are equal."""
    from tests.cluster_rig.two_machines import shape

    result: dict[str, dict[str, Any]] = {}
    for way in ("sma", *ASKED):
        runs: dict[str, list[dict[str, Any]]] = {"unshaped": [], "shaped": []}
        for link, known in runs.items():
            if way == "sma" and link == "shaped":
                continue  # one of its rounds takes as long as fifty of DiLoCo's
            shape(megabits if link == "shaped" else None, job.far)
            for seed in range(seeds):
                order = {"way": way, "seed": seed, "epochs": epochs, "data": data}
                known.append(job.ask({"train": order}))
        result[way] = {link: [run["accuracy"] for run in known] for link, known in runs.items() if known}
        if runs["shaped"]:
            result[way]["equal_bits"] = [run["digest"] for run in runs["shaped"]] == [
                run["digest"] for run in runs["unshaped"]
            ]
    return result


def link_s(way: str, megabits: float) -> float:
    """Seconds for which the link needs to pass what an exchange of a way sends, by TCP."""
    nbytes = WEIGHTS * (2 if "exchange_dtype" in WAYS[way] else 4)
    return nbytes / FILLED / (megabits * 1e6 / 8)


# Results --------------------------------------------------------------------------------------------


def draw(figure: Figure, result: dict[str, Any]) -> None:
    details = result["details"]
    rows = details["rows"]
    axes = figure.subplots()
    for place, row in enumerate(rows):
        colour = SYNCHRONISERS[row["way"].split(",")[0]]
        unshaped = row["unshaped_rounds_per_second"]["samples"]
        ratios = [s / u for s, u in zip(row["shaped_rounds_per_second"]["samples"], unshaped, strict=True)]
        axes.barh(place, row["kept"], color=lighter(colour, 0.5))
        axes.plot(ratios, [place] * len(ratios), "o", color=colour, markersize=4)
    axes.axvline(LEAST, color=LIMIT, linestyle="--", linewidth=1.2, label=f"to stay above: {LEAST:g}")
    axes.set_yticks(range(len(rows)), [row["way"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"rate at {details['megabits']:g} Mbit/s over the unshaped rate")
    finish_figure(figure, "Two workers over a thin link", 3.0, "bars: medians; dots: windows")


def table(details: dict[str, Any]) -> Table:
    def percent(values: list[float]) -> str:
        return f"{statistics.median(values):.2%}"

    rows, most = [], []
    for row in details["rows"]:
        way, links = row["way"], details["accuracy"].get(row["way"], {})
        reached = ("yes" if row["kept"] >= LEAST else MISSED) if way in ASKED else ""
        unshaped, shaped = (row[f"{link}_rounds_per_second"]["median"] for link in ("unshaped", "shaped"))
        if way in ASKED:
            needed_s, tau_s = link_s(way, details["megabits"]), TAU / unshaped
            most.append(
                f"{way}: {needed_s:.3f} s beside {TAU} rounds of {tau_s:.3f} s, so that at most "
                f"{min(1.0, tau_s / needed_s):.2f} can be kept"
            )
        rows.append(
            [way, unshaped, shaped, row["kept"], reached]
            + [percent(links[link]) if link in links else "" for link in ("unshaped", "shaped")]
        )
    equal = all(details["accuracy"][way]["equal_bits"] for way in ASKED)
    same = "bits of those of the unshaped one" if equal else "bits that DIFFER from those unshaped"
    gap = max(
        abs(statistics.median(details["accuracy"][way]["shaped"]) - statistics.median(links["unshaped"]))
        for way, links in details["accuracy"].items()
        if way in ASKED
    )
    runs = f"{details['epochs']} epochs of {details['dataset']}"
    runs += f", measured on {details['accuracy_date']}" if "accuracy_date" in details else ""
    remarks = [
        f"Accuracy: medians of {details['seeds']} seeds, {runs}. Models of the shaped link have the "
        f"{same}; medians differ by {gap:.2%}, {WITHIN:.1%} are asked.",
        f"At least {LEAST:.0%} of the unshaped rate is asked of DiLoCo that overlaps. Rates are medians of "
        f"{details['windows']} windows of {details['periods']} periods, shaped and unshaped in turn.",
        f"The link needs for an exchange, with TCP's headers: {'; '.join(most)}.",
    ]
    columns = ["way", "rounds/s unshaped", "shaped", "kept", f"at least {LEAST:g}"]
    return Table([*columns, "accuracy unshaped", "accuracy shaped"], rows, remarks)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]))
        return
    made = parser(__doc__, NAME)
    made.add_argument("--data", type=Path, help="folder of MNIST's IDX files; default: scikit-learn's digits")
    made.add_argument(
        "--rates", action="store_true", help="leave the accuracies as the stored result has them"
    )
    made.add_argument("--seeds", type=positive_int, help="runs of each way (3)")
    made.add_argument("--epochs", type=positive_int, help="of each run; MNIST 3, digits 40")
    made.add_argument("--megabits", type=positive_float, default=100.0, help="rate of the link, Mbit/s")
    options = made.parse_args()
    seeds = options.seeds or (1 if options.small else 3)
    epochs = options.epochs or (3 if options.data else 40)
    windows, periods = (1, 1) if options.small else (5, 5)
    data = str(options.data.resolve()) if options.data else None
    stored = json.loads(output_path(options, f"{NAME}.json").read_text()) if options.rates else {}
    try:
        with job_over_a_link() as job:
            rows = measured(job, options.megabits, windows, periods)
            accuracy = {} if stored else accuracies(job, options.megabits, seeds, epochs, data)
    except (PermissionError, FileNotFoundError) as error:
        raise SystemExit(f"{NAME}: not measured: {error}") from error
    details = {
        "rows": rows,
        "accuracy": accuracy,
        "megabits": options.megabits,
        "windows": windows,
        "periods": periods,
        "seeds": seeds,
        "epochs": epochs,
        "dataset": "MNIST" if data else "digits",
    }
    if stored:
        details["accuracy_date"] = stored["details"].get("accuracy_date", stored["date"])
        details |= {name: stored["details"][name] for name in ("accuracy", "seeds", "epochs", "dataset")}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
