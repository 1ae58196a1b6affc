"""LooperThread: a thread that calls a function every so many seconds (TensorFlow 1's name)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from tensorbow.kinds import FUNCTION, Items, Mapped, NonNegative, checked, instance, optional
from tensorbow.queues.coordinator import Coordinator

Looped: TypeAlias = Annotated[Any, optional(FUNCTION)]
TheCoordinator: TypeAlias = Annotated[Coordinator, instance(Coordinator, expected="a tb.train.Coordinator")]


class LooperThread(threading.Thread):
    """Calls a function at once, and then every so many seconds, until its coordinator asks for a stop.

    An error of the function requests the stop, and is raised by the coordinator's `join`. Subclasses may
    define `run_loop`, which calls the function, `start_loop` and `stop_loop`, which are called around all.
    """

    @checked
    def __init__(
        self,
        coord: TheCoordinator,
        timer_interval_secs: NonNegative | None,
        target: Looped = None,
        args: Items | None = None,
        kwargs: Mapped | None = None,
    ):
        """timer_interval_secs: from the beginning of one call to that of the next; None: no pause.

        A call that takes longer is followed by the next at once. target: called with args and kwargs.
        """
        super().__init__(daemon=True)
        self._coord, self._every_s, self._looped = coord, timer_interval_secs, target
        self._arguments: Sequence[Any] = () if args is None else tuple(args)
        self._named: Mapping[str, Any] = {} if kwargs is None else dict(kwargs)
        coord.register_thread(self)

    @classmethod
    @checked
    def loop(
        cls,
        coord: TheCoordinator,
        timer_interval_secs: NonNegative | None,
        target: Looped,
        args: Items | None = None,
        kwargs: Mapped | None = None,
    ) -> LooperThread:
        """A thread of these arguments that has been started."""
        thread = cls(coord, timer_interval_secs, target, args, kwargs)
        thread.start()
        return thread

    def run(self) -> None:
        """Loops; called by the thread."""
        with self._coord.stop_on_exception():
            self.start_loop()
            due_s = time.monotonic()
            while not self._coord.wait_for_stop(max(0.0, due_s - time.monotonic())):
                due_s += self._every_s or 0.0
                self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called once before the first call."""

    def run_loop(self) -> None:
        """Calls the function, if there is one."""
        if self._looped is not None:
            self._looped(*self._arguments, **self._named)

    def stop_loop(self) -> None:
        """Called once after the stop, unless an error was the reason."""
