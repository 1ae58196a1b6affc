"""What a run takes over from the checkpoint that it goes on from."""

from __future__ import annotations

from typing import Any

from scheduler.learners import Learners
from scheduler.tally import Tally
from tensorbow.data import Dataset
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.training import Checkpoint


def data_facts(data: Dataset) -> dict[str, Any]:
    """What tells one data set of a name from another."""
    return {"examples": len(data), "mean": data.mean, "std": data.std}


def restored(
    checkpoint: Checkpoint, learners: Learners, data: Dataset, target_accuracy: float | None
) -> Tally:
    """The tally of a checkpoint, whose values the learners have from now on.

    Raises InvalidArgumentError for one of a run on other data, or of other variables; DataLossError.
    """
    facts = data_facts(data)
    if checkpoint.metadata.get("data") != facts:
        raise InvalidArgumentError(
            f"{checkpoint.path} is of a run on other data than {data.name} "
            f"({facts['examples']} examples); give the same --data-dir"
        )
    try:
        learners.load_state_arrays(checkpoint.arrays)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{checkpoint.path}: {error}") from error
    tally = Tally.from_metadata(checkpoint.metadata)
    if checkpoint.metadata["config"].get("target_accuracy") != target_accuracy:
        tally.seconds_to_target = None
    if tally.test_accuracies is not None and len(tally.test_accuracies) != learners.count:
        raise DataLossError(f"{checkpoint.path} has not one test accuracy for each replica")
    return tally
