"""`where` with a vector as condition: it chooses rows, as in TensorFlow 1."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.sample import normal

CHOICE = np.array([True, False, True])
SQUARE, OTHER = normal(3, 3), normal(3, 3, seed=1)
CUBE = normal(3, 3, 3)


def feeds_of(tensors, arrays):
    return dict(zip(tensors, arrays, strict=True))


@pytest.mark.parametrize("shape_of", [np.shape, lambda a: [None] * a.ndim, lambda a: None])
@pytest.mark.parametrize(
    ("x", "y"), [(SQUARE, OTHER), (CUBE, -CUBE), (normal(3, 2), np.float32(0)), (np.float32(0), SQUARE)]
)
@pytest.mark.usefixtures("reference_kernels")
def test_a_vector_chooses_rows(shape_of, x, y):
    arrays = [CHOICE, x, y]
    with tb.Graph().as_default(), tb.Session() as session:
        condition, a, b = (tb.placeholder(each.dtype, shape_of(each)) for each in arrays)
        chosen = tb.where(condition, a, b)
        values = [chosen, *tb.gradients(tb.reduce_sum(tb.square(chosen)), [a, b])]
        result, from_a, from_b = session.run(values, feeds_of((condition, a, b), arrays))
    rows = CHOICE.reshape(-1, *[1] * (max(x.ndim, y.ndim) - 1))
    expected = np.where(rows, x, y)
    np.testing.assert_array_equal(result, expected)
    for found, taken, source in ((from_a, rows, x), (from_b, ~rows, y)):
        slope = np.where(taken, 2 * expected, 0)
        np.testing.assert_allclose(found, slope.sum() if source.ndim == 0 else slope, rtol=1e-6)


def test_other_conditions_broadcast():
    with tb.Graph().as_default(), tb.Session() as session:
        whole, column = tb.where(SQUARE > 0, SQUARE, OTHER), tb.where(CHOICE[:, None], SQUARE, 0.0)
        columns, one = tb.where(CHOICE[None], SQUARE, OTHER), tb.where(True, SQUARE, OTHER)
        found = session.run([whole, column, columns, one, tb.where(CHOICE, SQUARE[0], 5.0)])
    np.testing.assert_array_equal(found[0], np.where(SQUARE > 0, SQUARE, OTHER))
    np.testing.assert_array_equal(found[1], np.where(CHOICE[:, None], SQUARE, 0))
    np.testing.assert_array_equal(found[2], np.where(CHOICE, SQUARE, OTHER))
    np.testing.assert_array_equal(found[3], SQUARE)
    np.testing.assert_array_equal(found[4], np.where(CHOICE, SQUARE[0], 5))


@pytest.mark.usefixtures("reference_kernels")
def test_a_vector_of_another_length_is_refused():
    words = r"expected an element for each of the 2 rows of float32\[2, 3\].*expand_dims"
    with tb.Graph().as_default(), tb.Session() as session:
        with pytest.raises(InvalidArgumentError, match="where: the condition is bool.3., " + words):
            tb.where(CHOICE, normal(2, 3), 0.0)
        x = tb.placeholder(tb.float32)
        with pytest.raises(InvalidArgumentError, match=words):
            session.run(tb.where(CHOICE, x, x), {x: normal(2, 3)})


def test_text_by_rows():
    texts = np.array([["a", "b"], ["c", "d"]])
    with tb.Graph().as_default(), tb.Session() as session:
        chosen = tb.where(tb.constant([False, True]), tb.constant(texts), tb.fill([2, 2], "z"))
        assert session.run(chosen).tolist() == [[b"z", b"z"], [b"c", b"d"]]


@pytest.mark.parametrize("given", [(3, 3), (None, None), None])
@pytest.mark.parametrize("condition", [CHOICE, SQUARE > 0, np.bool_(False)])
@pytest.mark.usefixtures("reference_kernels")
def test_the_select_of_another_writer_chooses_rows(given, condition):
    graph_pb2 = pytest.importorskip("tensorboardX.proto.graph_pb2", reason="another reader of the format")
    pytest.importorskip("google.protobuf", reason="the format needs protobuf")
    foreign = graph_pb2.GraphDef()
    dims = (-1,) * condition.ndim if given is None or None in given else condition.shape
    for name, dtype, extents in (("c", 10, dims), ("x", 1, given), ("y", 1, given)):
        node = foreign.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype
        node.attr["shape"].shape.unknown_rank = extents is None
        for extent in extents or ():
            node.attr["shape"].shape.dim.add(size=-1 if extent is None else extent)
    foreign.node.add(name="s", op="Select", input=["c", "x", "y"]).attr["T"].type = 1
    foreign.node.add(name="v", op="SelectV2", input=["c", "x", "y"]).attr["T"].type = 1
    with tb.Graph().as_default() as graph, tb.Session() as session:
        tb.import_graph_def(foreign.SerializeToString(), name="")
        found, broadcast = session.run(["s:0", "v:0"], {"c:0": condition, "x:0": SQUARE, "y:0": OTHER})
        again = tb.GraphDef.FromString(graph.as_graph_def().SerializeToString())
        assert again.to_json() == graph.as_graph_def().to_json()
    rows = condition[:, None] if condition.ndim == 1 else condition
    np.testing.assert_array_equal(found, np.where(rows, SQUARE, OTHER))
    np.testing.assert_array_equal(broadcast, np.where(condition, SQUARE, OTHER))
