"""Einsum and products of stacks of matrices against NumPy's, with known and with unknown extents."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.constant import constant
from tensorbow.ops.control import placeholder
from tensorbow.ops.einsum import einsum
from tensorbow.ops.matmul import matmul
from tensorbow.specs import float32, float64
from tests.ops_contract.gradient_check import check_gradients
from tests.ops_contract.interpreter import run_graph
from tests.ops_contract.sample import normal

pytestmark = pytest.mark.usefixtures("graph")

EXTENTS = dict(zip("abcdeghijklot", (2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 3, 7), strict=True))


def arrays(equation, **extents):
    sizes = {**EXTENTS, **extents}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    return [normal(*(sizes[label] for label in term), seed=i) for i, term in enumerate(terms)]


EQUATIONS = [
    "ij,jk->ik",
    "ij,kj->ik",
    "ji,jk->ik",
    "ji,kj->ki",
    "ij,jk",
    "bij,bjk->bik",
    "bji,bkj->bik",
    "abij,abjk->abik",
    "bti,io->bto",
    "btd,hdk->bhtk",
    "bthd,bghd->bhtg",
    "bhtg,bghd->bthd",
    "ijk,jkl->il",
    "i,i->",
    "i,j->ij",
    "ij,ij->ij",
    "ij,ij->",
    "ij,ji->j",
    "ijk,k->ij",
    "aij,abj->bi",
    "ij,kl->ik",
    "ijk->kji",
    "ijk->j",
    "ij->",
    "ba",
    "ij, jk, kl -> il",
    "ai,bi,ci->abc",
]


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.sampled(27)
def test_einsum(equation, static):
    values = arrays(equation)
    inputs = [placeholder(float32, a.shape if static else [None] * a.ndim) for a in values]
    result = einsum(equation, *inputs)
    expected = np.einsum(equation, *[a.astype(np.float64) for a in values])
    assert result.shape.as_list() == (list(expected.shape) if static else [None] * expected.ndim)
    (actual,) = run_graph([result], dict(zip(inputs, values, strict=True)))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "btd,hdk->bhtk", "ij,ij->", "ai,bi,ci->abc", "ijk->kj"])
def test_gradients(equation):
    """Twice, as all of it is made of differentiable ops."""
    values = arrays(equation)
    check_gradients(lambda *x: [einsum(equation, *x)], values)
    if "," in equation:
        check_gradients(lambda *x: [einsum(equation, *x)], values, second_order=True, rtol=1e-4)


BROADCASTS = [
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,jk->...ik", [(6, 2, 3, 4), (4, 5)]),
    ("...ij,...jk->...ik", [(6, 1, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(6, 1, 3, 4), (1, 2, 4, 5)]),
    ("i...,i...->...", [(3, 5, 1), (3, 2)]),
    ("...i,...i", [(2, 1, 4), (3, 4)]),
    ("b...j,jk", [(2, 3, 4), (4, 5)]),
    ("...,...->...", [(2, 1), (5,)]),
    ("...,i->i...", [(2, 3), (4,)]),
    ("...i,i...->...", [(3,), (3,)]),
    ("...ij->...ji", [(2, 6, 3, 4)]),
    ("i...j->...j", [(2, 6, 3, 4)]),
    ("...", [(1, 3)]),
    ("a...,b...,c...->abc...", [(2, 1, 3), (4, 5, 1), (6, 5, 3)]),
    ("...ij,...jk,...kl->...il", [(2, 3, 4), (1, 4, 5), (2, 5, 6)]),
]

DIAGONALS = [
    ("ii->i", [(4, 4)]),
    ("ii->", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("bii->b", [(2, 4, 4)]),
    ("ibi->bi", [(4, 3, 4)]),
    ("iii->i", [(3, 3, 3)]),
    ("iijj->ji", [(2, 2, 3, 3)]),
    ("ijji->", [(2, 3, 3, 2)]),
    ("ii,ij->j", [(3, 3), (3, 4)]),
    ("ii,ij->ij", [(1, 1), (1, 4)]),
    ("bii,bij->bj", [(2, 3, 3), (2, 3, 4)]),
    ("...ii->...i", [(2, 3, 4, 4)]),
    ("ii...,ij...->j...", [(3, 3, 1, 2), (3, 4, 5, 2)]),
]


@pytest.mark.parametrize("known", ["static", "dynamic", "half"])
@pytest.mark.parametrize(("equation", "shapes"), BROADCASTS + DIAGONALS)
@pytest.mark.sampled(42)
def test_broadcasts_and_diagonals(equation, shapes, known):
    """Unknown extents may turn out to be 1."""
    values = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    unknown = {"static": (), "dynamic": range(4), "half": (0, 2)}[known]
    inputs = [
        placeholder(float32, [None if axis in unknown else extent for axis, extent in enumerate(shape)])
        for shape in shapes
    ]
    result = einsum(equation, *inputs)
    expected = np.einsum(equation, *[a.astype(np.float64) for a in values])
    assert result.shape.ndims == expected.ndim
    if known == "static":
        assert result.shape.as_list() == list(expected.shape)
    (actual,) = run_graph([result], dict(zip(inputs, values, strict=True)))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("equation", "shapes"), BROADCASTS + DIAGONALS)
@pytest.mark.parametrize("known", ["shapes", "ranks"])
@pytest.mark.sampled(28)
def test_gradients_of_broadcasts_and_diagonals(equation, shapes, known):
    values = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    check_gradients(lambda *x: [einsum(equation, *x)], values, known=known)


def test_a_trace_leaves_the_rest_of_the_matrix_alone():
    """No product with an identity matrix: infinity times 0 would be NaN."""
    x = np.array([[1.0, np.inf], [np.nan, 2.0]], np.float32)
    assert run_graph([einsum("ii->", constant(x))], {})[0] == 3


def test_ellipsis_needs_a_rank():
    with pytest.raises(InvalidArgumentError, match=r"rank of .* is unknown.*use set_shape"):
        einsum("...i->...", placeholder(float32))


def test_diagonals_of_what_is_no_square():
    x = placeholder(float32, [None, None])
    with pytest.raises(InvalidArgumentError, match="no square matrices"):
        run_graph([einsum("ii->i", x)], {x: normal(3, 4)})


def test_partly_known_extents_stay_known():
    x, w = placeholder(float32, [None, 7, 5]), placeholder(float32, [2, 5, 6])
    assert einsum("btd,hdk->bhtk", x, w).shape.as_list() == [None, 2, 7, 6]


@pytest.mark.parametrize("empty", ["b", "j", "k"])
def test_zero_extents(empty):
    values = arrays("bij,bjk->bik", **{empty: 0})
    inputs = [placeholder(float32, [None] * 3) for _ in values]
    (actual,) = run_graph([einsum("bij,bjk->bik", *inputs)], dict(zip(inputs, values, strict=True)))
    np.testing.assert_array_equal(actual, np.einsum("bij,bjk->bik", *values))


@pytest.mark.parametrize(
    ("equation", "error", "words"),
    [
        ("i...,jk->ik", InvalidArgumentError, "'...' stands for 1 axes, which the result lacks"),
        ("ijk...,jk->ik...", InvalidArgumentError, "'ijk...' has 3 letters beside '...'"),
        ("...i...,jk->...", InvalidArgumentError, "'...' once in a term"),
        ("i..,jk->i", InvalidArgumentError, "'...' once in a term"),
        ("...,...->...", InvalidArgumentError, "axis -2 of '...' is an axis of 3 elements and of 4"),
        ("ii,ik->ik", InvalidArgumentError, "'i' is an axis of 3 elements and of 4"),
        ("ij->ij", InvalidArgumentError, "describes 1 tensors, got 2"),
        ("ij,jk->ijz", InvalidArgumentError, "must be different and stand on the left"),
        ("ij,jk->ii", InvalidArgumentError, "must be different"),
        ("i1,jk->i", InvalidArgumentError, "expected letters and commas"),
        ("ijk,jk->i", InvalidArgumentError, "'ijk' has 3 letters"),
        ("ij,kj->ik", InvalidArgumentError, "'j' is an axis of 4 elements and of 5"),
    ],
)
def test_refusals(equation, error, words):
    with pytest.raises(error, match=words.replace(".", r"\.")):
        einsum(equation, placeholder(float32, [3, 4]), placeholder(float32, [4, 5]))


@pytest.mark.parametrize(
    ("a", "b", "transpose_a", "transpose_b"),
    [
        ((2, 3, 4), (4, 5), False, False),
        ((2, 6, 3, 4), (5, 4), False, True),
        ((2, 4, 3), (4, 5), True, False),
        ((3, 4), (2, 4, 5), False, False),
        ((6, 1, 3, 4), (2, 5, 4), False, True),
        ((2, 3, 0), (0, 5), False, False),
        ((0, 3, 4), (4, 5), False, False),
    ],
)
def test_matmul_of_stacks(a, b, transpose_a, transpose_b):
    x, y = normal(*a), normal(*b)
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    expected = np.matmul(x.swapaxes(-1, -2) if transpose_a else x, y.swapaxes(-1, -2) if transpose_b else y)
    for shapes in ((a, b), ((None, *a[1:]), b), ([None] * len(a), [None] * len(b)), (None, None)):
        inputs = [placeholder(float32, shape) for shape in shapes]
        (actual,) = run_graph([matmul(*inputs, **flags)], dict(zip(inputs, (x, y), strict=True)))
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    if x.size:
        check_gradients(lambda x, y: [matmul(x, y, **flags)], (x, y))


def test_one_matrix_on_the_right_is_one_product():
    x, w = placeholder(float64, [None, 3, 4]), placeholder(float64, [4, 5])
    result = matmul(x, w)
    assert result.shape.as_list() == [None, 3, 5]
    types = [op.type for op in result.graph.get_operations()]
    assert "MatMul" in types
    assert "BatchMatMulV2" not in types
