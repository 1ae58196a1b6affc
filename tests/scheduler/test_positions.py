"""Where rounds are in the data, over changes of the number of replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.positions import RoundPositions
from tensorbow.data import BatchOrder
from tensorbow.errors import InvalidArgumentError


def order(batches: int) -> BatchOrder:
    return BatchOrder(batches * 8 + 5, 8, seed=1)


def walked(batches: int, counts: list[tuple[int, int]], rounds: int) -> list[tuple[int, int]]:
    """Round by round: an epoch ends when fewer batches are left than the round takes."""
    places, epoch, number, replicas = [], 0, 0, counts[0][1]
    for round in range(rounds + 1):
        for since, count in counts[1:]:
            if since == round:
                if batches - number < replicas:
                    epoch, number = epoch + 1, 0
                replicas = count
        if batches - number < replicas:
            epoch, number = epoch + 1, 0
        places.append((epoch, number))
        number += replicas
    return places


@given(data=st.data(), batches=st.integers(4, 30))
def test_places_are_those_of_a_walk(data: st.DataObject, batches: int) -> None:
    replicas = st.integers(1, min(batches, 9))
    steps = data.draw(st.lists(st.tuples(st.integers(0, 40), replicas), max_size=5))
    counts, round = [(0, data.draw(replicas))], 0
    positions = RoundPositions(order(batches), counts[0][1])
    for further, count in steps:
        round += further
        counts.append((round, count))
        positions = positions.resized(round, count)
    assert positions.counts == tuple(counts)
    assert RoundPositions(order(batches), counts[0][1], counts[1:]).counts == positions.counts
    last = round + 70
    expected = walked(batches, counts, last)
    assert [tuple(positions.place(r)) for r in range(last + 1)] == expected
    for r in range(last + 1):
        epoch, number = expected[r]
        assert positions.begins_epoch(r) == (number == 0)
        if r >= round:
            assert epoch <= positions.epoch(r) < epoch + 1
            assert (positions.epoch(r) == epoch) == (number == 0)
    for epoch in range(expected[-1][0] + 1):
        reached = [r for r in range(last + 1) if expected[r][0] >= epoch]
        assert positions.first_round(epoch) == reached[0]


def test_one_count_is_plain_division() -> None:
    positions = RoundPositions(order(15), 2)
    for round in range(50):
        assert positions.place(round) == (round // 7, round % 7 * 2)
        assert positions.epoch(round) == round / 7
    assert [positions.first_round(epoch) for epoch in range(4)] == [0, 7, 14, 21]


def test_what_is_refused() -> None:
    positions = RoundPositions(order(15), 2).resized(9, 3)
    with pytest.raises(InvalidArgumentError, match="rounds that do not fall, got 8 after 9"):
        positions.resized(8, 1)
    with pytest.raises(InvalidArgumentError, match="fewer than the 16"):
        positions.resized(10, 16)
    assert positions.replicas == 3
