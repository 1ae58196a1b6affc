"""Hypothesis tests with slow examples: a few examples by default, many with `-m slow`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings


def given_few(few: int, many: int, *strategies: Any, **named: Any) -> Callable[[Callable[..., None]], Any]:
    """`given` with `few` examples, and the same test again, marked slow, with `many`.

    `test.with_examples(count)` is the same test with so many examples, for runs under other conditions.
    """

    def decorate(test: Callable[..., None]) -> Any:
        def with_examples(count: int) -> Any:
            limited = settings(
                max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
            )
            return limited(given(*strategies, **named)(test))

        runs = {count: with_examples(count) for count in (few, many)}

        @functools.wraps(test)
        def run(examples: int, **arguments: Any) -> None:
            runs[examples](**arguments)

        count = inspect.Parameter("examples", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        left = inspect.signature(runs[few])
        run.__signature__ = left.replace(parameters=[count, *left.parameters.values()])  # type: ignore[attr-defined]
        run.with_examples = with_examples  # type: ignore[attr-defined]
        return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])(run)

    return decorate
