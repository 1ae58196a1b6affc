"""Graphs that grow while threads run them, and strings that are fed: further cases of `session_test`."""

from __future__ import annotations

import collections
import threading

import numpy as np
import pytest

import tensorbow as tb


def test_a_graph_grows_while_threads_run_it(session):  # testParallelRunAndBuild
    c = tb.constant(5.0)
    stop, found = threading.Event(), []

    def run():
        while not stop.is_set():
            found.append(session.run(c))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(60):
            newest = c + float(number)
            if number % 20 == 0:
                assert session.run(newest) == 5 + number
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(found) <= {5.0}


def test_threads_run_what_one_of_them_adds(session):  # testParallelRunAndSingleBuild
    c, lock, found = tb.constant(5.0), threading.Lock(), []

    def add_and_run(number):
        with lock, session.graph.as_default():
            added = c * float(number)
        found.append(float(session.run(added)))

    threads = [threading.Thread(target=add_and_run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize("value", [b"\n\x01\x00", b"\n\x00\x01", b"", "αβγ"], ids=repr)
def test_a_fed_string_keeps_its_bytes(session, value):  # testStringFeedWithNullCharacters, ...WithUnicode
    fed = tb.placeholder(tb.string, [1])
    wanted = value.encode() if isinstance(value, str) else value
    both = session.run([fed, tb.identity(fed)], {fed: [value]})
    assert [each.tolist() for each in both] == [[wanted], [wanted]]


@pytest.mark.parametrize("number", [0, 1, 32])
def test_arrays_of_strings_are_fed(session, number):  # testStringFeed
    fed = tb.placeholder(tb.string, [number])
    strings = np.array([b"a" * size for size in range(number)], object)
    assert session.run(tb.identity(fed), {fed: strings}).tolist() == strings.tolist()


def test_an_ordered_dictionary_keeps_its_order(session):  # testFetchOrderedDict
    given = collections.OrderedDict([("b", tb.constant(1)), ("a", tb.constant(2))])
    found = session.run(given)
    assert isinstance(found, collections.OrderedDict)
    assert list(found.items()) == [("b", 1), ("a", 2)]
