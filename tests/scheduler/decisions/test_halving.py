from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.decisions.halving import SuccessiveHalving


def test_rungs_are_powers_of_the_factor_times_the_first():
    halving = SuccessiveHalving(2, 3)
    assert [epoch for epoch in range(1, 60) if halving.is_rung(epoch)] == [2, 6, 18, 54]


def test_the_best_third_of_all_that_came_so_far_goes_on():
    halving = SuccessiveHalving(1, 3)
    assert halving.stopped(1, {n: (n / 10, 0.0) for n in range(6)}) == {0, 1, 2, 3}
    assert halving.stopped(1, {6: (0.45, 0.0)}) == set()  # second of seven: two go on
    assert halving.stopped(1, {7: (0.41, 0.0)}) == {7}
    assert halving.stopped(3, {5: (0.1, 0.0)}) == set()  # alone at its rung


def test_equal_scores_go_to_the_lower_number():
    assert SuccessiveHalving(1, 2).stopped(1, {3: (0.5, -1.0), 1: (0.5, -1.0)}) == {3}
    assert SuccessiveHalving(1, 2).stopped(1, {3: (0.5, -1.0), 1: (0.5, -2.0)}) == {1}


@pytest.mark.slow
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), max_size=6), st.integers(2, 4))
def test_a_share_goes_on_whatever_comes_when(groups, factor):
    halving, number, going = SuccessiveHalving(1, factor), 0, 0
    for scores in groups:
        own = {number + index: (score,) for index, score in enumerate(scores)}
        number += len(own)
        stopped = halving.stopped(1, own)
        best = max(own, key=lambda member: (own[member], -member))
        known = halving.rungs[1]
        if all(known[best] >= score for score in known.values()):
            assert best not in stopped or any(known[m] == known[best] and m < best for m in known)
        going += len(own) - len(stopped)
        again = SuccessiveHalving(1, factor, halving.rungs)
        assert again.rungs == halving.rungs
    assert len(halving.rungs.get(1, {})) == number
    assert going <= number
