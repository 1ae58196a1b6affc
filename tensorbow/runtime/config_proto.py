"""`ConfigProto` and its parts, and `RunOptions`: options of sessions of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar, TypeAlias

from tensorbow.compiler.recompute import HOW, NEVER
from tensorbow.compiler.swap import HOW as WAYS_TO_SWAP
from tensorbow.compiler.swap import can_swap, no_effect
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphDef, warn_at_user_line
from tensorbow.kinds import (
    AxisNumber,
    Count,
    Flag,
    Fraction,
    Mapped,
    Text,
    check_fields,
    instance,
    one_of,
    refuse,
)
from tensorbow.runtime.run_costs import CostGraphDef
from tensorbow.timeline import StepStats

# What to use instead of options that are read, but have no effect with that value.
_INSTEAD = {
    "intra_op_parallelism_threads": "every stream of a CPU device computes on one thread; use several "
    "devices, or replicas",
}


@dataclass(slots=True)
class GPUOptions:
    """TensorFlow 1's options of the GPUs of a session.

    per_process_gpu_memory_fraction: share of a device's memory that the session's variables and steps may
        take there; steps that run at the same time as others have as much for themselves. 0: no limit.
    allow_growth: memory always grows as it is needed.
    visible_device_list: numbers of the GPUs that the session may use, as "0,2", for sessions without
        `devices`. They keep their numbers, as other sessions of the process may use others.
    allocator_type: "BFC" or "", TensorFlow's; has no effect.
    """

    per_process_gpu_memory_fraction: Fraction = 0.0
    allow_growth: Flag = False
    visible_device_list: Text = ""
    allocator_type: Annotated[str, one_of("", "BFC")] = ""

    def __post_init__(self) -> None:
        check_fields(self)


AsGPUOptions: TypeAlias = Annotated[GPUOptions, instance(GPUOptions, expected="a tb.GPUOptions")]


@dataclass(slots=True)
class OptimizerOptions:
    """TensorFlow 1's options of the optimisation of graphs; they have no effect: every step is compiled."""

    L1: ClassVar[int] = 0
    L0: ClassVar[int] = -1
    DEFAULT: ClassVar[int] = 0
    OFF: ClassVar[int] = -1
    ON_1: ClassVar[int] = 1
    ON_2: ClassVar[int] = 2

    do_common_subexpression_elimination: Flag = False
    do_constant_folding: Flag = False
    do_function_inlining: Flag = False
    opt_level: AxisNumber = DEFAULT
    global_jit_level: AxisNumber = DEFAULT

    def __post_init__(self) -> None:
        check_fields(self)


AsOptimizerOptions: TypeAlias = Annotated[
    OptimizerOptions, instance(OptimizerOptions, expected="a tb.OptimizerOptions")
]


@dataclass(slots=True)
class GraphOptions:
    """TensorFlow 1's options of a session's graphs; they have no effect. See `OptimizerOptions`."""

    optimizer_options: AsOptimizerOptions = field(default_factory=OptimizerOptions)

    def __post_init__(self) -> None:
        check_fields(self)


AsGraphOptions: TypeAlias = Annotated[GraphOptions, instance(GraphOptions, expected="a tb.GraphOptions")]


AUTO = "auto"
AsRecompute: TypeAlias = Annotated[str, one_of(*HOW, AUTO)]
AsSwap: TypeAlias = Annotated[str, one_of(*WAYS_TO_SWAP, AUTO)]


@dataclass(slots=True)
class ConfigProto:
    """TensorFlow 1's options of a session.

    allow_soft_placement: see `tb.Session`.
    log_device_placement: writes the device of each op to standard error when a step is compiled.
    inter_op_parallelism_threads: planned steps of the session, and ops of one dynamic step, that run at the
        same time, at most. 0: no limit for steps, and for ops twice the number of cores, at least 4, beside
        those of the callers' threads. 1 runs the ops of each dynamic step one by one in its caller's thread.
    intra_op_parallelism_threads: threads of an op, of which there is one; a session warns of more.
    device_count: number of devices by kind, for sessions without `devices`: {"CPU": 2} has ops placed on two
        virtual CPU devices at most, {"GPU": 0} on no GPU.
    graph_options: has no effect; a session warns of values other than the defaults.
    compiles_loops, not of TensorFlow: False runs every `tb.while_loop` and `tb.cond` in the dynamic mode,
        whatever a plan may have.
    lossy_transfers: float32 goes from device to device, also between tasks, as its upper 16 bits, and gets
        zeros below when it is received: half the bytes, and about three digits (white paper, section 5.5).
    operation_timeout_in_ms: time limit of every step that may wait, as for a queue, unless RunOptions give
        one. 0: no limit.
    recompute, for steps on one device: intermediate values that are computed again for the gradient, not
        kept: `cheap`, `segments`, or `smallest` (see `tb.StepProgram`); `auto` is `smallest` for steps that
        else have no room.
    swap, for steps on one GPU: intermediate values that lie in the host's memory between their uses:
        `hidden`, or `smallest` (see `tb.StepProgram`); `auto` does so for steps that else have no room,
        before it recomputes. On a CPU, which computes in host memory, it has no effect.

    A session on the tasks of a cluster takes only `allow_soft_placement`, `lossy_transfers`,
    `inter_op_parallelism_threads`, which each task keeps for its ops of a dynamic step, and
    `operation_timeout_in_ms`, which there limits all steps, as all may wait for another task; it warns of
    others. A task has a limit of its own in the config of its `tb.train.Server`, for all its sessions.
    Replicas of a session take `recompute` and `swap`, but for `auto`.
    """

    allow_soft_placement: Flag = False
    log_device_placement: Flag = False
    intra_op_parallelism_threads: Count = 0
    inter_op_parallelism_threads: Count = 0
    device_count: Mapped = field(default_factory=dict)
    gpu_options: AsGPUOptions = field(default_factory=GPUOptions)
    graph_options: AsGraphOptions = field(default_factory=GraphOptions)
    compiles_loops: Flag = True
    lossy_transfers: Flag = False
    operation_timeout_in_ms: Count = 0
    recompute: AsRecompute = NEVER
    swap: AsSwap = NEVER

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(slots=True)
class RunOptions:
    """TensorFlow 1's options of a run.

    trace_level: above 0, each op's times and costs are put into the run's RunMetadata, if one is given.
    output_partition_graphs: so are the graphs of the run's devices, with `_Send` and `_Recv` nodes.
    timeout_in_ms: milliseconds, without compilation, after which the run is given up; 0 for no limit.

    With either the ops of a planned step, and of each region of a dynamic one, run one by one on CPU
    devices. A report of allocations is part of every error for want of memory.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    trace_level: Count = 0
    timeout_in_ms: Count = 0
    report_tensor_allocations_upon_oom: Flag = False
    output_partition_graphs: Flag = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(slots=True)
class RunMetadata:
    """Facts about a run, filled in after it, as in TensorFlow 1.

    step_stats: the times of its ops by device, also of those on tasks of a cluster. cost_graph: the costs by
    op. partition_graphs: a GraphDef for each device, if RunOptions ask for them; of a dynamic step over tasks
    one for each task, as it runs it.
    """

    step_stats: StepStats = field(default_factory=StepStats)
    cost_graph: CostGraphDef = field(default_factory=CostGraphDef)
    partition_graphs: list[GraphDef] = field(default_factory=list)


AsRunMetadata: TypeAlias = Annotated[RunMetadata, instance(RunMetadata, expected="a tb.RunMetadata")]
AsConfig: TypeAlias = Annotated[ConfigProto, instance(ConfigProto, expected="a tb.ConfigProto")]


def check_run_options(options: RunOptions | None, run_metadata: RunMetadata | None) -> None:
    """Raises InvalidArgumentError for other objects."""
    if options is not None and not isinstance(options, RunOptions):
        raise refuse("run", "options", "a tb.RunOptions or None", options)
    if run_metadata is not None and not isinstance(run_metadata, RunMetadata):
        raise refuse("run", "run_metadata", "a tb.RunMetadata or None", run_metadata)


def joined_options(first: RunOptions | None, second: RunOptions) -> RunOptions:
    """The options of a run for which two sides gave some: the higher trace level, the longer time limit."""
    for options in (first, second):
        check_run_options(options, None)
    if first is None:
        return second
    names = [option.name for option in fields(RunOptions)]
    return RunOptions(**{name: max(getattr(first, name), getattr(second, name)) for name in names})


def warn_of_ignored(
    options: ConfigProto, taken: Collection[str] | None = None, kind: str | None = None
) -> None:
    """Warns of each option with a value that has no effect.

    taken: all options that the session knows. kind: of its device.
    """
    if taken is not None:
        default = ConfigProto()
        names = [option.name for option in fields(ConfigProto) if option.name not in taken]
        for name in names:
            if getattr(options, name) != getattr(default, name):
                warn_at_user_line(
                    f"ConfigProto: {name}={getattr(options, name)!r:.60} has no effect in a session on "
                    f"tasks; it takes {', '.join(taken)}"
                )
        return
    for name, instead in _INSTEAD.items():
        value = getattr(options, name)
        if value > 1:
            warn_at_user_line(f"ConfigProto: {name}={value!r:.60} has no effect; {instead}")
    if options.graph_options != GraphOptions():
        warn_at_user_line("ConfigProto: graph_options have no effect; every step is compiled and optimised")
    if kind is not None and options.swap not in (NEVER, AUTO) and not can_swap(kind):
        warn_at_user_line(f"ConfigProto: swap={options.swap!r}: {no_effect(kind)}")


def allowed_devices(options: ConfigProto) -> dict[str, Collection[int]]:
    """The numbers of the devices that a session may use, by kind, where options limit them.

    Raises InvalidArgumentError for numbers that are none.
    """
    allowed: dict[str, Collection[int]] = {}
    for kind, count in options.device_count.items():
        if not isinstance(kind, str) or not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(
                f'ConfigProto: device_count: expected counts by kind, as {{"CPU": 2}}, got '
                f"{options.device_count!r:.80}; correct it"
            )
        allowed[kind.upper()] = range(count)
    listed = options.gpu_options.visible_device_list
    if listed:
        try:
            numbers = {int(part) for part in listed.split(",")}
        except ValueError:
            raise InvalidArgumentError(
                f'GPUOptions: visible_device_list: expected numbers of GPUs, as "0,2", got {listed!r:.60}; '
                "correct it"
            ) from None
        counted = allowed.get("GPU")
        allowed["GPU"] = numbers if counted is None else numbers.intersection(counted)
    return allowed
