"""Names that TensorFlow gives the outputs of ops, as FunctionDefs use them."""

from __future__ import annotations

from collections.abc import Mapping

_ONE_OUTPUT = {
    "activations": "Elu LeakyRelu Relu Softplus",
    "backprops": "EluGrad LeakyReluGrad ReluGrad",
    "components": "QueueDequeueV2 QueueDequeueManyV2 QueueDequeueUpToV2",
    "diagonal": "MatrixDiagPart",
    "flow_out": "TensorArrayScatterV3 TensorArraySplitV3 TensorArrayWriteV3",
    "handle": "FIFOQueueV2 PaddingFIFOQueueV2 RandomShuffleQueueV2",
    "index": "Where",
    "is_closed": "QueueIsClosedV2",
    "logsoftmax": "LogSoftmax",
    "out": "ApplyAdadelta ApplyAdagrad ApplyAdam ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum "
    "ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp Complex Cumprod Cumsum",
    "output_ref": "Assign AssignAdd AssignSub ScatterAdd ScatterSub ScatterUpdate",
    "product": "MatMul",
    "ref": "VariableV2",
    "size": "QueueSizeV2 TensorArraySizeV3",
    "softmax": "Softmax",
    "value": "TensorArrayGatherV3 TensorArrayReadV3",
    "y": "Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil ComplexAbs Cos Cosh Erf Erfc Exp Expm1 Floor "
    "Invert IsFinite IsNan Lgamma Log Log1p LogicalNot Neg Reciprocal Round Rsqrt Sigmoid Sign Sin Sinh Sqrt "
    "Square Tan Tanh Transpose",
    "z": "Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Equal FloorDiv FloorMod Greater GreaterEqual "
    "LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mul NotEqual Pow RealDiv RightShift "
    "SigmoidGrad Sub TanhGrad",
}
_SEVERAL_OUTPUTS = {
    "BroadcastGradientArgs": ("r0", "r1"),
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormGrad": (
        *("x_backprop", "scale_backprop", "offset_backprop", "reserve_space_3", "reserve_space_4"),
    ),
    "ListDiff": ("out", "idx"),
    "Merge": ("output", "value_index"),
    "Qr": ("q", "r"),
    **dict.fromkeys(
        ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"), ("loss", "backprop")
    ),
    "Switch": ("output_false", "output_true"),
    "TensorArrayConcatV3": ("value", "lengths"),
    "TensorArrayGradV3": ("grad_handle", "flow_out"),
    "TensorArrayV3": ("handle", "flow"),
    "TopKV2": ("values", "indices"),
    "UniqueWithCounts": ("y", "idx", "count"),
}
OUTPUTS: Mapping[str, str | tuple[str, ...]] = {
    **{op: name for name, ops in _ONE_OUTPUT.items() for op in ops.split()},
    **_SEVERAL_OUTPUTS,
}


def output_argument(op: str, index: int) -> tuple[str, int]:
    """The name that TensorFlow gives an op's output, and its index among those of that name."""
    names = OUTPUTS.get(op, "output")
    if isinstance(names, tuple):
        return (names[index], 0) if index < len(names) else ("output", index)
    return names, index


def output_index(op: str, argument: str, place: int) -> int:
    """The reverse of `output_argument`."""
    names = OUTPUTS.get(op, "output")
    return names.index(argument) if isinstance(names, tuple) and argument in names else place
