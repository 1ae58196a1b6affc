"""`get_variable` and `variable_scope` as TensorFlow 1 programs use them."""

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


def test_names_follow_variable_scopes_and_not_name_scopes():
    with tb.name_scope("outside"), tb.variable_scope("a"):
        with tb.variable_scope("b"), tb.name_scope("inside"):
            v = tb.get_variable("v", [2, 3])
            sum_ = tb.add(v, 1.0, name="sum")
        assert tb.get_variable("w", [2]).name == "a/w:0"
    assert v.name == "a/b/v:0"
    assert sum_.op.name == "outside/a/b/inside/sum"
    assert tb.get_variable("v", []).name == "v:0"


def test_the_empty_name():
    """The empty name sets a scope's options without another name, as `tf.variable_scope("")` does."""
    with tb.name_scope("outside"), tb.variable_scope("", reuse=tb.AUTO_REUSE, initializer="ones") as top:
        v = tb.get_variable("v", [2])
        assert v.name == "v:0"
        assert tb.get_variable("v", [2]) is v
        assert tb.add(v, 1.0, name="sum").op.name == "outside/sum"
        with tb.variable_scope("below"):
            assert tb.get_variable("w", [2]).name == "below/w:0"
    assert (top.name, top.original_name_scope) == ("", "")
    with tb.variable_scope("a"), tb.variable_scope("", default_name="unused"):
        assert tb.get_variable("x", [2]).name == "a//x:0"
    with tb.name_scope("outside"), tb.variable_scope(top):
        assert tb.zeros([2], name="zeros").op.name == "outside_1/zeros"


def test_sharing():
    with tb.variable_scope("layer"):
        made = tb.get_variable("w", [3])
    with tb.variable_scope("layer", reuse=True):
        assert tb.get_variable("w", [3]) is made
        assert tb.get_variable("w") is made
    for _ in range(2):
        with tb.variable_scope("other", reuse=tb.AUTO_REUSE):
            tb.get_variable("w", [3])
    assert len(tb.global_variables()) == 2


def test_reuse_is_handed_down_and_not_taken_back():
    with tb.variable_scope("a"), tb.variable_scope("b"):
        made = tb.get_variable("w", [1])
    with tb.variable_scope("a", reuse=True) as scope:
        with tb.variable_scope("b"):
            assert tb.get_variable("w") is made
        with tb.variable_scope("b", reuse=False):
            assert tb.get_variable("w") is made
    assert scope.reuse
    assert not tb.get_variable_scope().reuse


def test_a_scope_is_entered_again_under_its_whole_name():
    with tb.variable_scope("a") as a:
        pass
    with tb.variable_scope("b"), tb.variable_scope(a):
        assert tb.get_variable("w", [1]).name == "a/w:0"
    with tb.variable_scope(a, reuse=True):
        assert tb.get_variable("w").name == "a/w:0"


def test_default_names_are_made_unique():
    names = []
    for _ in range(2):
        with tb.variable_scope(None, "dense"):
            names.append(tb.get_variable("w", [1]).name)
    with tb.variable_scope("given", "dense"):
        names.append(tb.get_variable("w", [1]).name)
    assert names == ["dense/w:0", "dense_1/w:0", "given/w:0"]


def test_what_a_variable_starts_from(session):
    with tb.variable_scope("s", initializer=tb.initializers.ones(), dtype=tb.float64):
        ones = tb.get_variable("ones", [2])
        named = tb.get_variable("named", [2], tb.float32, "zeros")
    drawn = tb.get_variable("drawn", [30, 20])
    counted = tb.get_variable("counted", [2], tb.int64)
    given = tb.get_variable("given", initializer=np.arange(3.0))
    session.run(tb.global_variables_initializer())
    assert session.run(ones).tolist() == [1, 1]
    assert (ones.dtype, named.dtype, given.dtype) == (tb.float64, tb.float32, tb.float64)
    assert 0 < abs(session.run(drawn)).max() <= np.sqrt(6 / 50)
    assert session.run(counted).tolist() == [0, 0]
    assert session.run(given).tolist() == [0, 1, 2]
    assert counted not in tb.trainable_variables()


def test_each_graph_has_variables_of_its_own():
    first = tb.get_variable("w", [1])
    with tb.Graph().as_default():
        assert tb.get_variable("w", [1]) is not first


def test_misuse():
    tb.get_variable("w", [2])
    with pytest.raises(InvalidArgumentError, match=r"variable w is there already \(made at .*reuse=True"):
        tb.get_variable("w", [2])
    with tb.variable_scope("x", reuse=True), pytest.raises(InvalidArgumentError, match="no variable x/w"):
        tb.get_variable("w", [2])
    with pytest.raises(InvalidArgumentError, match="give a name"):
        tb.variable_scope(None).__enter__()
    with pytest.raises(InvalidArgumentError, match="needs a shape"):
        tb.get_variable("v")
    with pytest.raises(InvalidArgumentError, match=r"^get_variable: .* give none beside it"):
        tb.get_variable("v", [3], initializer=np.zeros(3))
    with tb.variable_scope(tb.get_variable_scope(), reuse=True):
        with pytest.raises(InvalidArgumentError, match=r"has the shape \(2,\)|has the shape"):
            tb.get_variable("w", [3])
        with pytest.raises(InvalidArgumentError, match="is float32, not int32"):
            tb.get_variable("w", dtype=tb.int32)


def test_a_getter_of_ones_own(session):
    seen = []

    def halves(getter, name, shape=None, dtype=None, *arguments, **named):
        seen.append((name, dtype, named["trainable"]))
        made = getter(name, shape, tb.float32, *arguments, **named)
        return tb.cast(made, dtype)

    def noted(getter, *arguments, **named):
        seen.append("outer")
        return getter(*arguments, **named)

    with tb.variable_scope("a", custom_getter=noted, use_resource=True):
        with tb.variable_scope("b", custom_getter=halves, dtype=tb.float16):
            w = tb.get_variable("w", [2])
        tb.get_variable("v", [2], use_resource=False, validate_shape=False)
    assert (w.dtype, seen) == (tb.float16, [("a/b/w", tb.float16, True), "outer", "outer"])
    assert [each.name for each in tb.global_variables()] == ["a/b/w:0", "a/v:0"]
    with tb.variable_scope("a/b", reuse=True):
        assert tb.get_variable("w").dtype == tb.float32
    with pytest.raises(InvalidArgumentError, match="custom_getter to be a function"):
        tb.get_variable("x", [2], custom_getter=lambda: None)
