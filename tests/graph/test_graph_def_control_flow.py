"""GraphDefs with conds and loops: what is read back computes the same, and has the same gradients."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError
from tests.executor.random_programs import NAMES, in_graph, programs
from tests.program_rig.examples import given_few

AT = [0.9, 0.3, -0.4]


def loop(x):
    return tb.while_loop(lambda i, a: i < 3.0, lambda i, a: (i + 1.0, a * x), [tb.constant(0.0), x])[1]


def branches_in_a_loop(x):
    def body(i, a):
        return i + 1, tb.cond(a[0] > 0.5, lambda: a * x * 0.9, lambda: tb.sin(a) + loop(x))

    return tb.while_loop(lambda i, a: i < 4, body, [0, x])[1]


PROGRAMS = {
    "loop": loop,
    "cond": lambda x: tb.cond(x[0] > 0.0, lambda: x * x, lambda: x * 3.0),
    "case": lambda x: tb.case([(x[0] > 9.0, lambda: x), (x[1] > 0.0, lambda: x**3.0)], lambda: -x),
    "nest": branches_in_a_loop,
    "map": lambda x: tb.map_fn(lambda v: v * v + tb.reduce_sum(x), x),
    "scan": lambda x: tb.scan(lambda a, b: a * b, x) + tb.foldr(lambda a, b: a + b * b, x),
    "gradient": lambda x: tb.gradients(branches_in_a_loop(x), x)[0] + tb.gradients(loop(x), x)[0],
}


def built(program):
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float64, [3], name="x")
        tb.identity(program(x), name="y")
    return graph


def copied(graph, binary=False, name=""):
    graph_def = graph.as_graph_def()
    data = graph_def.SerializeToString() if binary else graph_def.to_json()
    with tb.Graph().as_default() as read:
        tb.import_graph_def(data, name=name)
    return read


def results(graph, scope="", compiles=True, orders=2):
    x, found = graph.get_tensor_by_name(f"{scope}x:0"), [graph.get_tensor_by_name(f"{scope}y:0")]
    with graph.as_default():
        for _ in range(orders):
            found += [each for each in tb.gradients(found[-1], x) if each is not None]
    with tb.Session(graph=graph, config=tb.ConfigProto(compiles_loops=compiles)) as session:
        return session.run(found, {x: AT})


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("binary", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_is_read_back_has_equal_results_and_gradients(name, binary):
    if binary:
        pytest.importorskip("google.protobuf", reason="the format needs protobuf")
    graph = built(PROGRAMS[name])
    read = copied(graph, binary)
    assert read.as_graph_def().to_json() == graph.as_graph_def().to_json()
    expected = results(graph)
    assert len(expected) == 3
    for got, other in zip(results(read), expected, strict=True):
        assert got.tobytes() == other.tobytes()


@pytest.mark.parametrize("compiles", [True, False])
def test_two_imports_of_a_loop_in_one_graph_keep_apart(compiles):
    graph = built(PROGRAMS["gradient"])
    expected = results(graph, orders=1)
    with tb.Graph().as_default() as both:
        for scope in "ab":
            tb.import_graph_def(graph.as_graph_def(), name=scope)
        total = both.get_tensor_by_name("a/y:0") + both.get_tensor_by_name("b/y:0")
        xs = [both.get_tensor_by_name(f"{scope}/x:0") for scope in "ab"]
        found = [total, *tb.gradients(total, xs)]
        with tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
            y, *gradients = session.run(found, dict.fromkeys(xs, AT))
    np.testing.assert_allclose(y, 2 * expected[0])
    for gradient in gradients:
        np.testing.assert_allclose(gradient, expected[1])


def test_a_part_keeps_what_it_needs_of_loops():
    graph = built(PROGRAMS["gradient"])
    with graph.as_default():
        tb.cond(graph.get_tensor_by_name("x:0")[0] > 0.0, lambda: tb.constant(1.0), lambda: tb.constant(2.0))
    part = graph.as_graph_def().extract(["y"])
    assert {n.context for n in part.node} - {""} <= {c.name for c in part.context}
    assert len(part.context) < len(graph.as_graph_def().context)
    with tb.Graph().as_default() as read:
        tb.import_graph_def(part, name="")
    for got, other in zip(results(read), results(graph), strict=True):
        np.testing.assert_array_equal(got, other)


@pytest.mark.parametrize("compiles", [True, False])
def test_an_import_within_a_loop_and_a_branch_is_in_them(compiles):
    part = built(PROGRAMS["nest"]).as_graph_def()
    with tb.Graph().as_default(), tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
        x = tb.placeholder(tb.float64, [3])

        def inside(a):
            (y,) = tb.import_graph_def(part, {"x": tb.sin(a)}, ["y:0"], name="part")
            return y

        def body(i, a):
            return i + 1, tb.cond(i < 1, lambda: inside(a * 1.0), lambda: tb.sin(inside(x)) + a)

        y = tb.while_loop(lambda i, a: i < 3, body, [0, x])[1]
        found = session.run([y, *tb.gradients(y, x)], {x: AT})
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float64, [3])
        nest = PROGRAMS["nest"]
        y = nest(tb.sin(x)) + 2.0 * tb.sin(nest(tb.sin(x)))
        expected = session.run([y, *tb.gradients(y, x)], {x: AT})
    for got, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-12)


def test_a_defined_function_may_have_loops():
    @tb.Defun(tb.float64)
    def power(x):
        return tb.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * x), [0, x])[1]

    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float64, [3])
        y = power(power(x))
        found = session.run([y, *tb.gradients(y, x)], {x: AT})
    np.testing.assert_allclose(found[0], np.array(AT) ** 9)
    np.testing.assert_allclose(found[1], 9 * np.array(AT) ** 8)


def test_a_saved_model_may_have_loops(tmp_path):
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float64, [3])
        w = tb.Variable(np.array([1.0, 2.0, 3.0]), name="w")
        y = tb.while_loop(lambda a: tb.reduce_sum(a) < 50.0, lambda a: a * w, [x])
        tb.train.save_model(tmp_path / "model", {"x": x}, {"y": y}, {"w": [1.0, 2.0, 3.0]})
    with tb.train.SavedModel(tmp_path / "model") as model:
        np.testing.assert_array_equal(model.run(["y"], x=np.ones(3))[0], [1, 16, 81])


# Random nests -------------------------------------------------------------------------------------------


@pytest.mark.slow
@given_few(6, 100, programs, st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_random_nests_go_there_and_back(program, values):
    with tb.Graph().as_default() as graph:
        xs = [tb.placeholder(tb.float64, [], name=f"x{n}") for n in NAMES]
        for number, each in enumerate(in_graph(program, xs, 10)):
            tb.identity(each, name=f"y{number}")
    found = []
    for each in (graph, copied(graph, binary=True), copied(graph)):
        xs = [each.get_tensor_by_name(f"x{n}:0") for n in NAMES]
        ys = [each.get_tensor_by_name(f"y{n}:0") for n in NAMES]
        with each.as_default():
            gradients = [g for g in tb.gradients(ys, xs) if g is not None]
            again = [g for g in tb.gradients(gradients, xs) if g is not None] if gradients else []
        with tb.Session(graph=each) as session:
            fetched = session.run([*ys, *gradients, *again], dict(zip(xs, values, strict=True)))
        found.append([value.tobytes() for value in fetched])
    assert found[0] == found[1] == found[2]


# Lies ---------------------------------------------------------------------------------------------------

HONEST = json.loads(built(PROGRAMS["nest"]).as_graph_def().to_json())
LOOP = next(index for index, each in enumerate(HONEST["context"]) if each["kind"] == "loop")
BRANCH = next(index for index, each in enumerate(HONEST["context"]) if each["kind"] == "branch")


def lie(index, **fields):
    content = copy.deepcopy(HONEST)
    for role, value in fields.items():
        target = content["context"][index]
        if role in ("merges", "variables", "exits", "condition", "pred", "merged", "counter"):
            target["tensor"][role] = value
        elif role in ("branch", "other", "parallel_iterations"):
            target["attr"][role] = value
        else:
            target[role] = value
    return content


def node_lie(name, **fields):
    content = copy.deepcopy(HONEST)
    next(node for node in content["node"] if node["name"] == name).update(fields)
    return content


TENSORS = HONEST["context"][LOOP]["tensor"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lie(LOOP, kind="knot"), "kind is 'knot', expected branch or loop"),
        (lie(LOOP, outer="gone"), "'gone' is no context that is listed before it"),
        (lie(LOOP, outer=HONEST["context"][LOOP]["name"]), "is no context that is listed before it"),
        (lie(LOOP, parallel_iterations=0), "parallel_iterations is 0"),
        (lie(LOOP, merges=TENSORS["merges"][:1]), "are of different lengths"),
        (lie(LOOP, merges=TENSORS["merges"][::-1]), "are not the Merge, the value in the body and the Exit"),
        (lie(LOOP, merges=["x:0"] * len(TENSORS["merges"])), "are not the Merge"),
        (lie(LOOP, condition=["x:0"]), "'x:0' is no LoopCond"),
        (lie(LOOP, counter=["gone:0"]), "there is no node for 'gone:0'"),
        (lie(LOOP, last="gone"), "there is no node for 'gone'"),
        (lie(LOOP, guards="x"), "expected texts, lists of names"),
        (lie(LOOP, colour="red"), "unknown field 'colour'"),
        (lie(LOOP, name=HONEST["context"][BRANCH]["name"]), "there are two of this name|listed before"),
        (lie(BRANCH, branch=2), "branch is 2, expected 0 or 1"),
        (lie(BRANCH, branch=True), "other is .*, expected the other branch"),
        (lie(BRANCH, other="gone"), "there is no context 'gone'"),
        (lie(BRANCH, other=HONEST["context"][BRANCH]["name"]), "expected the other branch"),
        (lie(BRANCH, pred=["x:0"]), "expected a bool scalar"),
        (lie(BRANCH, merged=["x:0"]), "'x:0' is no Merge of two tensors"),
        (node_lie("y", context="gone"), "'y'.*there is no context 'gone'"),
        (node_lie("y", context=HONEST["context"][LOOP]["name"]), "'y'.*reads while/Exit.*no branch or loop"),
        (node_lie("while/LoopCond", context=""), "'while/.*is in no branch or loop and reads|no LoopCond"),
        (node_lie("while/NextIteration_1", input=["x:0"]), "is in a tb.while_loop .* and reads x:0"),
        (node_lie("y", input=["while/Merge_1:0"]), "'y'.*reads while/Merge_1:0"),
        (node_lie("y", input=["y:0"]), "in a cycle: y -> y"),
    ],
)  # fmt: skip
def test_lies_about_contexts_are_named(content, words):
    with tb.Graph().as_default() as graph:
        with pytest.raises((InvalidArgumentError, NotFoundError), match=words):
            tb.import_graph_def(json.dumps(content), name="")
        assert graph.get_operations() == []


def _places(content, path=()):
    if isinstance(content, (dict, list)):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in pairs:
            yield from _places(value, (*path, key))
    elif path[0] != "source":
        yield path


PLACES = list(_places(HONEST))
VALUES = [
    *(node["name"] for node in HONEST["node"]),
    *(f"{node['name']}:0" for node in HONEST["node"]),
    *(context["name"] for context in HONEST["context"]),
    *("", "Merge", "Switch", "Enter", 0, 1, True, None),
]


@pytest.mark.slow
@given_few(
    60, 3000, st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(VALUES)), min_size=1, max_size=2)
)
def test_rewired_loops_run_or_end_in_our_errors(changes):
    content = copy.deepcopy(HONEST)
    for path, value in changes:
        target = content
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
    message = ""
    for compiles in (True, False):
        try:
            with tb.Graph().as_default() as graph:
                tb.import_graph_def(json.dumps(content), name="")
                y, x = graph.get_tensor_by_name("y:0"), graph.get_tensor_by_name("x:0")
                found = [y, *(g for g in tb.gradients(y, x) if g is not None)]
                with tb.Session(config=tb.ConfigProto(compiles_loops=compiles)) as session:
                    session.run(found, {x: AT}, tb.RunOptions(timeout_in_ms=2000))
        except TensorBowError as error:
            message = str(error)
    assert len(message) < 3000
