"""Errors of tasks as values: their class, and the task that one is of, in this process and in messages."""

from __future__ import annotations

from typing import Any, TypeVar

from tensorbow import errors
from tensorbow.cluster.run_limit import LimitReachedError
from tensorbow.errors import DataLossError, InternalError, TensorBowError

AnyError = TypeVar("AnyError", bound=TensorBowError)

CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, TensorBowError) and each is not TensorBowError
} | {LimitReachedError.__name__: LimitReachedError}  # of the errors in messages


def named(error: AnyError, task: str) -> AnyError:
    """The error, whose message begins with the name of this task."""
    error.task = task
    return error


def of_task(error: BaseException, task: str) -> TensorBowError:
    """The error with a task in front, as the nearest class of CLASSES; itself if it is of a task already."""
    if isinstance(error, TensorBowError) and error.task:
        return error
    kind, text = _class_and_text(error)
    return named(CLASSES[kind](f"{task}: {text}"), task)


def to_entry(error: BaseException) -> list[str]:
    """The error in a message: its nearest class of CLASSES, its text and its task."""
    return [*_class_and_text(error), error.task if isinstance(error, TensorBowError) else ""]


def of_entry(entry: Any, task: str) -> TensorBowError:
    """The reverse of `to_entry`. task: that has sent it, whose error it is unless it names another one.

    A class that is not known here becomes InternalError. Raises DataLossError.
    """
    if not (isinstance(entry, list) and len(entry) == 3 and all(isinstance(each, str) for each in entry)):
        raise named(DataLossError(f"{task}: expected an error, got {entry!r:.80}"), task)
    kind, text, other = entry
    error = CLASSES.get(kind, InternalError)(text)
    return named(error, other) if other else of_task(error, task)


def _class_and_text(error: BaseException) -> tuple[str, str]:
    for each in type(error).__mro__:
        if CLASSES.get(each.__name__) is each:
            return each.__name__, str(error)
    return InternalError.__name__, f"{type(error).__name__}: {error}"
