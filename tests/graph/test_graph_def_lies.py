"""GraphDefs that lie: an error that names the place, nothing added, in bounded time."""

import copy
import itertools
import json
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.graph import MAXIMUM_NODES, NodeDef


def honest():
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [None, 4], name="x")
        w = tb.Variable(tb.random_normal([4, 3], seed=3), name="w")
        y = tb.add(tb.matmul(x, w, name="product"), 1.0, name="y")
        tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_mean(y[:, ::2]))
        tb.split(y, [1, 2], axis=1, name="split")
        tb.nn.max_pool(tb.zeros([1, 4, 4, 1]), 2, 2, "SAME", name="pool")
        return json.loads(graph.as_graph_def().to_json())


HONEST = honest()
PLACES = {node["name"]: place for place, node in enumerate(HONEST["node"])}


def imported(content):
    with tb.Graph().as_default() as graph:
        before = tb.constant(0.0, name="before")
        try:
            tb.import_graph_def(tb.GraphDef.from_json(json.dumps(content)), name="")
        except TensorBowError:
            assert graph.get_operations() == [before.op], "something was added"
            assert tb.global_variables() == []
            raise
        return graph


def lie(node, /, **fields):
    content = copy.deepcopy(HONEST)
    content["node"][PLACES[node]].update(fields)
    return content


def attribute(name, key, value):
    content = copy.deepcopy(HONEST)
    content["node"][PLACES[name]]["attr"][key] = value
    return content


def test_the_honest_one_is_imported():
    assert len(imported(HONEST).get_operations()) == len(PLACES) + 1


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (lie("product", input=["gone:0", "w/read:0"]), InvalidArgumentError, "'product'.*no node.*'gone:0'"),
        (lie("y", op="MatMull"), NotFoundError, r"'y' \(MatMull\): Op type not registered 'MatMull'.*MatMul"),
        (lie("product", input=["x:0"]), InvalidArgumentError, "'product'.*expected 2 inputs"),
        (lie("product", input=["x:7", "w/read:0"]), NotFoundError, "'product'.*has no output 7"),
        (lie("product", input=["x:0", "x:0"]), InvalidArgumentError, "'product'.*MatMul"),
        (lie("product", output=[["int32", [None, 3]]]), InvalidArgumentError, "'product'.*declared as int32"),
        (
            lie("product", output=[["float32", [7, 8]]]),
            InvalidArgumentError,
            r"'product'.*declared as.*\[7, 8\]",
        ),
        (lie("product", output=[]), None, ""),
        (lie("split", output=[["float32", None]]), InvalidArgumentError, "'split'.*1 outputs, the op has 2"),
        (lie("y", device="/tpu:x:y"), InvalidArgumentError, "'y'"),
        (lie("y", colocation=["gone"]), InvalidArgumentError, "'y'.*'gone', which is no node"),
        (lie("pool", name="a b"), InvalidArgumentError, "'a b'.*valid op name"),
        (lie("y", name="x"), InvalidArgumentError, "two nodes are named 'x'"),
        (lie("pool", name="before"), InvalidArgumentError, "has an operation 'before' already"),
        (lie("y", more=1), InvalidArgumentError, "'y': unknown field 'more'"),
        (lie("y", source=10**9), InvalidArgumentError, "'y': source"),
        (
            attribute("x", "dtype", {"dtype": "float8"}),
            InvalidArgumentError,
            "'x': attribute 'dtype'.*float8",
        ),
        (attribute("x", "dtype", {"dtype": "int32"}), InvalidArgumentError, "'x'.*float32.*int32"),
        (attribute("x", "colour", 1), InvalidArgumentError, "'x'.*unknown attribute colour"),
        (attribute("w", "role", "king"), InvalidArgumentError, "'w'.*role must be.*'king'"),
        (attribute("w", "decayed", "yes"), InvalidArgumentError, "'w'.*'decayed' must be a bool"),
        (attribute("w", "shape", {"tuple": [None]}), InvalidArgumentError, "'w'.*fully known"),
        (attribute("product", "transpose_a", 1), InvalidArgumentError, "'product'.*must be a bool"),
        (attribute("split", "num_split", 10**12), None, ""),
        (attribute("split", "size_splits", None), InvalidArgumentError, "'split'"),
        (attribute("pool", "strides", "no"), InvalidArgumentError, "'pool'"),
        (
            {**HONEST, "collection": {"variables": [{"variable": {}}]}},
            InvalidArgumentError,
            "'variables', item 0",
        ),
        ({**HONEST, "collection": {"a": [1]}}, InvalidArgumentError, "'a', item 0"),
        ({**HONEST, "version": 2}, InvalidArgumentError, "version 2"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_lies(content, kind, words):
    if kind is None:
        imported(content)
        return
    with pytest.raises(kind, match=words):
        imported(content)


def test_cycles_are_named():
    with pytest.raises(
        InvalidArgumentError, match=r"in a cycle: (y -> product -> y|product -> y -> product)"
    ):
        imported(lie("product", input=["y:0", "w/read:0"]))
    with pytest.raises(InvalidArgumentError, match=r"cycle: x -> x$"):
        imported(lie("x", input=["^x"]))


def test_another_order_of_the_nodes_is_sorted():
    content = copy.deepcopy(HONEST)
    content["node"].reverse()
    graph = imported(content)
    ids = {op.name: op.id for op in graph.get_operations()}
    assert all(ids[t.op.name] < op.id for op in graph.get_operations() for t in op.inputs)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        b"\xff\xfe",
        '{"format": "tensorbow-graph", "version": 1}',
        '{"format": "tensorbow-graph", "version": 1, "node": [NaN]}',
        '{"format": "tensorbow-graph", "version": 1, "node": [], "node": []}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_text_that_is_none(text):
    with pytest.raises(InvalidArgumentError, match="GraphDef"):
        tb.GraphDef.from_json(text)


def test_a_million_nodes_are_refused_at_once():
    node = '{"name": "n%d", "op": "NoOp"}'
    text = '{"format": "tensorbow-graph", "version": 1, "node": [%s]}'
    text %= ",".join(node % i for i in range(1_000_000))
    tracemalloc.start()
    started = time.perf_counter()
    with pytest.raises(InvalidArgumentError, match=f"1,000,000 nodes; at most {MAXIMUM_NODES:,}"):
        tb.GraphDef.from_json(text)
    assert time.perf_counter() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    many = tb.GraphDef([NodeDef("n", "NoOp")] * 1_000_000)
    with pytest.raises(InvalidArgumentError, match="1,000,000 nodes"):
        tb.import_graph_def(many)
    with pytest.raises(InvalidArgumentError, match="1,000,000 nodes"):
        many.to_json()


def test_a_long_chain_and_a_long_cycle_need_no_stack():
    names = [f"n{i}" for i in range(20_000)]
    chain = [NodeDef(n, "NoOp", [f"^{m}"]) for n, m in itertools.pairwise(names)]
    with tb.Graph().as_default() as graph:
        tb.import_graph_def(tb.GraphDef([*chain, NodeDef(names[-1], "NoOp")]), name="")
        assert [graph.get_operations()[i].name for i in (0, -1)] == [names[-1], names[0]]
        with pytest.raises(InvalidArgumentError, match=r"n0 -> n1 -> .* -> \(19992 more\) -> n0$"):
            tb.import_graph_def(tb.GraphDef([*chain, NodeDef(names[-1], "NoOp", ["^n0"])]))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**65) | st.floats() | st.text(max_size=5)
    | st.sampled_from(["x:0", "^y", "w", "MatMul", "Variable", "Const", "float32", "/cpu:0"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["tuple", "dtype", "shape", "array", "slice", "float", "data", "name", "op"]),
        inner,
        max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip


def places(content, path=()):
    yield path
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


EVERYWHERE = list(places(HONEST))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(EVERYWHERE), JUNK), min_size=1, max_size=3))
def test_junk_anywhere_ends_in_our_errors(changes):
    content = copy.deepcopy(HONEST)
    for path, junk in changes:
        target = content
        try:
            for key in path[:-1]:
                target = target[key]
            if path:
                target[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue
    message = ""
    try:
        imported(content)
    except TensorBowError as error:
        message = str(error)
    assert len(message) < 3000


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_text_ends_in_our_errors(data):
    text = json.dumps(HONEST)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    text = text[:start] + data.draw(st.text(max_size=10)) + text[stop:]
    with tb.Graph().as_default():
        try:
            tb.import_graph_def(tb.GraphDef.from_json(text), name="")
        except TensorBowError:
            return


def test_what_is_no_graph_def():
    with pytest.raises(InvalidArgumentError, match="expected a GraphDef, got str"):
        tb.import_graph_def("{}")
    with tb.Graph().as_default() as graph:
        graph.finalize()
        with pytest.raises(TensorBowError, match="finalized"):
            tb.import_graph_def(tb.GraphDef([NodeDef("a", "NoOp")]))
    np.testing.assert_equal(len(EVERYWHERE) > 300, True)
