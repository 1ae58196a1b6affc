"""GraphDefs that lie: an error that names the node, nothing added, in bounded time."""

import copy
import itertools
import json
import tracemalloc

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.graph import MAXIMUM_NODES, NodeDef
from tests.graph.graph_def_programs import HONEST, imported

INDICES = {node["name"]: index for index, node in enumerate(HONEST["node"])}


def lie(node, /, **fields):
    content = copy.deepcopy(HONEST)
    content["node"][INDICES[node]].update(fields)
    return content


def attribute(name, key, value):
    content = copy.deepcopy(HONEST)
    content["node"][INDICES[name]]["attr"][key] = value
    return content


def test_the_honest_one_is_imported():
    assert len(imported(HONEST).get_operations()) == len(INDICES) + 1


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
        (
            {**HONEST, "collection": {"variables": [{"value": 1}]}},
            InvalidArgumentError,
            "'variables', item 0: expected a variable",
        ),
        (
            {**HONEST, "collection": {"losses": [{"operation": "y"}]}},
            InvalidArgumentError,
            "expected a tensor",
        ),
        ({**HONEST, "collection": {"a": [{"operation": "^y"}]}}, InvalidArgumentError, "no node for '.y'"),
        ({**HONEST, "collection": {"a": [1]}}, InvalidArgumentError, "'a', item 0"),
        ({**HONEST, "version": 2}, InvalidArgumentError, "version 2"),
        (lie("y", colocation=["y"]), InvalidArgumentError, "in a cycle: y -> y"),
        (lie("x", colocation=["y"]), InvalidArgumentError, "in a cycle: .*x -> "),
        (lie("product", input=["x:" + "9" * 5000, "w/read:0"]), InvalidArgumentError, "'product'.*no node"),
        (lie("product", input=["x:\u0660", "w/read:0"]), InvalidArgumentError, "'product'.*no node"),
        (attribute("x", "dtype", {"dtype": "z" * 10**6}), InvalidArgumentError, "'x': attribute 'dtype'"),
        (attribute("pool", "strides", {"tuple": [1, 0, 2, 1]}), InvalidArgumentError, "'pool'.*from 1 to"),
        (attribute("pool", "ksize", {"tuple": [1, 2**31, 2, 1]}), InvalidArgumentError, "'pool'.*from 1 to"),
        (
            attribute("pool", "ksize", {"tuple": [1, 2.5, 2, 1]}),
            InvalidArgumentError,
            "'pool'.*whole numbers",
        ),
        (attribute("split", "axis", 0.5), InvalidArgumentError, "'split'.*'axis' must be a whole number"),
        (attribute("w", "shape", {"tuple": [{"float": "nan"}]}), InvalidArgumentError, "'w'.*extents"),
        (
            {**HONEST, "collection": {"a": [{"tensor": "x:" + "9" * 5000}]}},
            InvalidArgumentError,
            "'a', item 0.*no node",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
@pytest.mark.sampled(21)
def test_lies(content, kind, words):
    if kind is None:
        imported(content)
        return
    with pytest.raises(kind, match=words) as caught:
        imported(content)
    assert len(str(caught.value)) < 1500


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
        '{"format": "tensorbow-graph", "version": 1, "node": [], "collection": {"a": [1e999]}}',
        '{"format": "tensorbow-graph", "version": 1, "node": [], "collection": {"a": 1}}',
        "[" + "[]," * 9_000_000,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_text_that_is_none(text):
    with pytest.raises(InvalidArgumentError, match="GraphDef"):
        tb.GraphDef.from_json(text)


@pytest.mark.slow
def test_too_many_nodes_are_refused_before_one_is_made():
    node = '{"name": "n%d", "op": "NoOp"}'
    text = '{"format": "tensorbow-graph", "version": 1, "node": [%s]}'
    text %= ",".join(node % i for i in range(300_000))
    for spelled in (text, text.replace('"op":', '"op" :')):
        tracemalloc.start()
        with pytest.raises(InvalidArgumentError, match=f"300,000 nodes; at most {MAXIMUM_NODES:,}"):
            tb.GraphDef.from_json(spelled)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # no node is made
        tracemalloc.stop()
    many = tb.GraphDef([NodeDef("n", "NoOp")] * 300_000)
    with pytest.raises(InvalidArgumentError, match="300,000 nodes"):
        tb.import_graph_def(many)
    with pytest.raises(InvalidArgumentError, match="300,000 nodes"):
        many.to_json()


@pytest.mark.slow
def test_a_long_chain_and_a_long_cycle_need_no_stack():
    names = [f"n{i}" for i in range(20_000)]
    chain = [NodeDef(n, "NoOp", [f"^{m}"]) for n, m in itertools.pairwise(names)]
    with tb.Graph().as_default() as graph:
        tb.import_graph_def(tb.GraphDef([*chain, NodeDef(names[-1], "NoOp")]), name="")
        assert [graph.get_operations()[i].name for i in (0, -1)] == [names[-1], names[0]]
        with pytest.raises(InvalidArgumentError, match=r"n0 -> n1 -> .* -> \(19992 more\) -> n0$"):
            tb.import_graph_def(tb.GraphDef([*chain, NodeDef(names[-1], "NoOp", ["^n0"])]))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("a", "node 0 must be a NodeDef, got str"),
        (NodeDef(3, "NoOp"), "node 0 3: name must not be 3"),
        (NodeDef("", "NoOp"), "name must not be ''"),
        (NodeDef("a", None), "node 0 'a': op must not be None"),
        (NodeDef("a", "NoOp", [3]), r"input must not be \[3\]"),
        (NodeDef("a", "NoOp", attr=[1]), "attr must not be"),
        (NodeDef("a", "NoOp", output=["float32"]), "output must not be"),
        (NodeDef("a", "NoOp", device=3), "device must not be 3"),
        (NodeDef("a", "NoOp", colocation="b"), "colocation must not be 'b'"),
    ],
)
def test_nodes_made_by_hand(node, words):
    graph_def = tb.GraphDef([node])
    for use in (tb.import_graph_def, tb.GraphDef.to_json, lambda g: g.extract(["a"])):
        with tb.Graph().as_default() as graph, pytest.raises(InvalidArgumentError, match=words):
            use(graph_def)
        assert not graph.get_operations()


def test_collections_made_by_hand():
    with pytest.raises(InvalidArgumentError, match="a collection is no JSON"):
        tb.GraphDef([], {"a": [object()]}).to_json()
    with pytest.raises(InvalidArgumentError, match="collection must be an object of lists"):
        tb.import_graph_def(tb.GraphDef([], {"a": 3}))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"input_map": {3: 1.0}}, "expected input_map to be a dictionary by names"),
        ({"input_map": [("x", 1.0)]}, "expected input_map to be a dictionary by names"),
        ({"input_map": {"x": object()}}, "cannot make a tensor of object"),
        ({"input_map": {"x": [[1, 2, 3, 4]]}}, "'product'.*int32 and float32"),
        ({"return_elements": "y:0"}, "expected return_elements to be a list of strings"),
        ({"return_elements": 3}, "expected return_elements to be a list of strings"),
        ({"return_elements": [3]}, r"return_elements to be a list of strings or None, got list \[3\]"),
        ({"return_elements": ["y:" + "1" * 5000]}, "no node for 'y:111"),
        ({"name": 3}, "expected name to be a string or None"),
    ],
)
def test_arguments_that_do_not_fit_add_nothing(arguments, words):
    graph_def = tb.GraphDef.from_json(json.dumps(HONEST))
    with tb.Graph().as_default() as graph, pytest.raises(TensorBowError, match=words):
        tb.import_graph_def(graph_def, **arguments)
    assert graph.get_operations() == []


def test_values_in_the_input_map_are_constants_of_free_names():
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [3], name="x")
        tb.add(x, tb.constant(1.0, name="Const"), name="y")
        graph_def = graph.as_graph_def()
    with tb.Graph().as_default(), tb.Session() as session:
        y = tb.import_graph_def(graph_def, {"x": [1.0, 2, 3]}, ["y:0"], name="")[0]
        np.testing.assert_array_equal(session.run(y), [2, 3, 4])


def test_a_tensor_of_that_name_is_looked_up_with_care():
    with tb.Graph().as_default() as graph:
        tb.constant(1.0, name="x")
        for name in ("x:\u00b2", "x:" + "9" * 5000, "x:", "x:-1"):
            with pytest.raises(InvalidArgumentError, match="is no tensor name"):
                graph.get_tensor_by_name(name)


@pytest.mark.parametrize("extents", [[2**31 - 1, 2**31 - 1, 0], [0, 2**31 - 1, 2**31 - 1], [2**31 - 1] * 5])
def test_extents_beyond_every_memory(extents):
    one = NodeDef("one", "Placeholder", attr={"dtype": tb.float32, "shape": ()})
    target = NodeDef("shape", "Const", attr={"value": np.array(extents, np.int32)})
    graph_def = tb.GraphDef([one, target, NodeDef("large", "BroadcastTo", ["one", "shape"])])
    with tb.Graph().as_default(), tb.Session() as session:
        tb.import_graph_def(graph_def, name="")
        with pytest.raises(InvalidArgumentError, match=r"large: .* by 64 bits; use smaller extents"):
            session.run("large:0", {"one:0": 1.0})


def test_what_is_no_graph_def():
    with pytest.raises(InvalidArgumentError, match="expected graph_def to be a GraphDef, got int"):
        tb.import_graph_def(3)
    with tb.Graph().as_default() as graph:
        graph.finalize()
        with pytest.raises(TensorBowError, match="finalized"):
            tb.import_graph_def(tb.GraphDef([NodeDef("a", "NoOp")]))
