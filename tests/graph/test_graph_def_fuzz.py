"""GraphDefs changed at random: imported and run, or refused in our own errors that stay short."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import TensorBowError
from tests.graph.graph_def_programs import HONEST, SMALL, call, imported
from tests.program_rig.examples import given_few

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


def paths(content, path=()):
    yield path
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in items:
        yield from paths(value, (*path, key))


PATHS = list(paths(HONEST))


@pytest.mark.slow
@given_few(200, 2000, st.lists(st.tuples(st.sampled_from(PATHS), JUNK), min_size=1, max_size=3))
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


@pytest.mark.slow
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


def programs():
    """One GraphDef with fetches and feeds for each op."""
    made = {}
    for sample in SMALL:
        if sample.op.name not in made:
            with tb.Graph().as_default() as graph:
                fetches, feeds = call(sample)
            made[sample.op.name] = (json.loads(graph.as_graph_def().to_json()), fetches, feeds)
    return list(made.values())


PROGRAMS = programs()
VALUES = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 3, 2**31, 2**63, 2**70, 65536, 1.5, -0.5, 1e30, "", "x", "SAME", [], [1],
        {"tuple": []}, {"tuple": [1]}, {"tuple": [0, 0]}, {"tuple": [-1, 2**40]}, {"tuple": [1, 7, 1, 1]},
        {"tuple": ["a"]}, {"tuple": [None, None]}, {"dtype": "int32"}, {"dtype": "bool"}, {"float": "nan"},
        {"slice": [0, 5, 0]}, {"ellipsis": True}, {"dict": {}}, {"spec": ["float32", [2]]}, {"bytes": "AA=="},
        {"scalar": {"dtype": "int32", "shape": [], "data": "AAAAgA=="}},
        {"array": {"dtype": "float32", "shape": [2], "data": "AAAAAAAAAAA="}},
        {"array": {"dtype": "complex64", "shape": [1], "data": "AAAAAAAAAAA="}},
        {"array": {"dtype": "float32", "shape": [0, 5], "data": ""}},
    ]
)  # fmt: skip


@pytest.mark.slow
@given_few(500, 5000, st.data())
def test_steps_with_other_attributes_end_in_our_errors(data):
    content, fetches, feeds = data.draw(st.sampled_from(PROGRAMS))
    content = copy.deepcopy(content)
    for _ in range(data.draw(st.integers(1, 2))):
        inside = [path for path in paths(content["node"]) if "attr" in path[1:-1] or "output" in path[1:-1]]
        if not inside:
            continue
        *above, last = data.draw(st.sampled_from(inside))
        target = content["node"]
        for key in above:
            target = target[key]
        target[last] = copy.deepcopy(data.draw(VALUES))
    message = ""
    try:
        with tb.Graph().as_default() as graph:
            tb.import_graph_def(tb.GraphDef.from_json(json.dumps(content)), name="")
            graph.as_graph_def().to_json()
            with tb.Session() as session:
                if tb.global_variables():
                    session.run(tb.global_variables_initializer())
                session.run(fetches, feeds)
    except TensorBowError as error:
        message = str(error)
    assert len(message) < 3000
