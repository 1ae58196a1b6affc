"""Every CUDA source of the op kernels compiles to machine code; NVRTC needs neither GPU nor driver."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from tensorbow.devices.cupy_runtime import compile_with_nvrtc, nvrtc_identity
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.kernels.gpu.runtime.program import PRELUDE
from tests.gpu_rig.cuda_compiler import cache_folder
from tests.gpu_rig.recording import every_source


@pytest.fixture(params=[80, 90])
def architecture(request):
    try:
        nvrtc_identity(request.param)
    except (NotFoundError, RuntimeError, OSError) as error:  # CuPy raises its own where NVRTC is missing
        pytest.skip(f"no NVRTC: {str(error).splitlines()[0]:.150}")
    return request.param


@pytest.mark.parametrize("float64", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_source_compiles(architecture, float64):
    """Sources that this NVRTC has compiled before are not compiled again."""
    identity, folder = nvrtc_identity(architecture), cache_folder()

    def check(text: str, name: str) -> str:
        key = hashlib.sha256(f"{identity}\n{text}".encode()).hexdigest()
        seen = folder / f"{key}.compiles"
        if not seen.exists():
            try:
                binary = compile_with_nvrtc(text, name, architecture)
            except InvalidArgumentError as error:
                return str(error)
            assert binary.startswith(b"\x7fELF")
            seen.touch()
        return ""

    sources = every_source(float64)
    assert len(sources) > 200
    with ThreadPoolExecutor() as pool:
        failures = [each for each in pool.map(check, sources.keys(), sources.values()) if each]
    assert not failures, f"{len(failures)} of {len(sources)}:\n" + "\n\n".join(failures[:5])


def test_a_source_that_does_not_compile(architecture):
    text = PRELUDE + 'extern "C" __global__ void f(int* y) { *y = nonsense; }'
    with pytest.raises(
        InvalidArgumentError,
        match=rf"CUDA source bad does not compile(.|\n)*sm_{architecture}(.|\n)*nonsense",
    ):
        compile_with_nvrtc(text, "bad", architecture)
