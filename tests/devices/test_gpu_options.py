"""Options of GPU devices: `cuda_malloc` beside best fit, in what they compute, the priority of z's stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow as tb
from allocators import BestFitAllocator, DriverAllocator
from scheduler import Trainer, TrainingConfig
from scheduler.training.running.notices import ignored_options
from tensorbow.devices import GpuDevice, close_devices, get_device
from tensorbow.devices import gpu_discovery as discovery
from tensorbow.devices import registry as devices
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.kernels import backend_for
from tensorbow.kernels.gpu.backend import GpuBackend
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared, engine_of


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    """An emulated GPU that is found as if it were there; nothing is configured yet."""
    with emulated_runtime() as runtime:
        monkeypatch.setattr(discovery, "_status", discovery.GpuStatus((runtime,)))
        monkeypatch.setattr(discovery, "_opened", False)
        monkeypatch.setattr(discovery, "_configuration", type(discovery._configuration)())
        for variable in (discovery.VIRTUAL_VARIABLE, discovery.ALLOCATOR_VARIABLE):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(devices, "_devices", {})
        yield runtime
        close_devices()


def calls_of_blocks(runtime: EmulatedCuda, allocator: str) -> tuple[int, int]:
    """Driver calls, to allocate and to free, of 3 times 8 blocks that come and go."""
    with GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 24, allocator=allocator) as device:
        group = device.stream_group("replica")
        before = dict(runtime.counts)
        for _ in range(3):
            blocks = [group.allocate(1000 * size) for size in range(1, 9)]
            for block in blocks:
                group.allocator.free(block)
        counts = [runtime.counts[kind] - before.get(kind, 0) for kind in ("allocate", "free")]
        group.close()
        assert device.memory.held_nbytes == 0
        return counts[0], counts[1]


def test_cuda_malloc_calls_the_driver_for_every_tensor() -> None:
    with emulated_runtime() as runtime:
        assert calls_of_blocks(runtime, "cuda_malloc") == (24, 24)
        assert calls_of_blocks(runtime, "bfc") == (1, 0)


def test_cuda_malloc_keeps_limits_and_names_holders() -> None:
    with (
        emulated_runtime() as runtime,
        GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 20, allocator="cuda_malloc") as device,
    ):
        group = device.stream_group("replica", planned_nbytes=1 << 19)
        group.allocate(1 << 19, owner="activations")
        with pytest.raises(ResourceExhaustedError, match="activations"):
            group.allocate((1 << 19) + 1)


@needs_compiler
def test_an_engine_trains_alike_with_both_allocators() -> None:
    model, results = well(), []
    for allocator in ("bfc", "cuda_malloc"):
        with emulated_runtime() as runtime:
            device = GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27, allocator=allocator)
            with engine_of(model, [device], 2) as engine:
                engine.run(Prepared(model.batch, 2).open, 0, 6)
                replica = engine.learners.replicas[0].group.allocator
                assert type(replica) is (DriverAllocator if allocator == "cuda_malloc" else BestFitAllocator)
                results.append(engine.central_values()["w"])
    assert results[0].tobytes() == results[1].tobytes()


def test_a_device_refuses_options_that_are_none() -> None:
    with emulated_runtime() as runtime:
        with pytest.raises(
            InvalidArgumentError, match="allocator: expected one of bfc, cuda_malloc, got 'x'"
        ):
            GpuDevice("/gpu:0", runtime, allocator="x")
        with pytest.raises(
            InvalidArgumentError, match="compute: expected one of fp32, tf32, bf16, got 'fp8'"
        ):
            GpuDevice("/gpu:0", runtime, compute="fp8")


def test_all_gpus_are_configured_before_the_first_opens(found: EmulatedCuda) -> None:
    tb.configure_gpus(allocator="cuda_malloc", compute="tf32", memory_limit_nbytes=1 << 20)
    gpu = get_device("/gpu:0")
    assert isinstance(gpu, GpuDevice)
    assert (gpu.allocator, gpu.compute) == ("cuda_malloc", "tf32")
    with pytest.raises(FailedPreconditionError, match="call it first of all"):
        tb.configure_gpus(compute="bf16")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"allocator": "best"},
            "configure_gpus: expected allocator to be 'bfc' or 'cuda_malloc' or None, got str 'best'",
        ),
        ({"compute": "fp16"}, "expected compute to be 'fp32' or 'tf32' or 'bf16' or None, got str 'fp16'"),
    ],
)
def test_wrong_choices_change_nothing(found: EmulatedCuda, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tb.configure_gpus(**options)  # type: ignore[arg-type]
    gpu = get_device("/gpu:0")
    assert isinstance(gpu, GpuDevice)
    assert (gpu.allocator, gpu.compute) == ("bfc", "fp32")


def test_the_environment_chooses_the_allocator(found: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(discovery.ALLOCATOR_VARIABLE, "pool")
    with pytest.raises(
        InvalidArgumentError, match="TENSORBOW_GPU_ALLOCATOR: expected one of bfc, cuda_malloc"
    ):
        get_device("/gpu:0")
    monkeypatch.setenv(discovery.ALLOCATOR_VARIABLE, "cuda_malloc")
    gpu = get_device("/gpu:0")
    assert isinstance(gpu, GpuDevice)
    assert gpu.allocator == "cuda_malloc"


@needs_compiler
def test_a_device_computes_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option decides the compute type that cuBLAS receives."""
    seen: dict[str, int] = {}
    for compute in ("fp32", "tf32", "bf16"):
        with emulated_runtime() as runtime:
            blas = runtime.library("cublas")
            own = blas.cublasGemmEx

            def spied(*arguments: object, own: object = own, compute: str = compute) -> int:
                seen[compute] = int(getattr(arguments[-2], "value", arguments[-2]))
                return own(*arguments)  # type: ignore[operator, no-any-return]

            monkeypatch.setattr(blas, "cublasGemmEx", spied)
            graph = tb.Graph()
            with graph.as_default():
                x = tb.placeholder(tb.float32, [40, 50])
                y = tb.matmul(x, x, transpose_b=True)
            device = GpuDevice("/gpu:0", runtime, compute=compute)
            with device, tb.Session(graph=graph, device=device) as session:
                session.run(y, {x: np.ones((40, 50))})
    assert seen == {"fp32": 68, "tf32": 77, "bf16": 75}


@pytest.mark.slow
@needs_compiler
def test_a_run_computes_as_its_option_says_and_leaves_the_device_as_it_was(
    found: EmulatedCuda, tmp_path: object
) -> None:
    gpu = get_device("/gpu:0")
    backend = backend_for(gpu)
    assert isinstance(backend, GpuBackend)
    config = TrainingConfig(
        "logreg", devices=("gpu:0",), compute="bf16", epochs=1, output=f"{tmp_path}/run", max_seconds=0.01
    )
    with Trainer(config) as trainer:
        groups = [replica.group for replica in trainer.engine.learners.replicas]
        assert {backend.context_of(group).options.compute for group in groups} == {"bf16"}
        trainer.train()
    assert gpu.compute == "fp32"
    assert TrainingConfig.from_dict(config.to_dict()).compute == "bf16"


def test_the_option_of_a_run_is_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="compute: expected one of fp32, tf32, bf16, got 'half'"):
        TrainingConfig("logreg", compute="half")
    (line,) = ignored_options(TrainingConfig("logreg", compute="tf32"))
    assert line == "--compute is ignored: CPUs have no tf32, and compute in fp32"
    assert not ignored_options(TrainingConfig("logreg", compute="fp32"))


@needs_compiler
def test_z_has_the_priority_it_is_given() -> None:
    model = well()
    with emulated_runtime() as runtime:
        gpus = [GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=1 << 27) for index in range(2)]
        with engine_of(model, gpus, 2, priority=-3) as engine:
            engine.run(Prepared(model.batch, 4).open, 0, 3)
        made = [call.name for call in runtime.log if call.kind == "make_stream"]
    assert made.count("-3") == 2 + 1  # of z's group on each device, and of the all-reduce
    assert set(made) == {"0", "-3"}
    with pytest.raises(InvalidArgumentError, match="priority: expected a whole number of at most 0, got 1"):
        tb.Synchronisation(priority=1)
