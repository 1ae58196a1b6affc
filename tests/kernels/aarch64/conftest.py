"""Runs the tests of this folder as on an AArch64 machine, in an emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _machine() -> Iterator[None]:
    from tests.native_rig.aarch64_machine import aarch64_machine  # test modules that skip never come here

    with aarch64_machine():
        yield
