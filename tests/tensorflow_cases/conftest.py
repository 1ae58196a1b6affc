"""Fixtures of TensorFlow's cases: a graph and a session for each, on reference kernels.

The cases are about sessions, control flow, queues and files, not about kernels: reference kernels need no
compilation. `-m slow` runs all of them on native code, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tensorbow as tb


@pytest.fixture(autouse=True, params=["reference", pytest.param("native", marks=pytest.mark.slow)])
def kernels_of_cases(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(f"{request.param}_kernels")


@pytest.fixture
def graph(kernels_of_cases: None) -> Iterator[tb.Graph]:
    with tb.Graph().as_default() as made:
        yield made


@pytest.fixture
def session(graph: tb.Graph) -> Iterator[tb.Session]:
    with tb.Session() as made:
        yield made
