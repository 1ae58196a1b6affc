"""Costs of the dynamic mode: an iteration of a loop, a step of a recurrent network, an op that does nothing.

    python benchmarks/dynamic_executor.py [--small] [--output FOLDER]

A loop of 10,000 additions is compiled where the number of its iterations is known, and run by the dynamic
executor where a fed value ends it. An LSTM's loop of known length is unrolled into a plan. Where the length
is that of a fed array, a session compiles it for each length, or runs it by the dynamic executor if it may
compile no loops. Ops that do nothing are dropped from plans and regions, so what they cost is what compiled
steps leave of them. The contestants take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import LIMIT as LIMIT_LINE
from drawing import finish_figure
from harness import Measured, Window, in_turn, interleave, paced, parser, save
from results_page import MISSED, Table

import tensorbow as tb
from tensorbow.pictures import BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "dynamic_executor"
COUNT = 10_000  # iterations of a loop, and null ops of a graph
LIMITS_US = {
    "iteration, compiled": 1.0,
    "iteration, dynamic": 10.0,
    "null op, planned": 1.0,
    "null op, beside a dynamic op": 1.0,
}
LIMIT_OF_RATIO = 1.3
UNROLLED, FED, DYNAMIC = "length known", "length fed", "not compiled"
WAYS = (FED, DYNAMIC)
LSTMS = ((20, 8, 16, 32), (50, 16, 32, 64), (20, 32, 128, 256))  # time steps, batch, inputs, units


def repeated(call: Callable[..., Any], *values: Any) -> Callable[[int], None]:
    """A function of a count: that many calls."""

    def run(count: int) -> None:
        for _ in range(count):
            call(*values)

    return run


def loops() -> dict[str, Window]:
    """Windows of loops of `COUNT` additions, in iterations a second."""
    with tb.Graph().as_default():
        x, limit = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
        known = tb.while_loop(lambda i, y: i < COUNT, lambda i, y: (i + 1, y + 1.0), [0, x])[1]
        fed = tb.while_loop(lambda i, y: y < limit, lambda i, y: (i + 1, y + 1.0), [0, x])[1]
        session = tb.Session()
        compiled = session.make_callable(known, [x])
        dynamic = session.make_callable(fed, [x, limit])
    last = np.float32(COUNT)
    zero = np.float32(0)
    return {
        "iteration, compiled": paced(repeated(compiled, zero), COUNT),
        "iteration, dynamic": paced(repeated(dynamic, zero, last), COUNT),
    }


def null_ops() -> dict[str, Window]:
    """Windows of a chain of `COUNT` ops that do nothing, alone and after a dynamic op, in ops a second."""
    made = {}
    for case in ("null op, planned", "null op, beside a dynamic op"):
        with tb.Graph().as_default():
            x = tb.placeholder(tb.bool, [3])
            last = tb.no_op() if "planned" in case else tb.where(x).op
            for _ in range(COUNT):
                with tb.control_dependencies([last]):
                    last = tb.no_op()
            feeds = [] if "planned" in case else [x]
            call = tb.Session().make_callable(last, feeds)
        made[case] = paced(repeated(call, *[np.ones(3, bool) for _ in feeds]), COUNT)
    return made


def lstm(time: int, batch: int, inputs: int, units: int, training: bool, way: str) -> Window:
    """Window of an LSTM's steps, forwards or with gradients of its weights, in steps a second.

    way: `UNROLLED`, of known length, or one of `WAYS`. Raises RuntimeError if it runs in the other mode.
    """
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        x = tb.placeholder(tb.float32, [batch, time if way == UNROLLED else None, inputs])
        outputs, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.BasicLSTMCell(units), x, dtype=tb.float32)
        loss = tb.reduce_sum(tb.square(outputs))
        fetches = [loss, *tb.gradients(loss, tb.trainable_variables())] if training else loss
        session = tb.Session(config=tb.ConfigProto(compiles_loops=way != DYNAMIC))
        values = np.random.default_rng(1).normal(size=(batch, time, inputs)).astype(np.float32)
        if f"{session.explain(fetches, {x: values})}".startswith("mode: dynamic") is not (way == DYNAMIC):
            raise RuntimeError(f"LSTM {way}: it runs in the other mode")
        session.run(tb.global_variables_initializer())
        call = session.make_callable(fetches, [x])
    return paced(repeated(call, values), 1)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = [row for row in result["details"]["rows"] if "ratio" in row][::-1]
    axes = figure.subplots()
    axes.barh(range(len(rows)), [row["ratio"] for row in rows], color=BLUE)
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows])
    axes.axvline(LIMIT_OF_RATIO, color=LIMIT_LINE, linestyle="--", linewidth=1.2, label=f"{LIMIT_OF_RATIO}")
    axes.set_xscale("log")
    axes.set_xlabel("time of a step / of the plan with known length")
    axes.grid(visible=False, axis="y")
    finish_figure(figure, "LSTMs whose length is fed", 1.2 + 0.32 * len(rows))


def table(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["rows"]:
        value, limit = (row["ratio"], LIMIT_OF_RATIO) if "ratio" in row else (row["us"], row["limit"])
        met = "met" if value <= limit else MISSED
        rows.append([row["case"], row["us"], row.get("planned_us"), row.get("ratio"), f"{met} ({limit:g})"])
    columns = ["what", "us", "us with known length", "ratio", "limit: us, or ratio for LSTMs"]
    return Table(columns, rows, [details["method"]])


def microseconds(measured: Measured) -> float:
    return float(f"{1e6 / measured.median:.4g}")


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.02, 3) if options.small else (0.5, 7)
    lstms = LSTMS[:1] if options.small else LSTMS
    measured = interleave({**loops(), **null_ops()}, seconds, windows)
    rows: list[dict[str, Any]] = [
        {"case": case, "us": microseconds(found), "limit": LIMITS_US[case]}
        for case, found in measured.items()
    ]
    for sizes in lstms:
        for training in (False, True):
            time, batch, inputs, units = sizes
            contestants = {way: lstm(*sizes, training, way) for way in (UNROLLED, *WAYS)}
            times = {way: microseconds(m) for way, m in interleave(contestants, seconds, windows).items()}
            what = "LSTM with gradients" if training else "LSTM forwards"
            rows += [
                {
                    "case": f"{what}, {time} steps, b={batch}, {inputs} inputs, {units} units: {way}",
                    "us": times[way],
                    "planned_us": times[UNROLLED],
                    "ratio": float(f"{times[way] / times[UNROLLED]:.3g}"),
                }
                for way in WAYS
            ]
    details = {"rows": rows, "method": in_turn(windows, seconds)}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
