"""Random nests of cond and while_loop, as programs that Python and a graph compute.

A program is a list of statements on three numbers; each is an assignment, a branch or a loop of more of them.
Some assignments are ops of the host, so what is around these runs in the dynamic mode; some of them are slow
ones, beside which others run.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from hypothesis import strategies as st

import tensorbow as tb

NAMES = range(3)


def _on_host(name, slow):
    return tb.define_op(
        name,
        spec=lambda inputs, attrs: inputs[0],
        gradient=lambda op, gradient: [gradient * 0.25, -gradient],
        inputs=("a", "b"),
        host=lambda call: np.asarray(call.inputs[0] * 0.25 - call.inputs[1]),
        slow=slow,
        replace=True,
    )


OnHost = {"host": _on_host("DifferenceOnHost", False), "slow": _on_host("SlowDifferenceOnHost", True)}
assignments = st.tuples(
    st.just("set"),
    st.sampled_from(NAMES),
    st.sampled_from(["add", "mul", "sin", "host", "slow"]),
    st.sampled_from(NAMES),
)


def _more(inner):
    block = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), st.sampled_from(NAMES), block, block),
        st.tuples(st.just("repeat"), st.integers(0, 4), st.booleans(), block),
    )


programs = st.lists(st.recursive(assignments, _more, max_leaves=8), min_size=1, max_size=4)


def in_python(program, values):
    values = list(values)
    for kind, *rest in program:
        if kind == "set":
            target, how, source = rest
            a, b = values[target], values[source]
            values[target] = {
                "add": a * 0.5 + b,
                "mul": a * b * 0.3,
                "sin": np.sin(a + b),
                "host": a * 0.25 - b,
                "slow": a * 0.25 - b,
            }[how]
        elif kind == "if":
            place, true, false = rest
            values = in_python(true if values[place] > 0.25 else false, values)
        else:
            count, by_value, block = rest
            limit = count + (values[0] > 0.5 if by_value else 0)
            for _ in range(int(limit)):
                values = in_python(block, values)
    return values


def in_graph(program, values, parallel, place=nullcontext):
    """place: gives the context in which a statement's ops are made."""
    values = list(values)
    for kind, *rest in program:
        if kind == "set":
            target, how, source = rest
            a, b = values[target], values[source]
            with place():
                if how == "add":
                    values[target] = a * 0.5 + b
                elif how in OnHost:
                    values[target] = OnHost[how](a, b)
                else:
                    values[target] = a * b * 0.3 if how == "mul" else tb.sin(a + b)
        elif kind == "if":
            chooser, true, false = rest
            before = tuple(values)
            with place():
                pred = values[chooser] > 0.25
            values = list(
                tb.cond(
                    pred,
                    lambda true=true, before=before: in_graph(true, before, parallel, place),
                    lambda false=false, before=before: in_graph(false, before, parallel, place),
                )
            )
        else:
            count, by_value, block = rest
            with place():
                limit = count + tb.cast(values[0] > 0.5, tb.int32) if by_value else count
            values = tb.while_loop(
                lambda i, *now, limit=limit: i < limit,
                lambda i, *now, block=block: [i + 1, *in_graph(block, now, parallel, place)],
                [0, *values],
                parallel_iterations=parallel,
            )[1:]
    return values
