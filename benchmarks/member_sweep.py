"""Steps per second of 64 small networks of a sweep, beside PyTorch and JAX on the same cores in one run.

    python benchmarks/member_sweep.py [--members 64] [--seconds 2] [--windows 7] [--small] [--output FOLDER]

A member is a network of 784-128-10 units that trains with batches of 16 from MNIST-shaped pictures in memory,
by momentum SGD; its loss of every step comes back. Members have learning rates, initial values and orders of
the examples of their own, except that in the row of the engine they share the rate and the order. TensorBow
trains them as independent replicas with 64 steps per launch: by `Replicator.train`, and by
`LearningEngine.run`. Native code makes the batches.

A peer uses the cores as one process with all of them, or as one pinned process for each, with half of the
members, and rates are summed. JAX runs 64 steps per call by `lax.scan` (jitted, donated buffers), PyTorch one
by one, eager and compiled; each trains members one after the other, and several as one by `vmap`: it tries
all, 16 and 4 at once in every process, and takes the fastest (`chosen` in the JSON). All windows alternate;
figures are medians.

The row of the products alone is the most that direct multiplication in float32 allows: the multiply-adds of a
step at the peak of every core, the fastest of many runs of a loop of multiply-adds in registers. It needs
llvmlite.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from harness import (
    Measured,
    Window,
    cores,
    in_turn,
    interleave,
    parser,
    positive_float,
    positive_int,
    save,
)
from member_sweep_peers import BATCH_SIZE, CLASSES, FEATURES, HIDDEN, MemberSetting
from peers import SCANNED_STEPS, open_peers
from results_page import MISSED, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "member_sweep"
TARGET = 5.0  # times the best peer
REPLICATOR, ENGINE = (f"TensorBow {by}, {SCANNED_STEPS} steps a call" for by in ("Replicator", "engine"))
PRODUCTS = "products alone, every core at its peak"
# The input gradient of the first layer is not needed.
OPERATIONS = 2 * BATCH_SIZE * (2 * FEATURES * HIDDEN + 3 * HIDDEN * CLASSES)  # of the products of a step
PEAK_RUNS = 10_000  # of 0.1 ms
TORCH_STEPS = {"sequential": 16, "vmap": 2}  # of members before the turn of the next ones


def settings(processors: int, small: bool) -> list[MemberSetting]:
    """Settings of the peers that are installed; small: without those that compile long."""
    spread = [(1, processors), (processors, 1)] if processors > 1 else [(1, 1)]
    found = []
    if find_spec("torch") is not None:
        variants = (
            ["sequential", "vmap"]
            if small
            else ["sequential", "vmap", "sequential, compile", "vmap, compile"]
        )
        found += [
            MemberSetting("torch", v, p, t, TORCH_STEPS[v.split(",")[0]]) for v in variants for p, t in spread
        ]
    if find_spec("jax") is not None:
        found += [
            MemberSetting("jax", v, p, t, SCANNED_STEPS) for v in ("sequential", "vmap") for p, t in spread
        ]
    return found


def peak_of_a_core() -> float | None:
    """Float32 operations per second that a core does at most; None without llvmlite."""
    if find_spec("llvmlite") is None:
        return None
    from native_kernels import host_target, peak

    loop = peak(host_target())
    return max(loop.rate() for _ in range(PEAK_RUNS))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures all contestants; returns the details of the result."""
    from member_sweep_ours import engine_window, replicator_window  # here: peers must not load it
    from ours import made_up_data

    windows: dict[str, Window] = {}
    examples = made_up_data("mlp").batch()
    with ExitStack() as opened:
        windows[REPLICATOR] = replicator_window(opened, options.members, SCANNED_STEPS)
        windows[ENGINE] = engine_window(opened, options.members, SCANNED_STEPS)
        units = {
            setting: options.members // setting.processes * setting.steps_per_call
            for setting in settings(cores(), options.small)
        }
        peers, missing = open_peers(opened, "mlp", units, examples)
        measured = interleave({**windows, **peers}, options.seconds, options.windows)
    return {
        "batch_size": BATCH_SIZE,
        "target": TARGET,
        "member_steps_per_second": {name: rate.as_json() for name, rate in measured.items()},
        "best_peers": best_peers(measured),
        "chosen": {name: peer.chosen for name, peer in peers.items()},
        "peak_of_a_core": peak_of_a_core(),
        "left_out": missing,
    }


def best_peers(measured: dict[str, Measured]) -> dict[str, str]:
    """Fastest peer of all, of each library, and of those with vmap."""
    kinds = {"of all": "", "of PyTorch": "PyTorch", "of JAX": "JAX", "with vmap": "vmap"}
    peers = [name for name in measured if not name.startswith("TensorBow")]
    of_kind = {kind: [name for name in peers if word in name] for kind, word in kinds.items()}
    return {
        kind: max(names, key=lambda name: measured[name].median) for kind, names in of_kind.items() if names
    }


def rate_of_products(peak: float | None) -> float | None:
    """Steps of members per second if every core did nothing but a step's products, at this peak."""
    return None if peak is None else float(f"{cores() * peak / OPERATIONS:.5g}")


def table(details: dict[str, Any], options: argparse.Namespace) -> Table:
    """Table of all contestants, the fastest first."""
    rates = {name: rate["median"] for name, rate in details["member_steps_per_second"].items()}
    best = details["best_peers"].get("of all")
    if most := rate_of_products(details["peak_of_a_core"]):
        rates[PRODUCTS] = most
    rows = []
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        ours = name.startswith("TensorBow")
        ratio = round(rate / rates[best], 2) if best and (ours or name == PRODUCTS) else None
        reached = None if ratio is None or not ours else "yes" if ratio >= TARGET else MISSED
        rows.append([name, rate, 1e6 * cores() / rate, ratio, reached])
    remarks = [in_turn(options.windows, options.seconds)]
    for kind, peer in details["best_peers"].items():
        ratios = (f"{rates[ours] / rates[peer]:.2f} ({ours})" for ours in (ENGINE, REPLICATOR))
        remarks.append(f"Times the best peer {kind}, {peer}: {', '.join(ratios)}.")
    if most and best:
        ratio, least = most / rates[best], 1e6 * cores() / most
        gflops = details["peak_of_a_core"] / 1e9
        verdict = "." if ratio >= TARGET else f": {TARGET:g} times is out of reach."
        remarks.append(
            f"A step has products of {OPERATIONS / 1e6:.2f} MFLOP. At a core's peak, {gflops:.0f} GFLOP/s, "
            f"they take {least:.1f} us, so no program with direct products is more than {ratio:.2f} times as "
            f"fast as the best peer{verdict}"
        )
    remarks += [f"Without {name}: {why}" for name, why in details["left_out"].items()]
    columns = [
        "contestant",
        "member steps/s",
        "us of a core per step",
        "times best peer",
        f"at least {TARGET:g}",
    ]
    return Table(columns, rows, remarks)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar for each contestant, the fastest at the top."""
    from drawing import GREY, draw_contestants, finish_figure

    axes = figure.add_subplot()
    rates = result["details"]["member_steps_per_second"]
    draw_contestants(axes, rates, lambda name: name.partition(" ")[2])
    note = "medians; thin lines: from the slowest to the fastest window"
    most = rate_of_products(result["details"]["peak_of_a_core"])
    if most is not None:
        axes.axvline(most, color=GREY, linestyle="--")
        axes.set_xlim(right=1.05 * most)
        note += f"; dashed: {PRODUCTS}"
    axes.set_xlabel("steps of members per second")
    members, cores = result["details"]["settings"]["members"], result["machine"]["cores"]
    title = f"{members} networks of 784-128-10 units, b={result['details']['batch_size']}, {cores} cores"
    finish_figure(figure, title, 1.6 + 0.22 * len(rates), note)


def parse() -> argparse.Namespace:
    """Parses the options; defaults depend on `--small`."""
    made = parser(__doc__, NAME)
    made.add_argument("--members", type=positive_int, help="default 64, small 8; a multiple of the cores")
    made.add_argument("--seconds", type=positive_float, help="length of a window; default 2, small 0.4")
    made.add_argument("--windows", type=positive_int, help="windows of each contestant; default 7, small 2")
    options = made.parse_args()
    options.members = options.members or (8 if options.small else 64)
    if options.members % cores():
        made.error(f"--members: expected a multiple of the {cores()} cores, got {options.members}")
    options.seconds = options.seconds or (0.4 if options.small else 2.0)
    options.windows = options.windows or (2 if options.small else 7)
    return options


def main() -> None:
    options = parse()
    details = measure(options)
    save(options, NAME, details, table(details, options), draw)


if __name__ == "__main__":
    main()
