"""Map kernels of every layout and operator compile for GPUs: by NVRTC, which needs neither GPU nor driver."""

import re

import pytest

from tensorbow.devices.cupy_runtime import compile_with_nvrtc
from tensorbow.graph import Kernel
from tensorbow.kernels.averaged_updates import merge_averaging
from tensorbow.kernels.gpu.source.maps import MapLayout, map_source
from tensorbow.kernels.scalars import results_of, symbols
from tensorbow.kernels.scalars.expression import (
    BOOLEAN_ONLY,
    FLOATING_ONLY,
    INTEGER_ONLY,
    SAME_DTYPE,
    TRUTH,
    apply,
    cast,
    constant,
    select,
)
from tensorbow.ops.updates import ApplyMomentum
from tensorbow.specs import DTYPES, bool_, float32, float64, int64
from tests.gpu_rig.nvrtc_usage import ARCHITECTURES, require_nvrtc
from tests.kernels.test_scalar_averaged_updates import correct, difference, update

BINARY = (
    {"add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "minimum"}
    | {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
)  # fmt: skip
LAYOUTS = [
    MapLayout((), ((True,), (True,)), 1, True, False, "int"),
    MapLayout((), ((True, True, True), (True, False, True)), 3, True, True, "long long"),
    MapLayout((), ((True, True, False), (False, False, False)), 3, False, True, "int"),
]


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return require_nvrtc(request.param)


def every_operator(kind):
    """A result of each operator that takes the dtype, and casts to all others."""
    x, y = symbols([kind, kind])
    results = []
    for name in SAME_DTYPE + TRUTH:
        boolean = name in BOOLEAN_ONLY or name in ("equal", "not_equal")
        numeric = name not in BOOLEAN_ONLY | (INTEGER_ONLY if kind.is_floating else FLOATING_ONLY)
        if boolean if kind == bool_ else numeric:
            results.append(apply(name, *((x, y) if name in BINARY else (x,))))
    results += [cast(x, other) for other in DTYPES.values() if other != kind]
    extremes = (1, 0) if kind == bool_ else (0.1, -3.5, 1e-45) if kind.is_floating else (0, 1)
    return results + [select(apply("equal", x, y), x, constant(value, kind)) for value in extremes]


@pytest.mark.parametrize("kind", DTYPES.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("layout", LAYOUTS, ids=["four", "broadcast", "scalar"])
@pytest.mark.sampled(27)
def test_every_operator_compiles(architecture, kind, layout):
    typed = MapLayout(
        (kind, kind), layout.masks, layout.rank, layout.by_four, layout.predicated, layout.index
    )
    source = map_source("all", every_operator(kind), (0, 1), typed)
    assert compile_with_nvrtc(source.text, source.name, architecture).startswith(b"\x7fELF")


def test_products_are_not_contracted_and_four_elements_move_at_once(architecture):
    """So an operation rounds the same alone and fused; `multiply` and `subtract` would else become one."""
    from cupy.cuda import nvrtc

    inputs, attrs = [float32] * 5, {"weight_decay": 0.1, "use_nesterov": True}
    results = results_of(ApplyMomentum, attrs, inputs, ())
    masks = ((True,), (True,), (True,), (False,), (False,))
    layout = MapLayout(tuple(inputs), masks, 1, True, False, "int")
    program = nvrtc.createProgram(map_source("update", results, range(5), layout).text, "update.cu", (), ())
    nvrtc.compileProgram(program, (f"-arch=compute_{architecture}", "-std=c++17"))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    assert "mul.rn.f32" in text
    assert "fma." not in text
    assert len(re.findall(r"ld\.global\S*\.v4", text)) == 3
    assert len(re.findall(r"st\.global\S*\.v4", text)) == 2


def test_an_update_with_the_averaging_around_it_is_not_contracted_either(architecture):
    from cupy.cuda import nvrtc

    passes = []

    def kernel_of(averaged):
        passes.append(averaged)
        return Kernel(run=lambda call: None)

    merge_averaging([difference(), update(0, (9,)), correct()], kernel_of)
    dtypes = (*[float32] * 6, float64, int64)  # w, v, gradient, rate, momentum, z, alpha, status
    masks = tuple((place in (0, 1, 2, 5),) for place in range(8))
    layout = MapLayout(dtypes, masks, 1, True, False, "int")
    source = map_source("averaged", passes[0].results, range(8), layout)
    program = nvrtc.createProgram(source.text, "averaged.cu", (), ())
    nvrtc.compileProgram(program, (f"-arch=compute_{architecture}", "-std=c++17"))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    assert "fma." not in text
    assert len(re.findall(r"ld\.global\S*\.v4", text)) >= 4  # some again where the status is set: it branches
    assert len(re.findall(r"st\.global\S*\.v4", text)) >= 3
