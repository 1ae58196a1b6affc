"""Every lowering on NEON: tests of the native ops around multiples of the vector width, emulated.

Few examples of each; `test_aarch64_all` runs all tests of native code with all their examples.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_rig.aarch64_machine import neon_target

# After what skips where the emulator is missing.
from tests.kernels.native.ops import (  # isort: skip
    test_native_batch_norm,
    test_native_conv,
    test_native_copies,
    test_native_losses,
    test_native_maps,
    test_native_matmul,
    test_native_pooling,
    test_native_random,
    test_native_reductions,
)
from tests.kernels.native.products import test_native_contraction  # isort: skip
from tests.native_rig.native_calls import run_native, run_reference  # isort: skip
from tests.native_rig.native_steps import native_step, reference_step, taken  # isort: skip
from tests.ops_contract.collection import all_samples  # isort: skip
from tests.ops_contract.harness import assert_close  # isort: skip

NEON = neon_target()
LARGEST = 1000  # elements of a sample's inputs: emulation takes its time

test_contraction = test_native_contraction.test_contraction_of_any_walk.with_examples(6)
test_tiles_fit_the_registers = test_native_contraction.test_tiles_fit_the_registers
test_products = test_native_matmul.test_native_matmul.with_examples(4)
test_stacks_of_products = test_native_matmul.test_native_stacks_of_matrices.with_examples(2)
test_convolutions = test_native_conv.test_native_convolutions.with_examples(3)
test_pools = test_native_pooling.test_native_pooling_of_any_windows.with_examples(2)
test_transpositions = test_native_copies.test_native_transpose.with_examples(4)
test_joining_and_splitting = test_native_copies.test_native_concat_and_split.with_examples(3)
test_boxes = test_native_copies.test_native_boxes.with_examples(2)
test_copies = test_native_copies.test_native_broadcast_tile_and_reverse.with_examples(2)
test_reductions = test_native_reductions.test_native_reduction_over_any_axes.with_examples(5)
test_normalisation = test_native_batch_norm.test_native_batch_norm_and_its_gradient.with_examples(2)
test_sparse_loss = test_native_losses.test_native_sparse_loss.with_examples(3)
test_dense_loss = test_native_losses.test_native_dense_loss_and_softmax.with_examples(1)
on_this = pytest.mark.parametrize("target", ["host"])
test_broadcasting = on_this(test_native_maps.test_native_broadcasting_has_the_reference_bits.with_examples(2))
test_updates = on_this(test_native_maps.test_native_updates_have_the_reference_bits.with_examples(2))
test_functions = on_this(test_native_maps.test_native_functions_around_the_width_of_vectors.with_examples(1))
test_random_numbers = on_this(
    test_native_random.test_integers_uniforms_and_masks_have_the_same_bits.with_examples(2)
)


def _samples():
    """Largest contract sample of each native op that is not marked large."""
    found = {}
    for sample in all_samples():
        size = sum(np.asarray(array).size for array in sample.inputs)
        if not sample.op.random and LARGEST >= size > found.get(sample.op, (-1,))[0] and taken(sample, NEON):
            found[sample.op] = size, sample
    return [sample for _, sample in found.values()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sample", _samples(), ids=lambda sample: sample.op.name)
def test_every_op(sample):
    attrs = sample.complete_attrs
    with np.errstate(all="ignore"):
        if sample.op.state or sample.op.writes:
            expected, actual = reference_step(sample), native_step(sample, NEON)[:-1]
        else:
            expected = run_reference(sample.op, sample.inputs, attrs)
            actual = run_native(sample.op, sample.inputs, attrs, NEON)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert_close(test_native_maps.flushed(ours), test_native_maps.flushed(theirs), sample, sample.id)
