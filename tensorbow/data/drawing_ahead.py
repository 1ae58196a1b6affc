"""A thread that makes the next inputs while the last ones are used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from tensorbow.devices.forks import forked, tell_of_forks
from tensorbow.errors import FailedPreconditionError

Draw: TypeAlias = "Callable[[], Any]"

JOIN_S = 1.0  # longest wait at `close` for user code that is drawing


class DrawingAhead:
    """Draws inputs in order on a thread of its own, at most `depth` ahead of those taken.

    An error, StopIteration included, is raised by the `take` that reaches it, and ends the thread. One caller
    at a time.
    """

    def __init__(self, draw: Callable[[], Draw | None], depth: int, name: str):
        """draw: gives the function that draws; None ends the thread. A `weakref.WeakMethod` is one.

        name: of the thread.
        """
        self._state = _State(depth)
        self._thread = threading.Thread(target=_draw_ahead, args=(draw, self._state), name=name, daemon=True)
        self._thread.start()
        self._lost = False  # in a forked process
        tell_of_forks(self)

    def lose_thread(self) -> None:
        """Ends drawing in a forked process, where the parent's thread may hold the lock."""
        self._lost = True

    def take(self) -> Any:
        """The next inputs; waits for them. Raises the error of drawing them.

        Raises FailedPreconditionError in a forked process, and after `close` when nothing drawn is left.
        """
        if self._lost:
            raise forked("inputs")
        state = self._state
        with state.changed:
            while not state.drawn and not state.ended:
                state.changed.wait()
            state.changed.notify_all()
            if state.drawn:
                inputs, error = state.drawn.popleft()
                if error is not None:
                    raise error
                return inputs
        raise FailedPreconditionError("the inputs are closed; make a new Replicator or iterator")

    def allow(self, depth: int) -> None:
        """Sets how many inputs are drawn ahead of those taken, at most."""
        if not self._lost and depth != self._state.depth:
            with self._state.changed:
                self._state.depth = depth
                self._state.changed.notify_all()

    @property
    def is_used_up(self) -> bool:
        """True if the thread has ended and everything drawn is taken."""
        if self._lost:
            return False
        with self._state.changed:
            return self._state.ended and not self._state.drawn

    def stop(self) -> None:
        """Has the thread end after the draw that is going on."""
        if not self._lost:
            with self._state.changed:
                self._state.stopping = True
                self._state.changed.notify_all()

    def close(self) -> None:
        """Ends the thread; what is drawn can still be taken. Waits a moment for a draw that is going on."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)


class _State:
    """State shared by the thread and its owner, guarded by `changed`."""

    def __init__(self, depth: int):
        self.depth = depth
        self.changed = threading.Condition()
        self.drawn: deque[tuple[Any, BaseException | None]] = deque()
        self.stopping = False
        self.ended = False


def _draw_ahead(draw: Callable[[], Draw | None], state: _State) -> None:
    try:
        while _is_wanted(state):
            method = draw()
            if method is None:
                return  # the owner is gone
            try:
                result: tuple[Any, BaseException | None] = method(), None
            except BaseException as error:
                result = None, error
            del method
            with state.changed:
                state.drawn.append(result)
                state.changed.notify_all()
            if result[1] is not None:
                return
            del result
    finally:
        with state.changed:
            state.ended = True
            state.changed.notify_all()


def _is_wanted(state: _State) -> bool:
    """Waits until another draw is wanted; False at the end."""
    with state.changed:
        while len(state.drawn) >= state.depth and not state.stopping:
            state.changed.wait()
        return not state.stopping
