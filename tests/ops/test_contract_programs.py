"""The contract of ops of the host, by programs of `ops_contract/programs.py`: values, specs, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.graph import Graph
from tensorbow.specs import as_dtype, compatible
from tests.ops_contract.exceptions import STRUCTURAL
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.harness import LAYOUTS, same_bits
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.programs import (
    NEVER_EMPTY_PROGRAMS,
    NEVER_IN_PROGRAMS,
    PROGRAMS,
    needs_programs,
)

KNOWN = {"shapes": np.shape, "ranks": lambda a: [None] * a.ndim}
each = pytest.mark.parametrize("program", PROGRAMS, ids=[p.label for p in PROGRAMS])


def run(program, arrays):
    graph = Graph()
    inputs, outputs = program.build(graph)
    return run_graph(outputs, dict(zip(inputs, arrays, strict=True)))


def test_every_op_of_the_host_is_in_a_program():
    found = {p: p.ops() for p in PROGRAMS}
    assert needs_programs() - set().union(*found.values()) == set()
    empty = set().union(*(ops for p, ops in found.items() if any(a.size == 0 for a in p.inputs)))
    assert needs_programs() - empty - set(NEVER_EMPTY_PROGRAMS) == set()
    assert set(NEVER_EMPTY_PROGRAMS) <= needs_programs()
    assert set(NEVER_IN_PROGRAMS) <= set(STRUCTURAL)


@each
def test_values_are_those_of_numpy_in_any_layout(program):
    results = run(program, program.inputs)
    for got, expected in zip(results, program.expected(*program.inputs), strict=True):
        assert got.shape == np.shape(expected)
        np.testing.assert_allclose(got, expected, rtol=2e-6)
    assert all(same_bits(a, b) for a, b in zip(run(program, program.inputs), results, strict=True))
    for layout in LAYOUTS.values():
        others = run(program, [layout(a) if a.ndim else a for a in program.inputs])
        assert all(same_bits(a, b) for a, b in zip(others, results, strict=True))


@each
def test_specs_fit_what_is_computed(program):
    results = run(program, program.inputs)
    for shape in KNOWN.values():
        _, outputs = program.build(Graph(), shape)
        for tensor, array in zip(outputs, results, strict=True):
            assert tensor.dtype == as_dtype(array.dtype)
            assert compatible(tensor.spec.shape, array.shape)


@each
def test_nan_and_infinity_raise_nothing(program):
    for bad in (np.nan, np.inf, -np.inf):
        arrays = [a.copy() for a in program.inputs]
        for array in arrays:
            if array.dtype.kind == "f" and array.size:
                array.reshape(-1)[-1:] = bad
        run(program, arrays)


@pytest.mark.parametrize("second_order", [False, True], ids=["first", "second"])
@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.differentiable], ids=[p.label for p in PROGRAMS if p.differentiable]
)
def test_gradients(program, second_order):
    for known in KNOWN:
        check_gradients(
            lambda *inputs: [t for t in program.function(*inputs) if t.dtype.is_floating],
            program.inputs,
            program.wrt,
            rtol=1e-4 if second_order else 1e-5,
            second_order=second_order,
            known=known,
        )
