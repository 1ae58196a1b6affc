"""Kernels of TensorFlow's cases: those of the reference.

The cases are about sessions, control flow, queues and files, not about kernels: reference kernels need no
compilation. `-m slow` runs all of them on native code, too.
"""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, params=["reference", pytest.param("native", marks=pytest.mark.slow)])
def kernels_of_cases(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(f"{request.param}_kernels")
