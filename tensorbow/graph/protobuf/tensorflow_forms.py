"""Nodes as TensorFlow's op definitions have them, where these differ from this library's ops.

Axes and other attributes become constant inputs, optimisers' inputs have another order, TensorArrays and
queues have handles of type resource. A node that TensorFlow has no op for has no form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbow.specs import Array, DType, TensorSpec, as_dtype, compatible


@dataclass
class Resource:
    """The type DT_RESOURCE, of handles, in the place of a dtype."""


RESOURCE = Resource()
SIGNED = ("int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")  # of Pow
OTHER_OUTPUTS = ("FusedBatchNormGrad", "Merge")  # ops that have more outputs there


@dataclass
class Form:
    """A node of TensorFlow. parts: nodes that it needs beside it, before it, by the end of their names."""

    op: str
    input: list[str]
    attr: dict[str, Any] = field(default_factory=dict)  # shapes as `ShapeOf`, types as DType or RESOURCE
    parts: list[FormPart] = field(default_factory=list)


@dataclass
class FormPart:
    """A node beside a form, named `node/suffix`; value: of a Const."""

    suffix: str
    op: str
    input: list[str] = field(default_factory=list)
    attr: dict[str, Any] = field(default_factory=dict)
    value: Array | None = None


@dataclass
class ShapeOf:
    """An attribute that is a shape; None: of unknown rank."""

    dims: tuple[int | None, ...] | None


class FormSource:
    """A node that is to have a form, and what is known of its inputs."""

    def __init__(self, node: Any, nodes: Mapping[str, Any], resources: set[str]):
        """nodes: all of the graph by name. resources: tensors that are handles, by name."""
        self.node = node
        self.attr: Mapping[str, Any] = node.attr
        self.input = [item for item in node.input if not item.startswith("^")]
        self._nodes, self._resources = nodes, resources

    def producer(self, index: int) -> Any:
        """The node that makes an input, or None."""
        return self._nodes.get(self.input[index].rpartition(":")[0])

    def spec(self, index: int) -> TensorSpec | None:
        """The graph's word on an input; None for a part of a graph."""
        producer = self.producer(index) if index < len(self.input) else None
        output = int(self.input[index].rpartition(":")[2]) if producer is not None else 0
        return producer.output[output] if producer is not None and output < len(producer.output) else None

    def type(self, index: int) -> Any:
        """The type of an input: a dtype, RESOURCE, or None if it is not known."""
        if index < len(self.input) and self.input[index] in self._resources:
            return RESOURCE
        spec = self.spec(index)
        return None if spec is None else spec.dtype

    def rank(self, index: int) -> int | None:
        """The rank of an input, where it is known."""
        spec = self.spec(index)
        return None if spec is None or spec.shape is None else len(spec.shape)

    @property
    def makes_handles(self) -> bool:
        """True if an output is a handle."""
        return any(f"{self.node.name}:{index}" in self._resources for index in range(len(self.node.output)))

    @property
    def out(self) -> DType | None:
        """The dtype of the first output."""
        return self.node.output[0].dtype if self.node.output else None

    def part(self, suffix: str) -> str:
        """The tensor of a part."""
        return f"{self.node.name}/{suffix}:0"


Rule = Callable[[FormSource], "Form | None"]


def _int32(suffix: str, value: Any) -> FormPart:
    return FormPart(suffix, "Const", value=np.asarray(value, np.int32))


def _unary(op: str, attr: Mapping[str, str] | None = None) -> Rule:
    """Form with the same inputs. attr: by TensorFlow's name "0", "1" (an input's type), "out", or ours."""

    def form(source: FormSource) -> Form:
        return Form(op, source.input, _attrs(source, {"T": "0"} if attr is None else attr))

    return form


def _attrs(source: FormSource, names: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, what in names.items():
        value = (
            source.type(int(what)) if what.isdecimal() else source.out if what == "out" else source.attr[what]
        )
        if value is not None:
            found[name] = value
    return found


def _reduction(op: str, typed: bool = True) -> Rule:
    def form(source: FormSource) -> Form | None:
        axis, rank = source.attr["axis"], source.rank(0)
        if axis is None and rank is None:
            return None
        axes = list(range(rank or 0)) if axis is None else list(np.atleast_1d(axis))
        attr = {"keep_dims": bool(source.attr["keepdims"]), **(_attrs(source, {"T": "0"}) if typed else {})}
        return Form(op, [*source.input, source.part("axis")], attr, [_int32("axis", axes)])

    return form


def _with_axis(op: str, suffix: str, names: Mapping[str, str]) -> Rule:
    """The attribute `axis` as the last input."""

    def form(source: FormSource) -> Form:
        axis = source.part(suffix)
        return Form(op, [*source.input, axis], _attrs(source, names), [_int32(suffix, source.attr["axis"])])

    return form


def _gather(source: FormSource) -> Form | None:
    indices, axis = source.type(1), _int32("axis", source.attr["axis"])
    if isinstance(indices, DType) and indices.name not in ("int16", "int32", "int64"):
        return None
    if source.attr.get("allow_unused"):
        return None
    attr = {**_attrs(source, {"Tparams": "0", "Tindices": "1"}), "Taxis": as_dtype("int32")}
    return Form("GatherV2", [*source.input, source.part("axis")], attr, [axis])


def _concat(source: FormSource) -> Form:
    if len(source.input) == 1:
        return Form("Identity", source.input, _attrs(source, {"T": "0"}))
    attr = {"N": len(source.input), **_attrs(source, {"T": "0"})}
    axis = _int32("axis", source.attr["axis"])
    return Form("ConcatV2", [*source.input, source.part("axis")], attr, [axis])


def _transpose(source: FormSource) -> Form | None:
    perm, rank = source.attr["perm"], source.rank(0)
    if perm is None and rank is None:
        return None
    order = list(range(rank or 0))[::-1] if perm is None else perm
    inputs = [source.input[0], source.part("perm")]
    return Form("Transpose", inputs, _attrs(source, {"T": "0"}), [_int32("perm", order)])


def _index(source: FormSource) -> tuple[list[FormPart], dict[str, int]]:
    """Begin, end and strides of an index, and the masks."""
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for place, item in enumerate(source.attr["index"]):
        bit, first, last, step = 1 << place, 0, 0, 1
        if item == "...":
            masks["ellipsis_mask"] |= bit
        elif item == "new":
            masks["new_axis_mask"] |= bit
        elif isinstance(item, tuple):
            step = 1 if item[2] is None else item[2]
            first, last = (item[0] or 0), (item[1] or 0)
            masks["begin_mask"] |= bit if item[0] is None else 0
            masks["end_mask"] |= bit if item[1] is None else 0
        else:
            first, last = item, item + 1
            masks["shrink_axis_mask"] |= bit
        begin.append(first)
        end.append(last)
        strides.append(step)
    parts = [_int32("begin", begin), _int32("end", end), _int32("strides", strides)]
    return parts, {name: mask for name, mask in masks.items() if mask}


def _strided_slice(source: FormSource) -> Form:
    parts, masks = _index(source)
    inputs = [source.input[0], *(source.part(part.suffix) for part in parts)]
    attr = {**_attrs(source, {"T": "0"}), "Index": as_dtype("int32"), **masks}
    return Form("StridedSlice", inputs, attr, parts)


def _strided_slice_grad(source: FormSource) -> Form | None:
    if source.type(1) != as_dtype("int32"):
        return None
    parts, masks = _index(source)
    inputs = [source.input[1], *(source.part(part.suffix) for part in parts), source.input[0]]
    attr = {**_attrs(source, {"T": "0"}), "Index": as_dtype("int32"), **masks}
    return Form("StridedSliceGrad", inputs, attr, parts)


def _pad(source: FormSource) -> Form | None:
    attr, value = _attrs(source, {"T": "0", "Tpaddings": "1"}), source.attr["constant_values"]
    if not value:
        return Form("Pad", source.input, attr)
    if source.out is None:
        return None
    constant = FormPart("value", "Const", value=np.asarray(value, source.out.as_numpy_dtype))
    return Form("PadV2", [*source.input, source.part("value")], attr, [constant])


def _split(source: FormSource) -> Form:
    attr = {"num_split": source.attr["num_split"], **_attrs(source, {"T": "0"})}
    axis, sizes = _int32("axis", source.attr["axis"]), source.attr["size_splits"]
    if sizes is None:
        return Form("Split", [source.part("axis"), source.input[0]], attr, [axis])
    inputs = [source.input[0], source.part("sizes"), source.part("axis")]
    return Form("SplitV", inputs, {**attr, "Tlen": as_dtype("int32")}, [_int32("sizes", sizes), axis])


def _one_hot(source: FormSource) -> Form:
    dtype: DType = source.attr["dtype"]
    parts = [_int32("depth", source.attr["depth"])]
    for name in ("on_value", "off_value"):
        parts.append(FormPart(name, "Const", value=np.asarray(source.attr[name], dtype.as_numpy_dtype)))
    inputs = [source.input[0], *(source.part(part.suffix) for part in parts)]
    return Form(
        "OneHot", inputs, {"axis": source.attr["axis"], "T": dtype, **_attrs(source, {"TI": "0"})}, parts
    )


def _top_k(source: FormSource) -> Form:
    attr = {"sorted": source.attr["sorted"], **_attrs(source, {"T": "0"})}
    return Form("TopKV2", [source.input[0], source.part("k")], attr, [_int32("k", source.attr["k"])])


def _sum_to(source: FormSource) -> Form:
    """The sum over the axes along which the shape was broadcast to the input's."""
    types = _attrs(source, {"T": "0"})
    shape: dict[str, Any] = {"T": source.type(1) or as_dtype("int32")}
    parts = [
        FormPart("shape", "Shape", [source.input[0]], {**types, "out_type": shape["T"]}),
        FormPart("axes", "BroadcastGradientArgs", [source.input[1], source.part("shape")], shape),
        FormPart("sum", "Sum", [source.input[0], source.part("axes")], {**types, "Tidx": shape["T"]}),
    ]
    attr = {**types, "Tshape": shape["T"]}
    return Form("Reshape", [source.part("sum"), source.input[1]], attr, parts)


def _default(source: FormSource) -> Form:
    """A scalar that changes between steps: its default, unless it is fed."""
    dtype: DType = source.attr["dtype"]
    value = FormPart("default", "Const", value=np.asarray(source.attr["default"], dtype.as_numpy_dtype))
    attr = {"dtype": dtype, "shape": ShapeOf(())}
    return Form("PlaceholderWithDefault", [source.part("default")], attr, [value])


def _update(op: str, order: Sequence[int]) -> Rule:
    """An optimiser's update. order: of TensorFlow's inputs among ours."""

    def form(source: FormSource) -> Form | None:
        if source.attr.get("weight_decay"):
            return None
        attr: dict[str, Any] = _attrs(source, {"T": "0"})
        if source.attr.get("use_nesterov"):
            attr["use_nesterov"] = True
        return Form(op, [source.input[index] for index in order], attr)

    return form


def _ftrl(source: FormSource) -> Form | None:
    form, shrinkage = _update("ApplyFtrl", (0, 1, 2, 3, 4, 5, 6))(source), source.attr["l2_shrinkage"]
    if form is None or source.out is None:
        return None
    numbers = {"l2_shrinkage": shrinkage} if shrinkage else {}
    dtype = source.out.as_numpy_dtype
    for name, value in {**numbers, "lr_power": source.attr["learning_rate_power"]}.items():
        form.input.append(source.part(name))
        form.parts.append(FormPart(name, "Const", value=np.asarray(value, dtype)))
    form.op = "ApplyFtrlV2" if shrinkage else "ApplyFtrl"
    return form


def _batch_norm(source: FormSource) -> Form:
    names = {"T": "0", "epsilon": "epsilon", "is_training": "is_training"}
    attr = _attrs(source, names)
    if not source.attr["is_training"]:
        return Form("FusedBatchNorm", source.input, attr)
    empty = FormPart("nothing", "Const", value=np.zeros(0, np.float32))
    return Form("FusedBatchNorm", [*source.input[:3], *[source.part("nothing")] * 2], attr, [empty])


def _batch_norm_grad(source: FormSource) -> Form | None:
    forward = source.producer(4)
    if forward is None or forward.op != "FusedBatchNorm":
        return None
    attr = {**_attrs(source, {"T": "0"}), "epsilon": forward.attr["epsilon"]}
    return Form("FusedBatchNormGrad", source.input, {**attr, "is_training": source.attr["is_training"]})


def _first(op: str) -> Rule:
    """The first input alone."""
    return lambda source: Form(op, source.input[:1], _attrs(source, {"T": "0"}))


def _integer_power(source: FormSource) -> Form | None:
    kind = source.type(0)
    if not isinstance(kind, DType) or kind != source.type(1) or kind.name not in SIGNED:
        return None
    return Form("Pow", source.input, {"T": kind})


def _of_one_shape(op: str) -> Rule:
    """A gradient, which there does not broadcast."""

    def form(source: FormSource) -> Form | None:
        specs = [source.spec(0), source.spec(1)]
        if not all(specs) or not compatible(*(None if spec is None else spec.shape for spec in specs)):
            return None
        return Form(
            op, source.input, _attrs(source, {"T": "0", **({"alpha": "alpha"} if "Leaky" in op else {})})
        )

    return form


def _select(source: FormSource) -> Form:
    """Only SelectV2 broadcasts; older readers know Select alone."""
    shapes = [None if spec is None else spec.shape for spec in map(source.spec, range(3))]
    same = shapes[0] is not None and None not in shapes[0] and shapes[0] == shapes[1] == shapes[2]
    return Form("Select" if same else "SelectV2", source.input, _attrs(source, {"T": "out"}))


def _array(source: FormSource) -> Form:
    attr = {
        "dtype": source.attr["dtype"],
        "element_shape": ShapeOf(source.attr["shape"]),
        "dynamic_size": source.attr["dynamic_size"],
        "clear_after_read": False,
    }
    return Form("TensorArrayV3", source.input, attr)


def _elements(op: str, shape: str = "") -> Rule:
    def form(source: FormSource) -> Form | None:
        if op == "TensorArrayConcatV3" and len(source.input) > 2:
            return None
        dims = source.attr["shape"]
        known = ShapeOf(dims[1:] if dims and "except" in shape else dims)
        return Form(op, source.input, {"dtype": source.attr["dtype"], **({shape: known} if shape else {})})

    return form


def _queue(op: str) -> Rule:
    def form(source: FormSource) -> Form:
        attr = {
            "component_types": source.attr["component_types"],
            "shapes": tuple(map(ShapeOf, source.attr["shapes"])),
            "capacity": source.attr["capacity"],
            "container": source.attr["container"],
            "shared_name": source.attr["shared_name"],
        }
        for key in ("min_after_dequeue", "seed", "seed2"):
            if key in source.attr:
                attr[key] = source.attr[key] or 0
        return Form(op, [], attr)

    return form


def _queue_call(op: str, types: str = "") -> Rule:
    def form(source: FormSource) -> Form:
        attr = {types: source.attr["component_types"]} if types else {}
        if "cancel_pending_enqueues" in source.attr:
            attr["cancel_pending_enqueues"] = source.attr["cancel_pending_enqueues"]
        return Form(op, source.input, attr)

    return form


FORMS: Mapping[str, Rule] = {
    **{op: _unary(op) for op in ("Cholesky", "Conj", "Exp", "IsNan", "MatrixDeterminant", "MatrixDiag",
                                 "MatrixDiagPart")},
    **{op: _reduction(op) for op in ("Max", "Mean", "Min", "Prod", "Sum")},
    **{op: _reduction(op, typed=False) for op in ("All", "Any")},
    **{op: _with_axis(op, "dimension", {"T": "0", "output_type": "output_type"})
       for op in ("ArgMax", "ArgMin")},
    **{op: _with_axis(op, "axis", {"T": "0", "exclusive": "exclusive", "reverse": "reverse"})
       for op in ("Cumprod", "Cumsum")},
    "ApplyAdagrad": _update("ApplyAdagrad", (0, 1, 3, 2)),
    "ApplyAdadelta": _update("ApplyAdadelta", (0, 1, 2, 4, 5, 6, 3)),
    "ApplyAdam": _update("ApplyAdam", (0, 1, 2, 4, 5, 6, 7, 8, 9, 3)),
    "ApplyFtrl": _ftrl,
    "ApplyGradientDescent": _update("ApplyGradientDescent", (0, 2, 1)),
    "ApplyMomentum": _update("ApplyMomentum", (0, 1, 3, 2, 4)),
    "ApplyProximalAdagrad": _update("ApplyProximalAdagrad", (0, 1, 3, 4, 5, 2)),
    "ApplyProximalGradientDescent": _update("ApplyProximalGradientDescent", (0, 2, 3, 4, 1)),
    "ApplyRMSProp": _update("ApplyRMSProp", (0, 1, 2, 4, 5, 6, 7, 3)),
    "AvgPoolGrad": _unary("AvgPoolGrad", {"T": "1", **{k: k for k in ("ksize", "strides", "padding")}}),
    "BroadcastTo": _unary("BroadcastTo", {"T": "0", "Tidx": "1"}),
    "CheckNumerics": _unary("CheckNumerics", {"T": "0", "message": "message"}),
    "Complex": _unary("Complex", {"T": "0", "Tout": "out"}),
    **{op: _unary(op, {"T": "0", "Tout": "out"}) for op in ("Angle", "ComplexAbs", "Imag", "Real")},
    "ConcatV2": _concat,
    "Copy": _first("Identity"),
    "CustomGradient": _first("Identity"),
    "ExpandDims": _with_axis("ExpandDims", "dim", {"T": "0"}),
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormGrad": _batch_norm_grad,
    "GatherV2": _gather,
    **{op: _of_one_shape(op) for op in ("EluGrad", "LeakyReluGrad", "ReluGrad", "SigmoidGrad", "TanhGrad")},
    "IntegerPow": _integer_power,
    "ListDiff": _unary("ListDiff", {"T": "0", "out_idx": "out_idx"}),
    "MatrixInverse": _unary("MatrixInverse", {"T": "0", "adjoint": "adjoint"}),
    "MatrixSolve": _unary("MatrixSolve", {"T": "0", "adjoint": "adjoint"}),
    "MatrixTriangularSolve": _unary(
        "MatrixTriangularSolve", {"T": "0", "lower": "lower", "adjoint": "adjoint"}),
    "OneHot": _one_hot,
    "Pad": _pad,
    "Qr": _unary("Qr", {"T": "0", "full_matrices": "full_matrices"}),
    "ReverseV2": _with_axis("ReverseV2", "axis", {"T": "0"}),
    **{op: _unary(op, {"T": "0", "Tindices": "1"}) for op in ("ScatterAdd", "ScatterSub", "ScatterUpdate")},
    "Select": _select,
    "Slice": _unary("Slice", {"T": "0", "Index": "1"}),
    "Split": _split,
    "StepScalar": _default,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_grad,
    "SumTo": _sum_to,
    "Tile": _unary("Tile", {"T": "0", "Tmultiples": "1"}),
    "TopKV2": _top_k,
    "Transpose": _transpose,
    "UniqueWithCounts": _unary("UniqueWithCounts", {"T": "0", "out_idx": "out_idx"}),
    "Where": _unary("Where"),
    # TensorArrays
    "TensorArrayV3": _array,
    "TensorArrayConcatV3": _elements("TensorArrayConcatV3", "element_shape_except0"),
    "TensorArrayGatherV3": _elements("TensorArrayGatherV3", "element_shape"),
    "TensorArrayGradV3": _unary("TensorArrayGradV3", {"source": "gradient_call"}),
    "TensorArrayReadV3": _elements("TensorArrayReadV3"),
    "TensorArrayScatterV3": _unary("TensorArrayScatterV3", {"T": "2"}),
    "TensorArraySizeV3": _unary("TensorArraySizeV3", {}),
    "TensorArraySplitV3": _unary("TensorArraySplitV3", {"T": "1"}),
    "TensorArrayWriteV3": _unary("TensorArrayWriteV3", {"T": "2"}),
    # Queues
    **{op: _queue(f"{op}V2") for op in ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue")},
    **{op: _queue_call(f"{op}V2", "Tcomponents") for op in ("QueueEnqueue", "QueueEnqueueMany")},
    **{op: _queue_call(f"{op}V2", "component_types")
       for op in ("QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo")},
    **{op: _queue_call(f"{op}V2") for op in ("QueueClose", "QueueIsClosed", "QueueSize")},
}  # fmt: skip

HANDLES = {  # outputs that are handles, by op
    **dict.fromkeys(("TensorArrayV3", "TensorArrayGradV3"), 0),
    **dict.fromkeys(("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue"), 0),
}
PASSED_ON = ("Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch")  # of what is handed on as it is


def resources_of(nodes: Sequence[Any]) -> set[str]:
    """The tensors of nodes, in program order, that are handles in TensorFlow."""
    found: set[str] = set()
    for node in nodes:
        if node.op in HANDLES:
            found.add(f"{node.name}:{HANDLES[node.op]}")
        elif node.op in PASSED_ON and node.input and node.input[0] in found:
            found.update(f"{node.name}:{index}" for index in range(max(1, len(node.output))))
    return found
