"""Positions of rounds in the data, over changes of the number of replicas."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.batches.positions import RoundPositions
from tensorbow.data import BatchOrder
from tensorbow.errors import InvalidArgumentError


def order(batches: int) -> BatchOrder:
    return BatchOrder(batches * 8 + 5, 8, seed=1)


def walked(batches: int, counts: list[tuple[int, int]], rounds: int) -> list[tuple[int, int]]:
    """Round by round: an epoch ends when fewer batches are left than the round takes."""
    found, epoch, number, replicas = [], 0, 0, counts[0][1]
    for round in range(rounds + 1):
        for since, count in counts[1:]:
            if since == round:
                if batches - number < replicas:
                    epoch, number = epoch + 1, 0
                replicas = count
        if batches - number < replicas:
            epoch, number = epoch + 1, 0
        found.append((epoch, number))
        number += replicas
    return found


@pytest.mark.slow
@given(data=st.data(), batches=st.integers(4, 30))
def test_positions_are_those_of_a_walk(data: st.DataObject, batches: int) -> None:
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
    assert [tuple(positions.at(r)) for r in range(last + 1)] == expected
    for r in range(last + 1):
        epoch, number = expected[r]
        assert positions.begins_epoch(r) == (number == 0)
        if r >= round:
            assert epoch <= positions.epoch(r) < epoch + 1
            assert (positions.epoch(r) == epoch) == (number == 0)
    for epoch in range(expected[-1][0] + 1):
        reached = [r for r in range(last + 1) if expected[r][0] >= epoch]
        assert positions.first_round(epoch) == reached[0]
    for r in range(round, last):
        fraction = (positions.epoch(r) + positions.epoch(r + 1)) / 2
        if fraction < expected[-1][0]:
            assert positions.first_round(fraction) == r + 1


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data())
def test_a_change_of_the_batch_size_goes_on_behind_the_examples_taken(data: st.DataObject) -> None:
    """No example comes twice in an epoch; less than a batch of the new size is passed over, or a round."""
    examples, sizes = 240, data.draw(st.lists(st.integers(3, 40), min_size=2, max_size=4))
    earlier, round, passed = None, 0, 0
    positions: list[RoundPositions] = []
    for size in sizes:
        order = BatchOrder(examples, size, seed=1)
        replicas = data.draw(st.integers(1, min(4, order.batches_per_epoch)))
        positions.append(RoundPositions(order, replicas, earlier=earlier))
        round += data.draw(st.integers(1, 30))
        earlier = positions[-1], round
    last = positions[-1]
    starts = [0, *(p._earlier[1] for p in positions[1:] if p._earlier is not None)]
    ended = 0, 0
    for round in range(starts[-1] + 40):
        mine = positions[max(i for i, start in enumerate(starts) if start <= round)]
        position, size = last.at(round), mine.order.batch_size
        assert position == mine.at(round)
        begun = position.epoch, position.number * size
        assert begun >= ended
        if position.epoch == ended[0]:
            passed = begun[1] - ended[1]
            assert passed < size
        else:
            assert position.epoch == ended[0] + 1 or ended == (0, 0)
            assert position.number == 0
            assert examples - ended[1] < max((p.replicas + 1) * p.order.batch_size for p in positions)
        ended = position.epoch, (position.number + mine.replicas) * size
        assert ended[1] <= examples
    for epoch in range(last.at(round).epoch + 1):
        first = last.first_round(epoch)
        assert last.at(first).epoch >= epoch
        assert first == 0 or last.at(first - 1).epoch < epoch


def test_one_count_is_plain_division() -> None:
    positions = RoundPositions(order(15), 2)
    for round in range(50):
        assert positions.at(round) == (round // 7, round % 7 * 2)
        assert positions.epoch(round) == round / 7
    assert [positions.first_round(epoch) for epoch in range(4)] == [0, 7, 14, 21]


def test_what_is_refused() -> None:
    positions = RoundPositions(order(15), 2).resized(9, 3)
    with pytest.raises(InvalidArgumentError, match="rounds that do not fall, got 8 after 9"):
        positions.resized(8, 1)
    with pytest.raises(InvalidArgumentError, match="fewer than the 16"):
        positions.resized(10, 16)
    assert positions.replicas == 3
