"""State of a reader: the work item that it reads, and the calls that wait for records.

Calls are served one by one in the order in which they came. The first one, where no item is open, takes the
next one from its queue, and may wait there.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from tensorbow.errors import OutOfRangeError
from tensorbow.graph import OnCancel
from tensorbow.queues.element_queue import ElementQueue, Fail
from tensorbow.readers.record_sources import Record, RecordSource

Read: TypeAlias = Callable[[list[Record]], None]
_handles = itertools.count(1 << 32)  # other numbers than those of queues


@dataclass(eq=False)
class _Call:
    """A read of up to `count` records; taking: how its wait for an item is ended."""

    queue: ElementQueue
    count: int
    done: Read
    fail: Fail
    taking: Callable[[], None] | None = None
    ended: bool = False


class RecordReader:
    """A reader of a process; all methods are thread-safe and return at once.

    `done` and `fail` of the calls run in the thread that ends the wait, without the reader's lock.
    """

    def __init__(self, label: str, open_item: Callable[[bytes], RecordSource]):
        """label: for messages. open_item: gives the records of a work item."""
        self.handle = next(_handles)
        self.label = label
        self._open_item = open_item
        self._lock = threading.RLock()
        self._calls: deque[_Call] = deque()
        self._serving: _Call | None = None  # the call that works or waits
        self._items: deque[bytes] = deque()  # taken from queues, not opened yet
        self._source: RecordSource | None = None
        self._produced = 0
        self._completed = 0
        self._closed = False

    def produced(self) -> int:
        """The number of records that it has given."""
        with self._lock:
            return self._produced

    def completed(self) -> int:
        """The number of work items that it has read to their end."""
        with self._lock:
            return self._completed

    def read(self, queue: ElementQueue, count: int, done: Read, fail: Fail, on_cancel: OnCancel) -> None:
        """Passes up to `count` records of one work item to `done`, at least one.

        Items come from `queue`; OutOfRangeError if it is closed and empty. on_cancel: is told first how the
        call is taken back.
        """
        call = _Call(queue, count, done, fail)
        on_cancel(partial(self._take_back, call))
        with self._lock:
            self._calls.append(call)
        self._serve()

    def reset(self) -> None:
        """Forgets the work item and all counts, as if it were new."""
        with self._lock:
            self._close_source()
            self._items.clear()
            self._produced = self._completed = 0

    def close(self) -> None:
        """Closes its file; called when its session is closed. Calls that wait end with their queue."""
        with self._lock:
            self._closed = True
            self._close_source()

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _take_back(self, call: _Call) -> None:
        with self._lock:
            if call.ended:
                return
            call.ended = True
            taking = call.taking
            if call in self._calls:
                self._calls.remove(call)
            if self._serving is call:
                self._serving = None
        if taking is not None:
            taking()
        self._serve()

    def _serve(self) -> None:
        """Serves calls until one has to wait, or none is left."""
        while True:
            with self._lock:
                if self._serving is not None or not self._calls:
                    return
                call = self._serving = self._calls.popleft()
            if not self._advance(call):
                return

    def _advance(self, call: _Call) -> bool:
        """Works on the call that is served; False if it waits for a work item."""
        while True:
            with self._lock:
                if call.ended:
                    return True
                try:
                    records = self._next_records(call.count)
                except Exception as error:
                    self._close_source()
                    later = self._end(call, partial(call.fail, error))
                else:
                    later = self._end(call, partial(call.done, records)) if records else None
            if later is not None:
                later()
                return True
            arrival = _Arrival(self, call)
            call.queue.take(1, False, arrival.came, arrival.failed, partial(setattr, call, "taking"))
            with self._lock:
                if arrival.waits():
                    return False
            if arrival.error is not None:
                with self._lock:
                    later = self._end(call, partial(call.fail, arrival.error))
                if later is not None:
                    later()
                return True

    def _end(self, call: _Call, then: Callable[[], None]) -> Callable[[], None] | None:
        """Ends the served call; what to run without the lock. None if it was taken back meanwhile."""
        if self._serving is call:
            self._serving = None
        if call.ended:
            return lambda: None
        call.ended = True
        return then

    def _next_records(self, count: int) -> list[Record]:
        """Up to `count` records of the open item, or of the next one that has any; empty if there is none."""
        records: list[Record] = []
        while not records:
            if self._source is None:
                if not self._items:
                    break
                if self._closed:
                    raise OutOfRangeError(f"{self.label} is closed")
                self._source = self._open_item(self._items.popleft())
            while len(records) < count and (record := self._source.next()) is not None:
                records.append(record)
            if len(records) < count:
                self._close_source()
                self._completed += 1
        self._produced += len(records)
        return records


class _Arrival:
    """The end of a wait for a work item: it comes at once, or later from another thread."""

    def __init__(self, reader: RecordReader, call: _Call):
        self.error: BaseException | None = None
        self._reader, self._call = reader, call
        self._is_over = self._is_late = False

    def waits(self) -> bool:
        """True if the item has not come yet: the call goes on when it does. The caller has the lock."""
        self._is_late = not self._is_over
        return self._is_late

    def came(self, elements: Sequence[Any]) -> None:
        """The queue gives an item, which stays with the reader even if the call was taken back."""
        self._over(elements[0][0], None)

    def failed(self, error: BaseException) -> None:
        """The queue is closed and empty, or the wait was cancelled."""
        self._over(None, error)

    def _over(self, item: bytes | None, error: BaseException | None) -> None:
        reader, call = self._reader, self._call
        with reader._lock:
            if item is not None:
                reader._items.append(item)
            self.error, self._is_over = error, True
            call.taking = None
            if not self._is_late or call.ended:
                return
        if error is not None:
            with reader._lock:
                later = reader._end(call, partial(call.fail, error))
            if later is not None:
                later()
        elif not reader._advance(call):
            return
        reader._serve()
