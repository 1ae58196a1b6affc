"""Regions of a dynamic step that run in the caller's thread, past the cache and the locks of the session."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import CpuDevice
from tensorbow.errors import CancelledError

pytestmark = pytest.mark.usefixtures("graph")

SIZE, STEPS = 72, 6  # larger than what runs as NumPy calls


def program(count=STEPS, host=lambda value: value):
    """Feeds, the result of a loop with an op of the host, and its gradients."""
    x, w = (tb.placeholder(tb.float32, [SIZE, SIZE], name) for name in ("x", "w"))

    def body(i, h):
        passed = tb.py_func(host, [h], tb.float32, stateful=False)
        passed.set_shape([SIZE, SIZE])
        return i + 1, tb.tanh(h * w) + 0.5 * passed * x

    _, h = tb.while_loop(lambda i, h: i < count, body, [0, x])
    return (x, w), [h, *tb.gradients(tb.reduce_sum(h * x), [x, w])]


def by_hand(x, w):
    """The loop in float64."""
    h = x = x.astype(np.float64)
    for _ in range(STEPS):
        h = np.tanh(h * w) + 0.5 * h * x
    return h


def arrays(seed):
    x, w = np.random.default_rng(seed).normal(size=(2, SIZE, SIZE)).astype(np.float32)
    return x, w


def known(session):
    return [each for each in session._dynamic._quick._known.values() if each is not None]


def test_arrays_that_a_caller_changes_between_runs_are_read_again():
    feeds, (h, *slopes) = program()
    with tb.Session() as session:
        call = session.make_callable([h, *slopes], [*feeds])
        x, w = arrays(1)
        for seed in (2, 3, 4):
            x[...], w[...] = arrays(seed)
            found = call(x, w)
            np.testing.assert_allclose(found[0], by_hand(x, w), rtol=1e-4, atol=1e-4)
            with tb.Session() as fresh:
                first = fresh.run([h, *slopes], dict(zip(feeds, (x, w), strict=True)))
            for a, b in zip(found, first, strict=True):
                np.testing.assert_array_equal(a, b)
        assert len(known(session)) >= 2


def test_what_a_trace_runs_one_by_one_has_the_same_bits(tmp_path):
    feeds, fetches = program()
    values = dict(zip(feeds, arrays(5), strict=True))
    with tb.Session() as session:
        plain = [session.run(fetches, values) for _ in range(2)][1]
        with tb.profiler.trace(tmp_path / "trace.json"):
            traced = session.run(fetches, values)
        for a, b in zip(plain, traced, strict=True):
            np.testing.assert_array_equal(a, b)
    assert "StackPop" in (tmp_path / "trace.json").read_text()


def test_threads_run_one_step_side_by_side():
    feeds, (h, *_) = program()
    with tb.Session() as session:
        call = session.make_callable(h, [*feeds])
        wanted = [by_hand(*arrays(seed)) for seed in range(3)]
        errors = []

        def run(seed):
            given = arrays(seed)
            for _ in range(8):
                errors.append(np.abs(call(*given) - wanted[seed]).max())

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(errors) == 24
    assert max(errors) < 1e-3


def test_memory_is_given_back(monkeypatch):
    feeds, (h, slope, _) = program()
    values = dict(zip(feeds, arrays(6), strict=True))
    with tb.Session() as session:
        first = session.run(h, values)
        session.run(h, values)
        quick = known(session)
        assert [len(each.all) for each in quick] == [1] * len(quick)
        session.trim()
        assert [len(each.all) for each in quick] == [0] * len(quick)
        np.testing.assert_array_equal(session.run(h, values), first)
        assert any(each.all for each in quick)
        monkeypatch.setattr("tensorbow.runtime.quick_regions.CACHED_STEPS", 1)
        found = [session.run(slope, values) for _ in range(2)]
    with tb.Session() as fresh:
        np.testing.assert_array_equal(found, [fresh.run(slope, values)] * 2)


def test_long_regions_go_to_the_streams_thread_until_they_are_short_again(monkeypatch):
    feeds, (h, *_) = program()
    values = dict(zip(feeds, arrays(7), strict=True))
    with tb.Session() as session:
        first = session.run(h, values)
        monkeypatch.setattr("tensorbow.runtime.quick_regions.LONGEST_HERE_S", 0.0)
        np.testing.assert_array_equal(session.run(h, values), first)
        assert any(each.long_runs >= 3 for each in known(session))
        monkeypatch.undo()
        np.testing.assert_array_equal(session.run(h, values), first)
        assert not any(each.long_runs >= 3 for each in known(session))


def test_closing_the_session_ends_a_step_between_its_regions():
    running = threading.Event()

    def tell(value):
        running.set()
        return value

    feeds, (h, *_) = program(10**9, tell)
    session = tb.Session()
    errors = []

    def run():
        try:
            session.run(h, dict(zip(feeds, arrays(8), strict=True)))
        except CancelledError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    running.wait(30)
    session.close()
    thread.join(30)
    assert len(errors) == 1
    assert "the session was closed while the step ran" in errors[0]


def test_what_changes_between_runs_of_an_inner_loop_is_read_again():
    """Also what a function changes in the array that it returned before."""
    x, w = (tb.placeholder(tb.float32, [SIZE, SIZE]) for _ in range(2))
    buffer = np.empty((SIZE, SIZE), np.float32)

    scaled = tb.define_op(
        "ScaledInPlace",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x", "number"),
        host=lambda call: np.multiply(call.inputs[0], np.float32(1 + call.inputs[1]), out=buffer),
        replace=True,
    )

    def outer(i, h):
        scale = scaled(h, i)
        wide = h * w  # the same in all iterations of the inner loop

        def inner(j, g):
            return j + 1, tb.sin(scaled(g, j)) + wide * w

        _, g = tb.while_loop(lambda j, g: j < 3, inner, [0, scale * 1.0])
        return i + 1, g

    _, h = tb.while_loop(lambda i, h: i < 4, outer, [0, x])
    first, second = arrays(9)
    expected = first.astype(np.float64)
    for number in range(4):
        wide = expected * second
        expected = expected * (1 + number)
        for inner_number in range(3):
            expected = np.sin(expected * (1 + inner_number)) + wide * second
    with tb.Session() as session:
        found = [session.run(h, {x: first, w: second}) for _ in range(2)]
        assert any(each.steady for each in known(session))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], expected, rtol=1e-2, atol=1e-2)


def test_a_step_that_fits_once_fits_again():
    x = tb.placeholder(tb.float32, [1000, 300])
    passed = tb.py_func(lambda value: value, [x], tb.float32, stateful=False)
    passed.set_shape([1000, 300])
    y = tb.tanh(passed) * x + passed
    values = {x: np.ones((1000, 300), np.float32)}
    device = CpuDevice("/cpu:7", limit_nbytes=8 << 20)
    with device, tb.Session(device=device) as session:
        first = session.run(y, values)
        for _ in range(3):
            np.testing.assert_array_equal(session.run(y, values), first)


def test_closing_waits_for_no_call_that_an_interrupt_has_ended():
    feeds, (h, *_) = program()
    values = dict(zip(feeds, arrays(9), strict=True))
    session = tb.Session()
    for _ in range(2):
        session.run(h, values)
    for each in known(session):
        each.idle.clear()  # as an interrupt may leave it, before a call has given its memory back
    session.close()
    assert not any(each.all for each in known(session))


def test_long_regions_keep_no_memory_that_they_do_not_use(monkeypatch):
    feeds, (h, *_) = program()
    values = dict(zip(feeds, arrays(11), strict=True))
    with tb.Session() as session:
        session.run(h, values)
        monkeypatch.setattr("tensorbow.runtime.quick_regions.LONGEST_HERE_S", 0.0)
        for _ in range(2):
            session.run(h, values)
        assert not any(each.all for each in known(session) if each.long_runs >= 3)
