"""Choice and schedule of swaps: peaks, order, waits of the computation."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbow.compiler.swap_schedule import Gap, PlannedSwap, Timing, choose, longest_gap


def live_of(gaps, count, kept=0):
    """Live bytes at each unit, if the values of the gaps are live between their accesses."""
    return [kept + sum(gap.nbytes for gap in gaps if gap.last <= at <= gap.next) for at in range(count)]


def left(live, swaps):
    return [
        nbytes - sum(swap.gap.nbytes for swap in swaps if swap.out_ends <= at < swap.in_begins)
        for at, nbytes in enumerate(live)
    ]


def waited_s(swaps, timing):
    """Seconds that the compute stream waits for copies, played unit by unit."""
    now = waited = out_free = in_free = 0.0
    out_done, in_done = {}, {}

    def until(done):
        nonlocal now, waited
        waited += max(0.0, done - now)
        now = max(now, done)

    for at in range(len(timing.seconds) + 1):
        for swap in sorted(swaps, key=lambda swap: swap.gap.last):
            if swap.gap.last + 1 == at:
                out_free = out_done[swap] = max(out_free, now) + timing.copy_s(swap.gap.nbytes)
        for swap in swaps:
            if swap.out_ends == at:
                until(out_done[swap])
        for swap in sorted(swaps, key=lambda swap: swap.gap.next):
            if swap.in_begins == at:
                in_free = in_done[swap] = max(in_free, now) + timing.copy_s(swap.gap.nbytes)
        for swap in swaps:
            if swap.gap.next == at:
                until(in_done[swap])
        now += timing.seconds[at] if at < len(timing.seconds) else 0.0
    return waited


def a_chain(layers, seconds=1.0):
    """The values of a chain: that of layer i is read by unit i + 1 and by the gradient's."""
    gaps = [Gap(100, layer + 1, 2 * layers - layer) for layer in range(layers - 1)]
    return gaps, Timing([seconds] * (2 * layers + 1), lambda nbytes: nbytes / 50)


def test_copies_of_a_chain_are_hidden_or_waited_for():
    gaps, timing = a_chain(16)
    live = live_of(gaps, len(timing.seconds))
    hidden = choose(live, gaps, timing, hidden=True)
    smallest = choose(live, gaps, timing, hidden=False)
    peaks = [max(left(live, swaps)) for swaps in ((), hidden, smallest)]
    assert peaks[0] > peaks[1] > peaks[2]
    assert waited_s(hidden, timing) == 0
    assert waited_s(smallest, timing) > 0
    assert 0 < len(hidden) < len(smallest)


def test_slow_copies_are_not_hidden():
    gaps, timing = a_chain(16)
    live = live_of(gaps, len(timing.seconds))
    slow = Timing(timing.seconds, lambda nbytes: 100.0)
    assert choose(live, gaps, slow, hidden=True) == []
    assert choose(live, gaps, slow, hidden=False)


def test_no_more_is_swapped_than_asked():
    gaps, timing = a_chain(16)
    live = live_of(gaps, len(timing.seconds))
    for hidden in (True, False):
        some = choose(live, gaps, timing, hidden=hidden, below=1200)
        assert max(left(live, some)) <= 1200
        assert len(some) < len(choose(live, gaps, timing, hidden=hidden))
        assert choose(live, gaps, timing, hidden=hidden, below=max(live)) == []


def test_copies_end_before_a_unit_that_is_launched_by_itself():
    gap = Gap(100, 1, 9)
    borders = Timing([1.0] * 11, lambda nbytes: 2.0, (4, 6))
    (swap,) = choose([10] * 5 + [200] + [10] * 5, [gap], borders, hidden=True)
    assert (swap.out_ends, swap.in_begins) == (4, 7)


def test_a_border_hides_what_would_have_to_cross_it():
    gap = Gap(100, 1, 9)
    live = [10] * 5 + [200] + [10] * 5
    assert choose(live, [gap], Timing([1.0] * 11, lambda nbytes: 2.0), hidden=True)
    assert not choose(live, [gap], Timing([1.0] * 11, lambda nbytes: 2.0, (3,)), hidden=True)
    assert not choose(live, [gap], Timing([1.0] * 11, lambda nbytes: 2.0, (7,)), hidden=True)
    (swap,) = choose(live, [gap], Timing([1.0] * 11, lambda nbytes: 2.0, (3, 7)), hidden=False)
    assert swap.out_ends <= 3
    assert swap.in_begins >= 8


@pytest.mark.parametrize(("accesses", "found"), [([0], None), ([0, 1], None), ([0, 1, 5, 7], (1, 5))])
def test_the_longest_gap(accesses, found):
    gap = longest_gap(8, accesses, [1.0] * 8)
    assert (gap and (gap.last, gap.next)) == found


def test_a_gap_is_long_in_seconds():
    gap = longest_gap(8, [0, 4, 6], [0.1, 0.1, 0.1, 0.1, 0.1, 9.0, 0.1])
    assert (gap.last, gap.next) == (4, 6)


@st.composite
def problems(draw):
    count = draw(st.integers(2, 24))
    seconds = draw(st.lists(st.floats(0.1, 5), min_size=count, max_size=count))
    ends = st.tuples(st.integers(1, 9), st.integers(0, count - 1), st.integers(0, count - 1))
    drawn = draw(st.lists(ends, max_size=12))
    gaps = [Gap(100 * size, min(a, b), max(a, b)) for size, a, b in drawn if abs(a - b) > 1]
    borders = sorted(draw(st.sets(st.integers(0, count - 1), max_size=3)))
    bandwidth = draw(st.sampled_from([20, 100, 1000]))
    return gaps, live_of(gaps, count, 7), Timing(seconds, lambda nbytes: nbytes / bandwidth, borders)


@given(problems(), st.booleans(), st.sampled_from([0, 300, 900]))
def test_swaps_free_memory_in_order_and_within_borders(problem, hidden, below):
    gaps, live, timing = problem
    swaps = choose(live, gaps, timing, hidden=hidden, below=below)
    assert len({swap.gap for swap in swaps}) == len(swaps)
    for swap in swaps:
        assert swap.gap.last < swap.out_ends < swap.in_begins <= swap.gap.next
        assert not any(swap.gap.last < at < swap.out_ends for at in timing.borders)
        assert not any(swap.in_begins <= at < swap.gap.next for at in timing.borders)
    if swaps:
        assert max(left(live, swaps)) < max(live)
    if hidden:
        assert waited_s(swaps, timing) <= 1e-9 * sum(timing.seconds)


@given(problems())
def test_more_time_for_copies_does_not_make_the_peak_larger(problem):
    gaps, live, timing = problem
    eased = choose(live, gaps, timing, hidden=False)
    tight = [PlannedSwap(swap.gap, swap.gap.last + 1, swap.gap.next) for swap in eased]
    assert max(left(live, eased), default=0) == max(left(live, tight), default=0)
    assert waited_s(eased, timing) <= waited_s(tight, timing) + 1e-9


def test_copies_go_in_turn():
    timing = Timing([1.0] * 20, lambda nbytes: 3.0)
    first, second = timing.schedule([Gap(1, 0, 19), Gap(1, 1, 18)])
    starts = [0.0, *accumulate(timing.seconds)]
    assert starts[first.out_ends] >= 1 + 3
    assert starts[second.out_ends] >= 1 + 3 + 3
    assert starts[first.in_begins] <= 19 - 3
    assert starts[second.in_begins] <= 18 - 3
