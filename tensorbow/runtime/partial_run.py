"""Partial runs: one step whose feeds come and whose results are taken in parts, as in TensorFlow 1."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorbow.compiler.prune import prune
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.runtime.fetches_and_feeds import computed_for
from tensorbow.specs import Array

Element = Tensor | Operation


@dataclass(frozen=True)
class RunPart:
    """What one call runs.

    computed: elements for the caller. kept: tensors for later parts. feeds: values that it reads. within:
    operations that run. fed: all tensors that the setup feeds.
    """

    computed: list[Element]
    kept: list[Tensor]
    feeds: dict[Tensor, Array]
    within: frozenset[Operation]
    fed: frozenset[Tensor]


class PartialRun:
    """State of a partial run: what is still to be fetched, fed and run, and the values that later parts read.

    Each operation runs once: with the first part whose fetches need it. A part must end, by `finish`, before
    the next one begins; the lock `turn` is for that.
    """

    def __init__(self, elements: Sequence[Element], fed: Sequence[Tensor]):
        """elements: all that will be fetched. fed: all tensors that will be fed."""
        if not elements:
            raise InvalidArgumentError(
                "partial_run_setup: expected at least one fetch, got none; name all that later parts fetch"
            )
        self.turn = threading.Lock()
        self._unfetched = list(elements)
        self._all, self._fed = frozenset(elements), frozenset(fed)
        self._unfed = set(fed)
        self._values: dict[Tensor, Array] = {}  # fed, or computed for later parts
        self._left = _run_of(computed_for(elements, self._fed), self._fed, None)

    @property
    def is_over(self) -> bool:
        """True if everything was fetched."""
        return not self._unfetched

    def begin(self, elements: Sequence[Element], feeds: Mapping[Tensor, Array]) -> RunPart:
        """What to run for these fetches. Raises InvalidArgumentError, then nothing has changed.

        elements: as fetched. feeds: values that come with this part.
        """
        self._check(elements, feeds)
        values, unfed = {**self._values, **feeds}, self._unfed - feeds.keys()
        known = self._fed | values.keys()
        computed = [
            e
            for e in computed_for(elements, self._fed)
            if isinstance(e, Tensor) or e in self._left or is_free(e)
        ]
        missing = [e for e in computed if isinstance(e, Tensor) and e in unfed]
        needed = _run_of(computed, known, self._left)
        while more := _ends_of_contexts(needed, self._left):
            needed = _run_of([*computed, *more], known, self._left)
        missing += [t for op in needed for t in op.inputs if t in unfed]
        if missing:
            raise InvalidArgumentError(
                f"partial_run: the fetches need {missing[0].name}, which no part has fed yet; feed it in "
                f"this part or an earlier one (made at {missing[0].op.source})"
            )
        self._values, self._unfed = values, unfed
        read = [*computed, *(t for op in needed for t in op.inputs)]
        return RunPart(
            computed,
            self._kept(needed, known, elements),
            {t: values[t] for t in read if isinstance(t, Tensor) and t in values},
            frozenset(needed),
            self._fed,
        )

    def finish(self, elements: Sequence[Element], part: RunPart, kept: Iterable[Any]) -> None:
        """Notes that a part ran. kept: values of its tensors `kept`."""
        self._left -= part.within
        self._unfetched = [e for e in self._unfetched if e not in elements]
        self._values.update(zip(part.kept, kept, strict=True))
        read = {t for op in self._left for t in op.inputs}
        read.update(e for e in computed_for(self._unfetched, self._fed) if isinstance(e, Tensor))
        self._values = {tensor: value for tensor, value in self._values.items() if tensor in read}

    def _check(self, elements: Sequence[Element], feeds: Mapping[Tensor, Array]) -> None:
        for what, past, named, of_setup, left in (
            ("fetches", "fetched", elements, self._all, self._unfetched),
            ("feeds", "fed", feeds, self._fed, self._unfed),
        ):
            for element in named:
                if element not in of_setup:
                    raise InvalidArgumentError(
                        f"partial_run: {element.name} is not among the {what} of the setup; give it to "
                        "partial_run_setup"
                    )
                if element not in left:
                    raise InvalidArgumentError(
                        f"partial_run: {element.name} was {past} by an earlier part; keep its value, or "
                        "begin a new partial run"
                    )

    def _kept(
        self, needed: set[Operation], known: frozenset[Tensor], elements: Sequence[Element]
    ) -> list[Tensor]:
        """Outputs of the operations that run now which later parts read or fetch."""
        later: list[Element] = [t for op in self._left - needed for t in op.inputs]
        later += computed_for([e for e in self._unfetched if e not in elements], self._fed)
        return [
            t for t in dict.fromkeys(later) if isinstance(t, Tensor) and t.op in needed and t not in known
        ]


def _run_of(
    elements: Iterable[Element], known: Iterable[Tensor], within: set[Operation] | None
) -> set[Operation]:
    """Operations that run for these elements, without constants and variables, which every part reads."""
    known = frozenset(known)
    targets = [e if isinstance(e, Operation) else e.op for e in elements if e not in known]
    return {op for op in prune(targets, known, within) if not is_free(op)}


def _ends_of_contexts(needed: set[Operation], left: set[Operation]) -> list[Operation]:
    """Operations that must run with `needed`: those that read inside of a loop or branch what runs there."""

    def inside(op: Operation) -> bool:
        return op in needed and (op.context is not None or op.definition.flow in ("switch", "enter"))

    return [
        op
        for op in left - needed
        if any(inside(t.op) for t in op.inputs) or any(map(inside, op.control_inputs))
    ]
