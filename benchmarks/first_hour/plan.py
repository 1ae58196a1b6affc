"""The stages and their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from first_hour.sizes import SIZES, Size
from first_hour.stages import FACTS, Part, Stage

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
TEST_FILES = (  # by importance
    "tests/gpu/test_gpu_is_there.py",
    "tests/gpu/test_on_gpu_runtime.py",
    "tests/gpu/test_on_gpu_op_kernels.py",
    "tests/gpu/test_on_gpu_devices.py",
    "tests/gpu/test_on_gpu_user_kernels.py",
    "tests/gpu/test_on_gpu_compute.py",
    "tests/gpu/test_on_gpu_sessions.py",
    "tests/gpu/test_on_gpu_training.py",
    "tests/gpu/test_on_gpu_replicators.py",
)
FIRST_TESTS = 1  # of these, in a tiny run


def facts() -> Part:
    return Part(FACTS, "first_hour.gpus:facts", most_s=60.0)


def suite_of(path: str, size: Size, chosen: str = "", most_s: float = 240.0) -> Part:
    arguments = {"paths": [path], "workers": size.workers, "test_s": size.test_s, "chosen": chosen}
    return Part(path, "first_hour.suites:suite", arguments, most_s)


def replica_modes() -> Part:
    return Part("replica modes", "first_hour.engines:known_modes", most_s=60.0)


def first_stage(size: Size) -> Sequence[Part]:
    files = TEST_FILES if size.workers > 1 else TEST_FILES[:FIRST_TESTS]
    return [
        facts(),
        Part("probe", "first_hour.probe:probe"),
        Part("lost context", "first_hour.probe:lost_context", most_s=60.0),
        Part("NCCL alone", "first_hour.probe:nccl_of_one_rank", most_s=60.0),
        *(suite_of(path, size) for path in files),
    ]


def second_stage(size: Size) -> Sequence[Part]:
    kernels = [
        Part(f"kernels {case}", "first_hour.steps:kernels", {"case": case, "repeats": size.repeats}, 300.0)
        for case in size.cases
    ]
    choices = [
        Part(f"cuDNN {case}", "first_hour.steps:choices", {"case": case}, 100.0) for case in size.convolved
    ]
    return [facts(), *kernels, *choices]


def third_stage(size: Size) -> Sequence[Part]:
    parts = [facts()]
    for case in size.overlap_cases:
        for connections in size.connections:
            arguments: dict[str, Any] = {"case": case, "counts": size.counts, "loops": size.loops}
            name, variables = f"{case}, {connections} connections", {CONNECTIONS: str(connections)}
            parts.append(Part(name, "first_hour.overlap:side_by_side", arguments, 150.0, variables))
    return parts


def fourth_stage(size: Size) -> Sequence[Part]:
    from replica_modes import modes_here

    parts = [facts(), Part("calls of CUDA", "first_hour.host:calls", {"number": size.calls}), replica_modes()]
    for sync in ("sma", "none"):
        for case in size.cases:
            for mode in modes_here():
                arguments: dict[str, Any] = {
                    "case": case,
                    "mode": mode,
                    "counts": size.more_counts,
                    "sync": sync,
                }
                arguments |= {"rounds_per_launch": size.rounds_per_launch, "most_s": size.rounds_s}
                parts.append(Part(f"{case}, {sync}, {mode}", "first_hour.host:rounds", arguments, 100.0))
    return parts


def fifth_stage(size: Size, case: str) -> Sequence[Part]:
    arguments: dict[str, Any] = {"case": case, "counts": size.contest_counts, "compute": "fp32"}
    arguments |= {"rounds_per_launch": size.rounds_per_launch}
    arguments |= {name: asdict(size)[name] for name in ("window_s", "windows", "open_s")}
    return [facts(), Part(f"contest {case}", "first_hour.contest:contest", arguments, 460.0)]


def sixth_stage(size: Size) -> Sequence[Part]:
    from replica_modes import modes_here

    case = size.bits_case
    parts = [facts()]
    for mode in modes_here():
        arguments: dict[str, Any] = {"case": case, "mode": mode, "number": size.engines}
        parts.append(Part(f"bits, {mode}", "first_hour.bits:engines", arguments, 90.0))
    parts.append(Part("modes agree", "first_hour.bits:modes_agree", {"case": case}))
    if size.workers > 1:
        parts.append(suite_of("tests/gpu/test_on_gpu_engines.py", size, most_s=150.0))
        parts.append(suite_of("tests/gpu/test_on_gpu_learning.py", size, "learns", 100.0))
    checkers = {"tools": ["memcheck", "racecheck"]}
    parts.append(Part("checkers", "first_hour.bits:checkers", checkers, 240.0))
    return parts


def seventh_stage(size: Size) -> Sequence[Part]:
    from replica_modes import modes_here

    here = modes_here()[0]
    several_ranks = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    arguments: dict[str, Any] = {"case": size.cases[0], "mode": here, "most_s": size.rounds_s}
    virtual = {"case": size.cases[0], "mode": here}
    return [
        facts(),
        Part("NCCL", "first_hour.several:nccl", {"sizes": size.vectors}, environment=several_ranks),
        Part("waits across GPUs", "first_hour.several:waits"),
        *(
            Part(f"rates, {sync}", "first_hour.several:rates", {**arguments, "sync": sync}, 150.0)
            for sync in ("none", "sma")
        ),
        Part("virtual GPUs", "first_hour.several:virtual", virtual),
    ]


def eighth_stage(size: Size) -> Sequence[Part]:
    parts = [facts()]
    for model, batch_size, extent in size.swapped:
        arguments: dict[str, Any] = {"model": model, "batch_size": batch_size, "extent": extent}
        arguments |= {"ways": size.ways_to_swap, "most_s": size.swap_s}
        parts.append(Part(f"{model}:{batch_size}", "first_hour.host_memory:model_steps", arguments, 240.0))
    steps, batch_size, units = size.loop
    arguments = {"steps": steps, "batch_size": batch_size, "units": units, "most_s": size.swap_s}
    parts.append(Part("LSTM", "first_hour.host_memory:loop_steps", arguments, 120.0))
    return parts


STAGES: dict[int, tuple[str, Callable[[Size], Sequence[Part]]]] = {
    1: ("probe, tests of the runtime, op kernels", first_stage),
    2: ("steps kernel by kernel, cuDNN's choices", second_stage),
    3: ("overlap of captured steps", third_stage),
    4: ("the host's time, and the modes of replicas", fourth_stage),
    5: ("one case beside PyTorch and JAX", partial(fifth_stage, case="")),
    6: ("the same bits, memory and races", sixth_stage),
    7: ("several GPUs", seventh_stage),
    8: ("values in host memory, and computed again", eighth_stage),
}


def file_of(case: str) -> str:
    """Name of the files of stage 5 for a case."""
    return f"stage_5_{case.replace(':', '_')}"


def stage_of(number: int, size_name: str, folder: Path, case: str | None, only: str | None) -> Stage:
    """A stage. case: of stage 5; by default the first without a file in the folder. only: see `--only`."""
    size, (title, parts) = SIZES[size_name], STAGES[number]
    name = f"stage_{number}"
    if number == 5:
        missing = [each for each in size.contests if not (folder / f"{file_of(each)}.json").exists()]
        case = case or next(iter(missing), size.contests[0])
        title, parts, name = f"{case} beside PyTorch and JAX", partial(fifth_stage, case=case), file_of(case)
    stage = Stage(number, title, partial(parts, size), name)
    if only is None:
        return stage
    chosen = partial(_with_name, parts, size, only)
    return replace(stage, parts=chosen, name=f"{name}_{re.sub(r'[^a-z0-9]+', '_', only.lower())}")


def _with_name(parts: Callable[[Size], Sequence[Part]], size: Size, only: str) -> Sequence[Part]:
    return [part for part in parts(size) if only in part.name or part.name == FACTS]
