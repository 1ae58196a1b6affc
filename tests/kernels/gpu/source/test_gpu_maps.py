"""Map kernels: broadcasting, vector accesses, predicates, integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InternalError
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.source import index_types, maps
from tensorbow.kernels.gpu.source.maps import MapLayout, map_source, prepare_map
from tensorbow.kernels.scalars import RULES, symbols
from tensorbow.kernels.scalars.collapsing import collapse
from tensorbow.kernels.scalars.expression import maximum, select
from tensorbow.ops import elementwise_table as table
from tensorbow.ops.averaging import GradientCheck, SmaClear, SmaDifference
from tensorbow.ops.control import CheckFinite
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.integer_power import IntegerPow
from tensorbow.ops.selection import Cast, Select
from tensorbow.ops.state import AssignAdd
from tensorbow.specs import TensorSpec, bool_, float32, float64, int32, int64, uint8
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench, every_gpu_kernel
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(scope="module", params=[False, True], ids=["forwards", "backwards"])
def bench(request):
    every_gpu_kernel()
    with emulated_runtime(backwards=request.param) as runtime, GpuBench(runtime) as bench:
        yield bench


@pytest.fixture(autouse=True)
def freed(bench):
    yield
    bench.free_arrays()


def on_gpu(bench, op, *inputs, **options):
    return BoundGpuCall(bench, op, inputs, **options).run()


def numbered(*shape, dtype=np.float32, start=1):
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + start).astype(dtype)


# Broadcasting -------------------------------------------------------------------------------------------


@st.composite
def broadcasts(draw):
    """A shape and up to three shapes that broadcast to it."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4)), max_size=5)))
    inputs = []
    for _ in range(draw(st.integers(1, 3))):
        kept = [extent if draw(st.booleans()) else 1 for extent in shape]
        leading = 0
        while leading < len(kept) and kept[leading] == 1:
            leading += 1
        inputs.append(tuple(kept[draw(st.integers(0, leading)) :]))
    return shape, inputs


@pytest.mark.sampled(1)
@given(broadcasts())
def test_collapsed_axes_index_as_broadcasting_does(case):
    shape, inputs = case
    extents, masks = collapse(shape, inputs)
    assert np.prod(extents, dtype=int) == np.prod(shape, dtype=int)
    assert len(extents) <= max(1, sum(extent > 1 for extent in shape))
    for operand, mask in zip(inputs, masks, strict=True):
        elements = numbered(*operand)
        folded = elements.reshape([e if m else 1 for e, m in zip(extents, mask, strict=True)])
        expected = np.broadcast_to(elements, shape).reshape(-1)
        np.testing.assert_array_equal(np.broadcast_to(folded, extents).reshape(-1), expected)


def test_collapse_takes_the_fewest_axes():
    assert collapse((8, 5, 5, 16), [(8, 5, 5, 16), (16,)]) == ((200, 16), ((True, True), (False, True)))
    assert collapse((8, 5, 16), [(8, 5, 16), ()]) == ((640,), ((True,), (False,)))
    assert collapse((1, 1), [(1,), ()]) == ((1,), ((True,), (True,)))
    with pytest.raises(InternalError, match=r"\[3\] does not broadcast to \[2, 4\]"):
        collapse((2, 4), [(3,)])
    with pytest.raises(InternalError, match="does not broadcast"):
        collapse((4,), [(2, 4)])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (3, 1), (2, 1, 4)),
        ((2, 3, 8), (8,), (3, 1)),
        ((3, 1, 2), (5, 1), (1,)),
        ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1), (2,)),
        ((4, 1), (1, 12), ()),
        ((1,), (), (1, 1)),
    ],
    ids=str,
)
def test_broadcast_select(bench, shapes):
    shape = np.broadcast_shapes(*shapes)
    condition = numbered(*shapes[0], dtype=np.int32) % 2 == 0
    x, y = numbered(*shapes[1]), -numbered(*shapes[2])
    (result,) = on_gpu(bench, Select, condition, x, y).outputs
    assert result.shape == shape
    np.testing.assert_array_equal(result, np.where(condition, x, y))


# Vector accesses ----------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64])
@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 11, 4099])
def test_any_count_at_any_address(bench, count, shift, dtype):
    kind = TensorSpec((count + 16,), tb.as_dtype(dtype))
    x, y, z = (bench.memory(kind) for _ in range(3))
    values = numbered(count + 16, dtype=dtype)
    bench.upload(values, x)
    bench.upload(values[::-1].copy(), y)
    before = bench.download(z)

    def part(array, start=shift):
        return DeviceArray(array.address + start * array.dtype.itemsize, (count,), array.dtype)

    a, b = symbols([kind.dtype] * 2)
    prepare_map(bench.context, "sum", [a + b], [part(x), part(y, 0)], [part(z)])()
    after = bench.download(z)
    expected = values[shift : shift + count] + values[::-1][:count]
    np.testing.assert_array_equal(after[shift : shift + count], expected)
    for untouched in (np.s_[:shift], np.s_[shift + count :]):
        assert after[untouched].tobytes() == before[untouched].tobytes()


@pytest.mark.parametrize(
    ("addresses", "shape", "four"),
    [
        ((256, 512, 1024), (4, 8), True),
        ((256, 520, 1024), (4, 8), False),
        ((256, 512, 1028), (4, 8), False),
        ((260, 512, 1024), (4, 8), False),
        ((256, 512, 1024), (4, 6), False),
        ((256, 512, 1024), (1, 3), False),
        ((256, 512, 1024), (1, 7), True),
    ],
    ids=str,
)
def test_four_at_a_time_only_where_all_addresses_are_aligned(bench, monkeypatch, addresses, shape, four):
    layouts = []
    monkeypatch.setattr(maps, "map_source", lambda name, results, used, layout: layouts.append(layout))
    monkeypatch.setattr(bench.context, "launch", lambda *arguments: None)
    x, row = symbols([float32, float32])
    shapes = shape, shape[1:], shape
    arrays = [DeviceArray(a, s, np.dtype(np.float32)) for a, s in zip(addresses, shapes, strict=True)]
    prepare_map(bench.context, "aligned", [x + row], arrays[:2], arrays[2:])
    assert [layout.by_four for layout in layouts] == [four]


@pytest.mark.slow
def test_indices_of_64_bits(bench, monkeypatch):
    """Indices of arrays with 2^31 elements and more."""
    monkeypatch.setattr(index_types, "LARGE", 8)
    x, y, row = numbered(6, 3, 4), numbered(6, 1, 4), numbered(3, 1)
    np.testing.assert_array_equal(on_gpu(bench, table.Add, x, y).outputs[0], x + y)
    np.testing.assert_array_equal(on_gpu(bench, table.Mul, x, row).outputs[0], x * row)
    np.testing.assert_array_equal(on_gpu(bench, table.Neg, numbered(11)).outputs[0], -numbered(11))
    x[-1, -1, -1] = np.nan
    assert on_gpu(bench, GradientCheck, x.reshape(-1), state={"status": 0}).state["status"] == 1
    layouts = [MapLayout((float32,), ((True,),), 1, True, False, index) for index in ("int", "long long")]
    sources = [map_source("Neg", [-symbols([float32])[0]], [0], layout).text for layout in layouts]
    assert "long long count" in sources[1]
    assert sources[0] == sources[1].replace("long long", "int")


def test_several_results_of_several_dtypes(bench):
    x, y, c = symbols([float32, float32, bool_])
    results = [maximum(x, y) * 2, x < y, select(c, x, y)]
    arrays = numbered(3, 8), numbered(8)[::-1].copy(), numbered(3, 1) % 2 == 0
    inputs = [bench.memory(TensorSpec(a.shape, tb.as_dtype(a.dtype))) for a in arrays]
    for array, memory in zip(arrays, inputs, strict=True):
        bench.upload(array, memory)
    targets = [bench.memory(TensorSpec((3, 8), r.dtype)) for r in results]
    prepare_map(bench.context, "three", results, inputs, targets)()
    a, b, condition = arrays
    for memory, expected in zip(
        targets, (np.maximum(a, b) * 2, a < b, np.where(condition, a, b)), strict=True
    ):
        np.testing.assert_array_equal(bench.download(memory), expected)
    with pytest.raises(InternalError, match=r"map three: a bool result for float32\[3, 8\]"):
        prepare_map(bench.context, "three", results, inputs, [targets[0], targets[0], targets[2]])


def test_one_launch_and_none_for_nothing(bench):
    counts = bench.runtime.counts
    for shape, launches in (((3, 5), 1), ((0, 5), 0)):
        before = counts["launch"]
        on_gpu(bench, table.Sigmoid, numbered(*shape))
        assert counts["launch"] - before == launches


@pytest.mark.parametrize(("op", "source"), [(table.Sub, 0), (table.Sub, 1), (Select, 2), (table.Neg, 0)])
def test_a_result_in_the_memory_of_an_input(bench, op, source):
    given = [numbered(5, 7) % 3 == 0, numbered(5, 7), -numbered(5, 7)][-len(op.input_names) :]
    (expected,) = on_gpu(bench, op, *given).outputs
    (result,) = BoundGpuCall(bench, op, given, shared={0: source}).run().outputs
    np.testing.assert_array_equal(result, expected)


# Values -------------------------------------------------------------------------------------------------

INTEGERS = {
    int32: [(-7, 2), (7, -2), (-8, 2), (-(2**31), -1), (-(2**31), 2**31 - 1), (5, 0), (0, 0), (2**31 - 1, 3)],
    uint8: [(255, 2), (254, 255), (7, 0), (255, 255), (3, 200), (0, 1), (128, 127), (200, 100)],
}


@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "FloorDiv", "FloorMod", "Maximum", "Less"])
@pytest.mark.sampled(2)
def test_integers_wrap_around_and_have_numpys_signs(bench, name, kind):
    x, y = np.array(INTEGERS[kind], kind.as_numpy_dtype).T.copy()
    op = getattr(table, name)
    function = {"FloorDiv": np.floor_divide, "FloorMod": np.remainder, "Sub": np.subtract, "Mul": np.multiply,
                "Add": np.add, "Maximum": np.maximum, "Less": np.less}[name]  # fmt: skip
    with np.errstate(all="ignore"):
        expected = function(x, y)
    (result,) = on_gpu(bench, op, x, y).outputs
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.name)
def test_powers_of_integers(bench, kind):
    x = np.array([0, 0, 1, 2, 3, 7, 200, 2, 15, 3], kind.as_numpy_dtype)
    y = np.array([0, 3, 9, 7, 5, 1, 3, 31, 8, 21], kind.as_numpy_dtype)
    (result,) = on_gpu(bench, IntegerPow, x, y).outputs
    np.testing.assert_array_equal(result, x**y)
    if kind == int32:
        (result,) = on_gpu(bench, IntegerPow, -x, y).outputs
        np.testing.assert_array_equal(result, (-x) ** y)
        np.testing.assert_array_equal(on_gpu(bench, IntegerPow, x, -y - 1).outputs[0], 0 * x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [int32, int64, uint8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"])
def test_bits_of_integers(bench, name, kind):
    x, y = np.array([*INTEGERS.get(kind, INTEGERS[int32]), (-9 % 200, 40)], kind.as_numpy_dtype).T.copy()
    op = getattr(table, name)
    (result,) = on_gpu(bench, op, x, y).outputs
    np.testing.assert_array_equal(result, run_reference_kernel(op, [x, y])[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "op", [table.Neg, table.Abs, table.Sign, table.Square, table.Invert], ids=lambda op: op.name
)
def test_integers_of_one_operand(bench, op, kind):
    x = np.unique(np.array(INTEGERS[kind], kind.as_numpy_dtype))
    function = {"Neg": np.negative, "Abs": np.abs, "Sign": np.sign, "Square": np.square, "Invert": np.invert}[
        op.name
    ]
    (result,) = on_gpu(bench, op, x).outputs
    np.testing.assert_array_equal(result, function(x))


EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 7.0, -7.0, 1e30, 0.3], np.float32)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "name", ["FloorDiv", "FloorMod", "Maximum", "Minimum", "Equal", "NotEqual", "ReluGrad", "EluGrad"]
)
def test_every_pair_of_edges(bench, name):
    op = getattr(table, name)
    x, y = (a.copy() for a in np.broadcast_arrays(EDGES[:, None], EDGES))
    (result,) = on_gpu(bench, op, x, y).outputs
    with np.errstate(all="ignore"):
        (expected,) = run_reference_kernel(op, [x, y])
    np.testing.assert_array_equal(result, expected)


def test_casts_cut_off_and_wrap(bench):
    x = np.array([1.9, -1.9, 255.5, 256.0, 300.7, -1.0, 0.0, 0.4], np.float32)
    for kind in (int32, uint8, bool_, float64):
        (result,) = on_gpu(bench, Cast, x, attrs={"dtype": kind}).outputs
        expected = x.astype(np.int32).astype(np.uint8) if kind == uint8 else x.astype(kind.as_numpy_dtype)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
def test_constants_that_have_no_plain_literal(bench):
    x = numbered(5)
    for op, attrs in ((SmaClear, {"value": v}) for v in (np.inf, -np.inf, np.nan, 0.1, -3e-39)):
        (cleared,) = on_gpu(bench, op, x, attrs=attrs).written
        np.testing.assert_array_equal(cleared, np.full(5, attrs["value"], np.float32))


# What writes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "written"), [(None, True), (0, True), (1, False)])
def test_variables_stay_while_the_status_is_set(bench, status, written):
    v, x = numbered(9), numbered(9, start=20)
    (after,) = on_gpu(bench, AssignAdd, v, x, status=status).written
    np.testing.assert_array_equal(after, v + x if written else v)


def test_step_scalars_are_read_at_every_launch(bench):
    w, z = numbered(6), numbered(6, start=3)
    call = BoundGpuCall(bench, SmaDifference, [w, z], state={"alpha": 0.5, "status": 0})
    np.testing.assert_array_equal(call.run().outputs[0], np.full(6, -1.0, np.float32))
    for alpha, status, expected in ((0.25, 0, -0.5), (0.25, 1, 0.0)):
        call.values.update(alpha=np.asarray(alpha), status=np.asarray(status))
        np.testing.assert_array_equal(call.run(captured=True).outputs[0], np.full(6, expected, np.float32))


@pytest.mark.parametrize("op", [GradientCheck, CheckFinite], ids=lambda op: op.name)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.sampled(16)
def test_the_status_is_set_by_what_is_not_finite_and_never_cleared(bench, op, bad, before):
    x = numbered(70_001)
    x[::7] = 3e38  # large numbers are finite
    if bad is not None:
        x[-1] = bad
    result = on_gpu(bench, op, x, state={"status": before})
    assert result.state["status"] == (1 if bad is not None else before)


def test_every_rule_has_a_gpu_kernel_that_may_share_what_the_reference_may():
    kernels = every_gpu_kernel()
    for op in RULES:
        assert op.name in kernels
        gpu, cpu = op.kernels["gpu"], op.kernels["cpu"]
        assert set(cpu.inplace) <= set(gpu.inplace), op.name
        assert gpu.pointwise == cpu.pointwise, op.name
        assert gpu.capturable
