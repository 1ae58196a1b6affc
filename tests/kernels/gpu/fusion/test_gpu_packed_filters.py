"""Convolutions with packed filters on an emulated GPU, against the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import GpuDevice
from tensorbow.kernels.gpu.fusion.packed_filters import PACK, UNPACK, unpacked
from tensorbow.kernels.gpu.ops import conv
from tensorbow.kernels.gpu.source.packed_filters import MOST_FILTERS
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.program import Region
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.gpu_rig.session_steps import launched_as_on_cpu
from tests.scheduler_rig.running import engine_of

pytestmark = needs_compiler

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((2, 6, 7, 5), (3, 3, 5, 9), {"strides": 1, "padding": "SAME"}),
    "even": ((2, 6, 7, 5), (2, 4, 5, 9), {"strides": 1, "padding": "SAME"}),
    "one axis odd": ((2, 8, 7, 5), (3, 3, 5, 9), {"strides": 2, "padding": "SAME"}),
    "strides": ((2, 8, 8, 35), (3, 3, 35, 33), {"strides": 2, "padding": "SAME"}),
    "valid": ((3, 9, 11, 5), (3, 2, 5, 4), {"strides": (2, 3), "padding": "VALID"}),
    "dilated": ((2, 9, 8, 6), (3, 2, 6, 4), {"strides": 1, "padding": "SAME", "dilations": (2, 3)}),
    "strided pixels": ((2, 6, 7, 5), (1, 1, 5, 9), {"strides": 2, "padding": "SAME"}),
}


def layers(case: str, dtype: tb.DType = tb.float32, count: int = 1) -> list[Any]:
    """Two convolutions by one filter, and the gradients of their images and filter; for each layer."""
    images, filters, options = CASES[case]
    draw = np.random.default_rng(len(case))
    fetched: list[Any] = []
    for _ in range(count):
        x = tb.constant(draw.standard_normal(images), dtype)
        w = tb.Variable(draw.standard_normal(filters), dtype=dtype)
        y = tb.nn.conv2d(x, w, **options)
        again = tb.nn.conv2d(tb.square(x), w, **options)
        flow = tb.constant(draw.standard_normal(y.shape.as_list()), dtype)
        fetched += [y, *tb.gradients(tb.reduce_sum((y + tb.square(again)) * flow), [x, w])]
    return fetched


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_the_cpu_and_copies_nothing_else(case: str) -> None:
    names = launched_as_on_cpu(lambda: layers(case))
    if case == "dilated":  # no zeros in front make its padding symmetric
        assert names["padded_copy"]
        assert not names["pack_filters"]
    else:
        assert (names["pack_filters"], names["unpack_filters"]) == (1, 1)
        assert not names.keys() & {"padded_copy", "tiled_copy", "strided_copy"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_cudnn_without_nhwc(case: str) -> None:
    """Copies to NCHW, or direct sums where the emulated cuDNN takes a filter of one element for NHWC."""
    names = launched_as_on_cpu(lambda: layers(case), nhwc=False)
    assert bool(names["to_filters"]) == (case == "strided pixels")


@pytest.mark.slow
def test_doubles_are_not_packed() -> None:
    names = launched_as_on_cpu(lambda: layers("same", tb.float64))
    assert not names.keys() & {"pack_filters", "unpack_filters"}


@pytest.mark.slow
def test_large_filters_are_not_packed() -> None:
    def build() -> list[Any]:
        x = tb.constant(np.random.default_rng(1).standard_normal((1, 4, 4, 520)), tb.float32)
        w = tb.Variable(np.random.default_rng(2).standard_normal((2, 2, 520, 129)), dtype=tb.float32)
        return [tb.nn.conv2d(x, w, strides=1, padding="VALID")]

    names = launched_as_on_cpu(build)
    assert (names["pack_filters"], names["tiled_copy"]) == (0, 1)


@pytest.mark.slow
def test_large_images_with_asymmetric_padding_are_framed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "MOST_LED", 2 * 8 * 8 * 35 - 1)
    names = launched_as_on_cpu(lambda: layers("strides"))
    assert names["padded_copy"]
    assert not names["pack_filters"]
    assert launched_as_on_cpu(lambda: layers("same"))["pack_filters"] == 1


@pytest.mark.slow
def test_a_launch_takes_so_many_filters_at_most() -> None:
    names = launched_as_on_cpu(lambda: layers("strided pixels", count=MOST_FILTERS + 1))
    assert names["pack_filters"] == 2


@pytest.mark.slow
def test_a_filter_that_is_written_before_it_is_read_again_is_not_packed() -> None:
    def build() -> list[Any]:
        x = tb.constant(np.linspace(0, 1, 2 * 6 * 6 * 5).reshape(2, 6, 6, 5), tb.float32)
        w = tb.Variable(np.linspace(-1, 1, 3 * 3 * 5 * 9).reshape(3, 3, 5, 9), dtype=tb.float32)
        first = tb.nn.conv2d(x, w, strides=1, padding="SAME")
        with tb.control_dependencies([first]), tb.control_dependencies([w.assign_add(w * 0.5)]):
            return [first, tb.nn.conv2d(x, w.read_value(), strides=1, padding="SAME")]

    names = launched_as_on_cpu(build)
    assert (names["pack_filters"], names["tiled_copy"]) == (1, 1)


def test_calls_with_filters_as_they_are() -> None:
    """As fused replicas have them; copied where a gradient would overwrite what is still needed."""
    model = classifier("resnet8", 2)
    with emulated_runtime() as runtime, engine_of(model, [GpuDevice("/gpu:0", runtime)], 1) as engine:
        groups = engine.learners.replicas[0].step.segments[0].groups
    assert {PACK, UNPACK} <= {group.definition for group in groups}
    plain = unpacked(groups)
    assert len(plain) == len(groups) - 2
    gradients = [group for group in plain if group.definition is Conv2DBackpropFilter]
    for group in plain:
        if group.definition in (Conv2D, Conv2DBackpropInput, Conv2DBackpropFilter):
            assert group.kernel is group.definition.kernels["gpu"]
            assert len(group.inputs) == len(group.definition.input_names)
    assert {group.outputs[0].region for group in gradients} == {Region.GRADIENTS}
    assert len({group.outputs[0] for group in gradients}) == len(gradients)
    at = next(i for i, group in enumerate(groups) if group.definition is Conv2DBackpropFilter)
    home = gradients[0].outputs[0]
    reader = replace(groups[0], reads=(home,))
    waits = unpacked([*groups[: at + 1], reader, *groups[at + 1 :]])
    (copy,) = [group for group in waits if group.definition is UNPACK]
    (made,) = [
        group for group in waits if group.definition is Conv2DBackpropFilter and group.outputs == copy.inputs
    ]
    assert copy.outputs == (home,)
    assert (made.outputs[0].offset, made.outputs[0].shape) == (groups[at].outputs[0].offset, home.shape)
