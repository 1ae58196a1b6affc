"""Plugin `pytest -p tests.native_rig.aarch64_plugin`: runs every test as on an AArch64 machine, emulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _machine(modules_are_compiled_once: None) -> Iterator[None]:
    from tests.native_rig.aarch64_machine import aarch64_machine  # after assertions are set up

    with aarch64_machine():
        yield
