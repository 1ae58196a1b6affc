"""Compiled CUDA programs are kept, in memory and on disk, by source and compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorbow.kernels.binary_cache import cache_folder
from tensorbow.kernels.gpu.program import CudaSource, ProgramCache
from tensorbow.specs import TensorSpec, int32
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
SOURCE = CudaSource.of("kept", 'extern "C" __global__ void put(int* y) { *y = $VALUE; }', VALUE="7")
OTHER = CudaSource.of("kept", 'extern "C" __global__ void put(int* y) { *y = $VALUE; }', VALUE="8")


def compiled(runtime: EmulatedCuda, folder: Path | None, *sources: CudaSource) -> int:
    """How often a new cache had to compile."""
    before = runtime.counts["compile"]
    programs = ProgramCache(runtime, folder)
    for source in sources:
        assert programs.function(source, "put") == programs.function(source, "put")
    programs.close()
    return runtime.counts["compile"] - before


def test_a_source_is_compiled_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cuda"
    with emulated_runtime() as runtime:
        assert compiled(runtime, folder, SOURCE, OTHER) == 2
        assert compiled(runtime, folder, OTHER, SOURCE) == 0
        assert compiled(runtime, None, SOURCE, SOURCE) == 1
        monkeypatch.setattr(EmulatedCuda, "compiler", "another one")
        assert compiled(runtime, folder, SOURCE) == 1
    assert len(list(folder.iterdir())) == 3


def test_a_damaged_file_is_compiled_anew_and_replaced(tmp_path: Path) -> None:
    with emulated_runtime() as runtime:
        compiled(runtime, tmp_path, SOURCE)
        (path,) = tmp_path.iterdir()
        for damage in (path.read_bytes()[:-1], b"", b"\0" * 100):
            path.write_bytes(damage)
            assert compiled(runtime, tmp_path, SOURCE) == 1
            assert compiled(runtime, tmp_path, SOURCE) == 0


def test_what_was_kept_computes_the_same(tmp_path: Path) -> None:
    with emulated_runtime() as runtime:
        compiled(runtime, tmp_path, SOURCE)
        with GpuBench(runtime) as bench:
            bench.context.programs = ProgramCache(runtime, tmp_path)
            y = bench.memory(TensorSpec((1,), int32))
            before = runtime.counts["compile"]
            bench.context.launch(SOURCE, "put", 1, 1, y)()
            assert runtime.counts["compile"] == before
            assert bench.download(y).item() == 7
            bench.context.programs.close()


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with emulated_runtime() as runtime:
        assert compiled(runtime, tmp_path / "file" / "cuda", SOURCE) == 1


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOW_CACHE", "/somewhere")
    assert cache_folder("cuda") == Path("/somewhere/cuda")
    monkeypatch.setenv("TENSORBOW_CACHE", "")
    assert cache_folder("cuda") is None
    monkeypatch.delenv("TENSORBOW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder("cuda") == Path("/caches/tensorbow/cuda")
