"""Meta graphs of one name scope: names without it, inputs from outside, loops, collections."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.ops.updates import ApplyMomentum


def test_a_scope_is_imported_several_times():
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 2], name="x")
        with tb.name_scope("tower"):
            w = tb.Variable(np.ones((2, 3), np.float32), name="w")
            y = tb.matmul(x, w, name="y")
            loop = tb.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2.0), [0, tb.reduce_sum(y)])[1]
            tb.identity(loop, name="eight_times")
        tb.Variable(1.0, name="outside")
        meta = tb.train.export_meta_graph(export_scope="tower")
    names = {node.name for node in meta.graph_def.node}
    assert {"w", "y", "unbound_inputs/x"} <= names
    assert "outside" not in names
    with tb.Graph().as_default(), tb.Session() as session:
        tb.train.import_meta_graph(meta)
        fed = np.ones((1, 2), np.float32)
        two = tb.constant(2 * fed)
        tb.train.import_meta_graph(meta, import_scope="again", input_map={"unbound_inputs/x:0": two})
        assert [v.name for v in tb.trainable_variables()] == ["w:0", "again/w:0"]
        session.run(tb.global_variables_initializer())
        assert session.run("eight_times:0", {"unbound_inputs/x:0": fed}) == 48
        assert session.run("again/eight_times:0") == 96


def test_slots_belong_to_the_renamed_variable():
    with tb.Graph().as_default():
        with tb.name_scope("model"):
            w = tb.Variable(1.0, name="w")
            tb.train.MomentumOptimizer(0.5, 0.9).minimize(w * w, name="train")
        meta = tb.train.export_meta_graph(export_scope="model/")
    with tb.Graph().as_default() as graph, tb.Session() as session:
        tb.train.import_meta_graph(meta)
        (update,) = [op for op in graph.get_operations() if op.definition is ApplyMomentum]
        assert update.inputs[1].op.attrs["slot_of"] == "w"
        session.run(tb.global_variables_initializer())
        session.run("train")
        assert session.run("w:0") == 0


def test_refused_scopes():
    with tb.Graph().as_default():
        v = tb.Variable(1.0)
        tb.cond(v > 0.0, lambda: tb.add(v, 1.0, name="inner/sum"), lambda: v.value())
        with pytest.raises(NotFoundError, match="got 'tower', in which it has no operation"):
            tb.train.export_meta_graph(export_scope="tower")
        with pytest.raises(InvalidArgumentError, match=r"inner/sum is in .*, a branch or loop that is"):
            tb.train.export_meta_graph(export_scope="cond/inner")
        with pytest.raises(InvalidArgumentError, match="expected saver_def to be None with export_scope"):
            tb.train.export_meta_graph(export_scope="cond", saver_def=tb.train.Saver().saver_def)


def test_outputs_and_operations_of_like_names_from_outside():
    with tb.Graph().as_default():
        first, second = (tb.split(tb.constant(value), 2, name="split") for value in ([1.0, 2.0], [3.0, 4.0]))
        with tb.name_scope("tower"):
            tb.subtract(first[1], second[0], name="difference")
        meta = tb.train.export_meta_graph(export_scope="tower")
    assert {node.name for node in meta.graph_def.node} == {
        "difference",
        "unbound_inputs/split_1_",
        "unbound_inputs/split_1",
    }
