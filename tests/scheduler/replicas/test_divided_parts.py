"""Replicas with a part on each of several devices, whose forward and backward pass the executor runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.errors import InvalidArgumentError, NumericsError
from tests.scheduler.replicas.test_parted_replicas import OPTIONS, TWO, THREE, layered, trained
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import cpu_devices, same_bits


def dynamic(model: Model) -> Model:
    return replace(model, program=replace(model.program, mode="dynamic"))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("places", [TWO, THREE], ids=str)
def test_the_executor_has_the_bits_of_whole_replicas(kernels: str, options: dict[str, Any], places: Any) -> None:
    parts = max(places) + 1
    whole = trained(layered(None), cpu_devices(2), 1, (1, 2), **options)
    apart = trained(dynamic(layered(places)), cpu_devices(2 * parts, delays=2), parts, (1, 2), **options)
    assert same_bits(whole[0], apart[0])
    assert whole[1] == apart[1]
