"""Native batches made from a data set: the bits of the reference kernel, and rows out of range refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.ops.examples import MakeBatch
from tests.native_rig.native_calls import (
    TARGETS,
    RefusedError,
    assert_as_reference,
    assert_sample,
    run_native,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import integers

AFFINE = {"scale": 0.0131, "shift": 0.71}

MORE = (
    *[st.integers(-3, 12)] * 4,
    st.integers(0, 255),
    st.integers(-65536, 65536),
    st.integers(0, 131072),
    *[st.integers(-256, 256)] * 2,
    st.integers(-32768, 32768),
    st.integers(0, 1),
)


@each(samples_of({MakeBatch.name}), few=3)
def test_native_batches_of_samples(sample):
    assert_sample(sample)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4)),
    picks=st.lists(
        st.tuples(st.integers(0, 10), st.integers(-10, 10), st.integers(-10, 10), st.integers(0, 1)),
        min_size=1,
        max_size=7,
    ),
    plain=st.booleans(),
    more=st.none() | st.tuples(*MORE),
    target=st.sampled_from(list(TARGETS)),
)
def test_native_batches_have_the_bits_of_the_reference_kernel(shape, picks, plain, more, target):
    pictures = integers(11, *shape, high=256, dtype=np.uint8)
    given = np.array(picks) * ([1, 0, 0, 0] if plain else 1)
    if more is not None:
        given = np.concatenate([given, np.resize(np.array(more), (len(given), 11))], 1)
    inputs = given, pictures, integers(11, high=10, dtype=np.int64)
    assert_as_reference(MakeBatch, inputs, AFFINE, rtol=0, atol=0, targets=[target], aligned=False)


@pytest.mark.parametrize("wrong", [-1, 11, 1 << 40])
def test_native_batches_refuse_rows_out_of_range(wrong):
    pictures, labels = integers(11, 2, 3, 1, high=256, dtype=np.uint8), integers(11, dtype=np.int64)
    with pytest.raises(RefusedError):
        run_native(MakeBatch, (np.array([[3, 0, 0, 0], [wrong, 0, 0, 0]]), pictures, labels), AFFINE)
