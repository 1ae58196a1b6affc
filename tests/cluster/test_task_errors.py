"""Errors of tasks in messages: the class, the text and the task arrive as they were."""

from __future__ import annotations

import pytest

from tensorbow import errors
from tensorbow.cluster.run_limit import LimitReachedError
from tensorbow.cluster.task_errors import CLASSES, named, of_entry, of_task, to_entry
from tensorbow.errors import DataLossError, InternalError, NotFoundError, TensorBowError, UnavailableError

PS, WORKER = "/job:ps/task:0", "/job:worker/task:1"


@pytest.mark.parametrize("kind", CLASSES.values())
def test_a_class_arrives_as_it_was(kind):
    error = of_entry(to_entry(kind("no such thing")), PS)
    assert (type(error), str(error), error.task) == (kind, f"{PS}: no such thing", PS)


def test_all_classes_of_errors_are_known():
    own = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, TensorBowError)}
    assert set(CLASSES.values()) == own - {TensorBowError} | {LimitReachedError}


def test_an_error_of_a_third_task_keeps_its_name():
    lost = named(UnavailableError(f"{WORKER} is unavailable"), WORKER)
    error = of_entry(to_entry(lost), PS)
    assert (type(error), str(error), error.task) == (UnavailableError, str(lost), WORKER)
    assert of_task(error, PS) is error


def test_a_text_that_begins_like_a_task_is_no_task():
    """A name that an op's message begins with, for example of a variable, is not taken for a task's."""
    assert (
        str(of_entry(to_entry(NotFoundError("/job:x/w has no value")), PS)) == f"{PS}: /job:x/w has no value"
    )


def test_other_classes_arrive_as_the_nearest_that_is_known():
    class NoPaperError(NotFoundError):
        def __init__(self, tray):
            super().__init__(f"tray {tray} is empty")

    class SameNameError(Exception):
        pass

    SameNameError.__name__ = "NotFoundError"
    assert str(of_task(NoPaperError(3), PS)) == f"{PS}: tray 3 is empty"
    for raised, kind, text in [
        (NoPaperError(3), NotFoundError, "tray 3 is empty"),
        (KeyError("w"), InternalError, "KeyError: 'w'"),
        (TensorBowError("odd"), InternalError, "TensorBowError: odd"),
        (SameNameError("no"), InternalError, "NotFoundError: no"),
    ]:
        error = of_entry(to_entry(raised), PS)
        assert (type(error), str(error)) == (kind, f"{PS}: {text}")
    assert type(of_entry(["OfALaterVersion", "new", ""], PS)) is InternalError


@pytest.mark.parametrize(
    "entry", [None, "text", ["NotFoundError", "text"], ["NotFoundError", "text", 3], [[], "", ""]]
)
def test_other_entries_are_refused(entry):
    with pytest.raises(DataLossError, match=f"^{PS}: expected an error"):
        of_entry(entry, PS)
