"""Calls in threads whose results and errors reach the test, and waiting for a condition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

PATIENCE_S = 30


class InThread:
    """A call in a thread of its own; `result` waits for it and raises its error."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any):
        self._values: list[Any] = []
        self._errors: list[BaseException] = []

        def call() -> None:
            try:
                self._values.append(function(*arguments, **options))
            except Exception as error:
                self._errors.append(error)

        self.thread = threading.Thread(target=call, daemon=True)
        self.thread.start()

    def result(self) -> Any:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        if self._errors:
            raise self._errors[0]
        return self._values[0]


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Results of calls that run in a thread each."""
    return [each.result() for each in [InThread(call) for call in calls]]


def until(condition: Callable[[], Any]) -> None:
    """Waits until a condition holds."""
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(PATIENCE_S / 6000)
    raise AssertionError("the condition has not come")
