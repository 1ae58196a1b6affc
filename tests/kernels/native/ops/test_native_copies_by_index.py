"""Native gather and its gradient: any axis, index dtypes, equal indices, indices out of range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.ops.indexing import GatherGrad, GatherV2
from tests.native_rig.native_calls import (
    TARGETS,
    RefusedError,
    assert_as_reference,
    assert_sample,
    native_cpu,
    run_native,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import integers, normal

OPS = {GatherV2.name, GatherGrad.name}


@each(samples_of(OPS), few=4)
def test_native_gather_samples(sample):
    assert_sample(sample)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 6), st.sampled_from([1, 5, 16, 17, 40])),
    st.lists(st.integers(0, 5), max_size=3),
    st.integers(-3, 2),
    st.sampled_from([np.int32, np.int64, np.uint8]),
    st.sampled_from(list(TARGETS)),
)
def test_native_gather_and_its_gradient_are_exact(shape, index_shape, axis, index_dtype, target):
    x = normal(*shape)
    indices = integers(*index_shape, high=shape[axis], dtype=index_dtype)
    exact = {"rtol": 0, "atol": 0, "targets": [target], "aligned": False}
    assert_as_reference(GatherV2, (x, indices), {"axis": axis}, **exact)
    axis %= 3
    flow = normal(*shape[:axis], *index_shape, *shape[axis + 1 :], seed=3)
    assert_as_reference(GatherGrad, (flow, indices, np.array(shape)), {"axis": axis}, **exact)


@pytest.mark.parametrize("wrong", [-1, 4, 1 << 40])
def test_native_gather_refuses_indices_out_of_range(wrong):
    x, indices = normal(4, 3), np.array([[0, 3], [wrong, 1]])
    with pytest.raises(RefusedError):
        run_native(GatherV2, (x, indices))
    with pytest.raises(RefusedError):
        run_native(GatherGrad, (normal(2, 2, 3), indices, np.array([4, 3])))


def test_session_names_the_index_that_native_gather_refused():
    with tb.Graph().as_default():
        indices = tb.placeholder(tb.int32, [None])
        rows = tb.gather(tb.constant(normal(4, 3)) * tb.ones([3]), indices, name="my_rows")
        with native_cpu(), tb.Session() as session:
            np.testing.assert_array_equal(session.run(rows, {indices: [3, 0]}), normal(4, 3)[[3, 0]])
            with pytest.raises(tb.errors.InvalidArgumentError, match=r"my_rows.*indices\[1\] = 4 is not in"):
                session.run(rows, {indices: [0, 4]})
