"""The gradient checker finds wrong derivatives, and the contract finds kernels that break its rules."""

from __future__ import annotations

import numpy as np
import pytest

import tests.ops.test_contract as contract
from tensorbow.graph import Kernel, OpDef
from tensorbow.ops.broadcasting import sum_to
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.elementwise import multiply
from tensorbow.specs import TensorSpec, broadcast_dims, uint8
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.sample import Sample, normal

X, Y = normal(3, 4), normal(4)


def product(gradient, run=None, prepare=None, **more):
    """x * y with y broadcast along the first axis, and a gradient or kernel that may be wrong."""
    if run is None and prepare is None:

        def run(call):
            np.multiply(*call.inputs, out=call.outputs[0])

    return OpDef(
        name="Product",
        spec=lambda inputs, attrs: TensorSpec(broadcast_dims(*[s.dims for s in inputs]), inputs[0].dtype),
        gradient=gradient,
        kernels={"cpu": Kernel(run=run, prepare=prepare, **more)},
        input_names=("x", "y"),
    )


def right(op, g):
    x, y = op.inputs
    return [multiply(g, y), sum_to(multiply(g, x), y)]


def test_a_right_gradient_passes():
    check_gradients(lambda x, y: [product(right)(x, y)], [X, Y])
    check_gradients(lambda x, y: [product(right)(x, y)], [X, Y], second_order=True)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            lambda op, g: [multiply(right(op, g)[0], 1.001), right(op, g)[1]], id="a little too large"
        ),
        pytest.param(lambda op, g: [right(op, g)[0], multiply(right(op, g)[1], -1.0)], id="wrong sign"),
        pytest.param(lambda op, g: [right(op, g)[0], None], id="one missing"),
        pytest.param(lambda op, g: [multiply(g, op.inputs[0]), right(op, g)[1]], id="swapped"),
    ],
)
def test_a_wrong_gradient_is_found(wrong):
    with pytest.raises(AssertionError, match="gradient"):
        check_gradients(lambda x, y: [product(wrong)(x, y)], [X, Y])


def test_a_wrong_second_derivative_is_found():
    def forgets_y(op, g):
        return [multiply(g, stop_gradient(op.inputs[1])), right(op, g)[1]]

    op = product(forgets_y)
    check_gradients(lambda x, y: [op(x, y)], [X, Y])
    with pytest.raises(AssertionError, match="gradient"):
        check_gradients(lambda x, y: [op(x, y)], [X, Y], second_order=True)


def leaves_a_corner(call):
    np.multiply(*call.inputs, out=call.outputs[0])
    call.outputs[0].view(np.uint8)[..., 0] ^= call.scratch[0][0]


def allocates(call):
    call.outputs[0][...] = call.inputs[0] * call.inputs[1]


def trusts_the_layout(call):
    flat = np.lib.stride_tricks.as_strided(call.inputs[0], (12,), (4,))
    np.multiply(flat.reshape(3, 4), call.inputs[1], out=call.outputs[0])


def keeps_its_input(call):
    kept = call.inputs[0].copy()
    return lambda: np.multiply(kept, call.inputs[1], out=call.outputs[0])


def writes_before_reading(call):
    np.copyto(call.outputs[0], call.inputs[1])
    np.multiply(call.outputs[0], call.inputs[0], out=call.outputs[0])


def sample(op, *inputs):
    return [Sample(op, inputs or (X.copy(), Y.copy()), lambda x, y: x * y)]


def test_garbage_that_shows_is_found():
    op = product(right, leaves_a_corner, scratch=lambda node: [TensorSpec((1,), uint8)])
    with pytest.raises(AssertionError, match="depends on what was"):
        contract.test_every_element_is_written(sample(op))


def test_an_allocation_is_found():
    with pytest.raises(AssertionError, match="allocated"):
        contract.test_a_step_allocates_no_tensor(
            sample(product(right, allocates), normal(256, 513), normal(513))
        )


def test_a_trusted_layout_is_found():
    with pytest.raises(AssertionError, match="output 0"):
        contract.test_inputs_of_any_layout(sample(product(right, trusts_the_layout)))


def test_a_kept_input_is_found():
    with pytest.raises(AssertionError, match="sample Product"):
        contract.test_a_bound_call_reads_its_inputs_anew(sample(product(right, prepare=keeps_its_input)))


def test_a_wrong_inplace_pair_is_found():
    case = sample(product(right, writes_before_reading, inplace=((0, 0),)))
    contract.test_kernel_agrees_with_numpy(case)
    with pytest.raises(AssertionError):
        contract.test_declared_inplace_pairs(case)


def test_a_kernel_cannot_change_its_input():
    def run(call):
        np.multiply(*call.inputs, out=call.inputs[0])

    with pytest.raises(AssertionError, match="read-only"):
        contract.test_kernel_agrees_with_numpy(sample(product(right, run)))


def test_a_wrong_spec_is_found():
    op = product(right)
    wrong = OpDef(
        name="Product",
        spec=lambda inputs, attrs: TensorSpec((3, 4), inputs[0].dtype),
        gradient=right,
        kernels=op.kernels,
        input_names=("x", "y"),
    )
    contract.test_spec_is_what_the_kernel_gives(sample(wrong))
    with pytest.raises(AssertionError):
        contract.test_spec_is_what_the_kernel_gives(sample(wrong, normal(1, 4), normal(4)))
