"""GraphDefs whose inputs do not fit their ops: refused in our own errors, natively as by the reference.

What an op's spec lets pass is computed by code without bounds checks, so that it must be all that is needed.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.devices import get_device
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.graph import NodeDef
from tensorbow.kernels import ReferenceBackend, backend_for, register_backend
from tests.graph.changed_inputs import SAMPLES, changed_at, is_huge, others
from tests.ops_contract.harness import run_sample, specs_of

# Ops that read scalars that a session does not have.
SCHEDULED = ("SmaDifference", "SmaMove", "OuterStep", "GradientMean")
OPS_IN_SESSIONS = sorted(set(SAMPLES) - set(SCHEDULED))
QUICK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


# The spec and the reference kernel ---------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.sampled(78)
def test_what_the_spec_lets_pass_the_reference_kernel_computes(name):
    for sample in SAMPLES[name]:
        for index, array in enumerate(sample.inputs):
            for other in others(array):
                inputs = changed_at(sample, index, other)
                if is_huge(sample, inputs):
                    continue
                own = [a.copy() if i in sample.op.writes else a for i, a in enumerate(inputs)]
                message = ""
                try:
                    run_sample(sample, own)
                except InternalError:
                    raise
                except TensorBowError as error:
                    message = str(error)
                except Exception as error:
                    shapes = [f"{a.dtype}{list(a.shape)}" for a in inputs]
                    pytest.fail(f"{sample.id}, input {index}: {type(error).__name__} {error} for {shapes}")
                assert len(message) < 1500


# Sessions ----------------------------------------------------------------------------------------------


def graph_def(sample, inputs, known):
    """An op on what it wants: variables, constants, and placeholders that tell shape, rank or nothing."""
    nodes, feeds = [], {}
    for index, array in enumerate(inputs):
        if index in (*sample.op.shape_inputs, *sample.constant):
            nodes.append(NodeDef(f"x{index}", "Const", attr={"value": array}))
            continue
        shape = {"shape": array.shape, "rank": (None,) * array.ndim, "nothing": None}[known]
        dtype = tb.as_dtype(array.dtype)
        nodes.append(NodeDef(f"x{index}", "Placeholder", attr={"dtype": dtype, "shape": shape}))
        feeds[f"x{index}:0"] = array
        if index in sample.op.writes:
            nodes.append(NodeDef(f"v{index}", "Variable", attr={"shape": array.shape, "dtype": dtype}))
            nodes.append(NodeDef(f"set{index}", "Assign", [f"v{index}", f"x{index}"]))
    operands = [f"v{i}" if i in sample.op.writes else f"x{i}" for i in range(len(inputs))]
    nodes.append(NodeDef("made", sample.op.name, operands, dict(sample.complete_attrs)))
    return tb.GraphDef.from_json(tb.GraphDef(nodes).to_json()), feeds


def results(sample, inputs, known):
    """Fetched values of a session, and the variables after it; None where the program is refused."""
    program, feeds = graph_def(sample, inputs, known)
    written = sample.op.writes
    message = ""
    try:
        with tb.Graph().as_default() as graph:
            tb.import_graph_def(program, name="")
            made = graph.get_operation_by_name("made")
            with tb.Session() as session:
                session.run([f"set{index}" for index in written], feeds)
                needed = {k: v for k, v in feeds.items() if int(k[1:-2]) not in written}
                values = session.run([t.name for t in made.outputs] or ["made"], needed)
                return [*values, *session.run([f"v{index}:0" for index in written])]
    except TensorBowError as error:
        message = str(error)
    assert len(message) < 2500
    return None


def results_of(backend, sample, inputs, known):
    device = get_device("/cpu:0")
    before = backend_for(device)
    register_backend("cpu", backend)
    try:
        return results(sample, inputs, known)
    finally:
        register_backend("cpu", before)


@st.composite
def programs(draw, most=2):
    sample = draw(st.sampled_from(SAMPLES[draw(st.sampled_from(OPS_IN_SESSIONS))]))
    inputs = sample.inputs
    for _ in range(draw(st.integers(1, most)) if inputs else 0):
        index = draw(st.integers(0, len(inputs) - 1))
        inputs = changed_at(
            dataclasses.replace(sample, inputs=inputs), index, draw(st.sampled_from(others(inputs[index])))
        )
    return sample, inputs


def check_backends_agree(program, known):
    native_backend = pytest.importorskip(
        "tensorbow.kernels.native.backend", reason="the native backend needs llvmlite"
    )
    sample, inputs = program
    if is_huge(sample, inputs):
        return
    expected = results_of(ReferenceBackend(), sample, inputs, known)
    actual = results_of(native_backend.NativeBackend(), sample, inputs, known)
    assert (actual is None) == (expected is None), "one of the backends refuses it"
    for ours, theirs in zip(actual or (), expected or (), strict=True):
        if theirs is not None:
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


KNOWN = st.sampled_from(["shape", "rank", "nothing"])


@pytest.mark.slow
@settings(max_examples=60, **QUICK)
@given(programs(), KNOWN)
def test_native_code_refuses_what_the_reference_refuses(program, known):
    check_backends_agree(program, known)


@pytest.mark.slow
@settings(max_examples=8000, **QUICK)
@given(programs(most=3), KNOWN)
def test_native_code_refuses_what_the_reference_refuses_thoroughly(program, known):
    check_backends_agree(program, known)


# Native calls in memory of their own -------------------------------------------------------------------


def check_native_call(program):
    calls = pytest.importorskip(
        "tests.native_rig.native_calls", reason="the native backend needs llvmlite", exc_type=ImportError
    )
    sample, inputs = program
    op, attrs = sample.op, sample.complete_attrs
    if op.writes or op.random or op.state or is_huge(sample, inputs):
        return
    try:
        known = all(result.is_static for result in op.infer(specs_of(inputs), attrs))  # no -1 in a shape
        if not known or not all(calls.is_taken(op, inputs, attrs, find()) for find in calls.TARGETS.values()):
            return
    except TensorBowError:
        return
    calls.assert_sample(dataclasses.replace(sample, inputs=inputs, rtol=1e-3, atol=1e-3))


@pytest.mark.slow
@settings(max_examples=120, **QUICK)
@given(programs())
def test_native_calls_stay_in_their_arrays(program):
    check_native_call(program)


@pytest.mark.slow
@settings(max_examples=4000, **QUICK)
@given(programs(most=3))
def test_native_calls_stay_in_their_arrays_thoroughly(program):
    check_native_call(program)
