"""Partial runs: one step whose feeds come and whose results are taken in parts, as in TensorFlow 1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tensorbow.array_likes import string_array
from tensorbow.compiler.prune import needed_for
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.runtime.fetches_and_feeds import computed_for, made_of
from tensorbow.specs import Array

Element = Tensor | Operation
Execute: TypeAlias = Callable[[list[Element], dict[Tensor, Array], frozenset[Operation]], list[Any]]


@dataclass(frozen=True)
class RunPart:
    """Work of one call.

    computed: elements for the caller. kept: tensors for later parts. feeds: values that it reads. within:
    operations that run.
    """

    computed: list[Element]
    kept: list[Tensor]
    feeds: dict[Tensor, Array]
    within: frozenset[Operation]


class PartialRun:
    """State of a partial run: what is still to be fetched, fed and run, and the values that later parts read.

    Each operation runs once: with the first part whose fetches need it. Parts run one at a time.
    """

    def __init__(self, elements: Sequence[Element], fed: Sequence[Tensor]):
        """elements: all that will be fetched. fed: all tensors that will be fed."""
        if not elements:
            raise InvalidArgumentError(
                "partial_run_setup: expected at least one fetch, got none; name all that later parts fetch"
            )
        self.is_over = False  # everything was fetched, or a part has failed
        self._turn = threading.Lock()
        self._unfetched = list(elements)
        self._all, self._fed = frozenset(elements), frozenset(fed)
        self._unfed = set(fed)
        self._values: dict[Tensor, Array] = {}  # fed, or computed for later parts
        self._left = _run_of(computed_for(elements, self._fed), self._fed, None)

    def run(self, elements: Sequence[Element], feeds: Mapping[Tensor, Array], execute: Execute) -> list[Any]:
        """Runs the next part, after those of other threads; values of the elements, None for operations.

        elements: as fetched. feeds: values that come with this part. execute: gives the values of elements of
        a step within some operations. Raises InvalidArgumentError for what cannot be run yet or again, then
        nothing has changed; an error of `execute` ends the partial run.
        """
        with self._turn:
            part = self._begin(elements, feeds)
            try:
                values = execute([*part.computed, *part.kept], part.feeds, part.within)
            except BaseException:
                self.is_over = True
                raise
            self._finish(elements, part, map(_as_array, values[len(part.computed) :]))
        found = dict(zip(part.computed, values, strict=False))
        computed = [found.get(e) for e in computed_for(elements, self._fed)]
        return made_of(elements, self._fed, iter(computed))

    def _begin(self, elements: Sequence[Element], feeds: Mapping[Tensor, Array]) -> RunPart:
        """The work of a call with these fetches and feeds."""
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
        )

    def _finish(self, elements: Sequence[Element], part: RunPart, kept: Iterable[Any]) -> None:
        """Notes that a part ran. kept: values of its tensors `kept`."""
        self._left -= part.within
        self._unfetched = [e for e in self._unfetched if e not in elements]
        self.is_over = not self._unfetched
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


def _as_array(value: Any) -> Array:
    """A fetched value as an array again."""
    return string_array(value) if type(value) is bytes else np.asarray(value)


def _run_of(
    elements: Iterable[Element], known: Iterable[Tensor], within: set[Operation] | None
) -> set[Operation]:
    """Operations that run for these elements, without constants and variables, which every part reads."""
    return {op for op in needed_for(elements, frozenset(known), within) if not is_free(op)}


def _ends_of_contexts(needed: set[Operation], left: set[Operation]) -> list[Operation]:
    """Operations that must run with `needed`: those that read inside of a loop or branch what runs there."""

    def inside(op: Operation) -> bool:
        return op in needed and (op.context is not None or op.definition.flow in ("switch", "enter"))

    return [
        op
        for op in left - needed
        if any(inside(t.op) for t in op.inputs) or any(map(inside, op.control_inputs))
    ]
