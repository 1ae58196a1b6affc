"""Layout of variables: flat vectors, decayed weights first, slots in the same order as their variables."""

import itertools

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.compiler import VariableLayout
from tensorbow.errors import NotFoundError
from tensorbow.program import Region

pytestmark = pytest.mark.usefixtures("graph")


def test_decayed_weights_then_others_then_statistics(graph):
    tb.Variable(np.zeros(3, np.float32), name="bias")
    tb.Variable(np.zeros((2, 3), np.float32), name="matrix")
    tb.Variable(np.zeros((5, 2), np.float32), name="second")
    tb.Variable(0.0, trainable=False, name="mean")
    tb.Variable(0, name="count")
    layout = VariableLayout.of_graph(graph)
    refs = layout.refs()
    assert [(r.region, r.offset) for r in map(layout.ref, ("matrix", "second", "bias"))] == [
        (Region.WEIGHTS, 0),
        (Region.WEIGHTS, 24),
        (Region.WEIGHTS, 64),
    ]
    assert refs["mean"].region is refs["count"].region is Region.STATISTICS
    (flat,) = layout.flat(Region.WEIGHTS)
    assert (flat.offset, flat.shape, flat.dtype) == (0, (19,), tb.float32)
    assert layout.region_nbytes[Region.GRADIENTS] == layout.region_nbytes[Region.WEIGHTS] == 256
    with pytest.raises(NotFoundError, match="no variable 'w'; there are: matrix, second"):
        layout.ref("w")


def test_each_dtype_has_a_vector_of_its_own(graph):
    tb.Variable(np.zeros(3), name="double")
    tb.Variable(np.zeros(5, np.float32), name="single")
    layout = VariableLayout.of_graph(graph)
    single, double = layout.flat(Region.WEIGHTS)
    assert (single.dtype, double.dtype) == (tb.float32, tb.float64)
    assert (single.shape, double.shape) == ((5,), (3,))
    assert single.offset % 256 == double.offset % 256 == 0


def overlapping(layout):
    refs = sorted(layout.refs().values(), key=lambda r: (r.region, r.offset))
    pairs = itertools.pairwise(refs)
    return [(a, b) for a, b in pairs if a.region == b.region and a.offset + a.nbytes > b.offset]


def test_slots_mirror_the_weights(graph):
    w = tb.Variable(np.ones((2, 3), np.float32), name="w")
    b = tb.Variable(np.ones(3, np.float32), name="b")
    tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(w * b))
    layout = VariableLayout.of_graph(graph)
    for name in ("w", "b"):
        assert layout.ref(f"{name}/Momentum").offset == layout.ref(name).offset
        assert layout.ref(f"{name}/Momentum").region is Region.SLOTS


def test_two_optimisers_with_slots_of_one_name_do_not_share_memory(graph):
    w = tb.Variable(np.ones((2, 3), np.float32), name="w")
    b = tb.Variable(np.ones(3, np.float32), name="b")
    for _ in range(2):
        tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(w * b))
    layout = VariableLayout.of_graph(graph)
    assert {n for n in layout.refs() if "Momentum" in n} == {
        "w/Momentum",
        "b/Momentum",
        "w/Momentum_1",
        "b/Momentum_1",
    }
    assert not overlapping(layout)
    assert layout.ref("w/Momentum_1").offset - layout.ref("w/Momentum").offset == 256


def test_layouts_of_the_same_program_are_equal():
    def build():
        with tb.Graph().as_default() as graph:
            tb.Variable(np.zeros((4, 5)), name="a")
            tb.Variable(np.zeros(7, np.float32), name="b")
            tb.Variable(np.zeros(2, np.int64), name="c")
            return VariableLayout.of_graph(graph).refs()

    assert build() == build()
