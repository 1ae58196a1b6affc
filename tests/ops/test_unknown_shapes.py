"""Functions of tensors whose extents or ranks only a step knows: what they give with all shapes known."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.sample import normal

nn = tb.nn
LABELS, MANY = np.array([2, 0], np.int32), np.array([[2, 0, 1], [1, 1, 3]], np.int32)
IMAGES = normal(2, 6, 5, 3)


def ragged_logits(labels, logits):
    return nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def dense_logits(labels, logits):
    return nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)


CALLS = {
    "sparse cross-entropy": (ragged_logits, LABELS, normal(2, 4)),
    "sparse cross-entropy of sequences": (ragged_logits, MANY, normal(2, 3, 4)),
    "sparse cross-entropy of one": (ragged_logits, np.int32(2), normal(4)),
    "cross-entropy": (dense_logits, normal(2, 4), normal(2, 4, seed=1)),
    "cross-entropy of sequences": (dense_logits, normal(2, 3, 4), normal(2, 3, 4, seed=1)),
    "bias_add": (nn.bias_add, normal(2, 4, 3), normal(3)),
    "bias_add NCHW": (lambda x, b: nn.bias_add(x, b, "NCHW"), normal(2, 3, 4, 5), normal(3)),
    "flatten": (tb.layers.flatten, IMAGES),
    "flatten nothing": (tb.layers.flatten, normal(0, 6, 5, 3)),
    "gather_nd": (tb.gather_nd, normal(2, 3, 4), np.int32([[1, 2], [0, 0]])),
    "gather_nd at no axes": (tb.gather_nd, normal(2, 3), np.zeros([4, 0], np.int32)),
    "scatter_nd": (lambda i, x: tb.scatter_nd(i, x, [2, 3, 4]), np.int32([[1, 2], [1, 2]]), normal(2, 4)),
    "tensor_scatter_update": (
        tb.tensor_scatter_update,
        normal(2, 3, 4),
        np.int32([[1], [1]]),
        normal(2, 3, 4, seed=1),
    ),
    "concat": (lambda x, y: tb.concat([x, y, x], -1), normal(2, 3), normal(2, 4)),
    "stack": (lambda x, y: tb.stack([x, y], 1), normal(2, 3), normal(2, 3, seed=1)),
    "tile": (lambda x: tb.tile(x, [2, 3]), normal(2, 4)),
    "tile a scalar": (lambda x: tb.tile(x, []), normal()),
    "sum": (lambda x: tb.reduce_sum(x, [0, -1]), normal(2, 3, 4)),
    "mean": (lambda x: tb.reduce_mean(x, -2), normal(2, 3, 4)),
    "maximum": (lambda x: tb.reduce_max(x, 1), normal(2, 3)),
    "product": (lambda x: tb.reduce_prod(x, [-1, 0]), normal(2, 3, 4)),
    "product of all": (tb.reduce_prod, normal(2, 3)),
    "top_k": (lambda x: nn.top_k(x, 2)[0], normal(2, 3, 4)),
    "moments": (lambda x: nn.moments(x, [0, 1])[1], normal(2, 3, 4)),
    "matmul": (tb.matmul, normal(5, 2, 3), normal(3, 4)),
    "einsum": (lambda x, y: tb.einsum("bij,bkj->bik", x, y), normal(5, 2, 3), normal(5, 4, 3)),
    "gather": (lambda x, i: tb.gather(x, i, axis=-1), normal(2, 3), LABELS),
    "conv2d": (lambda x, w: nn.conv2d(x, w, [1, 2, 2, 1], "SAME"), IMAGES, normal(3, 3, 3, 4)),
    "max_pool": (lambda x: nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), IMAGES),
    "avg_pool": (lambda x: nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), IMAGES),
    "space_to_depth": (lambda x: tb.space_to_depth(x, 2), normal(2, 4, 6, 3)),
    "depth_to_space": (lambda x: tb.depth_to_space(x, 2), normal(2, 3, 5, 8)),
    "depth_to_space NCHW": (lambda x: tb.depth_to_space(x, 2, data_format="NCHW"), normal(2, 8, 3, 5)),
    "space_to_batch_nd": (lambda x: tb.space_to_batch_nd(x, [2, 3], [[1, 0], [0, 2]]), normal(2, 3, 4, 5, 2)),
    "space_to_batch": (lambda x: tb.space_to_batch(x, [[0, 0], [0, 0]], 2), normal(2, 4, 6, 3)),
    "batch_to_space_nd": (
        lambda x: tb.batch_to_space_nd(x, [2, 3], [[1, 0], [0, 2]]),
        normal(12, 3, 4, 5, 2),
    ),
    "batch_to_space": (lambda x: tb.batch_to_space(x, [[0, 0], [1, 1]], 2), normal(8, 4, 6, 3)),
    "patches SAME": (
        lambda x: tb.image.extract_image_patches(x, [1, 3, 2, 1], [1, 2, 3, 1], [1, 1, 2, 1], "SAME"),
        IMAGES,
    ),
    "patches VALID": (
        lambda x: tb.image.extract_image_patches(x, [1, 2, 3, 1], [1, 2, 1, 1], [1, 2, 1, 1], "VALID"),
        IMAGES,
    ),
    "conv3d SAME": (
        lambda x: nn.conv3d(x, normal(3, 2, 3, 2, 4), [1, 2, 1, 2, 1], "SAME"),
        normal(2, 5, 4, 6, 2),
    ),
    "conv3d VALID": (
        lambda x: nn.conv3d(x, normal(2, 2, 3, 2, 4), [1, 2, 1, 1, 1], "VALID", dilations=[1, 2, 1, 1, 1]),
        normal(2, 7, 4, 6, 2),
    ),
    "conv3d NCDHW": (
        lambda x: nn.conv3d(x, normal(3, 2, 3, 2, 4), [1, 1, 1, 1, 1], "SAME", "NCDHW"),
        normal(2, 2, 5, 4, 6),
    ),
    "crop_and_resize": (
        lambda x, b: tb.image.crop_and_resize(x, b, [1, 0, 1], [3, 4]),
        IMAGES,
        np.float32([[0, 0, 1, 1], [0.1, 0.2, 0.9, 0.7], [0.8, -0.2, 0.3, 0.6]]),
    ),
    "crop_and_resize to one": (
        lambda x, b: tb.image.crop_and_resize(x, b, [1, 0], [1, 1]),
        IMAGES,
        np.float32([[0, 0, 1, 1], [0.1, 0.2, 0.9, 0.7]]),
    ),
    "local_response_normalization": (lambda x: nn.local_response_normalization(x, 1), normal(2, 3, 4, 6)),
    "fused_batch_norm": (lambda x, *v: nn.fused_batch_norm(x, *v)[0], IMAGES, normal(3), normal(3, seed=1)),
}
ALL_KNOWN = {  # what TensorFlow asks for, too: a variable's shape, a number of results
    "dense": (lambda x: tb.layers.dense(x, 4), normal(2, 3)),
    "conv2d": (lambda x: tb.layers.conv2d(x, 4, 3), IMAGES),
    "batch_normalization": (tb.layers.batch_normalization, IMAGES),
    "unstack": (tb.unstack, normal(2, 3)),
}


def results(function, arrays, shape_of):
    """The value of a function of placeholders, and its gradients with respect to floating ones."""
    with tb.Graph().as_default(), tb.Session() as session:
        inputs = [tb.placeholder(a.dtype, shape_of(a)) for a in arrays]
        value = function(*inputs)
        gradients = tb.gradients(tb.reduce_sum(tb.square(value)), [x for x in inputs if x.dtype.is_floating])
        return session.run([value, *gradients], dict(zip(inputs, arrays, strict=True)))


@pytest.mark.sampled(6)
@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("call", CALLS)
def test_shapes_may_become_known_with_the_feeds(call):
    function, *arrays = CALLS[call]
    expected = results(function, arrays, np.shape)
    for shape_of in (lambda a: [None] * a.ndim, lambda a: None):
        for result, value in zip(results(function, arrays, shape_of), expected, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("call", ALL_KNOWN)
def test_what_must_be_known_is_said(call):
    function, *arrays = ALL_KNOWN[call]
    for shape_of in (lambda a: [None] * a.ndim, lambda a: None):
        with pytest.raises(InvalidArgumentError, match=r"(not|must be) known"):
            results(function, arrays, shape_of)


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("shape", [(3, 2), (6,)])
@pytest.mark.parametrize("cross_entropy", [ragged_logits, dense_logits])
def test_labels_that_do_not_fit_are_refused_when_shapes_are_known(cross_entropy, shape):
    """There are as many labels as rows of logits, but with the axes in another order."""
    if cross_entropy is ragged_logits:
        labels = np.zeros(shape, np.int32)
    else:
        labels = normal(*shape, 4)
    words = pytest.raises(
        InvalidArgumentError, match=r"labels_fit_logits: float32\[6\] has 6 elements, expected"
    )
    with words:
        results(cross_entropy, [labels, normal(2, 3, 4)], lambda a: None)


@pytest.mark.parametrize("dims", [[8, 2, 3, 1], [None] * 4, None])
def test_crops_beyond_an_extent_are_refused(dims):
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, dims)
        with pytest.raises(InvalidArgumentError, match="larger"):
            session.run(tb.batch_to_space_nd(x, [2, 2], [[3, 2], [0, 0]]), {x: normal(8, 2, 3, 1)})
