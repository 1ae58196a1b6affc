"""Sessions and Replicators on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu_rig.counted import CountedCuda, opened_on
from tests.gpu_rig.runtimes import real_runtime
from tests.runtime import test_session_gpu as shared

RUNTIME = real_runtime()

pytestmark = pytest.mark.usefixtures("found")
found = shared.found
globals().update({name: test for name, test in vars(shared).items() if name.startswith("test_")})


@pytest.fixture
def runtime() -> Iterator[CountedCuda]:
    with opened_on(RUNTIME)() as counted:
        yield counted
