"""Images per second of replicas on one GPU, beside PyTorch and JAX, and the cost of a step and of a launch.

    python benchmarks/gpu_replicas.py [--case lenet:16] [--counts 1,2,4,8,16] [--compute fp32|tf32|bf16]
        [--replica-mode captured] [--rounds-per-launch 1,16] [--seconds 1] [--windows 5] [--small]
        [--devices gpu:0] [--output FOLDER]
    python benchmarks/gpu_replicas.py --emulated   # dry run without a GPU; its figures mean nothing

All contestants train in the same precision: batches gathered on the GPU from pictures kept there, forward,
softmax cross-entropy, backward, momentum SGD. The contestants of a case are open at once and their windows
alternate, so that a slow spell of the machine affects all of them; the first windows of each are discarded,
and tables show medians.

    TensorBow   R replicas of batch size b, not averaged (`none`) and averaged every round (`sma`), in every
                replica mode of this version, with one and several rounds per launch
    PyTorch     one model: eager, its whole step as a CUDA graph, and compiled; R models by torch.func.vmap,
                as a graph; examples are drawn for many steps at once, outside of the graphs
    JAX         one model under jit, R models by vmap, both also with many steps a call by lax.scan

PyTorch and JAX take part where they are installed. A contestant that fails, such as one that does not
fit into memory, is left out, and the result says so.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from gpu_replicas_contestant import CASES, Case, Contestant, Settings, emulated_gpu
from gpu_replicas_jax import jax_contestants
from gpu_replicas_ours import our_contestants
from gpu_replicas_report import described, draw, summary, table
from gpu_replicas_torch import torch_contestants
from harness import parser, positive_float, positive_int, print_table, save
from replica_modes import modes_here, ways_here

NAME = "gpu_replicas"
COUNTS, SMALL_COUNTS = (1, 2, 4, 8, 16), (1, 2)
WARM_WINDOWS, WARM_SECONDS = 2, 0.5


def contest(case: Case, settings: Settings) -> tuple[list[Contestant], list[str]]:
    """Contestants of a case, and the reasons why others are absent."""
    contestants: list[Contestant] = []
    absent: list[str] = []
    for make in (torch_contestants, jax_contestants, our_contestants):
        for name, open_one in make(case, settings):
            try:
                contestants.append(open_one())
            except Exception as error:  # of any library: memory, a missing kernel, a capture refused
                absent.append(f"{name}: {reason(error)}")
    contestants.sort(key=lambda contestant: not contestant.name.startswith("TensorBow"))
    return contestants, absent


def reason(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.160}"


def measure(contestants: list[Contestant], settings: Settings, absent: list[str]) -> list[dict[str, object]]:
    """Row for each contestant: its rate in every window, and the median.

    A contestant that fails is closed at once, removed from `contestants`, and added to `absent`.
    """
    rates: dict[Contestant, list[float]] = {contestant: [] for contestant in contestants}
    warm_up = [min(settings.seconds, WARM_SECONDS)] * WARM_WINDOWS
    for seconds in [*warm_up, *[settings.seconds] * settings.windows]:
        for contestant in tuple(contestants):
            try:
                rates[contestant].append(contestant.window(seconds))
            except Exception as error:
                absent.append(f"{contestant.name} x {contestant.replicas}: {reason(error)}")
                del rates[contestant]
                contestants.remove(contestant)
                contestant.close()
    return [
        {
            "name": contestant.name,
            "replicas": contestant.replicas,
            "way": contestant.way,
            "images_per_second": statistics.median(rates[contestant][WARM_WINDOWS:]),
            "windows": rates[contestant][WARM_WINDOWS:],
            **contestant.facts(),
        }
        for contestant in contestants
    ]


def run_case(case: Case, settings: Settings) -> dict[str, object]:
    """Measures one case."""
    contestants, absent = contest(case, settings)
    try:
        rows = measure(contestants, settings, absent)
    finally:
        for contestant in contestants:
            contestant.close()
    result = {"model": case.model, "batch_size": case.batch_size, "rows": rows, "absent": absent}
    return {**result, "summary": summary(case, rows)}


def numbers(text: str) -> list[int]:
    return [positive_int(part) for part in text.split(",")]


def one_case(text: str) -> Case:
    model, _, batch_size = text.partition(":")
    known = {case.model for case in CASES}
    if model not in known or not batch_size.isdecimal() or int(batch_size) < 1:
        raise argparse.ArgumentTypeError(
            f"expected MODEL:BATCH_SIZE with a model of {', '.join(sorted(known))}"
        )
    return Case(model, int(batch_size))


def arguments() -> argparse.Namespace:
    made = parser(__doc__, NAME)
    made.add_argument("--case", type=one_case, action="append", help="MODEL:BATCH_SIZE; default: all cases")
    made.add_argument("--counts", type=numbers, help="numbers of replicas, such as 1,2,4")
    known = modes_here()
    made.add_argument("--replica-mode", choices=known, action="append", help="of our replicas; default: all")
    made.add_argument(
        "--rounds-per-launch", type=numbers, help="of our replicas, such as 1,16; default 1,16, small 1"
    )
    made.add_argument("--compute", choices=("fp32", "tf32", "bf16"), default="fp32")
    made.add_argument("--seconds", type=positive_float, help="length of a window; default 1, small 0.1")
    made.add_argument("--windows", type=positive_int, help="windows of each contestant; default 5, small 2")
    made.add_argument("--emulated", action="store_true", help="dry run without a GPU; writes no file")
    options = made.parse_args()
    options.replica_mode = options.replica_mode or known
    options.rounds_per_launch = options.rounds_per_launch or ([1] if options.small else [1, 16])
    options.counts = options.counts or list(SMALL_COUNTS if options.small else COUNTS)
    options.seconds = options.seconds or (0.1 if options.small else 1.0)
    options.windows = options.windows or (2 if options.small else 5)
    return options


def main() -> None:
    options = arguments()
    if options.emulated:
        runtime = emulated_gpu()
    else:
        from tensorbow.devices.gpu_discovery import gpu_status

        status = gpu_status()
        if not status.runtimes:
            sys.exit(f"{status.problem}; or see that the benchmark works: --emulated")
        runtime = status.runtimes[int(options.devices[0].rpartition(":")[2])]
    ways = [way for way in ways_here(options.rounds_per_launch) if way.mode in options.replica_mode]
    settings = Settings(
        runtime, options.counts, options.compute, options.seconds, options.windows, options.emulated, ways
    )
    gpu = described(settings)
    print(*(f"{key}: {value}" for key, value in gpu.items()), sep="\n", flush=True)
    cases = options.case or (CASES[:1] if options.small else CASES)
    details = {"gpu": gpu, "cases": [run_case(case, settings) for case in cases]}
    found = table(details)
    if options.emulated:
        print_table(found.columns, found.as_text())
        print(*found.remarks, sep="\n")
        print("emulated GPU: these figures mean nothing for a real one, and no file was written")
        return
    save(options, NAME, details, found, draw, ("case",))


if __name__ == "__main__":
    main()
