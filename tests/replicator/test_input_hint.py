"""Errors of an `input_fn` whose parameter is not of the type that it expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from replicator.input_functions import InputOptions, ReplicaShare
from replicator.picked_inputs import inputs_of
from tensorbow.errors import AbortedError


def test_a_parameter_of_another_name_is_said_to_be_a_context() -> None:
    def input_fn(i: Any) -> Iterator[Any]:
        yield np.arange(3) + i

    with pytest.raises(AbortedError, match=r"\(i is an InputContext; a parameter of the name replica_id"):
        inputs_of(InputOptions(input_fn), ReplicaShare(0, 2, 2))

    def failing(replica_id: int) -> Iterator[Any]:
        yield np.zeros(replica_id - 1)

    with pytest.raises(AbortedError) as failed:
        inputs_of(InputOptions(failing), ReplicaShare(0, 2, 2))
    assert "InputContext" not in str(failed.value)
