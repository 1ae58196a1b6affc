"""The GPU of this machine; where there is none, the one line that says why nothing here runs."""

from __future__ import annotations

from tests.gpu_rig.runtimes import real_runtime

RUNTIME = real_runtime()


def test_it_says_what_it_is() -> None:
    properties = RUNTIME.properties
    print(f"\n{properties.name}, compute capability {properties.architecture / 10}, {RUNTIME.compiler}")
    assert properties.multiprocessors > 0
