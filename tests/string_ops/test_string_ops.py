"""Ops of strings against their documented results in TensorFlow 1, and against Python's own functions."""

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.string_ops.fingerprints import fingerprint64, sip_hash

pytestmark = pytest.mark.usefixtures("graph")


def run(fetches, feeds=None):
    with tb.Session() as session:
        return session.run(fetches, feeds)


def listed(tensor):
    return run(tensor).tolist()


GRID = [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tb.string_join([["a", "b"], "-", [["x"], ["y"]]]), [[b"a-x", b"b-x"], [b"a-y", b"b-y"]]),
        (lambda: tb.string_join(["a", "b"], separator=", "), b"a, b"),
        (lambda: tb.reduce_join(GRID, 0), [b"ac", b"bd"]),
        (lambda: tb.reduce_join(GRID, -1), [b"ab", b"cd"]),
        (lambda: tb.reduce_join(GRID, 0, keep_dims=True), [[b"ac", b"bd"]]),
        (lambda: tb.reduce_join(GRID, 1, keepdims=True), [[b"ab"], [b"cd"]]),
        (lambda: tb.reduce_join(GRID, 0, separator="."), [b"a.c", b"b.d"]),
        (lambda: tb.reduce_join(GRID, [0, 1]), b"acbd"),
        (lambda: tb.reduce_join(GRID, [1, 0]), b"abcd"),
        (lambda: tb.reduce_join(GRID, []), [[b"a", b"b"], [b"c", b"d"]]),
        (lambda: tb.reduce_join(GRID), b"abcd"),
        (lambda: tb.substr(["Hello", "World"], 1, 3), [b"ell", b"orl"]),
        (lambda: tb.substr([["ten", "eleven"]], [[0, 2]], [[3, 9]]), [[b"ten", b"even"]]),
        (lambda: tb.substr("Hello", -3, 2), b"ll"),
        (lambda: tb.substr("aéz", 1, 1, unit="UTF8_CHAR"), "é".encode()),
        (lambda: tb.substr("abc", 3, 5), b""),
        (lambda: tb.string_length(["", "abc", "é"]), [0, 3, 2]),
        (lambda: tb.string_length("aé", unit="utf8_char"), 2),
        (lambda: tb.string_strip(["  a b\t\n", "c"]), [b"a b", b"c"]),
        (lambda: tb.string_lower("AbÉ"), "abÉ".encode()),
        (lambda: tb.string_lower("AbÉ", encoding="utf-8"), "abé".encode()),
        (lambda: tb.string_upper(["ab", "ß"], encoding="utf-8"), [b"AB", b"SS"]),
        (lambda: tb.string_upper("aé"), "Aé".encode()),
        (lambda: tb.regex_replace(["a1b22", "c"], r"(\d)(\d?)", r"<\2\1>"), [b"a<1>b<22>", b"c"]),
        (lambda: tb.regex_replace("aaa", "a", r"\\\0", replace_global=False), b"\\aaa"),
        (lambda: tb.regex_replace("é!é", ".", "x"), b"xxx"),
        (lambda: tb.regex_replace(b"\xff1", r"\d", "2"), b"\xff2"),
        (lambda: tb.regex_full_match(["ab", "abc", ""], "a.|"), [True, False, True]),
        (lambda: tb.encode_base64(["a", "\x7f\x7f>"]), [b"YQ", b"f38-"]),
        (lambda: tb.encode_base64("a", pad=True), b"YQ=="),
        (lambda: tb.decode_base64(["YQ", "YQ==", "f38-"]), [b"a", b"a", b"\x7f\x7f>"]),
        (lambda: tb.string_to_number(["1", " -2.5e1 ", "inf"]), [1.0, -25.0, np.inf]),
        (lambda: tb.string_to_number("9007199254740993", tb.int64), 9007199254740993),
        (lambda: tb.as_string([1, -20]), [b"1", b"-20"]),
        (lambda: tb.as_string(np.array([2**63], np.uint64)), [b"9223372036854775808"]),
        (lambda: tb.as_string([7, 8], width=4, fill="0"), [b"0007", b"0008"]),
        (lambda: tb.as_string([7], width=4, fill="-"), [b"7   "]),
        (lambda: tb.as_string([True, False]), [b"true", b"false"]),
        (lambda: tb.as_string([3.14159, -1.0]), [b"3.141590", b"-1.000000"]),
        (lambda: tb.as_string(3.14159, precision=2), b"3.14"),
        (lambda: tb.as_string(31415.9, scientific=True, precision=3), b"3.142e+04"),
        (lambda: tb.as_string([0.5, np.inf, np.nan], shortest=True), [b"0.5", b"inf", b"nan"]),
        (lambda: tb.as_string(np.complex64(1.5 - 2j), precision=1), b"(1.5,-2.0)"),
    ],
)  # fmt: skip
def test_results(make, expected):
    assert np.asarray(run(make())).tolist() == expected


def test_shapes_are_known_while_the_graph_is_built():
    x = tb.placeholder(tb.string, [None, 3])
    assert tb.string_join([x, "a"]).shape == [None, 3]
    assert tb.reduce_join(x, 1).shape == [None]
    assert tb.reduce_join(x, 0, keepdims=True).shape == [1, 3]
    assert tb.string_to_number(x, tb.int32).spec == tb.TensorSpec([None, 3], tb.int32)
    assert tb.string_length(tb.placeholder(tb.string)).spec == tb.TensorSpec(None, tb.int32)
    assert tb.substr(x, [0, 1, 2], 2).shape == [None, 3]


@pytest.mark.parametrize(
    ("texts", "options", "rows"),
    [
        (["hello world", "a  b c"], {}, [[b"hello", b"world"], [b"a", b"b", b"c"]]),
        (["a,b;c", ";d"], {"delimiter": ",;"}, [[b"a", b"b", b"c"], [b"d"]]),
        (["a,b", ";d", ""], {"delimiter": ",;", "skip_empty": False}, [[b"a", b"b"], [b"", b"d"], [b""]]),
        (["ab", ""], {"delimiter": ""}, [[b"a", b"b"], []]),
    ],
)  # fmt: skip
def test_split(texts, options, rows):
    found = run(tb.string_split(texts, **options))
    where = [[row, column] for row, parts in enumerate(rows) for column in range(len(parts))]
    assert found.indices.tolist() == where
    assert found.values.tolist() == [part for parts in rows for part in parts]
    assert found.dense_shape.tolist() == [len(rows), max(map(len, rows))]


def test_the_parts_of_a_split_become_numbers():
    numbers = tb.string_to_number(tb.string_split(["1,2", "3"], ",").values, tb.int32)
    assert run(tb.reduce_sum(numbers * numbers)) == 14


# Values published in TensorFlow's own tests: Fingerprint64, and SipHash with the key (98765, 132).
@pytest.mark.parametrize(
    ("text", "fast", "strong"),
    [
        (b"a", 12917804110809363939, 7157389809176466784),
        (b"b", 11795596070477164822, 15805638358933211562),
        (b"c", 11430444447143000872, 18100027895074076528),
    ],
)
def test_published_hashes(text, fast, strong):
    assert (fingerprint64(text), sip_hash((98765, 132), text)) == (fast, strong)


# Of bytes(range(n)), by the reference implementation of FarmHash: a length of each of its cases.
@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 11160318154034397263),
        (3, 10709908609026466970),
        (7, 11736591675260184225),
        (16, 1080060857502750420),
        (17, 13526182118996909852),
        (33, 16750416167695635022),
        (64, 17691551913807367243),
        (65, 14313328211205373374),
        (200, 525935771297148851),
    ],
)
def test_fingerprints_of_all_lengths(length, expected):
    assert fingerprint64(bytes(range(length))) == expected


def test_sip_hash_of_its_paper():
    assert sip_hash((0x0706050403020100, 0x0F0E0D0C0B0A0908), bytes(range(15))) == 0xA129CA6149BE45E5


def test_buckets():
    texts = tb.constant(["a", "b", "c", "d"])
    assert listed(tb.string_to_hash_bucket_fast(texts, 10)) == [9, 2, 2, 5]
    assert listed(tb.string_to_hash_bucket_strong(texts[:3], 10, [98765, 132])) == [4, 2, 8]
    found = listed(tb.string_to_hash_bucket(texts, 1000))
    assert found == [928, 668, 95, 725]  # never to change: models are trained by these numbers
    assert listed(tb.string_to_hash_bucket(texts, 1)) == [0] * 4


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4), st.booleans())
def test_base64_of_any_bytes(texts, pad):
    with tb.Graph().as_default():
        encoded = tb.encode_base64(texts, pad=pad)
        there, back = run([encoded, tb.decode_base64(encoded)])
    assert back.tolist() == texts
    expected = [base64.urlsafe_b64encode(text) for text in texts]
    assert there.tolist() == (expected if pad else [text.rstrip(b"=") for text in expected])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4))
def test_numbers_come_back_from_their_strings(numbers):
    with tb.Graph().as_default():
        back = tb.string_to_number(tb.as_string(np.float32(numbers), shortest=True, precision=9))
        assert run(back).tolist() == numbers


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=8), min_size=1, max_size=4), st.binary(max_size=2))
def test_parts_of_any_bytes(texts, delimiter):
    with tb.Graph().as_default():
        found = run(tb.string_split(texts, delimiter, skip_empty=False))
    rows = [[] for _ in texts]
    for (row, _), part in zip(found.indices, found.values, strict=True):
        rows[row].append(part)
    for text, parts in zip(texts, rows, strict=True):
        assert sum(map(len, parts)) == len(text) - sum(each in delimiter for each in text)
        assert not any(each in part for part in parts for each in delimiter)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tb.string_join([]), "expected inputs to be at least one tensor"),
        (lambda: tb.string_join(["a", [1]]), r"string_join: inputs\[1\]: cannot make a tensor of strings"),
        (lambda: tb.string_join([["a", "b"], ["c", "d", "e"]]), "do not broadcast"),
        (lambda: tb.reduce_join(GRID, 2), "axis 2 is not in"),
        (lambda: tb.reduce_join(GRID, [0, -2]), "names an axis twice"),
        (lambda: tb.string_split("a"), r"source is string\[\], expected a vector"),
        (lambda: tb.substr("abc", 4, 1), "pos 4, len 1 is not in 'abc' of length 3"),
        (lambda: tb.substr("abc", 0.5, 1), r"pos: it is float32\[\], expected int32 or int64"),
        (lambda: tb.substr(b"\xff", 0, 1, unit="UTF8_CHAR"), "is no UTF-8 at byte 0; count in unit BYTE"),
        (lambda: tb.string_to_number("1x"), "'1x' is no float32"),
        (lambda: tb.string_to_number("1_0"), "'1_0' is no float32"),
        (lambda: tb.string_to_number("2147483648", tb.int32), "'2147483648' is no int32"),
        (lambda: tb.string_to_number("1", tb.uint8), "expected out_type to be float32"),
        (lambda: tb.string_to_number(1.0), "string_tensor: cannot make a tensor of strings"),
        (lambda: tb.as_string("a"), r"AsString: input is string\[\], of strings already"),
        (lambda: tb.as_string(1, precision=2), "are for floating numbers"),
        (lambda: tb.as_string(1.0, scientific=True, shortest=True), "expected scientific or shortest, got"),
        (lambda: tb.as_string(1.0, fill="x"), "expected fill to be"),
        (lambda: tb.decode_base64("*"), "is no web-safe base64"),
        (lambda: tb.decode_base64("a"), "is no web-safe base64"),
        (lambda: tb.regex_replace("a", "(", "b"), "pattern '\\(' is no regular expression"),
        (lambda: tb.regex_replace("a", "(a)", r"\2"), r"has \\2, expected \\\\ or a group from \\0 to \\1"),
        (lambda: tb.regex_replace("a", "a", "b\\"), r"has \\, expected"),
        (lambda: tb.regex_full_match("a", ["a"]), r"pattern is string\[1\], expected a scalar"),
        (lambda: tb.string_to_hash_bucket("a", 0), "expected num_buckets to be"),
        (lambda: tb.string_to_hash_bucket_strong("a", 2, [1]), "expected key to be two whole numbers, got 1"),
    ],
)  # fmt: skip
def test_refused(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        run(make())
