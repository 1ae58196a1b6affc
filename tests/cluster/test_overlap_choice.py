"""From which size on sums of workers are exchanged beside other work, and for how many workers."""

import pytest

from scheduler.workers.lockstep import Lockstep
from scheduler.workers.overlapped_sums import OVERLAP, OVERLAP_NBYTES, OVERLAP_WORKERS
from scheduler.workers.shared_memory import EXCHANGE, _network
from tensorbow.errors import InvalidArgumentError


class Workers:
    """A group of so many workers, all of which say the same, but for the machine that they are on."""

    rank, name = 0, "worker 0"

    def __init__(self, size, together, choices=None):
        self.size, self._together, self._choices = size, together, choices

    def duplicate(self, by_streams=False):
        return self

    def all_gather(self, value):
        if value == _network() and not self._together:
            return [(number, value) for number in range(self.size)]
        if self._choices and value in self._choices:
            return self._choices
        return [value] * self.size


@pytest.mark.parametrize(
    ("size", "together", "choice", "expected"),
    [
        (2, False, "", OVERLAP_NBYTES),
        (OVERLAP_WORKERS, False, "", OVERLAP_NBYTES),
        (OVERLAP_WORKERS + 1, False, "", None),  # they wait at once
        (2, True, "", None),  # no link joins them
        (2, True, "always", 1),
        (OVERLAP_WORKERS + 1, False, "always", 1),
        (2, False, "never", None),
    ],
)
def test_sums_are_overlapped_between_machines_of_not_too_many_workers(
    monkeypatch, size, together, choice, expected
):
    monkeypatch.setenv(EXCHANGE, "mpi")
    monkeypatch.setenv(OVERLAP, choice)
    assert Lockstep(Workers(size, together)).overlap_nbytes == expected


def test_workers_choose_the_same(monkeypatch):
    monkeypatch.setenv(EXCHANGE, "mpi")
    monkeypatch.setenv(OVERLAP, "always")
    with pytest.raises(InvalidArgumentError, match="the same on all workers, got 'always', 'never'"):
        Lockstep(Workers(2, False, ["always", "never"]))
