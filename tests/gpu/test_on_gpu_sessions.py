"""Sessions and Replicators on the GPU of this machine: the tests of the emulated one."""

from __future__ import annotations

import pytest

from tests.runtime import test_session_gpu as shared

pytestmark = pytest.mark.usefixtures("found")
found = shared.found
globals().update({name: test for name, test in vars(shared).items() if name.startswith("test_")})
