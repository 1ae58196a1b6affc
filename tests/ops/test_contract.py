"""The contract of every op: spec, reference kernel and gradient agree, and kernels keep the rules.

Samples are in `tests/ops_contract/samples_*.py`; how to add one stands in `ops_contract/sample.py`.
"""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from tensorbow.graph import NOT_DIFFERENTIABLE, Graph, Tensor, gradient_of
from tensorbow.ops.constant import constant
from tensorbow.ops.control import placeholder
from tensorbow.ops.definition import kernel_for
from tensorbow.specs import TensorSpec, as_dtype, compatible
from tests.ops_contract.collection import all_samples, each, product_ops
from tests.ops_contract.exceptions import (
    ALWAYS_STATIC,
    DIFFERENTIATED_ELSEWHERE,
    NEVER_EMPTY,
    NEVER_LARGE,
    RAISES_FOR_NAN,
    STRUCTURAL,
)
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.harness import (
    GARBAGE,
    LAYOUTS,
    Call,
    assert_close,
    relaid,
    run_sample,
    same_bits,
    specs_of,
    writable,
)

SAMPLES = all_samples()
SMALL = [s for s in SAMPLES if not s.large]


# The tables ---------------------------------------------------------------------------------------------


def test_every_op_has_samples():
    ops, sampled = set(product_ops()), {s.op.name for s in SAMPLES}
    missing = sorted(ops - sampled - set(STRUCTURAL))
    assert not missing, f"add samples (see ops_contract/sample.py) for {missing}"
    assert not set(STRUCTURAL) & sampled, "these have samples, so take them out of STRUCTURAL"
    assert set(STRUCTURAL) <= ops, "these ops do not exist, so take them out of STRUCTURAL"


def test_every_op_has_a_zero_size_sample():
    missing = {s.op.name for s in SAMPLES} - {s.op.name for s in SAMPLES if s.empty} - set(NEVER_EMPTY)
    assert not missing, f"add samples with an input of no elements for {sorted(missing)}"


def test_every_kernel_has_a_large_sample():
    with_kernels = {s.op.name for s in SAMPLES if not s.op.is_view}
    missing = with_kernels - {s.op.name for s in SAMPLES if s.large} - set(NEVER_LARGE)
    assert not missing, f"add samples with an array of about 1 MB for {sorted(missing)}"


def test_every_gradient_is_checked():
    rules = {s.op.name for s in SAMPLES if s.op.gradient is not NOT_DIFFERENTIABLE}
    missing = rules - {s.op.name for s in _differentiable(SMALL)} - set(DIFFERENTIATED_ELSEWHERE)
    assert not missing, f"add small samples that the gradients of {sorted(missing)} can be checked with"


def test_samples_are_of_registered_ops():
    assert all(product_ops().get(s.op.name) is s.op for s in SAMPLES)


# Specs --------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@each(SAMPLES)
def test_spec_is_what_the_kernel_gives(sample):
    specs = sample.op.infer(specs_of(sample.inputs), sample.complete_attrs)
    expected = sample.expected_outputs
    assert all(spec.is_static for spec in specs)
    if expected is not None:
        for spec, array in zip(specs, expected, strict=True):
            if array is not None:
                assert spec.extents == np.shape(array)
                assert array.dtype.kind != "b" or spec.dtype == bool
    for spec, array in zip(specs, run_sample(sample, writable(sample)), strict=True):
        assert (spec.extents, spec.dtype) == (array.shape, as_dtype(array.dtype))
        assert spec.value is None or np.array_equal(spec.value, array)


@each([s for s in SMALL if s.op.name not in ALWAYS_STATIC])
@pytest.mark.sampled(74)
def test_spec_of_partly_known_inputs_is_compatible(sample):
    known = sample.op.infer(specs_of(sample.inputs), sample.complete_attrs)
    for inputs in _less_known(sample):
        results = sample.op.infer(inputs, sample.complete_attrs)
        assert len(results) == len(known)
        for result, full in zip(results, known, strict=True):
            assert result.dtype == full.dtype, [str(i) for i in inputs]
            assert compatible(result.shape, full.shape), ([str(i) for i in inputs], str(result), str(full))


def _less_known(sample):
    """Input specs with values, extents or ranks left out: one by one, and all."""
    choices = []
    for i, full in enumerate(specs_of(sample.inputs)):
        dims = full.shape
        options = [full, TensorSpec(dims, full.dtype), TensorSpec((None,) * len(dims), full.dtype)]
        options += [
            TensorSpec((*dims[:axis], None, *dims[axis + 1 :]), full.dtype) for axis in range(len(dims))
        ]
        options.append(TensorSpec(None, full.dtype))
        choices.append(options if i < 3 else [full, options[2], options[-1]])
    yield from itertools.islice(itertools.product(*choices), 400)
    for k in (1, 2, -1):
        yield [options[k] for options in choices]


# Kernels ------------------------------------------------------------------------------------------------


@each(SAMPLES)
def test_kernel_agrees_with_numpy(sample):
    inputs = writable(sample)
    before = [a.tobytes() for a in inputs]
    results = run_sample(sample, inputs)
    for i, (actual, expected) in enumerate(zip(results, sample.expected_outputs or (), strict=False)):
        if expected is not None:
            assert_close(actual, expected, sample, f"output {i}")
    for i, array in enumerate(inputs):
        if i not in sample.op.writes:
            assert array.tobytes() == before[i], f"the kernel changed input {i}"
    if sample.written is not None:
        for i, expected in zip(sample.op.writes, sample.written(*sample.inputs), strict=True):
            assert_close(inputs[i], expected, sample, f"written input {i}")


@each([s for s in SAMPLES if s.op.kernels])
@pytest.mark.sampled(5)
def test_every_element_is_written(sample):
    first, second = (run_sample(sample, writable(sample), garbage) for garbage in GARBAGE)
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        assert same_bits(a, b), f"output {i} depends on what was in outputs or scratch before"


@each([s for s in SAMPLES if s.op.kernels and not s.op.writes])
@pytest.mark.sampled(64)
def test_second_run_gives_the_same_bits(sample):
    call = Call(sample.op, sample.inputs, sample.complete_attrs, sample.state)
    call.run()
    first = [a.copy() for a in call.outputs]
    call.run()
    assert all(same_bits(a, b) for a, b in zip(first, call.outputs, strict=True))


@each([s for s in SMALL if s.op.kernels])
@pytest.mark.sampled(75)
def test_inputs_of_any_layout(sample):
    plain = run_sample(sample, writable(sample))
    for layout in LAYOUTS:
        results = zip(plain, run_sample(sample, relaid(sample, layout)), strict=True)
        for i, (expected, actual) in enumerate(results):
            if sample.exact_layout:
                assert same_bits(actual, expected), f"output {i}, {layout}"
            else:
                assert_close(actual, expected, sample, f"output {i}, {layout}")


@each([s for s in SMALL if s.op.kernels and s.op.input_names])
@pytest.mark.sampled(75)
def test_a_bound_call_reads_its_inputs_anew(sample):
    """Nothing of the values of a step, shapes apart, is kept from binding or from the step before."""

    def other(i, array):
        return array.copy() if i in sample.op.shape_inputs else array.ravel()[::-1].reshape(array.shape)

    inputs = [a.copy() for a in sample.inputs]
    call = Call(sample.op, inputs, sample.complete_attrs, sample.state)
    call.run()
    for i, array in enumerate(inputs):
        array[...] = other(i, sample.inputs[i])
    call.run()
    expected = run_sample(sample, [other(i, a).copy() for i, a in enumerate(sample.inputs)])
    assert all(same_bits(a, b) for a, b in zip(call.outputs, expected, strict=True))


@each([s for s in SMALL if s.op.kernels and any(a.dtype.kind == "f" and a.size for a in s.inputs)])
def test_nan_and_infinity_raise_nothing(sample):
    if sample.op.name in RAISES_FOR_NAN:
        return
    for bad in (np.nan, np.inf, -np.inf, 3e38):
        inputs = [a.copy() for a in sample.inputs]
        for i, array in enumerate(inputs):
            if array.dtype.kind == "f" and array.size and i not in sample.op.shape_inputs:
                array.reshape(-1)[-1:] = bad
        run_sample(sample, inputs)


def _inplace(sample):
    """The pairs of an output and an input that its kernel may put in the same memory."""
    if not sample.op.kernels:
        return []
    inputs = specs_of(sample.inputs)
    results = sample.op.infer(inputs, sample.complete_attrs)
    pairs = kernel_for(sample.op, "cpu").inplace
    return [(output, source) for output, source in pairs if results[output] == inputs[source]]


@each([s for s in SMALL if _inplace(s)])
def test_declared_inplace_pairs(sample):
    for output, source in _inplace(sample):
        expected = run_sample(sample, writable(sample))
        shared = sample.inputs[source].copy()
        inputs = [shared if i == source else a for i, a in enumerate(writable(sample))]
        call = Call(sample.op, inputs, sample.complete_attrs, sample.state, outputs={output: shared})
        call.run()
        assert all(same_bits(a, b) for a, b in zip(call.outputs, expected, strict=True)), (output, source)


@each([s for s in SMALL if _inplace(s) and not s.op.writes])
def test_declared_inplace_pairs_with_one_tensor_twice(sample):
    """The same tensor as several inputs, as in x * x: the output then is the memory of all of them."""
    specs = specs_of(sample.inputs)
    for output, source in _inplace(sample):
        twins = [i for i, spec in enumerate(specs) if spec == specs[source]]
        first = sample.inputs[source]
        plain = [first if i in twins else a for i, a in enumerate(sample.inputs)]
        expected = run_sample(sample, plain)
        shared = first.copy()
        inputs = [shared if i in twins else a for i, a in enumerate(plain)]
        call = Call(sample.op, inputs, sample.complete_attrs, sample.state, outputs={output: shared})
        call.run()
        assert all(same_bits(a, b) for a, b in zip(call.outputs, expected, strict=True)), (output, source)


@each([s for s in SAMPLES if s.large and s.op.kernels])
@pytest.mark.sampled(1)
def test_a_step_allocates_no_tensor(sample):
    inputs = writable(sample)
    call = Call(sample.op, inputs, sample.complete_attrs, sample.state)
    call.run()
    largest = max(a.nbytes for a in (*inputs, *call.outputs))
    tracemalloc.start()
    try:
        call.run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < largest / 4, f"a step allocated {peak} bytes, the largest tensor has {largest}"


# Gradients ----------------------------------------------------------------------------------------------


def _differentiable(samples):
    """Samples whose gradient can be compared with differences: an input and an output are floating."""
    for sample in samples:
        floating = any(a.dtype.kind in "fc" and a.size for a in sample.inputs)
        checked = sample.wrt is None or len(sample.wrt) > 0
        results = sample.op.infer(specs_of(sample.inputs), sample.complete_attrs)
        flows = any(r.dtype.is_differentiable and r.size for r in results)
        if sample.op.gradient is not NOT_DIFFERENTIABLE and floating and checked and flows:
            yield sample


def _function(sample):
    def call(*inputs: Tensor) -> list[Tensor]:
        result = sample.op(*inputs, **sample.attrs)
        outputs = result if isinstance(result, tuple) else (result,)
        through = range(len(outputs)) if sample.through is None else sample.through
        return [outputs[i] for i in through if outputs[i].dtype.is_differentiable]

    return call


def _constants(sample):
    variadic = set(range(len(sample.inputs)))
    return sorted(variadic & {*sample.op.shape_inputs, *sample.constant})


@pytest.mark.sampled(2)
@each(list(_differentiable(SMALL)))
def test_gradient(sample):
    for known in ("shapes", "ranks", "nothing"):
        check_gradients(
            _function(sample),
            sample.inputs,
            sample.wrt,
            constants=_constants(sample),
            rtol=sample.gradient_rtol,
            known=known,
            state=dict(sample.state),
        )


@pytest.mark.sampled(7)
@each([s for s in _differentiable(SMALL) if s.second_order])
def test_gradient_of_the_gradient(sample):
    check_gradients(
        _function(sample),
        sample.inputs,
        sample.wrt,
        constants=_constants(sample),
        rtol=sample.gradient_rtol * 10,
        second_order=True,
        state=dict(sample.state),
    )


@each([s for s in SMALL if not s.op.writes])
def test_gradient_fits_the_inputs(sample):
    """A gradient has its input's shape and dtype for all dtypes; integers have none."""
    if sample.op.gradient is NOT_DIFFERENTIABLE:
        return
    constants = _constants(sample)
    with Graph().as_default():
        inputs = [
            constant(a) if i in constants else placeholder(a.dtype, a.shape)
            for i, a in enumerate(sample.inputs)
        ]
        result = sample.op(*inputs, **sample.attrs)
        outputs = result if isinstance(result, tuple) else (result,)
        through = range(len(outputs)) if sample.through is None else sample.through
        weights = [
            placeholder(t.dtype, t.shape) if i in through and t.dtype.is_differentiable else None
            for i, t in enumerate(outputs)
        ]
        if all(w is None for w in weights):
            return
        for tensor, grad in zip(inputs, gradient_of(outputs[0].op, weights), strict=True):
            if grad is not None:
                assert tensor.dtype.is_differentiable
                assert grad.dtype == tensor.dtype
                assert compatible(grad.spec.shape, tensor.spec.shape)
