"""Kernel launches of training steps with averaging, counted from plans bound on an emulated GPU."""

from __future__ import annotations

import pytest

from tests.gpu_rig.launch_counts import count_launches
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch_size", "fewer_than"), [("resnet32", 32, 250), ("lenet", 16, 30)])
def test_launches_of_a_step(name: str, batch_size: int, fewer_than: int) -> None:
    counts = count_launches(name, batch_size)
    assert counts.task.total() + counts.averaging.total() < fewer_than
    kernels = {kernel for _, kernel in counts.task}
    assert not kernels & {"tiled_copy", "strided_copy", "padded_copy"}
