"""Records of comma-separated values, against TensorFlow's documented results and Python's csv module."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.input_ops.csv_ops import split_fields

pytestmark = pytest.mark.usefixtures("graph")


def columns(*args, **options):
    with tb.Session() as session:
        return [np.asarray(each).tolist() for each in session.run(tb.decode_csv(*args, **options))]


@pytest.mark.parametrize(
    ("records", "defaults", "options", "expected"),
    [
        (["1,2.5,a", "3,,"], [[0], [1.5], ["none"]], {}, [[1, 3], [2.5, 1.5], [b"a", b"none"]]),
        ("7", [[0]], {}, [7]),
        ([["1"], ["2"]], [np.empty(0, np.int64)], {}, [[[1], [2]]]),
        (['"a,b",2', '"say ""x""",3'], [[""], [0]], {}, [[b"a,b", b'say "x"'], [2, 3]]),
        (['"a\nb",""'], [[""], ["d"]], {}, [[b"a\nb"], [b"d"]]),
        (["1\t2"], [[0], [0]], {"field_delim": "\t"}, [[1], [2]]),
        (['"a"', 'b"c'], [[""]], {"use_quote_delim": False}, [[b'"a"', b'b"c']]),
        (["NA,2", "1,NA"], [[5], [6]], {"na_value": "NA"}, [[5, 1], [2, 6]]),
        (["1,x,3", "4,y,6"], [[0], [0]], {"select_cols": [0, 2]}, [[1, 4], [3, 6]]),
        ([" 1 ,2"], [[0], [0.0]], {}, [[1], [2.0]]),
        ([","], [[""], [""]], {}, [[b""], [b""]]),
        (np.empty([0], object), [[0], [""]], {}, [[], []]),
        (["9007199254740993"], [np.array([0], np.int64)], {}, [[9007199254740993]]),
    ],
)
def test_results(records, defaults, options, expected):
    assert columns(records, defaults, **options) == expected


def test_shapes_and_dtypes_are_known():
    x = tb.placeholder(tb.string, [None, 2])
    a, b = tb.decode_csv(x, [[0.0], [""]])
    assert (a.spec, b.spec) == (tb.TensorSpec([None, 2], tb.float32), tb.TensorSpec([None, 2], tb.string))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.sampled_from('ab,"\n\r;'), max_size=4), min_size=2, max_size=4))
def test_what_pythons_csv_writes_is_read(fields):
    file = io.StringIO()
    csv.writer(file, lineterminator="", quoting=csv.QUOTE_ALL).writerow(fields)
    assert split_fields(file.getvalue().encode(), b",", True) == [field.encode() for field in fields]


@pytest.mark.parametrize(
    ("records", "defaults", "options", "words"),
    [
        (["1,2", "3"], [[0], [0]], {}, "record 1: expected 2 fields, got 1"),
        (["1,"], [[0], []], {}, "record 0: field 1 is required but missing"),
        (["1", "x"], [[0]], {}, "record 1: field 0: 'x' is no int32"),
        (["1.5"], [[0]], {}, "field 0: '1.5' is no int32"),
        (['a"b'], [[""]], {}, "field 0 is not quoted and has a quote"),
        (['"ab'], [[""]], {}, "field 0 has a quote that does not end"),
        (['"a"b'], [[""]], {}, "field 0 goes on after its closing quote"),
        (["a\nb"], [[""]], {}, "has a line end in it"),
        (["1"], [[0]], {"select_cols": [1]}, "it has 1 fields, expected column 1"),
        (["1"], [[0]], {"select_cols": [1, 2]}, "select_cols is .1, 2., expected 1 ascending numbers"),
        (["1"], [[0]], {"field_delim": ",,"}, "expected field_delim to be one ASCII character"),
        (["1"], [], {}, "expected record_defaults to have a value for each column"),
        (["1"], [[1, 2]], {}, r"record_defaults\[0\] is int32\[2\], expected one value, or none"),
        (["1"], [np.array([1], np.uint8)], {}, r"record_defaults\[0\] is uint8\[1\], expected a dtype of"),
    ],
)
def test_refused(records, defaults, options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        columns(records, defaults, **options)
