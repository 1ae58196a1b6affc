"""Exceptions from the op contract, each with its reason. Keep them short: an op belongs in samples first."""

from __future__ import annotations

# Ops without any sample.
STRUCTURAL = {
    "Const": "its kernel-less value is part of the plan; tested with the graph",
    "Placeholder": "fed by the caller: computes nothing",
    "NoOp": "has neither inputs nor outputs",
    "Variable": "stands for its storage: computes nothing",
    **dict.fromkeys(
        ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"),
        "control flow, which the executor plays: tests/executor",
    ),
    **dict.fromkeys(("StackPush", "StackPop"), "values kept for a loop's gradient: tests/executor"),
    **dict.fromkeys(
        (
            *("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue", "LimitEpochs"),
            *("QueueEnqueue", "QueueEnqueueMany", "QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo"),
            *("QueueSize", "QueueIsClosed", "QueueClose", "QueuePeek", "QueueClear"),
            *("Mutex", "MutexLock", "MutexUnlock", "PyFunc", "PyFuncStateless"),
            *("ConditionalAccumulator", "SparseConditionalAccumulator", "AccumulatorSetGlobalStep"),
            *("AccumulatorApplyGradient", "AccumulatorNumAccumulated", "AccumulatorTakeGradient"),
            *("SparseAccumulatorApplyGradient", "SparseAccumulatorTakeGradient", "StagingArea"),
            *("Barrier", "BarrierClose", "BarrierInsertMany", "BarrierTakeMany"),
            *("BarrierIncompleteSize", "BarrierReadySize", "MapClear", "MapIncompleteSize", "MapPeek"),
            *("MapSize", "MapStage", "MapStagingArea", "MapUnstage", "MapUnstageNoKey"),
        ),
        "functions of the host: tests/queues",
    ),
    **dict.fromkeys(
        (
            f"TensorArray{name}V3"
            for name in ("", "Grad", "Write", "Read", "Gather", "Scatter", "Concat", "Split", "Size")
        ),
        "elements kept while a step runs: programs.py",
    ),
    **dict.fromkeys(
        ("DynamicPartition", "DynamicStitch", "ListDiff", "SparseOrder", "UniqueWithCounts", "Where"),
        "functions of the host: programs.py",
    ),
    "RequireAtMostOne": "a function of the host: programs.py",
    **dict.fromkeys(("CTCGreedyDecoder", "CTCBeamSearchDecoder"), "of the host: tests/ops/test_ctc.py"),
    "LearnedUnigramCandidateSampler": "a function of the host: tests/ops/test_candidate_sampling.py",
    **dict.fromkeys(
        ("ScalarSummary", "HistogramSummary", "ImageSummary", "TextSummary", "MergeSummary"),
        "made by the session of fetched values: no step computes it",
    ),
    "StepScalar": "read from the STATE region: computes nothing",
    "Call": "a function, which the compiler expands: tests/test_functions.py",
}

# Ops that cannot take a zero-size input.
NEVER_EMPTY: dict[str, str] = {
    "Range": "takes scalars",
    "Fill": "takes a shape and a scalar",
    "RandomPermutation": "takes a shape",
    "ReplicaId": "takes nothing",
    **dict.fromkeys(("LogUniformCandidateSampler", "UniformCandidateSampler"), "takes nothing"),
    "FixedUnigramCandidateSampler": "needs a class",
}

# Ops whose outputs and inputs are small whatever they compute.
NEVER_LARGE: dict[str, str] = {
    "Orthonormal": "LAPACK makes both factors in memory of its own; run once, for initial values",
    "ReplicaId": "gives a scalar",
}

# Ops of whose inputs everything is known before they are made.
_FLAT = "made by the scheduler for flat vectors of known size"
ALWAYS_STATIC = {
    "SmaDifference": _FLAT,
    "SmaCorrect": _FLAT,
    "SmaMove": _FLAT,
    "OuterStep": _FLAT,
    "Truncate16": _FLAT,
    "SmaFollow": _FLAT,
    "SmaClear": _FLAT,
    "GradientCheck": _FLAT,
    "GradientMean": _FLAT,
    "GradientSpoil": _FLAT,
}

# Ops that raise an error for NaN or infinity.
RAISES_FOR_NAN = {
    "CheckNumerics": "that is what it is for",
    "FixedUnigramCandidateSampler": "draws by weights have to end",
}
