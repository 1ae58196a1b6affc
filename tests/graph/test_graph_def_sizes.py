"""Shape vectors that cannot be, and graphs that ask for more memory than there is: programs and GraphDefs."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import constant_results
from tensorbow.compiler.constant_results import MOST_FOLDED
from tensorbow.compiler.fold import fold
from tensorbow.compiler.prune import prune
from tensorbow.devices import CpuDevice
from tensorbow.devices.host_memory import host_memory_nbytes
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError
from tensorbow.graph import Kernel
from tensorbow.ops.definition import OPS

pytestmark = pytest.mark.usefixtures("graph")

MIB = 1 << 20
SEEDS = {"seed": 1, "seed2": 2}


def image():
    return tb.placeholder(tb.float32, [2, 7], name="image")


VECTORS = {  # what a vector is called, and an op that takes it
    "Fill": ("dims", lambda v: tb.fill(v, 1.0)),
    "BroadcastTo": ("shape", lambda v: tb.broadcast_to(image(), v)),
    "Tile": ("multiples", lambda v: tb.tile(image(), v)),
    "RandomUniform": ("shape", lambda v: tb.random_uniform(v)),
    "RandomUniformInt": ("shape", lambda v: tb.random_uniform(v, 0, 5, dtype=tb.int32)),
    "RandomStandardNormal": ("shape", lambda v: tb.random_normal(v)),
    "TruncatedNormal": ("shape", lambda v: tb.truncated_normal(v)),
    "DropoutMask": ("noise_shape", lambda v: OPS["DropoutMask"](v, 0.5, **SEEDS)),
    "SumTo": ("shape", lambda v: OPS["SumTo"](image(), v)),
    "SliceGrad": ("shape", lambda v: OPS["SliceGrad"](image(), tb.constant([0, 0]), v)),
    "StridedSliceGrad": (
        "shape",
        lambda v: OPS["StridedSliceGrad"](image(), v, index=((0, 2, 1),)),
    ),
    "GatherGrad": ("shape", lambda v: OPS["GatherGrad"](image(), tb.constant([0, 1]), v, axis=0)),
    "Reshape": ("shape", lambda v: tb.reshape(image(), v)),
    "Slice": ("size", lambda v: tb.slice(image(), [0, 0], v)),
}
OPEN = {"Reshape": "what the others leave", "Slice": "the rest of the axis"}  # by -1
CLOSED = sorted(VECTORS.keys() - OPEN)


@pytest.mark.parametrize("op", CLOSED)
def test_an_open_extent_is_refused_where_nothing_fills_it(op):
    what, make = VECTORS[op]
    expected = (
        rf"{op}\b.*{what} is \[-1, 7\], expected entries of at least 0, got -1 at index 0; give a number"
    )
    with pytest.raises(InvalidArgumentError, match=expected):
        make(tb.constant([-1, 7]))


@pytest.mark.parametrize("op", sorted(VECTORS))
def test_extents_below_are_refused(op):
    what, make = VECTORS[op]
    least = f"0, or -1 for {OPEN[op]}," if op in OPEN else "0,"
    expected = rf"{op}\b.*{what} is \[2, -5\], expected entries of at least {least} got -5 at index 1; give"
    with pytest.raises(InvalidArgumentError, match=expected):
        make(tb.constant([2, -5]))


@pytest.mark.parametrize("op", sorted(VECTORS))
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.sampled(14)
def test_more_entries_than_a_tensor_has_axes_are_refused(op, known):
    what, make = VECTORS[op]
    vector = tb.constant([1] * 33) if known else tb.placeholder(tb.int32, [10**12])
    entries = 33 if known else 10**12
    with pytest.raises(
        InvalidArgumentError, match=rf"{op}\b.*{what} has {entries} entries, expected at most 32"
    ):
        make(vector)


@pytest.mark.parametrize("op", sorted(VECTORS))
def test_a_graph_def_with_such_a_vector_is_refused_with_the_nodes_name(graph, op):
    what, make = VECTORS[op]
    sound = [1, 1] if op in ("Tile", "Slice") else [2, 7]
    make(tb.constant(sound, name="vector"))
    content = json.loads(graph.as_graph_def().to_json())
    with tb.Graph().as_default() as other:
        tb.constant([-3, 7], name="vector")
        (lie,) = json.loads(other.as_graph_def().to_json())["node"]
    (index,) = [index for index, node in enumerate(content["node"]) if node["name"] == "vector"]
    for field in ("attr", "output"):
        content["node"][index][field] = lie[field]
    with tb.Graph().as_default() as target:
        with pytest.raises(
            InvalidArgumentError, match=rf"{op}.*{what} is \[-3, 7\], expected entries.*got -3"
        ):
            tb.import_graph_def(tb.GraphDef.from_json(json.dumps(content)), name="")
        assert not target.get_operations()


def test_a_vector_that_comes_with_the_feeds_is_held_to_the_same(graph):
    x = tb.placeholder(tb.float32, [None, 3])
    y = tb.fill(tb.shape(x) - 2, 1.0, name="less")
    with tb.Session() as session:
        assert session.run(y, {x: np.zeros((4, 3))}).shape == (2, 1)
        expected = r"Fill less: dims is \[-1, 1\], expected entries of at least 0, got -1.*made at"
        with pytest.raises(InvalidArgumentError, match=expected):
            session.run(y, {x: np.zeros((1, 3))})


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (
            [-1, 4],
            r"float32\[2, 7\] has 14 elements, expected a multiple of 4 for shape \[\?, 4\]; give a shape",
        ),
        ([3, 7], r"float32\[2, 7\] has 14 elements, expected 21 for shape \[3, 7\]; give a shape of 14"),
        ([-1, -1], r"shape \[-1, -1\] has more than one -1; give all"),
        ([-1, 0], r"shape is \[-1, 0\], expected no 0 beside a -1.*give the extent"),
    ],
)
def test_a_reshape_that_does_not_fit(shape, words):
    with pytest.raises(InvalidArgumentError, match=f"Reshape: {words}"):
        tb.reshape(image(), shape)


# Memory -----------------------------------------------------------------------------------------------


def test_what_a_program_folds_is_bounded():
    """Half a MiB each: the first ones are folded, the others stay operations, and so does nothing small."""
    each = MIB // 2
    count = 3 * MOST_FOLDED // each
    large = [tb.fill([each // 4], float(number)) for number in range(count)]
    small = tb.reshape(large[-1], tb.constant([2, 2]) * tb.constant([1, each // 16]))
    wanted = [*large, small]
    tracemalloc.start()
    try:
        program = fold(prune([t.op for t in wanted], ()), {}, wanted)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    folded = sum(value.constant is not None for value in program.fetches)
    assert MOST_FOLDED // each - 1 <= folded <= MOST_FOLDED // each
    assert held <= peak < MOST_FOLDED + 16 * MIB
    assert program.fetches[-1].spec.shape == (2, each // 8)  # the product of its shape was folded


@pytest.mark.parametrize(("scratch_nbytes", "is_folded"), [(MIB, True), (2 * MOST_FOLDED, False)])
def test_what_needs_too_much_scratch_is_not_folded(scratch_nbytes, is_folded):
    op = tb.define_op(
        "TestScratchy",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=Kernel(
            run=lambda call: np.copyto(call.outputs[0], call.inputs[0]),
            scratch=lambda node: [tb.TensorSpec([scratch_nbytes], tb.uint8)],
        ),
        replace=True,
    )
    y = op(tb.constant([1.0, 2.0]))
    program = fold(prune([y.op], ()), {}, [y])
    assert (program.fetches[0].constant is not None) == is_folded


def test_results_are_the_same_folded_or_not(monkeypatch):
    x = tb.fill([5000], 2.0)
    y = [tb.square(x) + float(number) for number in range(4)]
    with tb.Session() as session:
        folded = session.run(y)
    monkeypatch.setattr(constant_results, "MOST_FOLDED", 0)
    with tb.Session() as session:
        computed = session.run(y)
    for a, b in zip(folded, computed, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_slab_beyond_the_machines_memory_is_refused_before_it_is_taken():
    here = host_memory_nbytes()
    assert here is not None
    rows = 1 << 12
    y = tb.reduce_sum(tb.sqrt(tb.fill([rows, here // (4 * rows) + 1], 2.0)))
    with CpuDevice("/cpu:5") as device, tb.Session(device=device) as session:
        with pytest.raises(
            ResourceExhaustedError,
            match=r"bytes for slab, inputs and results: .* out of memory: asked .* limit",
        ):
            session.run(y)
        assert device.memory.held_nbytes < 64 * MIB
        assert session.run(tb.constant(3.0)) == 3.0


def test_a_range_needs_its_result_only():
    """No table of all positions beside the slab, whose pages are not the interpreter's."""
    count = 1 << 22
    y = tb.reduce_sum(tb.range(count))
    with tb.Session() as session:
        session.run(tb.constant(1.0))
        tracemalloc.start()
        try:
            total = session.run(y)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert total == np.arange(count, dtype=np.int32).sum(dtype=np.int32)
    assert peak < 4 * MIB
