"""Compiled CUDA programs are kept, in memory and on disk, by source and compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorbow.kernels.binary_cache import KEY
from tensorbow.kernels.gpu.runtime.program import CudaSource, ProgramCache
from tensorbow.specs import TensorSpec, int32
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
SOURCE = CudaSource.of("kept", 'extern "C" __global__ void put(int* y) { *y = $VALUE; }', VALUE="7")
OTHER = CudaSource.of("kept", 'extern "C" __global__ void put(int* y) { *y = $VALUE; }', VALUE="8")


def objects(folder: Path) -> list[Path]:
    """The programs in a cache."""
    return sorted(path for path in folder.iterdir() if path.name != KEY)


def compiled(runtime: EmulatedCuda, folder: Path | None, *sources: CudaSource) -> int:
    """Number of compilations by a new cache."""
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
    assert len(objects(folder)) == 3


def test_a_damaged_file_is_compiled_anew_and_replaced(tmp_path: Path) -> None:
    with emulated_runtime() as runtime:
        compiled(runtime, tmp_path, SOURCE)
        (path,) = objects(tmp_path)
        for damage in (path.read_bytes()[:-1], b"", b"\0" * 100):
            path.write_bytes(damage)
            assert compiled(runtime, tmp_path, SOURCE) == 1
            assert compiled(runtime, tmp_path, SOURCE) == 0


def test_a_program_of_another_source_is_not_loaded_under_its_name(tmp_path: Path) -> None:
    with emulated_runtime() as runtime:
        compiled(runtime, tmp_path, SOURCE)
        (path,) = objects(tmp_path)
        compiled(runtime, tmp_path, OTHER)
        (other,) = set(objects(tmp_path)) - {path}
        path.write_bytes(other.read_bytes())
        assert compiled(runtime, tmp_path, SOURCE) == 1


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
