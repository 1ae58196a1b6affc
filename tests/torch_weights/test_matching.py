"""Which entry of a PyTorch state is which variable's, and what is said where that is not clear."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("reference_kernels")


def vectors(*names):
    """Entries of one shape, each with a number of its own."""
    return {name: np.full(3, number, np.float32) for number, name in enumerate(names)}


def taken(state, variables, **options):
    """The entry that each variable of shape [3] takes."""
    with tb.Graph().as_default(), tb.Session() as session:
        for name in variables:
            tb.get_variable(name, [3])
        return tb.interop.torch.load_weights(state, session, **options)


@pytest.mark.parametrize(
    "pairs",
    [
        {"a/kernel": "module.a.weight", "b/kernel": "module.b.weight"},
        {"mine/a/kernel": "net.a.weight", "mine/b/kernel": "net.b.weight"},
        {"mine/fc/kernel": "fc.weight", "mine/layer1/fc/kernel": "layer1.fc.weight"},
        {"y/x/0/conv/kernel": "x.0.conv.weight", "y/x/1/conv/kernel": "x.1.conv.weight"},
        {"net/other/kernel": "other.weight", "net/table": "table"},
    ],
    ids=["wrapped", "two roots", "inner and outer", "numbers", "parameters"],
)
def test_names_that_end_alike_are_one_layer_s(pairs):
    """In any order: names decide, as all shapes are equal."""
    for entries, variables in product(permutations(pairs.values()), permutations(pairs)):
        assert taken(vectors(*entries), variables) == pairs


def test_an_error_counts_the_problems_that_it_does_not_show():
    """With the last one, an entry: it tells whose weights these are."""
    state = {"theirs.a.weight": np.zeros(4, np.float32), "theirs.b.weight": np.zeros(5, np.float32)}
    ends = {  # problems: a line for each variable, and each entry
        6: r"b\.weight \[5\]: no variable takes it\. Give names",
        5: r"theirs\.b\.weight \[5\]: no variable takes it\. Give names",
    }
    for count, end in ends.items():
        with pytest.raises(InvalidArgumentError, match=end) as caught:
            taken(state, ["a/kernel", *(f"v{number}" for number in range(1, count))])
        assert ("and 1 more, the last: entry theirs.b.weight" in str(caught.value)) == (count == 6)


def test_entries_of_a_file_are_in_the_order_of_their_numbers(tmp_path):
    """A file keeps no order; layers that differ in numbers alone have one."""
    from safetensors.numpy import save_file

    names = ["0.weight", "2.weight", "10.weight"]
    for place, order in enumerate(permutations(names)):
        file = tmp_path / f"{place}.safetensors"
        save_file({name: np.full(3, names.index(name), np.float32) for name in order}, file)
        assert taken(file, ["first/kernel", "second/kernel", "third/kernel"]) == dict(
            zip(["first/kernel", "second/kernel", "third/kernel"], names, strict=True)
        )
    save_file(vectors("up.weight", "down.weight"), tmp_path / "unclear")
    with pytest.raises(InvalidArgumentError, match=r"first/kernel \[3\]: .* fit \(files do not keep"):
        taken(tmp_path / "unclear", ["first/kernel", "second/kernel"])


def test_names_of_scopes_and_modules():
    state = vectors("body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias", "x.weight")
    variables = ["one/kernel", "one/bias", "two/kernel", "two/bias", "head/kernel"]
    names = {"one": "body.2", "two": "body.0", "head/kernel": "x.weight"}
    assert taken(state, variables, names=names) == {
        "one/kernel": "body.2.weight",
        "one/bias": "body.2.bias",
        "two/kernel": "body.0.weight",
        "two/bias": "body.0.bias",
        "head/kernel": "x.weight",
    }
    for wrong, message in [
        ({"three": "body.0"}, "'body.0' for 'three': no variable or scope has this name"),
        ({"one": "body.1"}, r"'body\.1\.weight' for 'one/kernel': there is no such entry"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            taken(state, variables, names=wrong)


def test_names_of_scopes_with_cells():
    """A scope with an LSTM is the network there."""
    sizes = {"weight_ih": (12, 2), "weight_hh": (12, 3), "bias_ih": (12,), "bias_hh": (12,)}
    state = {f"{of}.{part}_l0": np.ones(size, np.float32) for of in "ab" for part, size in sizes.items()}
    with tb.Graph().as_default(), tb.Session() as session:
        tb.nn.dynamic_rnn(tb.nn.rnn_cell.LSTMCell(3), tb.ones([1, 2, 2]), scope="first")
        names = tb.interop.torch.load_weights(state, session, names={"first": "b"}, skip=["a.*"])
    assert names == {"first/lstm_cell/kernel": "b.weight_ih_l0", "first/lstm_cell/bias": "b.bias_ih_l0"}


@pytest.mark.parametrize("pattern", ["fc.*", "net/fc/*", "*fc*"])
def test_what_is_left_out_goes_with_its_counterpart(pattern):
    """A head for other classes keeps its values; by names of either side."""
    state = {"conv.weight": np.ones((4, 3), np.float32), "fc.weight": np.ones((10, 4), np.float32)}
    state["fc.bias"] = np.ones(10, np.float32)
    with tb.Graph().as_default(), tb.Session() as session, tb.variable_scope("net"):
        hidden = tb.layers.dense(tb.ones([1, 3]), 4, name="conv", use_bias=False)
        tb.layers.dense(hidden, 7, name="fc")
        head = tb.global_variables("net/fc")
        session.run(tb.global_variables_initializer())
        before = session.run([v.value() for v in head])
        names = tb.interop.torch.load_weights(state, session, skip=[pattern])
        assert names == {"net/conv/kernel": "conv.weight"}
        for now, then in zip(session.run([v.value() for v in head]), before, strict=True):
            np.testing.assert_array_equal(now, then)
        with pytest.raises(InvalidArgumentError, match=r"'zz\*' is to be left out: nothing has such"):
            tb.interop.torch.load_weights(state, session, skip=[pattern, "zz*"])
        with pytest.raises(InvalidArgumentError) as caught:
            tb.interop.torch.load_weights(state, session)
    said = "variable net/fc/kernel [4, 7]: expected [7, 4] in PyTorch, got fc.weight [10, 4]"
    assert said in str(caught.value)
    assert "no variable takes it" not in str(caught.value)


def test_an_lstm_is_left_out_whole():
    sizes = {"weight_ih": (12, 2), "weight_hh": (12, 3), "bias_ih": (12,), "bias_hh": (12,)}
    state = {f"lstm.{part}_l0": np.ones(size, np.float32) for part, size in sizes.items()}
    state["out.weight"] = np.ones((2, 3), np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        y, _ = tb.nn.dynamic_rnn(tb.nn.rnn_cell.LSTMCell(3), tb.ones([1, 2, 2]), scope="lstm")
        tb.layers.dense(y[:, -1], 2, name="out", use_bias=False)
        found = tb.interop.torch.load_weights(state, session, skip=["lstm.weight_ih_l0"])
    assert found == {"out/kernel": "out.weight"}


def test_volumes_and_their_flattened_features():
    """A kernel is [out, in, depth, height, width] there, and channels are flattened first."""
    rng = np.random.default_rng(0)
    state = {
        "conv.weight": rng.normal(size=(3, 2, 2, 1, 2)).astype(np.float32),
        "fc.weight": rng.normal(size=(5, 3 * 1 * 3 * 2)).astype(np.float32),
    }
    x = rng.normal(size=(1, 2, 3, 3, 2)).astype(np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        volumes = tb.layers.conv3d(x, 3, (2, 1, 2), use_bias=False, name="conv")
        y = tb.layers.dense(tb.layers.flatten(volumes), 5, use_bias=False, name="fc")
        tb.interop.torch.load_weights(state, session)
        found, result = session.run([volumes, y])
        back = tb.interop.torch.state_of(session)
    views = np.lib.stride_tricks.sliding_window_view(x, (2, 1, 2), (1, 2, 3))
    expected = np.einsum("bdhwcxyz,ocxyz->bdhwo", views, state["conv.weight"])
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    flat = expected.transpose(0, 4, 1, 2, 3).reshape(1, -1)
    np.testing.assert_allclose(result, flat @ state["fc.weight"].T, 1e-4, 1e-4)
    for name, array in state.items():
        np.testing.assert_array_equal(back[name], array)
