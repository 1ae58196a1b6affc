"""Native depthwise convolution: windows on the border, strides, dilations, several filters for a channel."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.ops.depthwise import (
    DepthwiseConv2dNative,
    DepthwiseConv2dNativeBackpropFilter,
    DepthwiseConv2dNativeBackpropInput,
)
from tests.native_rig.native_calls import (
    TARGETS,
    assert_as_reference,
    assert_sample,
    run_reference,
    samples_of,
)
from tests.ops_contract.collection import each
from tests.ops_contract.sample import normal

OPS = {
    d.name
    for d in (
        DepthwiseConv2dNative,
        DepthwiseConv2dNativeBackpropInput,
        DepthwiseConv2dNativeBackpropFilter,
    )
}
CASES = [  # images, filters, stride, dilation, padding
    ((2, 9, 8, 37), (3, 3, 37, 1), (1, 1), (1, 1), "SAME"),
    ((2, 9, 8, 21), (3, 2, 21, 1), (2, 2), (1, 1), "SAME"),
    ((2, 9, 8, 19), (3, 3, 19, 1), (1, 1), (2, 3), "SAME"),
    ((2, 7, 8, 5), (2, 3, 5, 3), (2, 1), (1, 1), "VALID"),
    ((1, 5, 9, 8), (7, 7, 8, 1), (1, 1), (1, 1), "SAME"),
    ((2, 9, 7, 4), (2, 2, 4, 1), (3, 3), (1, 1), "VALID"),
]


@pytest.mark.sampled(1)
@each(samples_of(OPS), few=4)
def test_native_depthwise_samples(sample):
    assert_sample(sample)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("images", "filters", "stride", "rate", "padding"), CASES, ids=str)
@pytest.mark.parametrize("target", [*TARGETS])
def test_native_depthwise(images, filters, stride, rate, padding, target):
    attrs = {"strides": (1, *stride, 1), "dilations": (1, *rate, 1), "padding": padding}
    options = {"targets": [target], "aligned": False, "rtol": 1e-4, "atol": 1e-4}
    x, w = normal(*images, dtype=np.float32), normal(*filters, dtype=np.float32, seed=2)
    assert_as_reference(DepthwiseConv2dNative, (x, w), attrs, **options)
    (result,) = run_reference(DepthwiseConv2dNative, (x, w), attrs)
    flow = normal(*result.shape, dtype=np.float32, seed=3)
    sizes = np.array(images, np.int32), np.array(filters, np.int32)
    assert_as_reference(DepthwiseConv2dNativeBackpropInput, (sizes[0], w, flow), attrs, **options)
    assert_as_reference(DepthwiseConv2dNativeBackpropFilter, (x, sizes[1], flow), attrs, **options)
