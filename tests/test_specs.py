"""Dtypes, shapes and specs as users write them."""

import pickle

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import broadcast_dims, compatible


def test_dtypes_compare_with_numpys():
    assert tb.float32 == np.float32
    assert tb.float32 == "float32"
    assert tb.float64 != np.float32
    assert tb.float64 != None  # noqa: E711 - NumPy takes None for float64
    assert tb.int32 != "no dtype"
    assert pickle.loads(pickle.dumps(tb.bool)) is tb.bool


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (int, tb.int32),
        (float, tb.float32),
        ("float", tb.float32),
        ("double", tb.float64),
        (bool, tb.bool),
        (np.uint8, tb.uint8),
        ("int64", tb.int64),
    ],
)
def test_as_dtype(value, dtype):
    assert tb.as_dtype(value) is dtype


@pytest.mark.parametrize("value", [None, np.longdouble, "datetime64[s]", "nonsense", 3, dict])
def test_dtypes_there_are_no_kernels_for(value):
    with pytest.raises(InvalidArgumentError, match="is not supported: use one of float32"):
        tb.as_dtype(value)


def test_shapes_as_users_write_them():
    shape = tb.TensorShape([None, 3])
    assert shape == [None, 3] == tb.TensorShape((-1, 3))
    assert (shape.ndims, shape.as_list(), shape[1], len(shape)) == (2, [None, 3], 3, 2)
    assert shape.num_elements() is None
    assert not shape.is_fully_defined()
    assert tb.TensorShape([2, 3]).num_elements() == 6
    assert str(shape) == "[?, 3]"
    unknown = tb.TensorShape(None)
    assert unknown.ndims is None
    with pytest.raises(ValueError, match="rank of this shape is unknown"):
        unknown.as_list()


@pytest.mark.parametrize("bad", [[-2], [1.5], "ab", [[1]], 2.0])
def test_what_is_no_shape(bad):
    with pytest.raises(InvalidArgumentError, match="shape"):
        tb.TensorShape(bad)
    with pytest.raises(InvalidArgumentError, match="shape"):
        tb.placeholder(tb.float32, bad)


def test_specs_as_users_write_them():
    spec = tb.TensorSpec([None, 3], "float32")
    assert (spec.shape, spec.dtype, str(spec)) == ((None, 3), tb.float32, "float32[?, 3]")
    with pytest.raises(InvalidArgumentError, match="not fully known"):
        spec.extents  # noqa: B018
    assert tb.TensorSpec([2, 3], tb.float64).nbytes == 48


def test_compatible_and_broadcast():
    assert compatible(None, (1, 2))
    assert compatible((None, 2), (1, None))
    assert not compatible((1, 2), (1, 2, 3))
    assert broadcast_dims((None, 3), (1,)) == (None, 3)
    assert broadcast_dims((None, 3), (2, 1)) == (2, 3)
    with pytest.raises(InvalidArgumentError, match="2 against 3"):
        broadcast_dims((2,), (3,))
