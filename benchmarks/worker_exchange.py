"""Two workers with one replica each beside one process with two: rate of LeNet, and time of an exchange.

    python benchmarks/worker_exchange.py [--small]

Both train by turns, averaged every round: LeNet (b=16), and a model of 4 MiB whose step is next to nothing.
There the round of two workers takes longer by the exchange, and by the passes over memory that one process
shares between its replicas: the sums are there twice, and by MPI z is, too. The workers exchange through
memory that they share, as they do on one machine, or by MPI alone (`TENSORBOW_EXCHANGE=mpi`), piece by piece;
and LeNet's also as whole vectors (`TENSORBOW_EXCHANGE=allreduce`), to see what pieces gain, and with pieces
that nobody sends, to see what a faster MPI could gain. What is added to a round is compared with
`MPI_Allreduce` of as much alone. Needs the extra `mpi`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import CONTESTANTS, NotDrawableError, finish_figure
from harness import Measured, await_end, in_turn, interleave, paced, parser, save
from ours import training_window
from results_page import MISSED, Table

import tensorbow as tb
from scheduler import ReadyBatch, StepProgram
from scheduler.workers.mpi import MpiWorkers
from tensorbow.pictures import GREY, LIMIT
from tensorbow.program import CALL_ARGUMENTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "worker_exchange"
WORKERS, BATCH_SIZE, LAUNCH = 2, 16, 8  # LAUNCH: rounds
SIZE = 1 << 20  # float32 numbers of the exchange
RATES = {"shared": 0.9, "mpi": 0.8}  # target of each exchange, as a fraction of one process's rate
COST = 1.5  # times Allreduce alone at most
NAMES = {"shared": "shared memory", "mpi": "MPI"}
MODELS = ("lenet", "round")
ALLREDUCE = "allreduce"  # case of several workers alone, and LeNet's exchange of whole vectors
UNSENT = "unsent"  # LeNet's pieces by MPI, computed but not sent
ALONE = "alone"
QUICK = 1.5  # times its shortest time takes Allreduce at most in quick turns
LOOK_S = 1.0  # between two looks whether a job is still there
Way = tuple[str, str]  # case, exchange


class EmptyBatches:
    """Source for steps without inputs."""

    def __init__(self, replicas: int):
        self._replicas = replicas

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> EmptyBatches:
        for round in range(start, stop):
            for replica in range(self._replicas):
                on_ready(ReadyBatch(replica, round, (), lambda: None))
        return self

    def close(self) -> None:
        pass


def rounds_of(case: str) -> Callable[[int], object]:
    """Runs so many rounds of a case, as a worker of its job, or alone with as many replicas."""
    workers = tb.worker_group()
    replicas = 1 if workers.size > 1 else WORKERS
    if case == "lenet":
        return training_window(
            "lenet", BATCH_SIZE, replicas, steps_per_launch=LAUNCH, engine_options={"workers": workers}
        ).run_rounds
    if case == ALLREDUCE:
        vector = np.zeros(SIZE, np.float32)
        return lambda rounds: [workers.all_sum(vector) for _ in range(rounds)]
    with tb.Graph().as_default():
        w = tb.Variable(np.zeros(SIZE, np.float32), name="w")
        loss = tb.reduce_sum(w[:1])
        step = tb.train.GradientDescentOptimizer(0.1).apply_gradients([(tb.identity(w), w)])
    engine = tb.LearningEngine(StepProgram((), loss, step), [], ["/cpu:0"], replicas, workers=workers)
    engine.initialize()
    source = EmptyBatches(replicas)
    return lambda rounds: engine.run(source.open, engine.round, engine.round + rounds)


def leave_unsent() -> None:
    """Has workers do all but send each other pieces: each adds zeros to its own sums."""
    address = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
    nothing = address, *[0] * CALL_ARGUMENTS  # abs(0) is 0: success
    MpiWorkers.native_swap = lambda *_: (nothing, nothing)  # type: ignore[method-assign]
    MpiWorkers.end_swap = lambda *_: None  # type: ignore[method-assign]


def serve(case: str, exchange: str, folder: Path) -> None:
    """Does the rounds that a pipe of this worker asks for, one number after the other."""
    if exchange == UNSENT:
        leave_unsent()
    run, group = rounds_of(case), tb.worker_group()
    with (folder / f"asked-{group.rank}").open("rb") as asked, (folder / "done").open("wb", 0) as done:
        while rounds := int.from_bytes(asked.read(8), "little"):
            run(rounds)
            group.barrier()
            if group.rank == 0:
                done.write(b"!")


@contextmanager
def job(case: str, exchange: str) -> Iterator[Callable[[int], object]]:
    """Processes that run rounds of a case when they are asked: workers with an exchange, or one ALONE."""
    command = [sys.executable, __file__, "serve", case, exchange]
    environment = dict(os.environ)
    if exchange != ALONE:
        found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        environment["TENSORBOW_EXCHANGE"] = "mpi" if exchange == UNSENT else exchange
        command = [found or "mpirun", "-n", str(WORKERS), "--oversubscribe", "--bind-to", "none", *command]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        pipes = [f"asked-{rank}" for rank in range(1 if exchange == ALONE else WORKERS)]
        for pipe in (*pipes, "done"):
            os.mkfifo(Path(name) / pipe)
        process = stack.enter_context(subprocess.Popen([*command, name], env=environment))
        stack.callback(process.kill)
        # Nobody waits for a pipe to be opened that is open at both ends; who waits for bytes needs no core.
        asked = [stack.enter_context((Path(name) / pipe).open("r+b", 0)) for pipe in pipes]
        done = stack.enter_context((Path(name) / "done").open("r+b", 0))

        def tell(rounds: int) -> None:
            for pipe in asked:
                pipe.write(rounds.to_bytes(8, "little"))

        def ask(rounds: int) -> None:
            tell(rounds)
            while not select([done], [], [], LOOK_S)[0]:
                if process.poll() is not None:
                    raise RuntimeError(f"{case}, {exchange}: the job has ended by itself")
            done.read(1)

        yield ask
        tell(0)
        await_end(process, 30)


def measured(seconds: float, windows: int, starts: int) -> dict[Way, list[float]]:
    """Rounds per second of each case and exchange, turn by turn.

    starts: of all jobs, each with so many windows: where a process has its pages changes its rate somewhat.
    """
    ways = [(case, exchange) for case in MODELS for exchange in (ALONE, *RATES)]
    ways += [("lenet", ALLREDUCE), ("lenet", UNSENT), (ALLREDUCE, "mpi")]
    found: dict[Way, list[float]] = {way: [] for way in ways}
    for _ in range(starts):
        with ExitStack() as stack:
            jobs = {way: stack.enter_context(job(*way)) for way in ways}
            taken = interleave({way: paced(run, 1) for way, run in jobs.items()}, seconds, windows)
        for way, one in taken.items():
            found[way] += one.samples
    return found


def compared(found: Mapping[Way, list[float]]) -> dict[str, Any]:
    """Medians of the rates over the quick turns, and over the slow ones, told apart by the time of Allreduce.

    A host may move the cores of a virtual machine, so that all that one has written comes late to the other.
    """
    rates = {way: np.array(samples) for way, samples in found.items()}
    allreduce_ms = 1e3 / rates[ALLREDUCE, "mpi"]
    are_quick = allreduce_ms < QUICK * allreduce_ms.min()
    by_kind: dict[str, Any] = {}
    for kind, turns in (("quick", are_quick), ("slow", ~are_quick)):
        if not turns.any():
            continue

        def median(values: np.ndarray, turns: np.ndarray = turns) -> float:
            return round(float(np.median(values[turns])), 3)

        added_ms = {way: 1e3 / rates["round", way] - 1e3 / rates["round", ALONE] for way in RATES}
        to_compare = (*RATES, ALLREDUCE, UNSENT)
        by_kind[kind] = {
            "turns": int(turns.sum()),
            "rate": {way: median(rates["lenet", way] / rates["lenet", ALONE]) for way in to_compare},
            "added_ms": {way: median(added) for way, added in added_ms.items()},
            "allreduce_ms": median(allreduce_ms),
            "cost": {way: median(added / allreduce_ms) for way, added in added_ms.items()},
        }
    rows = [
        {"case": case, "exchange": exchange, "rounds_per_second": Measured(samples).as_json()}
        for (case, exchange), samples in found.items()
    ]
    return {"rows": rows, "turns": by_kind}


def draw(figure: Figure, result: dict[str, Any]) -> None:
    if "turns" not in result["details"]:
        raise NotDrawableError("its result is of a version with another case of exchange; measure it anew")
    turns = result["details"]["turns"]
    for row, (kind, found) in enumerate(turns.items()):
        left, right = (figure.add_subplot(len(turns), 2, 2 * row + column) for column in (1, 2))
        colours = [GREY, *[CONTESTANTS["TensorBow"]] * 2]
        ways = [f"two workers, {name}" for name in NAMES.values()]
        left.barh(["one process", *ways], [1, *(found["rate"][way] for way in RATES)], color=colours)
        for bar, least in enumerate(RATES.values(), 1):
            label = "to reach at least" if bar == 1 else ""
            left.vlines(least, bar - 0.4, bar + 0.4, color=LIMIT, linestyle="--", label=label)
        left.set_xlabel(f"times the rate of one process, LeNet b=16, {kind} turns")
        added = [f"added to a round, {name}" for name in NAMES.values()]
        times = [found["allreduce_ms"], *found["added_ms"].values()]
        right.barh(["Allreduce alone", *added], times, color=colours)
        right.axvline(COST * times[0], color=LIMIT, linestyle="--", label=f"at most {COST:g} times Allreduce")
        right.set_xlabel(f"ms for 4 MiB, {kind} turns")
        for axes in (left, right):
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
    finish_figure(figure, "Exchange of two workers", 3.0 * len(turns))


def table(details: dict[str, Any]) -> Table:
    def reached(is_reached: bool) -> str:
        return "yes" if is_reached else MISSED

    rows: list[list[Any]] = []
    remarks: list[str] = []
    for kind, found in details["turns"].items():
        rate, cost, added_ms = (found[name] for name in ("rate", "cost", "added_ms"))
        for way, least in RATES.items():
            what = f"LeNet b=16, {kind} turns: rate of two workers, {NAMES[way]}"
            rows.append([what, rate[way], f"at least {least:g}", reached(rate[way] >= least)])
        for way, each in cost.items():
            what = f"4 MiB, {kind} turns: added to a round, {NAMES[way]}"
            rows.append([what, each, f"at most {COST:g}", reached(each <= COST)])
        remarks.append(
            f"{found['turns']} {kind} turns: Allreduce of 4 MiB by itself takes {found['allreduce_ms']:g} "
            f"ms; a round of two workers takes {added_ms['shared']:g} ms more with memory that they share, "
            f"and {added_ms['mpi']:g} ms more with MPI alone. By MPI with whole vectors "
            f"(TENSORBOW_EXCHANGE={ALLREDUCE}) LeNet's rate is {rate[ALLREDUCE]:g} times that of one "
            f"process, and with pieces that nobody sends {rate[UNSENT]:g} times: no MPI is faster."
        )
    remarks.append(
        f"In a quick turn Allreduce takes less than {QUICK:g} times its shortest time. A host may move a "
        "virtual machine's cores, so that all that one has written comes late to the other: to replicas of "
        "one process, too, whose pass then takes longer."
    )
    remarks.append(details["windows"])
    return Table(["measured", "times one process, or Allreduce", "asked", "reached"], rows, remarks)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
        return
    options = parser(__doc__, NAME).parse_args()
    seconds, windows, starts = (0.3, 3, 1) if options.small else (0.8, 5, 4)
    said = f"{in_turn(starts * windows, seconds)} The jobs were started {starts} times."
    details = compared(measured(seconds, windows, starts)) | {"windows": said}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
