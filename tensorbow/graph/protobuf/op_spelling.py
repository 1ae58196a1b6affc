"""Names of ops and attributes in messages: TensorFlow's where they mean the same, and this library's own."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "TensorBow>"  # of ops that TensorFlow does not have, or has with another meaning
EXACT, SHAPES, TYPES, LINE, CLASS = "_tensorbow", "_output_shapes", "_output_types", "_source", "_class"
CONTEXT = "_context"
OWN_SHAPES = "_tensorbow_shapes"  # of outputs, where TensorFlow has others
PART = "_tensorbow_part"  # the node beside which a node stands, which this library does not have
OWN = frozenset((EXACT, SHAPES, TYPES, LINE, CLASS, CONTEXT, PART, OWN_SHAPES))

# Attributes that TensorFlow's op has and this library derives: "0", "1": dtype of that input, "out": of the
# first output, "count": number of inputs; another text is the value.
_T, _OUT, _NHWC = {"T": "0"}, {"T": "out"}, {"T": "0", "data_format": "NHWC"}
DERIVED: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(
        ("Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Assign", "AssignAdd", "AssignSub", "Atan", "Atan2",
         "Atanh", "BatchMatMulV2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BroadcastArgs", "Ceil", "Cos",
         "Cosh", "Elu", "EluGrad", "EnsureShape", "Enter", "Equal", "Erf", "Erfc", "Exit", "Expm1", "Floor",
         "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Identity", "Invert", "IsFinite", "L2Loss",
         "LeakyRelu", "LeakyReluGrad", "LeftShift", "Less", "LessEqual", "Lgamma", "Log", "Log1p",
         "LogSoftmax", "MatMul", "Maximum", "Minimum", "Mul", "Neg", "NextIteration", "NotEqual", "Pow",
         "Rank", "RealDiv", "Reciprocal", "Relu", "ReluGrad", "RightShift", "Round", "Rsqrt", "Sigmoid",
         "SigmoidGrad", "Sign", "Sin", "Sinh", "Softmax", "SoftmaxCrossEntropyWithLogits", "Softplus",
         "Sqrt", "Square", "Squeeze", "Sub", "Switch", "Tan", "Tanh", "TanhGrad"),
        _T,
    ),
    **dict.fromkeys(("AvgPool", "BiasAdd", "BiasAddGrad", "Conv2D", "DepthwiseConv2dNative", "MaxPool",
                     "MaxPoolGrad"), _NHWC),
    **dict.fromkeys(("RandomStandardNormal", "RandomUniform", "Shape", "Size", "TruncatedNormal"), _T),
    **{key: {} for key in ("LogicalAnd", "LogicalNot", "LogicalOr", "LoopCond", "NoOp", "Placeholder")},
    "Cast": {"SrcT": "0", "DstT": "out"},
    "Const": {"dtype": "out"},
    "Conv2DBackpropFilter": _NHWC,
    "Conv2DBackpropInput": {"T": "out", "data_format": "NHWC"},
    "Fill": {"T": "1", "index_type": "0"},
    "Merge": {"T": "0", "N": "count"},
    "PlaceholderWithDefault": {"dtype": "out"},
    "Range": {"Tidx": "out"},
    "ReadVariable": _OUT,
    "Reshape": {"T": "0", "Tshape": "1"},
    "Select": _OUT,
    "SparseSoftmaxCrossEntropyWithLogits": {"T": "0", "Tlabels": "1"},
    "StopGradient": _T,
    "Variable": {"shared_name": ""},
}  # fmt: skip
SPELLED = {"Variable": "VariableV2", "ReadVariable": "Identity"}  # ops whose name in TensorFlow is another
RENAMED = {"Squeeze": {"axis": "squeeze_dims"}, "Cast": {"dtype": "DstT"}}  # attributes likewise
SAME = {
    "VariableV2": "Variable",
    "Variable": "Variable",
    "AddV2": "Add",
    "SelectV2": "Select",
}  # TensorFlow's ops, by this library's
IGNORED = frozenset(  # attributes of TensorFlow's ops that change nothing here
    ("T", "Tidx", "Tshape", "SrcT", "Tlabels", "N", "index_type", "use_cudnn_on_gpu", "Truncate",
     "validate_shape", "use_locking", "incompatible_shape_error", "grad_a", "grad_b", "explicit_paddings")
)  # fmt: skip
CALLING = ("PartitionedCall", "StatefulPartitionedCall")  # ops that call the function in the attribute f
HIDDEN = {  # attributes that TensorFlow's op does not have
    "Enter": ("shape",),
    "Switch": ("enters",),
    "Variable": ("combine", "decayed", "role", "slot_name", "slot_of", "slot_value"),
}
DEFAULT_ONLY = {"data_format": b"NHWC"}  # attributes of which one value only is supported
