"""Data kept on the devices: the training is that with batches of the host, bit for bit.

As long as the list of its cases.
"""

from __future__ import annotations

import gc
import random
import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, StepProgram, Synchronisation, TaskResult
from scheduler.batches.sources import PREPARED
from scheduler.training.models.classifier_step import build_program
from tensorbow.data import BatchRecipe, CropAndFlip, ImageDataset, RoundRecipes
from tensorbow.data.augmentation import BatchKey
from tensorbow.devices import Device, GpuDevice
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.models import get_model
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.running import cpu_devices

BATCH = 5
EXAMPLES = 47  # 9 batches of 5: with four replicas two rounds make an epoch
MIB = 1 << 20
LIMIT = 64 * MIB


def dataset(augmentation: Any = None, examples: int = EXAMPLES) -> ImageDataset:
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (examples, 9, 7, 3), np.uint8)
    return ImageDataset("made", images, rng.integers(0, 4, examples), 4, 0.47, 0.25, augmentation)


DATA = dataset(CropAndFlip(3))


@pytest.fixture
def runtime() -> Iterator[EmulatedCuda]:
    def delay() -> None:
        time.sleep(random.random() * 5e-5)

    with emulated_runtime(delay=delay) as opened:
        yield opened
        gc.collect()  # pinned arrays go back when nobody holds them


def program(data: ImageDataset = DATA) -> StepProgram:
    with tb.Graph().as_default():
        tb.set_random_seed(3)
        return build_program(get_model("logreg"), data, 0.9, 0.05, 1e-3)


def gpus(runtime: EmulatedCuda, count: int) -> list[Device]:
    return [GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=LIMIT) for index in range(count)]


class Training:
    """Outcome of a training: losses by round, z, whether the devices made the batches, and messages."""

    def __init__(
        self,
        devices: Sequence[Device],
        per_device: int,
        when: str,
        rounds: Sequence[int] = (0, 7),
        data: ImageDataset = DATA,
        **options: Any,
    ) -> None:
        """rounds: each run ends before one of them, and the next goes on from there, from what is saved."""
        batches = DatasetBatches(data, BATCH, per_device * len(devices), seed=11)
        self.losses: list[float] = []
        saved: dict[str, Any] | None = None
        for start, stop in pairwise(rounds):
            engine = LearningEngine(program(data), BATCH, devices, per_device, Synchronisation(**options))
            with engine:
                engine.initialize()
                if saved is not None:
                    engine.learners.values.load_state_arrays(saved)
                self.notice = batches.keep_on_devices(engine.learners, when)
                self.on_devices = batches.on_devices
                engine.run(batches.open, start, stop, lambda results: self.losses.extend(results.losses))
                self.z = engine.central_values()
                saved = engine.learners.values.state_arrays()
            assert [device.memory.held_nbytes for device in devices] == [0] * len(devices)
            assert all(not device.memory.partitions for device in devices)

    def same_as(self, other: Training) -> bool:
        same_z = all(np.array_equal(self.z[name], value) for name, value in other.z.items())
        return self.losses == other.losses and same_z


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("count", "per_device"), [(1, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize("options", [{}, {"sync": "ssgd"}, {"staleness": 1, "tau": 2}])
def test_the_same_losses_on_gpus(
    runtime: EmulatedCuda, count: int, per_device: int, options: dict[str, Any]
) -> None:
    devices = gpus(runtime, count)
    host = Training(devices, per_device, "never", **options)
    kept = Training(devices, per_device, "auto", **options)
    assert (host.on_devices, kept.on_devices) == (False, True)
    assert host.notice == kept.notice == ""
    assert len(kept.losses) == 7 * count * per_device
    assert len(set(kept.losses)) > 5
    assert kept.same_as(host)
    for device in devices:
        device.close()


@pytest.mark.slow
@needs_compiler
def test_the_same_after_resuming(runtime: EmulatedCuda) -> None:
    (device,) = gpus(runtime, 1)
    whole = Training([device], 2, "never", (0, 13))
    assert Training([device], 2, "auto", (0, 3, 5, 13)).same_as(whole)
    device.close()


@pytest.mark.slow
@needs_compiler
def test_a_step_uploads_no_batch(runtime: EmulatedCuda) -> None:
    """The graph of a round makes it; what is copied is as much wherever the batch is made."""
    (device,) = gpus(runtime, 1)
    counts = {}
    for when in ("never", "always"):
        batches = DatasetBatches(DATA, BATCH, 1, seed=0)
        with LearningEngine(program(), BATCH, [device], 1) as engine:
            engine.initialize()
            batches.keep_on_devices(engine.learners, when)
            engine.run(batches.open, 0, 3)  # captures
            before = runtime.counts.copy()
            engine.run(batches.open, 3, 13)
            counts[when] = {kind: runtime.counts[kind] - before[kind] for kind in ("copy", "launch_graph")}
    assert counts["always"] == counts["never"]
    assert counts["always"]["launch_graph"] == 10
    assert counts["always"]["copy"] <= 11  # picks, and where the run begins
    del batches
    device.close()


@pytest.mark.slow
@needs_compiler
def test_host_batches_are_copied_from_where_they_are_filled(
    runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where steps are launched by segment; a round as a whole reads what it was copied to."""
    monkeypatch.setattr(GpuBackend, "round_program", lambda *_: None)
    (device,) = gpus(runtime, 1)
    batches = DatasetBatches(DATA, BATCH, 2, seed=0)
    with LearningEngine(program(), BATCH, [device], 2) as engine:
        engine.initialize()
        batches.keep_on_devices(engine.learners, "never")
        copied = []
        for replica in engine.learners.replicas:
            plan = replica.binding.plan
            copy_in = plan.copy_in

            def noted(name: str, source: Any, copy_in: Any = copy_in) -> None:
                copied.append(source.ctypes.data)
                copy_in(name, source)

            monkeypatch.setattr(plan, "copy_in", noted)
        engine.run(batches.open, 0, 8)
    assert batches._slots
    slots = {array.ctypes.data for lane in batches._slots for slot in lane for array in slot}
    assert len(copied) == 2 * 2 * 8
    assert set(copied) <= slots
    monkeypatch.undo()
    del batches, engine, replica, plan, copy_in, noted
    device.close()


@pytest.mark.slow
@pytest.mark.parametrize(("when", "share"), [("auto", 0.5), ("always", 1.0)])
@needs_compiler
def test_what_does_not_fit(runtime: EmulatedCuda, when: str, share: float) -> None:
    """One example less than the room that is left, and it fits."""
    devices = gpus(runtime, 2)
    with LearningEngine(program(), BATCH, devices, 1) as engine:
        engine.initialize()
        learners = engine.learners
        held = [device.memory.held_nbytes for device in devices]
        block = devices[1].stream_group("others", planned_nbytes=LIMIT - held[1] - 2 * MIB)
        room = int(share * 2 * MIB)
        examples = room // (9 * 7 * 3 + 8) - 3
        small = DatasetBatches(dataset(examples=examples), BATCH, 2, seed=0)
        large = DatasetBatches(dataset(examples=examples + 20), BATCH, 2, seed=0)
        said = rf"data set made takes .*, more than {'50% of ' * (when == 'auto')}the 2(\.0+)? MiB .*/gpu:1"
        if when == "always":
            with pytest.raises(
                ResourceExhaustedError, match=rf"^data_on_device: {said}.*choose auto or never"
            ):
                large.keep_on_devices(learners, when)
        else:
            notice = large.keep_on_devices(learners, when)
            assert re.search(f"batches are made on the host.*{said}", notice)
            assert "\n" not in notice
        assert not large.on_devices
        assert devices[0].memory.held_nbytes == held[0]
        assert small.keep_on_devices(learners, when) == ""
        assert small.on_devices
        assert devices[0].memory.held_nbytes > held[0] + examples * 9 * 7 * 3
        engine.run(small.open, 0, 2)
        assert large.keep_on_devices(learners, "never") == ""
        assert [device.memory.held_nbytes for device in devices] == [held[0], held[1]]
        block.close()
        del large, small
    for device in devices:
        device.close()


@needs_compiler
def test_the_driver_has_less_than_the_device_may_take(runtime: EmulatedCuda) -> None:
    (device,) = gpus(runtime, 1)
    batches = DatasetBatches(DATA, BATCH, 1, seed=0)
    with LearningEngine(program(), BATCH, [device], 1) as engine:
        engine.initialize()
        for _ in range(20):  # the allocator asks for less and less
            runtime.fail_next("allocate")
        notice = batches.keep_on_devices(engine.learners)
        runtime._faults.clear()
        assert notice.startswith("batches are made on the host, in pinned memory: ")
        engine.run(batches.open, 0, 3)
    del batches
    device.close()


class Negative:
    """An augmentation of a user's."""

    def __call__(self, images: Any, key: Any) -> None:
        np.subtract(255, images, out=images)


class Own(ImageDataset):
    """A data set that fills batches in a way of its own."""

    def fill(
        self, indices: Any, images_out: Any, labels_out: Any, scratch: Any = None, key: Any = None
    ) -> None:
        super().fill(indices, images_out, labels_out, scratch, None)


@pytest.mark.slow
@needs_compiler
def test_what_only_the_host_can_do(runtime: EmulatedCuda) -> None:
    (device,) = gpus(runtime, 1)
    own = Own("own", DATA.images, DATA.labels, 4, 0.47, 0.25, CropAndFlip(3))
    for data, why in ((dataset(Negative()), "its augmentation Negative"), (own, "Own fills batches")):
        kept = Training([device], 2, "auto", data=data)
        assert not kept.on_devices
        assert why in kept.notice
        assert kept.same_as(Training([device], 2, "never", data=data))
        with pytest.raises(
            InvalidArgumentError, match=rf"data_on_device: .* cannot be kept on a device: {why}"
        ):
            Training([device], 2, "always", data=data)
    gc.collect()
    device.close()


@pytest.mark.slow
def test_cpu_devices_make_their_batches_where_it_is_asked_for() -> None:
    devices = cpu_devices(2, delays=4)
    host = Training(devices, 2, "never")
    kept = Training(devices, 2, "always")
    by_default = Training(devices, 2, "auto")
    assert (host.on_devices, kept.on_devices) == (False, True)
    assert (by_default.on_devices, by_default.notice) == (True, "")
    assert kept.same_as(host)
    assert by_default.same_as(host)
    for device in devices:
        device.close()


@pytest.mark.slow
@pytest.mark.parametrize("launch_ahead", [2, 3])
@pytest.mark.parametrize(
    ("replicas", "options"), [(2, {"tau": 2}), (3, {"tau": 3, "sync": "easgd"}), (2, {})]
)
def test_many_rounds_of_cpu_devices(replicas: int, options: dict[str, Any], launch_ahead: int) -> None:
    """More than recipes are written at once; rounds that do not average may end before those before them."""
    trained: list[list[float]] = []
    for when in ("never", "always"):
        (device,) = cpu_devices(1, delays=5)
        trained.append([])
        batches = DatasetBatches(DATA, BATCH, replicas, seed=11)
        with LearningEngine(
            program(), BATCH, [device], replicas, Synchronisation(**options), launch_ahead=launch_ahead
        ) as engine:
            engine.initialize()
            batches.keep_on_devices(engine.learners, when)
            results: list[TaskResult] = []
            engine.run(batches.open, 0, 3 * PREPARED + 1, results.extend)
        trained[-1] += [result.loss for result in results]
        device.close()
    assert len(trained[0]) == replicas * (3 * PREPARED + 1)
    assert trained[0] == trained[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_recipes_do_not_depend_on_the_order_of_release(steps: int, seed: int) -> None:
    """With `fcfs` batches end in any order; each asks for the batch of its number `depth` launches later."""
    replicas, rounds, depth = 3, 4 * PREPARED + 5, 4
    batches = DatasetBatches(DATA, BATCH, replicas, seed=11, depth=depth, steps_per_launch=steps)
    with LearningEngine(
        program(), BATCH, cpu_devices(1), replicas, Synchronisation(dispatch="fcfs")
    ) as engine:
        batches.keep_on_devices(engine.learners, "always")
    waiting: list[Any] = []
    given: dict[tuple[int, int], list[Any]] = {}
    source = batches.open(0, rounds, waiting.append, waiting.append)
    generator = random.Random(seed)
    while waiting:
        ready = waiting.pop(generator.randrange(len(waiting)))
        assert (ready.batch_number, ready.launch) not in given
        inputs = [ready.inputs] if steps == 1 else list(ready.inputs)
        given[ready.batch_number, ready.launch] = inputs
        ready.release()
    source.close()
    launches = -(-rounds // steps)
    assert given.keys() == {(replica, launch) for replica in range(replicas) for launch in range(launches)}
    for (replica, launch), inputs in given.items():
        for number, recipe in enumerate(inputs):
            epoch, first = batches.positions.at(launch * steps + number)
            assert (recipe.key.epoch, recipe.key.number) == (epoch, first + replica)
            expected = batches.order.indices(epoch, first + replica)
            np.testing.assert_array_equal(recipe.indices, expected)


def test_a_batch_by_itself_behind_launches_of_whole_rounds() -> None:
    """The picks of a launch stay its own: a batch made by itself has the picks that it is given."""
    (device,) = cpu_devices(1)
    batches = DatasetBatches(DATA, BATCH, 2, seed=11)
    rounds = RoundRecipes(DATA, np.zeros((1, 2, BATCH, 4), np.int64), lambda *_: BatchKey(11, 0, 0))
    recipe = BatchRecipe.of(rounds, 0, 1)
    with LearningEngine(program(), BATCH, [device], 2) as engine:
        engine.initialize()
        batches.keep_on_devices(engine.learners, "always")
        assert engine.run(batches.open, 0, 5) == 5
        for replica in engine.learners.replicas:
            replica.batch_maker_for(recipe).make(recipe.picks(), 0)
            for expected, ref in zip(recipe.arrays(), replica.own_step.inputs.values(), strict=True):
                address = replica.binding.bases[ref.region] + ref.offset
                made = device.view(address, expected.shape, expected.dtype)
                np.testing.assert_array_equal(made, expected)
    device.close()


@pytest.mark.parametrize("options", [{}, {"dispatch": "fcfs"}])
def test_a_run_keeps_its_data(options: dict[str, Any]) -> None:
    (device,) = cpu_devices(1)
    batches = DatasetBatches(DATA, BATCH, 2, seed=11)
    with LearningEngine(program(), BATCH, [device], 2, Synchronisation(**options)) as engine:
        engine.initialize()
        batches.keep_on_devices(engine.learners, "always")

        def drop(results: Any) -> None:
            batches.keep_on_devices(engine.learners, "never")

        with pytest.raises(FailedPreconditionError, match="keep_on_devices: a run is going on"):
            engine.run(batches.open, 0, 9, drop)
        assert batches.on_devices
        batches.keep_on_devices(engine.learners, "never")
        assert not batches.on_devices
        assert engine.run(batches.open, 9, 12) == 12
    device.close()


def test_a_recipe_of_another_size_is_refused() -> None:
    (device,) = cpu_devices(1)
    batches = DatasetBatches(DATA, BATCH + 1, 1, seed=0)
    with LearningEngine(program(), BATCH, [device], 1) as engine:
        engine.initialize()
        batches.keep_on_devices(engine.learners, "always")
        with pytest.raises(
            InvalidArgumentError, match=r"images:0 must be float32\[5, 9, 7, 3\].*got float32\[6, 9"
        ):
            engine.run(batches.open, 0, 2)
        with pytest.raises(InvalidArgumentError, match="data_on_device: expected one of auto, always, never"):
            batches.keep_on_devices(engine.learners, "sometimes")
    device.close()


@pytest.mark.slow
@needs_compiler
def test_an_op_with_a_bad_result_is_named(runtime: EmulatedCuda) -> None:
    """The step is run again on a batch made on the host."""
    (device,) = gpus(runtime, 1)
    batches = DatasetBatches(DATA, BATCH, 2, seed=0)
    with LearningEngine(program(), BATCH, [device], 2) as engine:
        values = {name: np.full_like(value, np.inf) for name, value in program().initial_values().items()}
        engine.initialize(values)
        batches.keep_on_devices(engine.learners)
        with pytest.raises(tb.errors.NumericsError, match="first NaN or infinite result: "):
            engine.run(batches.open, 0, 2)
    gc.collect()
    device.close()
