"""`ConfigProto`, `GPUOptions`, `RunOptions`: options of TensorFlow 1's sessions, as programs give them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, TypeAlias

from tensorbow.graph import warn_at_user_line
from tensorbow.kinds import Count, Flag, Fraction, Mapped, Text, check_fields, instance, refuse
from tensorbow.timeline import StepStats

_DEVICES = "tb.configure_gpus sets memory, virtual devices and precision of GPUs"
_THREADS = "the variable OMP_NUM_THREADS and the processor affinity limit threads"
# What to use instead of options that are read, but have no effect.
_INSTEAD = {
    "allow_growth": "memory always grows as it is needed",
    "per_process_gpu_memory_fraction": _DEVICES,
    "visible_device_list": "set CUDA_VISIBLE_DEVICES",
    "device_count": "any number of CPU devices is there; set CUDA_VISIBLE_DEVICES for GPUs",
    "inter_op_parallelism_threads": _THREADS,
    "intra_op_parallelism_threads": _THREADS,
    "log_device_placement": "session.explain shows the devices of a step",
}
_QUIET = {"allow_growth"}  # no warning: what it asks for is done


@dataclass(slots=True)
class GPUOptions:
    """TensorFlow 1's options of GPUs; none has an effect, a warning names what has."""

    per_process_gpu_memory_fraction: Fraction = 0.0
    allow_growth: Flag = False
    visible_device_list: Text = ""

    def __post_init__(self) -> None:
        check_fields(self)


AsGPUOptions: TypeAlias = Annotated[GPUOptions, instance(GPUOptions, expected="a tb.GPUOptions")]


@dataclass(slots=True)
class ConfigProto:
    """TensorFlow 1's options of a session.

    `allow_soft_placement` is that of `tb.Session`. `compiles_loops`, not of TensorFlow: False runs every
    `tb.while_loop` and `tb.cond` in the dynamic mode, whatever a plan may have. The others have no effect:
    a session that gets one with another value than its default warns, and names what to use instead.
    """

    allow_soft_placement: Flag = False
    log_device_placement: Flag = False
    intra_op_parallelism_threads: Count = 0
    inter_op_parallelism_threads: Count = 0
    device_count: Mapped = field(default_factory=dict)
    gpu_options: AsGPUOptions = field(default_factory=GPUOptions)
    compiles_loops: Flag = True

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(slots=True)
class RunOptions:
    """TensorFlow 1's options of a run.

    trace_level: above 0, each op's times are put into the run's RunMetadata, if one is given.
    timeout_in_ms: milliseconds, without compilation, after which the run is given up; 0 for no limit.

    With either the ops of a run on CPU devices run one by one. A report of allocations is part of every
    error for want of memory.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    trace_level: Count = 0
    timeout_in_ms: Count = 0
    report_tensor_allocations_upon_oom: Flag = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(slots=True)
class RunMetadata:
    """What is known of a run after it, as in TensorFlow 1: `step_stats`, the times of its ops by device."""

    step_stats: StepStats = field(default_factory=StepStats)


AsConfig: TypeAlias = Annotated[ConfigProto, instance(ConfigProto, expected="a tb.ConfigProto")]


def check_run_options(options: RunOptions | None, run_metadata: RunMetadata | None) -> None:
    """Raises InvalidArgumentError for other objects."""
    if options is not None and not isinstance(options, RunOptions):
        raise refuse("run", "options", "a tb.RunOptions or None", options)
    if run_metadata is not None and not isinstance(run_metadata, RunMetadata):
        raise refuse("run", "run_metadata", "a tb.RunMetadata or None", run_metadata)


def warn_of_ignored(options: Any) -> None:
    """Warns of each option with another value than its default that has no effect."""
    for option in fields(options):
        value, name = getattr(options, option.name), option.name
        if isinstance(value, GPUOptions):
            warn_of_ignored(value)
        elif name in _INSTEAD and value and name not in _QUIET:
            warn_at_user_line(
                f"{type(options).__name__}: {name}={value!r:.60} has no effect; {_INSTEAD[name]}"
            )
