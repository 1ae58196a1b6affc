"""Costs of control flow: an iteration of a loop, a step of a recurrent network or of replicas, a null op.

    python benchmarks/dynamic_executor.py [--small] [--output FOLDER]

A loop of 10,000 additions, which a fed value ends, is compiled, or run by the dynamic executor if the
session may compile no loops. An LSTM's loop of known length is unrolled into a plan. Where the length is that
of a fed array, a session compiles it for each length; with lengths as data (`sequence_length`) it is one
compiled loop for all of them; by the dynamic executor it runs if the session may compile no loops. What a
null op costs is measured with ops that are kept: additions of 0 to a scalar, conds that return what they get,
in a plan and in the dynamic executor, and ops of the host that return their input.

Steps of two replicas, averaged by SMA, run in the dynamic mode as their labels go through a boolean_mask that
keeps all of them; beside the same step without the mask, which is planned. One round a launch, or as many as
take some 20 ms, from batches that are always ready. The contestants take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import LIMIT as LIMIT_LINE
from drawing import finish_figure
from harness import Measured, Window, in_turn, interleave, paced, parser, save
from null_steps import InstantBatches
from results_page import MISSED, Table

import tensorbow as tb
from scheduler import LearningEngine, StepProgram, gathered
from tensorbow.models import get_model
from tensorbow.pictures import BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "dynamic_executor"
COUNT = 10_000  # iterations of a loop, and null ops of a graph
CONDS = 1_000  # conds of a graph, which take longer to compile
ADDITION, COND, HOST = "addition kept in a plan", "cond kept in a plan", "host op, dynamic executor"
PLAYED = "cond, dynamic executor"
LIMITS_US = {
    "iteration, compiled": 1.0,
    "iteration, dynamic": 10.0,
    f"null op: {ADDITION}": 1.0,
    f"null op: {COND}": 1.0,
    f"null op: {HOST}": 1.0,
    f"null op: {PLAYED}": 20.0,
}
LIMIT_OF_RATIO = 1.3
UNROLLED, FED, DATA, DYNAMIC = "length known", "length fed", "length as data", "not compiled"
WAYS = (FED, DATA, DYNAMIC)
LSTMS = ((20, 8, 16, 32), (50, 16, 32, 64), (20, 32, 128, 256))  # time steps, batch, inputs, units
REPLICAS, BATCH = 2, 16
NETWORKS = {"LeNet": 8, "a layer of 10 units": 256}  # rounds of a launch, where there are several


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
        loop = tb.while_loop(lambda i, y: y < limit, lambda i, y: (i + 1, y + 1.0), [0, x])[1]
        calls = [
            tb.Session(config=tb.ConfigProto(compiles_loops=compiles)).make_callable(loop, [x, limit])
            for compiles in (True, False)
        ]
    values = np.float32(0), np.float32(COUNT)
    names = ("iteration, compiled", "iteration, dynamic")
    return {name: paced(repeated(call, *values), COUNT) for name, call in zip(names, calls, strict=True)}


def null_ops() -> dict[str, Window]:
    """Windows of chains of ops that do nothing but are kept, in ops a second."""
    host = tb.define_op(
        "NullOnHost",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        host=lambda call: call.inputs[0],
        replace=True,
    )
    made = {}
    for case, count, mode in (
        (ADDITION, COUNT, "planned"),
        (COND, CONDS, "planned"),
        (HOST, COUNT, "dynamic"),
        (PLAYED, CONDS, "dynamic"),
    ):
        with tb.Graph().as_default():
            x, zero = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
            y = x
            for _ in range(count):
                if case == ADDITION:
                    y = y + zero
                elif case in (COND, PLAYED):
                    y = tb.cond(y > zero, lambda y=y: y, lambda y=y, zero=zero: y + zero)
                else:
                    y = host(y)
            session = tb.Session(config=tb.ConfigProto(compiles_loops=case != PLAYED))
            feeds = {x: np.float32(1), zero: np.float32(0)}
            if session.explain(y, feeds).mode != mode:
                raise RuntimeError(f"null op, {case}: expected it in a {mode} step")
            call = session.make_callable(y, [*feeds])
        made[f"null op: {case}"] = paced(repeated(call, *feeds.values()), count)
    return made


def lstm(time: int, batch: int, inputs: int, units: int, training: bool, way: str) -> Window:
    """Window of an LSTM's steps, forwards or with gradients of its weights, in steps a second.

    way: `UNROLLED`, of known length, or one of `WAYS`. Raises RuntimeError if it runs in the other mode.
    """
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        x = tb.placeholder(tb.float32, [batch, time if way in (UNROLLED, DATA) else None, inputs])
        lengths = tb.placeholder(tb.int32, [batch]) if way == DATA else None
        cell = tb.nn.rnn_cell.BasicLSTMCell(units)
        outputs, _ = tb.nn.dynamic_rnn(cell, x, lengths, dtype=tb.float32)
        loss = tb.reduce_sum(tb.square(outputs))
        fetches = [loss, *tb.gradients(loss, tb.trainable_variables())] if training else loss
        session = tb.Session(config=tb.ConfigProto(compiles_loops=way != DYNAMIC))
        values = np.random.default_rng(1).normal(size=(batch, time, inputs)).astype(np.float32)
        feeds = {x: values} if lengths is None else {x: values, lengths: np.full(batch, time, np.int32)}
        if (session.explain(fetches, feeds).mode == "dynamic") is not (way == DYNAMIC):
            raise RuntimeError(f"LSTM {way}: it runs in the other mode")
        session.run(tb.global_variables_initializer())
        call = session.make_callable(fetches, [*feeds])
    return paced(repeated(call, *feeds.values()), 1)


def replicas(network: str, masked: bool, rounds_per_launch: int) -> Window:
    """Window of rounds of `REPLICAS` replicas, in rounds a second.

    masked: the labels go through a mask. Raises RuntimeError if the step runs in the other mode.
    """
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        images = tb.placeholder(tb.float32, [None, 28, 28, 1])
        labels = tb.placeholder(tb.int64, [None])
        kept = labels
        if masked:
            kept = tb.boolean_mask(labels, labels >= 0)
            kept.set_shape([BATCH])
        if network == "LeNet":
            loss = get_model("lenet")(images, kept, training=True, classes=10).loss
        else:
            outputs = tb.layers.dense(tb.reshape(images, [-1, 784]), 10)
            losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=kept, logits=outputs)
            loss = tb.reduce_mean(losses)
        update = tb.train.MomentumOptimizer(0.001, 0.9).minimize(loss)
        program = StepProgram((images, labels), loss, update)
    engine = LearningEngine(program, BATCH, ["/cpu:0"], REPLICAS, steps_per_launch=rounds_per_launch)
    if ("mode: dynamic" in engine.explain()) is not masked:
        raise RuntimeError(f"replicas of {network}: the step runs in the other mode")
    engine.initialize()
    random = np.random.default_rng(0)
    pictures = random.normal(size=(BATCH, 28, 28, 1)).astype(np.float32)
    source = InstantBatches((pictures, random.integers(0, 10, BATCH)), REPLICAS).open
    if rounds_per_launch > 1:
        source = gathered(source, rounds_per_launch)

    def run(count: int) -> None:
        engine.run(source, engine.round, engine.round + count * rounds_per_launch)

    return paced(run, rounds_per_launch)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = [row for row in result["details"]["rows"] if "ratio" in row][::-1]
    axes = figure.subplots()
    axes.barh(range(len(rows)), [row["ratio"] for row in rows], color=BLUE)
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows])
    axes.axvline(
        LIMIT_OF_RATIO,
        color=LIMIT_LINE,
        linestyle="--",
        linewidth=1.2,
        label=f"at most {LIMIT_OF_RATIO:g} times unrolled or planned",
    )
    axes.set_xscale("log")
    axes.set_xlabel("time of a step / unrolled, or planned")
    axes.grid(visible=False, axis="y")
    finish_figure(figure, "LSTMs whose length is fed, and replicas", 1.2 + 0.32 * len(rows))


def table(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["rows"]:
        value, limit = row.get("ratio", row["us"]), row.get("limit", LIMIT_OF_RATIO)
        met = "" if limit is None else f"{'met' if value <= limit else MISSED} ({limit:g})"
        rows.append([row["case"], row["us"], row.get("planned_us"), row.get("ratio"), met])
    columns = ["what", "us", "us unrolled or planned", "ratio", "limit: us, or ratio"]
    more = [
        f"{row['case']}: {row['us'] - row['planned_us']:,.0f} us a round more than planned."
        for row in details["rows"]
        if row["case"].startswith(f"{REPLICAS} replicas")
    ]
    return Table(columns, rows, [*more, details["method"]])


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
    for network, several in NETWORKS.items():
        for steps in (1, several):
            contestants = {str(masked): replicas(network, masked, steps) for masked in (False, True)}
            times = {way: microseconds(m) for way, m in interleave(contestants, seconds, windows).items()}
            launch = f"{steps} round{'s' if steps > 1 else ''} a launch"
            # Of the layer, which takes next to no time, the difference counts, not the ratio.
            limit = {} if network == "LeNet" else {"limit": None}
            rows.append(
                {
                    "case": f"{REPLICAS} replicas of {network}, b={BATCH}, dynamic, {launch}",
                    "us": times["True"],
                    "planned_us": times["False"],
                    "ratio": float(f"{times['True'] / times['False']:.3g}"),
                    **limit,
                }
            )
    details = {"rows": rows, "method": in_turn(windows, seconds)}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
