"""TensorFlow 1's names: unique, scoped, without regard to case."""

import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def names(count, make):
    return [make().op.name for _ in range(count)]


def test_a_taken_name_gets_a_number():
    assert names(3, lambda: tb.constant(1.0, name="a")) == ["a", "a_1", "a_2"]


def test_a_number_that_is_taken_is_skipped():
    tb.constant(1.0, name="a")
    tb.constant(1.0, name="a_1")
    assert names(2, lambda: tb.constant(1.0, name="a")) == ["a_2", "a_3"]
    assert tb.constant(1.0, name="a_1").op.name == "a_1_1"


def test_case_does_not_make_a_name_unique():
    assert tb.constant(1.0, name="Loss").op.name == "Loss"
    assert tb.constant(1.0, name="loss").op.name == "loss_1"
    with tb.name_scope("LOSS") as scope:
        assert scope == "LOSS_2/"


def test_without_a_name_the_type_is_the_name():
    x = tb.placeholder(tb.float32, [2])
    assert (x.name, (x + x).name, (x + x).name) == ("Placeholder:0", "Add:0", "Add_1:0")


def test_scopes_nest_and_are_unique(graph):
    with tb.name_scope("a") as outer, tb.name_scope("b") as inner:
        assert (outer, inner) == ("a/", "a/b/")
        assert tb.constant(1.0, name="c").name == "a/b/c:0"
    with tb.name_scope("a") as again:
        assert again == "a_1/"
        assert tb.constant(1.0, name="c").name == "a_1/c:0"
    assert tb.constant(1.0, name="c").name == "c:0"


def test_a_scope_and_an_op_share_one_set_of_names():
    tb.constant(1.0, name="a")
    with tb.name_scope("a") as scope:
        assert scope == "a_1/"


def test_a_scope_is_entered_again_by_its_full_name():
    with tb.name_scope("a") as scope, tb.name_scope("b"):
        tb.constant(1.0, name="c")
    with tb.name_scope("elsewhere"), tb.name_scope(scope) as again:
        assert again == "a/"
        assert tb.constant(1.0, name="d").name == "a/d:0"
        with tb.name_scope("b") as nested:
            assert nested == "a/b_1/"


@pytest.mark.parametrize("root", [None, ""])
def test_none_goes_back_to_the_root(root):
    with tb.name_scope("a"), tb.name_scope(root) as scope:
        assert scope == ""
        assert tb.constant(1.0, name="c").name == "c:0"


def test_a_default_name_stands_in_for_none():
    with tb.name_scope(None, "layer") as scope:
        assert scope == "layer/"


def test_the_graph_of_the_values_decides():
    other = tb.Graph()
    with other.as_default():
        x = tb.constant(1.0)
    with tb.name_scope("a", values=[x]), other.as_default():
        assert tb.constant(2.0, name="b").name == "a/b:0"


def test_an_op_named_as_a_scope_takes_the_scopes_name(graph):
    with tb.name_scope("layer") as scope:
        tb.constant(1.0, name="inner")
        assert tb.constant(1.0, name=scope).name == "layer:0"
        with pytest.raises(InvalidArgumentError, match="has an operation 'layer' already"):
            tb.constant(1.0, name=scope)


def test_a_name_taken_with_a_slash_stays_taken(graph):
    assert tb.constant(1.0, name="free/").name == "free:0"
    assert tb.constant(1.0, name="free").name == "free_1:0"
    assert graph.get_operation_by_name("free").name == "free"


@pytest.mark.parametrize("bad", ["_a", "-a", "/a", "a b", "a\n", "ä", "a:0", "a\\b", "a[0]"])
def test_names_tensorflow_refuses(bad):
    with pytest.raises(InvalidArgumentError, match="not a valid op name"):
        tb.constant(1.0, name=bad)
    with pytest.raises(InvalidArgumentError, match="not a valid scope name"), tb.name_scope(bad):
        pass


def test_names_that_are_legal_only_inside_a_scope():
    with tb.name_scope("a"), tb.name_scope("_b"):
        assert tb.constant(1.0, name="_c").name == "a/_b/_c:0"


def test_an_op_that_is_refused_takes_no_name():
    x = tb.placeholder(tb.float32, [2, 3])
    with pytest.raises(InvalidArgumentError, match="do not broadcast"):
        tb.add(x, tb.constant([1.0, 2.0]), name="sum")
    assert tb.add(x, 1.0, name="sum").name == "sum:0"


def test_unique_name_can_look_without_taking(graph):
    assert graph.unique_name("a", mark_as_used=False) == "a"
    assert graph.unique_name("a") == "a"
    assert graph.unique_name("a", mark_as_used=False) == "a_1"


def test_gradients_are_named_after_their_ops():
    x = tb.placeholder(tb.float32, [2, 3], name="x")
    with tb.name_scope("model"):
        y = tb.tanh(x, name="y")
    (grad,) = tb.gradients(y, [x])
    assert grad.op.name.startswith("gradients/model/y_grad/")
    (grad,) = tb.gradients(y, [x])
    assert grad.op.name.startswith("gradients_1/model/y_grad/")
