"""Decoding of raw bytes, IDX and serialised tensors."""

import gzip
import struct
import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")


def run(fetches, feeds=None):
    with tb.Session() as session:
        return session.run(fetches, feeds)


def test_raw_bytes():
    assert run(tb.decode_raw(["\1\0\2\0", "\3\0\xff\x7f".encode("latin1")], tb.int16)).tolist() == [
        [1, 2],
        [3, 0x7FFF],
    ]
    assert run(tb.decode_raw(b"\0\1", tb.uint16, little_endian=False)).tolist() == [1]
    assert run(tb.decode_raw(b"\0\2", tb.bool)).tolist() == [False, True]
    assert run(tb.decode_raw(b"", tb.float32)).shape == (0,)
    assert run(tb.decode_raw(np.empty([0], object), tb.float32)).shape == (0, 0)
    x = tb.placeholder(tb.string, [None, 2])
    assert tb.decode_raw(x, tb.uint8).shape == [None, 2, None]


@pytest.mark.parametrize(
    "dtype", [np.float64, np.int8, np.uint64, np.complex64, np.float16, ml_dtypes.bfloat16]
)
def test_raw_bytes_of_all_dtypes(dtype):
    numbers = np.arange(-2, 4).astype(dtype)
    for order, little in (("<", True), (">", False)):
        data = numbers.astype(numbers.dtype.newbyteorder(order)).tobytes()
        found = run(tb.decode_raw(data, dtype, little_endian=little))
        assert found.dtype == dtype
        assert found.tobytes() == numbers.tobytes()


def idx(array, code):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(("code", "dtype"), [(8, np.uint8), (9, np.int8), (0xB, np.int16), (0xE, np.float64)])
def test_idx(code, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = run(tb.decode_idx(idx(array, code), dtype))
    assert found.dtype == dtype
    assert np.array_equal(found, array)


@settings(max_examples=30, deadline=None)
@given(
    numpy_st.arrays(
        st.sampled_from([np.float32, np.int64, np.bool_, np.uint8, np.complex64]),
        numpy_st.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    )
)
def test_serialised_tensors_come_back(array):
    with tb.Graph().as_default():
        found = run(tb.parse_tensor(tb.serialize_tensor(array), tb.as_dtype(array.dtype)))
    found = np.asarray(found)
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_serialised_strings_come_back():
    assert run(tb.parse_tensor(tb.serialize_tensor([["a", "\0"]]), tb.string)).tolist() == [[b"a", b"\0"]]
    assert run(tb.parse_tensor(tb.serialize_tensor("x"), tb.string)) == b"x"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.decode_raw(["ab", "c"], tb.uint8), "string 1 has 1 bytes, expected 2, as the first one"),
        (lambda: tb.decode_raw("abc", tb.int16), "3 bytes are no multiple of the 2 of int16"),
        (lambda: tb.decode_raw("abc", tb.string), "expected out_type to be a dtype of numbers"),
        (lambda: tb.decode_idx(b"\0\0\x08\1\0\0\0\2a"), r"declares \[2\], 2 bytes, but has 1"),
        (lambda: tb.decode_idx(b"\0\0\x08"), "the header is '00 00 08', expected 00 00, a type"),
        (lambda: tb.decode_idx(b"\0\0\x09\1\0\0\0\1a"), "holds int8, expected that as out_type"),
        (lambda: tb.decode_idx(b"\0\0\x08\xff" + b"\xff\xff\xff\xff" * 255), "bytes, but has 0"),
        (lambda: tb.parse_tensor(b"\xff\xff", tb.int32), "truncated or no TensorProto"),
        (lambda: tb.parse_tensor(tb.serialize_tensor(1.0), tb.int32), "holds float32, expected out_type"),
    ],
)  # fmt: skip
def test_refused(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        run(make())


@pytest.mark.parametrize(
    ("kind", "compress"), [("ZLIB", zlib.compress), ("GZIP", gzip.compress), ("", bytes)]
)
def test_compressed_strings(kind, compress):
    texts = np.array([[b"some text" * 9, b""]], object)
    packed = np.array([[compress(each) for each in texts[0]]], object)
    found = tb.decode_compressed(packed, kind)
    assert found.shape == [1, 2]
    assert run(found).tolist() == texts.tolist()
    if kind:
        with pytest.raises(InvalidArgumentError, match=f"string 1 of 5 bytes is no {kind}"):
            run(tb.decode_compressed([packed[0, 0], b"plain"], kind))
