"""PyTorch's names of variables: scopes around the whole model and names of cells' classes are left out."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb

pytestmark = pytest.mark.usefixtures("reference_kernels")


def names_of(build, **options):
    """The names that `state_of` gives to the weights of a graph."""
    with tb.Graph().as_default(), tb.Session() as session:
        build()
        session.run(tb.global_variables_initializer())
        return sorted(tb.interop.torch.state_of(session, **options))


def dense(name):
    tb.layers.dense(tb.ones([1, 2]), 3, name=name, use_bias=False)


def in_scopes(*scopes):
    def build():
        for scope in scopes:
            *outer, name = scope.split("/")
            with tb.variable_scope("/".join(outer)) if outer else tb.name_scope(None):
                dense(name)

    return build


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (["net/fc1", "net/fc2"], ["fc1.weight", "fc2.weight"]),
        (["net/body/a", "net/head"], ["body.a.weight", "head.weight"]),
        (["a/net/x", "a/net/y"], ["x.weight", "y.weight"]),
        (["fc"], ["fc.weight"]),
        (["net/fc"], ["fc.weight"]),
        (["one/fc", "two/fc"], ["one.fc.weight", "two.fc.weight"]),
    ],
)
def test_scopes_around_the_whole_model_are_left_out(scopes, expected):
    assert names_of(in_scopes(*scopes)) == expected


def test_parameters_of_the_model_itself_have_no_scope():
    def build():
        with tb.variable_scope("net"):
            tb.get_variable("positions", [3])
            dense("fc")

    assert names_of(build) == ["fc.weight", "positions"]


def test_networks_of_cells_have_the_names_of_their_scopes():
    def build():
        with tb.variable_scope("net"):
            words = tb.layers.embedding(np.zeros((1, 2), np.int64), 5, 3, name="emb")
            cells = [tb.nn.rnn_cell.LSTMCell(4) for _ in range(2)]
            y, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.MultiRNNCell(cells), words, scope="lstm")
            both = [tb.nn.rnn_cell.GRUCell(2, reset_after=True) for _ in range(2)]
            tb.nn.bidirectional_dynamic_rnn(*both, y, scope="gru")

    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    layers = ["lstm.{}_l0", "lstm.{}_l1", "gru.{}_l0", "gru.{}_l0_reverse"]
    assert names_of(build) == sorted(["emb.weight", *(layer.format(p) for layer in layers for p in parts)])


def test_cells_that_would_have_one_name_keep_those_of_their_scopes():
    def build():
        cells = [tb.nn.rnn_cell.LSTMCell(2), tb.nn.rnn_cell.LSTMCell(2, name="lstm_cell_1")]
        with tb.variable_scope("net/steps"):
            for cell in cells:
                cell(tb.ones([1, 2]), cell.zero_state(1, tb.float32))

    found = names_of(build)
    assert len(found) == 8
    assert {name.rpartition(".")[0] for name in found} == {"lstm_cell", "lstm_cell_1"}


def test_weights_that_were_loaded_go_out_by_the_names_they_came_by(tmp_path):
    """Without `names`, also after training with a Replicator and for a part of the variables."""
    state = {"6.weight": np.arange(6, dtype=np.float32).reshape(3, 2)}
    with tb.Graph().as_default(), tb.Session() as session:
        with tb.variable_scope("net"):
            dense("dense")
        tb.interop.torch.load_weights(state, session)
        assert list(tb.interop.torch.state_of(session)) == ["6.weight"]
        assert list(tb.interop.torch.state_of(session, names={"net/dense/kernel": "x"})) == ["x"]
        file = tb.interop.torch.save_weights(tmp_path / "w.safetensors", session)
        np.testing.assert_array_equal(tb.interop.torch.read_state(file)["6.weight"], state["6.weight"])
    assert names_of(in_scopes("net/dense")) == ["dense.weight"]  # another graph


def test_two_variables_of_one_name_are_refused():
    with pytest.raises(tb.errors.InvalidArgumentError, match=r"have the name 'x'; give names=\{variable"):
        names_of(in_scopes("net/a", "net/b"), names={"net/a/kernel": "x", "net/b/kernel": "x"})
