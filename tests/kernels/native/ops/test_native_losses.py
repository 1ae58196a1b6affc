"""Native softmax and cross-entropies: class counts around vector widths, wide ranges, bad labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from tensorbow.ops.nn import LogSoftmax, Softmax
from tests.native_rig.native_calls import (
    RefusedError,
    assert_as_reference,
    assert_sample,
    each_target,
    native_cpu,
    run_native,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import integers, normal, uniform
from tests.program_rig.examples import given_few

OPS = {
    d.name for d in (Softmax, LogSoftmax, SparseSoftmaxCrossEntropyWithLogits, SoftmaxCrossEntropyWithLogits)
}
SPARSE, DENSE = SparseSoftmaxCrossEntropyWithLogits, SoftmaxCrossEntropyWithLogits
classes_around_vectors = st.sampled_from([1, 2, 7, 8, 9, 10, 15, 16, 17, 33, 63, 64, 65, 100, 131])
floats = st.sampled_from([np.float32, np.float64])


@pytest.mark.sampled(1)
@each(samples_of(OPS), few=4)
def test_native_loss_samples(sample):
    assert_sample(sample)


@pytest.mark.slow
@given_few(
    4, 30, st.integers(1, 5), classes_around_vectors, floats, st.sampled_from([0.1, 1, 30]), st.booleans()
)
def test_native_sparse_loss(batch, classes, dtype, spread, narrow):
    logits = normal(batch, classes, dtype=dtype) * dtype(spread)
    labels = integers(batch, high=classes, dtype=np.int64)
    options = {"targets": ["narrow" if narrow else "host"], "rtol": 2e-5, "atol": 2e-6}
    assert_as_reference(SPARSE, (logits, labels), **options)
    assert_as_reference(SPARSE, (logits, labels.astype(np.int32)), inplace=[(1, 0)], **options)


@pytest.mark.slow
@given_few(4, 30, st.integers(1, 5), classes_around_vectors, floats, st.booleans())
def test_native_dense_loss_and_softmax(batch, classes, dtype, narrow):
    logits, labels = normal(batch, classes, dtype=dtype) * 5, uniform(batch, classes, dtype=dtype)
    options = {"targets": ["narrow" if narrow else "host"], "rtol": 2e-5, "atol": 2e-6}
    assert_as_reference(DENSE, (logits, labels), **options)
    assert_as_reference(DENSE, (logits, labels), inplace=[(1, 0)], **options)
    for op in (Softmax, LogSoftmax):
        assert_as_reference(op, (logits,), **options)
        assert_as_reference(op, (logits,), inplace=[(0, 0)], **options)


@each_target
def test_native_softmax_of_large_numbers_and_nan(target):
    logits = np.array(
        [[1e30, 0, -1e30], [np.nan, 1, 2], [-np.inf, 0, 1], [np.inf, 0, 1], [-88, 0, 88]], np.float32
    )
    assert_as_reference(Softmax, (logits,), targets=[target])
    assert_as_reference(LogSoftmax, (logits,), targets=[target])
    assert_as_reference(SPARSE, (logits, np.array([0, 1, 2, 0, 1])), targets=[target])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("label", [-1, 10, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("place", [0, 3])
def test_native_sparse_loss_refuses_labels_out_of_range(label, place):
    labels = np.zeros(4, np.int64)
    labels[place] = label
    with pytest.raises(RefusedError):
        run_native(SPARSE, (normal(4, 10), labels))
    with pytest.raises(RefusedError):
        run_native(SPARSE, (np.zeros((4, 0), np.float32), labels))


def test_session_names_the_label_that_native_code_refused(native):
    logits, labels = tb.placeholder(tb.float32, [None, 3]), tb.placeholder(tb.int32, [None])
    scaled = logits * 2.0
    loss = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scaled, name="my_loss")
    total = tb.reduce_sum(loss)
    with tb.Session() as session:
        feed = {logits: normal(4, 3), labels: np.array([0, 1, 2, 3])}
        with pytest.raises(tb.errors.InvalidArgumentError, match="label 3 of example 3") as caught:
            session.run(total, feed)
        assert "my_loss" in str(caught.value)
        feed[labels] = np.array([0, 1, 2, 2])
        assert np.isfinite(session.run(total, feed))


@pytest.fixture(name="native")
def _native():
    with native_cpu():
        yield
