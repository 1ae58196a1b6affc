"""LeNet and ResNet-32 learn on the GPU of this machine, all of their steps in CUDA graphs, no byte astray."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.devices import GpuDevice
from tests.gpu_rig.counted import opened_on
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import is_emulated, real_runtime
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, engine_of

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = real_runtime()
SMALL = is_emulated(RUNTIME)
FOUND = 9  # the memory checker's exit code when it has found something


def accuracies(model: Model, replicas: int, rounds: int, rate: float) -> np.ndarray:
    """Accuracy of each round's batches during training; a step that cannot be captured is an error."""
    found = np.zeros((rounds, replicas))
    with opened_on(RUNTIME)() as runtime:
        device = GpuDevice("/gpu:0", runtime)
        with engine_of(model, [device], replicas, tb.train.Constant(rate)) as engine:

            def keep(results) -> None:
                for result in results:
                    found[result.round, result.replica] = result.metrics[0]

            engine.run(Prepared(model.batch, replicas).open, 0, rounds, keep)
            for replica in engine.learners.replicas:
                for number in range(len(replica.own_step.segments)):
                    assert not any(launch.reason for launch in replica.binding.plan.launches(number))
            del replica
    return found.mean(1)


def test_lenet_learns() -> None:
    rounds, batch_size, classes = (18, 8, 2) if SMALL else (300, 16, 10)
    found = accuracies(classifier("lenet", batch_size, classes=classes), 2, rounds, rate=0.005)
    assert found[:3].mean() < 0.7
    assert found[-3:].mean() > 0.95


def test_resnet_learns() -> None:
    name, rounds, batch_size, classes = ("resnet8", 12, 8, 2) if SMALL else ("resnet32", 200, 32, 10)
    found = accuracies(classifier(name, batch_size, classes=classes), 2, rounds, rate=0.1 if SMALL else 0.025)
    assert found[:3].mean() < 0.7
    assert found[-3:].mean() > 0.9


def memory_checker() -> str | None:
    """compute-sanitizer, on the path, with the toolkit or in a wheel."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("compute-sanitizer") or shutil.which(f"{toolkit}/bin/compute-sanitizer")
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec is not None and not found else []:
        files = (str(path) for path in Path(folder).glob("*/**/compute-sanitizer") if path.is_file())
        found = found or next(files, None)
    return found


@pytest.mark.parametrize(("what", "code"), [("step", 0), ("overrun", FOUND)])
def test_a_memory_checker_finds_nothing_in_a_step_of_lenet(what: str, code: int) -> None:
    """And finds what is wrong in a kernel that writes past its memory; the emulated GPU looks itself."""
    command = [sys.executable, "-m", "tests.gpu_rig.checked_step", what]
    if not SMALL:
        checker = memory_checker()
        if checker is None:
            pytest.skip("compute-sanitizer is not here: it comes with the CUDA toolkit")
        # By default an error destroys the context: the program fails, and its exit code comes before FOUND.
        options = "--tool memcheck --destroy-on-device-error kernel --report-api-errors no --error-exitcode"
        command = [checker, *options.split(), str(FOUND), *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("1 step" in done.stdout) == (what == "step")
