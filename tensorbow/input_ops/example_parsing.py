"""`parse_example` and the like: features of serialised examples as dense and sparse tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor, graph_of, name_scope
from tensorbow.input_ops.example_features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
)
from tensorbow.input_ops.feature_parser import Described, FeatureParser, read_message
from tensorbow.input_ops.scalar_inputs import require_scalars
from tensorbow.kinds import Mapped, Name, checked, refuse, shown
from tensorbow.ops.constant import to_array
from tensorbow.ops.definition import define_op
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.specs import Array, Dims, TensorSpec, int64
from tensorbow.string_ops.elements import as_strings, require_strings, scalar_of

__all__ = ["parse_example", "parse_single_example", "parse_single_sequence_example"]


# Descriptions -------------------------------------------------------------------------------------


def _default_of(key: str, feature: Any) -> Array | None:
    if feature.default_value is None:
        return None
    value = to_array(feature.default_value, feature.dtype)
    if value.size == 1:
        filled = np.full(feature.shape, value.ravel()[0], feature.dtype.as_numpy_dtype)
    elif value.shape == feature.shape:
        filled = np.array(value)
    else:
        raise InvalidArgumentError(
            f"default_value of feature {key!r} has shape {list(value.shape)}, expected {list(feature.shape)}"
        )
    filled.flags.writeable = False
    return filled


def _described(call: str, features: Mapping[Any, Any], allowed: tuple[type, ...]) -> tuple[Described, ...]:
    """The features in the order of their names. Raises InvalidArgumentError for other values."""
    found: list[Described] = []
    for key in sorted(features, key=str):
        feature = features[key]
        if not isinstance(key, str) or not isinstance(feature, allowed):
            kinds = " or ".join(kind.__name__ for kind in allowed)
            raise InvalidArgumentError(
                f"{call}: expected features to be {kinds} by name, got {shown(feature)} at {key!r:.60}"
            )
        if isinstance(feature, FixedLenFeature):
            default = _default_of(key, feature)
            found.append(("dense", key, feature.dtype, feature.shape, default, "", 0))
        elif isinstance(feature, VarLenFeature):
            found.append(("sparse", key, feature.dtype, (), None, "", 0))
        elif isinstance(feature, SparseFeature):
            found.append(
                ("pairs", feature.index_key, feature.dtype, (), None, feature.value_key, feature.size)
            )
        elif isinstance(feature, FixedLenSequenceFeature):
            found.append(_padded(call, key, feature))
    return tuple(found)


def _padded(call: str, key: str, feature: FixedLenSequenceFeature) -> Described:
    if call != "parse_single_sequence_example" and not feature.allow_missing:
        raise InvalidArgumentError(
            f"{call}: feature {key!r} is a FixedLenSequenceFeature, expected allow_missing=True: shorter "
            "examples are padded"
        )
    if feature.default_value is not None and np.size(feature.default_value) != 1:
        raise InvalidArgumentError(
            f"{call}: default_value of feature {key!r}: expected one value to pad with"
        )
    padding = to_array(feature.default_value, feature.dtype) if feature.default_value is not None else None
    missing = 1 if feature.allow_missing else 0
    return "padded", key, feature.dtype, feature.shape, padding, "", missing


def _specs(features: Sequence[Described], batch: Dims | None) -> list[TensorSpec]:
    """Specs of what the features give: three for sparse ones. batch: () for one example, None if unknown."""
    specs: list[TensorSpec] = []
    for kind, _, dtype, shape, _, _, _ in features:
        if kind in ("sparse", "pairs"):
            rank = None if batch is None else len(batch) + 1
            indices = TensorSpec((None, rank), int64)
            specs += [indices, TensorSpec((None,), dtype), TensorSpec((rank,), int64)]
        elif kind == "padded":
            specs.append(TensorSpec(None if batch is None else (*batch, None, *shape), dtype))
        else:
            specs.append(TensorSpec(None if batch is None else (*batch, *shape), dtype))
    return specs


def _gathered(
    features: Mapping[Any, Any], described: Sequence[Described], outputs: Sequence[Tensor]
) -> dict[str, Any]:
    """The tensors by name, three outputs of sparse ones joined."""
    remaining = list(outputs)
    found: dict[str, Any] = {}
    for key, (kind, *_) in zip(sorted(features, key=str), described, strict=True):
        if kind in ("sparse", "pairs"):
            found[key] = SparseTensor(*(remaining.pop(0) for _ in range(3)))
        else:
            found[key] = remaining.pop(0)
    return found


# Examples -----------------------------------------------------------------------------------------


def _example_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    serialized, names = inputs
    require_strings("ParseExample", serialized, "serialized")
    require_strings("ParseExample", names, "example_names")
    expected = 0 if attrs["single"] else 1
    if serialized.shape is not None and len(serialized.shape) != expected:
        what = (
            "a scalar; use tb.parse_example" if attrs["single"] else "a vector; use tb.parse_single_example"
        )
        raise InvalidArgumentError(f"ParseExample: serialized is {serialized}, expected {what}")
    batch = () if attrs["single"] else (serialized.shape or (None,))
    return _specs(attrs["features"], batch)


def _parse_examples(call: HostCall) -> list[Array]:
    blobs, names = call.inputs[0].ravel().tolist(), call.inputs[1].ravel().tolist()
    if names and len(names) != len(blobs):
        raise InvalidArgumentError(f"ParseExample: {len(names)} example_names for {len(blobs)} examples")
    shown_names = [f" {name.decode('utf-8', 'replace')!r}" for name in names] or [""] * len(blobs)
    wheres = [f"example {index}{name}" for index, name in enumerate(shown_names)]
    examples = [read_message("ParseExample", "Example", b, w) for b, w in zip(blobs, wheres, strict=True)]
    parsing = FeatureParser("ParseExample", wheres, [_lookup(each.features.feature) for each in examples])
    single = call.attrs["single"]
    return [array for each in call.attrs["features"] for array in parsing.parsed(each, single)]


def _lookup(features: Any) -> Callable[[str], Any]:
    return lambda key: features.get(key, None)


ParseExample = define_op(
    "ParseExample",
    spec=_example_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("serialized", "example_names"),
    attrs={"features": REQUIRED, "single": False},
    host=_parse_examples,
    strings=True,
    doc="Features of serialised examples.",
)
_OF_EXAMPLES = (FixedLenFeature, VarLenFeature, SparseFeature, FixedLenSequenceFeature)


def _parse(
    call: str, serialized: Any, features: Mapping[Any, Any], names: Any, name: str | None, single: bool
) -> dict[str, Any]:
    if not features:
        raise refuse(call, "features", "features by name, at least one", features)
    described = _described(call, features, _OF_EXAMPLES)
    none = np.empty(0, object)
    with graph_of([serialized, names]).as_default(), name_scope(name or "ParseExample"):
        made = ParseExample(
            as_strings(serialized),
            as_strings(none if names is None else names),
            features=described,
            single=single,
        )
        return _gathered(features, described, made if isinstance(made, tuple) else (made,))


@checked
def parse_example(
    serialized: Any, features: Mapped, name: Name = None, example_names: Any = None
) -> dict[str, Any]:
    """The features of serialised `tb.train.Example` messages, a vector of strings, by name.

    features: a `FixedLenFeature` gives a dense tensor [batch, *shape], a `VarLenFeature` or `SparseFeature` a
        SparseTensor, a `FixedLenSequenceFeature` a padded dense tensor.
    example_names: a vector of texts for errors.

    Needs `pip install 'tensorbow[protobuf]'`. Raises InvalidArgumentError and, when it runs, the same for
    messages that are damaged, lack a feature or have other numbers of values.
    """
    return _parse("parse_example", serialized, features, example_names, name, single=False)


@checked
def parse_single_example(
    serialized: Any, features: Mapped, name: Name = None, example_names: Any = None
) -> dict[str, Any]:
    """`parse_example` of one message, a scalar string: the tensors have no axis of examples."""
    return _parse("parse_single_example", serialized, features, example_names, name, single=True)


# Sequences ----------------------------------------------------------------------------------------


def _sequence_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    require_scalars("ParseSingleSequenceExample", inputs, ("serialized", "example_name"))
    return [*_specs(attrs["context"], ()), *_sequence_specs(attrs["sequence"])]


def _sequence_specs(features: Sequence[Described]) -> list[TensorSpec]:
    specs: list[TensorSpec] = []
    for each in features:
        specs += _specs([each], () if each[0] == "padded" else (None,))
    return specs


def _parse_sequence(call: HostCall) -> list[Array]:
    op = "ParseSingleSequenceExample"
    blob = scalar_of(op, "serialized", call.inputs[0])
    name = scalar_of(op, "example_name", call.inputs[1])
    where = f"example {name.decode('utf-8', 'replace')!r}" if name else "the example"
    message = read_message(op, "SequenceExample", blob, where)
    parsing = FeatureParser(op, [where], [_lookup(message.context.feature)])
    found = [array for each in call.attrs["context"] for array in parsing.parsed(each, True)]
    lists = message.feature_lists.feature_list
    for each in call.attrs["sequence"]:
        kind, key, dtype, shape, default, _, missing = each
        if key not in lists and kind == "padded" and not missing:
            raise InvalidArgumentError(
                f"{op}: {where}: feature list {key!r} is required and missing; give allow_missing=True"
            )
        steps = list(lists[key].feature) if key in lists else []
        wheres = [f"{where}, step {number}" for number in range(len(steps))]
        of_steps = FeatureParser(op, wheres, [lambda _, step=step: step for step in steps])  # type: ignore[misc]
        kind = "dense" if kind == "padded" else kind
        found += of_steps.parsed((kind, key, dtype, shape, default, "", 0), False)
    return found


ParseSequenceExample = define_op(
    "ParseSingleSequenceExample",
    spec=_sequence_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("serialized", "example_name"),
    attrs={"context": (), "sequence": ()},
    host=_parse_sequence,
    strings=True,
    doc="Features of a serialised sequence.",
)


@checked
def parse_single_sequence_example(
    serialized: Any,
    context_features: Mapped | None = None,
    sequence_features: Mapped | None = None,
    example_name: Any = None,
    name: Name = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The features of a serialised `tb.train.SequenceExample`, a scalar string: of it all, and of its steps.

    context_features: as for `parse_single_example`. sequence_features: a `FixedLenSequenceFeature` gives a
    dense tensor [steps, *shape], a `VarLenFeature` a SparseTensor [steps, most values].

    Raises as `parse_example` does.
    """
    context, sequence = context_features or {}, sequence_features or {}
    if not context and not sequence:
        raise refuse(
            "parse_single_sequence_example",
            "context_features",
            "features by name, at least one, or sequence_features to be that",
            context_features,
        )
    call = "parse_single_sequence_example"
    of_context = _described(call, context, (FixedLenFeature, VarLenFeature, SparseFeature))
    of_steps = _described(call, sequence, (FixedLenSequenceFeature, VarLenFeature))
    with graph_of([serialized, example_name]).as_default(), name_scope(name or "ParseSequenceExample"):
        texts = [as_strings(serialized), as_strings("" if example_name is None else example_name)]
        made = ParseSequenceExample(*texts, context=of_context, sequence=of_steps)
        outputs = list(made) if isinstance(made, tuple) else [made]
        first = len(_specs(of_context, ()))
        return (
            _gathered(context, of_context, outputs[:first]),
            _gathered(sequence, of_steps, outputs[first:]),
        )
