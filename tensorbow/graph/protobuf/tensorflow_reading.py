"""Nodes that TensorFlow wrote, as this library has them: constant inputs become attributes.

The reverse of `tensorflow_forms`, for GraphDefs of other writers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import Array

Read: TypeAlias = tuple[str, list[str], dict[str, Any]]  # op, inputs without control inputs, attributes


class Foreign:
    """A node of TensorFlow. constant: gives the value of a Const by its tensor's name, or None."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[str],
        attr: Callable[[str, Any], Any],
        constant: Callable[[str], Array | None],
    ):
        self.op = op
        self.input = list(inputs)
        self.attr = attr
        self._constant = constant

    def value(self, index: int) -> Array:
        """The value of an input. Raises InvalidArgumentError if it is no constant."""
        if not -len(self.input) <= index < len(self.input):
            raise InvalidArgumentError(f"it has {len(self.input)} inputs, which are too few")
        found = self._constant(self.input[index])
        if found is None:
            raise InvalidArgumentError(
                f"its input {index % len(self.input)} ({self.input[index][:80]!r}) has to be a constant here"
            )
        return found

    def number(self, index: int) -> int:
        """The value of an input that is one whole number."""
        value = self.value(index)
        if value.size != 1 or value.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"its input {index} is {value.dtype}{list(value.shape)}, expected a number"
            )
        return int(value.reshape(()))

    def numbers(self, index: int) -> tuple[int, ...]:
        """The value of an input that is a list of whole numbers."""
        return tuple(int(item) for item in self.value(index).reshape(-1))


Rule = Callable[[Foreign], Read]


def _same(op: str, **attrs: str) -> Rule:
    """The same inputs; attrs: ours by name, TensorFlow's names of them."""

    def read(node: Foreign) -> Read:
        found = {mine: node.attr(theirs, None) for mine, theirs in attrs.items()}
        return op, node.input, {key: value for key, value in found.items() if value is not None}

    return read


def _reduction(node: Foreign) -> Read:
    return node.op, node.input[:1], {"axis": node.numbers(1), "keepdims": bool(node.attr("keep_dims", False))}


def _axis_last(op: str, **attrs: str) -> Rule:
    def read(node: Foreign) -> Read:
        found = {mine: node.attr(theirs, None) for mine, theirs in attrs.items()}
        given = {key: value for key, value in found.items() if value is not None}
        return op, node.input[:-1], {"axis": node.number(-1), **given}

    return read


def _strided(node: Foreign, place: int) -> tuple[Any, ...]:
    begin, end, strides = (node.numbers(place + each) for each in range(3))
    masks = {
        key: int(node.attr(f"{key}_mask", 0))
        for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    index: list[Any] = []
    for number, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        has = {key: bool(mask >> number & 1) for key, mask in masks.items()}
        if has["ellipsis"]:
            index.append("...")
        elif has["new_axis"]:
            index.append("new")
        elif has["shrink_axis"]:
            index.append(first)
        else:
            index.append(
                (None if has["begin"] else first, None if has["end"] else last, None if step == 1 else step)
            )
    return tuple(index)


def _strided_slice(node: Foreign) -> Read:
    return "StridedSlice", node.input[:1], {"index": _strided(node, 1)}


def _strided_slice_grad(node: Foreign) -> Read:
    return "StridedSliceGrad", [node.input[4], node.input[0]], {"index": _strided(node, 1)}


def _split(node: Foreign) -> Read:
    return "Split", node.input[1:], {"num_split": node.attr("num_split", 1), "axis": node.number(0)}


def _split_v(node: Foreign) -> Read:
    sizes = node.numbers(1)
    return "Split", node.input[:1], {"num_split": len(sizes), "size_splits": sizes, "axis": node.number(2)}


def _one_hot(node: Foreign) -> Read:
    on, off = node.value(2), node.value(3)
    attrs = {"depth": node.number(1), "axis": node.attr("axis", -1), "dtype": node.attr("T", None)}
    return "OneHot", node.input[:1], {**attrs, "on_value": on.item(), "off_value": off.item()}


def _pad(node: Foreign) -> Read:
    value = {"constant_values": node.value(2).item()} if node.op == "PadV2" else {}
    return "Pad", node.input[:2], value


def _gather(node: Foreign) -> Read:
    if node.attr("batch_dims", 0):
        raise InvalidArgumentError("attribute batch_dims is not supported")
    return "GatherV2", node.input[:2], {"axis": node.number(2) if node.op == "GatherV2" else 0}


def _update(op: str, order: Sequence[int], nesterov: bool = False) -> Rule:
    """order: of our inputs among TensorFlow's."""

    def read(node: Foreign) -> Read:
        if len(node.input) != len(order):
            raise InvalidArgumentError(f"expected {len(order)} inputs, got {len(node.input)}")
        attrs = {"use_nesterov": bool(node.attr("use_nesterov", False))} if nesterov else {}
        return op, [node.input[index] for index in order], attrs

    return read


def _ftrl(node: Foreign) -> Read:
    expected = 8 + (node.op == "ApplyFtrlV2")
    if len(node.input) != expected:
        raise InvalidArgumentError(f"expected {expected} inputs, got {len(node.input)}")
    power, *shrinkage = (float(node.value(index).reshape(())) for index in range(expected - 1, 6, -1))
    attrs = {"learning_rate_power": power, "l2_shrinkage": shrinkage[0] if shrinkage else 0.0}
    return "ApplyFtrl", node.input[:7], attrs


def _batch_norm(node: Foreign) -> Read:
    attrs = {
        "epsilon": float(node.attr("epsilon", 1e-4)),
        "is_training": bool(node.attr("is_training", True)),
    }
    inputs = node.input
    if attrs["is_training"] and len(inputs) == 5:  # the last two are empty, and are not read
        inputs = [*inputs[:3], inputs[1], inputs[1]]
    return "FusedBatchNorm", inputs, attrs


def _elements(op: str, shape: str = "") -> Rule:
    def read(node: Foreign) -> Read:
        dims = node.attr(shape, None) if shape else None
        known = dims if dims is None or "except" not in shape else (None, *dims)
        return op, node.input, {"dtype": node.attr("dtype", None), "shape": known}

    return read


def _array(node: Foreign) -> Read:
    attrs = {"dtype": node.attr("dtype", None), "shape": node.attr("element_shape", None)}
    return "TensorArrayV3", node.input, {**attrs, "dynamic_size": bool(node.attr("dynamic_size", False))}


READERS: Mapping[str, Rule] = {
    **{op: _same(op) for op in ("BroadcastTo", "Cholesky", "Conj", "Exp", "IsNan", "MatrixDeterminant",
                                "MatrixDiag", "MatrixDiagPart", "ScatterAdd", "ScatterSub", "ScatterUpdate",
                                "Slice", "Tile", "Where")},
    **dict.fromkeys(("All", "Any", "Max", "Mean", "Min", "Prod", "Sum"), _reduction),
    **{op: _axis_last(op, output_type="output_type") for op in ("ArgMax", "ArgMin")},
    **{op: _axis_last(op, exclusive="exclusive", reverse="reverse") for op in ("Cumprod", "Cumsum")},
    **{op: _same(op, adjoint="adjoint") for op in ("MatrixInverse", "MatrixSolve")},
    **{op: _same(op, out_idx="out_idx") for op in ("ListDiff", "UniqueWithCounts")},
    "ApplyAdagrad": _update("ApplyAdagrad", (0, 1, 3, 2)),
    "ApplyAdadelta": _update("ApplyAdadelta", (0, 1, 2, 6, 3, 4, 5)),
    "ApplyAdam": _update("ApplyAdam", (0, 1, 2, 9, 3, 4, 5, 6, 7, 8)),
    **dict.fromkeys(("ApplyFtrl", "ApplyFtrlV2"), _ftrl),
    "ApplyGradientDescent": _update("ApplyGradientDescent", (0, 2, 1)),
    "ApplyMomentum": _update("ApplyMomentum", (0, 1, 3, 2, 4), nesterov=True),
    "ApplyProximalAdagrad": _update("ApplyProximalAdagrad", (0, 1, 5, 2, 3, 4)),
    "ApplyProximalGradientDescent": _update("ApplyProximalGradientDescent", (0, 4, 1, 2, 3)),
    "ApplyRMSProp": _update("ApplyRMSProp", (0, 1, 2, 7, 3, 4, 5, 6)),
    "CheckNumerics": _same("CheckNumerics", message="message"),
    "ConcatV2": _axis_last("ConcatV2"),
    "ExpandDims": _axis_last("ExpandDims"),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch_norm),
    **dict.fromkeys(("Gather", "GatherV2"), _gather),
    "MatrixTriangularSolve": _same("MatrixTriangularSolve", lower="lower", adjoint="adjoint"),
    "OneHot": _one_hot,
    **dict.fromkeys(("Pad", "PadV2"), _pad),
    "Qr": _same("Qr", full_matrices="full_matrices"),
    "ReverseV2": lambda node: ("ReverseV2", node.input[:1], {"axis": node.numbers(1)}),
    "Split": _split,
    "SplitV": _split_v,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "TopKV2": lambda node: ("TopKV2", node.input[:1],
                            {"k": node.number(1), "sorted": bool(node.attr("sorted", True))}),
    "Transpose": lambda node: ("Transpose", node.input[:1], {"perm": node.numbers(1)}),
    "TensorArrayV3": _array,
    "TensorArrayConcatV3": _elements("TensorArrayConcatV3", "element_shape_except0"),
    "TensorArrayGatherV3": _elements("TensorArrayGatherV3", "element_shape"),
    "TensorArrayGradV3": _same("TensorArrayGradV3", gradient_call="source"),
    "TensorArrayReadV3": _elements("TensorArrayReadV3"),
    **{op: _same(op) for op in ("TensorArrayScatterV3", "TensorArraySizeV3", "TensorArraySplitV3",
                                "TensorArrayWriteV3")},
}  # fmt: skip
