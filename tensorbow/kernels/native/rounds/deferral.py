"""Decision whether the exchanges of rounds with other workers may end later, while replicas go on.

What devices do with a sum (z moves) then waits until z is needed: until the pass of a later exchange. That
changes no bits where nothing that runs in between touches what they read and write. With SMA it is so up to
the exchange that reads the same copy of z, so for staleness + 1 exchanges: its corrections are taken at the
start of the update, and forward and backward of the next rounds read no z (Crossbow, VLDB 2019, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorbow.kernels.merging import touch
from tensorbow.program.plan import Group, Ref


@dataclass(frozen=True)
class LateExchange:
    """An exchange of one kind of round: before, made, after: calls of replicas before its pass, in it, and
    behind it. written, read: what its devices do that with, once the sum is there.
    """

    before: Sequence[Group]
    made: Sequence[Group]
    after: Sequence[Group]
    written: Sequence[Ref]
    read: Sequence[Ref]


def most_under_way(exchanges: Sequence[LateExchange], others: Sequence[Group]) -> int:
    """Number of exchanges that may be under way at a time, 0 if each must end before replicas go on.

    exchanges: of kinds of rounds that follow one another in this order, again and again, with rounds of
    `others` between.
    """
    counts = dict.fromkeys((len(exchanges), 1)) if exchanges else {}
    return next((count for count in counts if _may_be_under_way(count, exchanges, others)), 0)


def ended_before(number: int, under_way: int, kinds: int) -> int:
    """Number of the kind of exchange that ends before the pass of another one begins."""
    return (number - under_way) % kinds


def _may_be_under_way(count: int, exchanges: Sequence[LateExchange], others: Sequence[Group]) -> bool:
    if not _are_apart(others, exchanges):
        return False
    kinds = len(exchanges)
    for number, exchange in enumerate(exchanges):
        earlier = [exchanges[(number - back) % kinds] for back in range(1, count + 1)]
        later = [exchange, *earlier[:-1]]
        if not (
            _are_apart(exchange.before, earlier)
            and _are_apart(exchange.made, earlier[:-1])
            and _are_apart(exchange.after, later)
        ):
            return False
    return True


def _are_apart(calls: Sequence[Group], exchanges: Sequence[LateExchange]) -> bool:
    """True if calls neither read what exchanges write, nor write what these read or write."""
    return not any(
        touch(call.reads, exchange.written) or touch(call.writes, (*exchange.written, *exchange.read))
        for call in calls
        for exchange in exchanges
    )
