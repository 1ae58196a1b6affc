"""Walking nested structures."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

from tensorbow.errors import InvalidArgumentError
from tensorbow.nest import flatten, leaves_like, map_leaves, named_leaves
from tensorbow.specs import TensorSpec, float32

Pair = namedtuple("Pair", ["first", "second"])


@dataclass(frozen=True)
class Example:
    image: Any
    label: Any


SPEC = TensorSpec((2,), float32)
NEST = OrderedDict(a=[1, (2, Pair(3, SPEC))], b=Example(4, {7: None}))


def test_leaves_have_paths():
    paths = ["x['a'][0]", "x['a'][1][0]", "x['a'][1][1].first", "x['a'][1][1].second"]
    paths += ["x['b'].image", "x['b'].label[7]"]
    leaves = [1, 2, 3, SPEC, 4, None]
    assert flatten(NEST) == leaves
    assert list(named_leaves(NEST, "x")) == list(zip(paths, leaves, strict=True))
    assert list(leaves_like(NEST, NEST, "x")) == list(named_leaves(NEST, "x"))


def test_a_map_keeps_the_structure():
    result = map_leaves(lambda path, leaf: f"{path} {leaf}", {"a": NEST, "b": [5]}, "")
    assert type(result["a"]) is OrderedDict
    assert result["a"]["a"][1][1].first == "['a']['a'][1][1].first 3"
    assert result["a"]["b"] == Example("['a']['b'].image 4", {7: "['a']['b'].label[7] None"})
    assert result["b"] == ["['b'][0] 5"]


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ({"a": 1}, {"b": 1}, "x: expected a dictionary with 'a' as in .*, got a dictionary with 'b'"),
        ([(1, 2)], [(1, 2, 3)], r"x\[0\]: expected a tuple of 2 .* got a tuple of 3"),
        (Example(1, 2), Pair(1, 2), "x: expected Example .* got a Pair of 2"),
        ([1], [{}], r"x\[0\]: expected an array .* got a dictionary with no keys"),
    ],
)
def test_structures_that_differ(first, other, message):
    with pytest.raises(InvalidArgumentError, match=message):
        list(leaves_like(first, other, "x"))


def test_a_list_of_numbers_is_an_array():
    assert list(leaves_like((1, 2), [[3, 4], 5], "x")) == [("x[0]", [3, 4]), ("x[1]", 5)]
