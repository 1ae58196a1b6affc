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
            *("DeleteSessionTensor", "GetSessionHandleV2", "GetSessionTensor", "SessionHandle"),
            *("MapSize", "MapStage", "MapStagingArea", "MapUnstage", "MapUnstageNoKey"),
        ),
        "functions of the host: tests/queues",
    ),
    **dict.fromkeys(
        (
            *("HashTableV2", "MutableHashTableV2", "InitializeTableV2", "InitializeTableFromTextFileV2"),
            *(f"LookupTable{name}V2" for name in ("Export", "Find", "Insert", "Remove", "Size")),
        ),
        "tables of a session: tests/lookup",
    ),
    **dict.fromkeys(
        (
            *("HostVariable", "ReadHostVariable", "AssignHostVariable", "AssignAddHostVariable"),
            *("AssignSubHostVariable", "HostVariableIsInitialized"),
        ),
        "functions of the host: tests/test_host_variables.py",
    ),
    "IsVariableInitialized": "tells of a session's variables: tests/training/test_scaffold.py",
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
    **dict.fromkeys(
        (
            *("AsString", "DecodeBase64", "EncodeBase64", "ReduceJoin", "RegexFullMatch", "RegexReplace"),
            *("StringJoin", "StringLength", "StringLower", "StringSplit", "StringStrip", "StringUpper"),
            *("StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong"),
            *("CrossedBuckets", "SparseCross", "StringToNumber", "Substr", "UnpackStrings"),
            *("UnicodeDecode", "UnicodeEncode", "UnicodeTranscode"),
        ),
        "functions of the host: tests/string_ops",
    ),
    **dict.fromkeys(
        (
            *(
                "DecodeBmp",
                "DecodeCompressed",
                "DecodeCSV",
                "DecodeGif",
                "DecodeIdx",
                "DecodeImage",
                "DecodeJpeg",
                "DecodePng",
            ),
            *(
                "DecodeRaw",
                "ExtractJpegShape",
                "EncodeJpeg",
                "EncodePng",
                "MatchingFiles",
                "MatchingFilesOnce",
                "ParseTensor",
            ),
            *("ParseExample", "ParseSingleSequenceExample", "ReadFile", "SerializeTensor", "WriteFile"),
            *("DeserializeManySparse", "SerializeManySparse", "SerializeSparse"),
        ),
        "functions of the host: tests/input_ops",
    ),
    **dict.fromkeys(
        (
            *("FixedLengthRecordReader", "IdentityReader", "TFRecordReader", "TextLineReader"),
            *("ReaderNumRecordsProduced", "ReaderNumWorkUnitsCompleted", "ReaderRead", "ReaderReadUpTo"),
            *("ReaderReset", "WholeFileReader"),
        ),
        "functions of the host: tests/readers",
    ),
    **dict.fromkeys(
        ("RestoreV2", "SaveV2", "ShardedFilename", "MergeV2Checkpoints"),
        "functions of the host: tests/checkpoint_files",
    ),
    **dict.fromkeys(("SendToTask", "ReceiveFromTask"), "functions of the host: tests/cluster"),
    "PrintStrings": "a function of the host: tests/executor/test_strings.py",
    "RequireAtMostOne": "a function of the host: programs.py",
    **dict.fromkeys(("CTCGreedyDecoder", "CTCBeamSearchDecoder"), "of the host: tests/ops/test_ctc.py"),
    **dict.fromkeys(
        ("SparseToSparseSetOperation", "SetSize", "EditDistance"),
        "functions of the host: tests/executor/test_sparse_functions.py",
    ),
    **dict.fromkeys(
        ("OneHotOfData", "TopKOfData"), "functions of the host: tests/executor/test_data_dependent_shapes.py"
    ),
    **dict.fromkeys(
        ("ImageWindow", "ImageWindowGrad", "ResizeImages", "ResizeImagesGrad"),
        "functions of the host: tests/ops/test_ops_images.py",
    ),
    **{
        f"NonMaxSuppression{name}": "a function of the host: tests/ops/test_ops_image_boxes.py"
        for name in ("V3", "WithOverlaps", "WithScores")
    },
    "LearnedUnigramCandidateSampler": "a function of the host: tests/ops/test_candidate_sampling.py",
    **dict.fromkeys(
        (
            "AudioSummary",
            "TensorSummary",
            "ScalarSummary",
            "HistogramSummary",
            "ImageSummary",
            "TextSummary",
            "StringSummary",
            "MergeSummary",
        ),
        "made by the session of fetched values: no step computes it",
    ),
    "StepScalar": "read from the STATE region: computes nothing",
    "Call": "a function, which the compiler expands: tests/test_functions.py",
}

# Ops that cannot take a zero-size input.
NEVER_EMPTY: dict[str, str] = {
    **dict.fromkeys(("AtMost", "CheckBelow", "Range"), "takes scalars"),
    "Fill": "takes a shape and a scalar",
    "RandomPermutation": "takes a shape",
    "ReplicaId": "takes nothing",
    **dict.fromkeys(("LogUniformCandidateSampler", "UniformCandidateSampler"), "takes nothing"),
    "FixedUnigramCandidateSampler": "needs a class",
}

# Ops whose outputs and inputs are small whatever they compute.
NEVER_LARGE: dict[str, str] = {
    **dict.fromkeys(("AtMost", "CheckBelow"), "takes scalars"),
    "BroadcastArgs": "takes shapes, of at most 32 extents",
    **dict.fromkeys(("AxisOrder", "InverseOrder", "JoinedExtents"), "takes axes, of at most 32"),
    "Orthonormal": "LAPACK makes both factors in memory of its own; run once, for initial values",
    "ReplicaId": "gives a scalar",
    "SampleDistortedBoundingBoxV2": "gives a box",
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

# Ops whose gradient is not the slope of their results.
DIFFERENTIATED_ELSEWHERE = {"RandomGamma": "draws by rejection: tests/ops/test_random_distributions.py"}

# Ops that raise an error for NaN or infinity.
RAISES_FOR_NAN = {
    "CheckNumerics": "that is what it is for",
    "FixedUnigramCandidateSampler": "draws by weights have to end",
    "MatrixLogarithm": "an eigenvalue is 0 beside one of 3e38",
}
