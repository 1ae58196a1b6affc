"""Parts of metrics: counters that live over steps, their ratios, and checks of labels and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys, Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import TEXT, optional, sequence
from tensorbow.ops.elementwise import divide, maximum
from tensorbow.specs import compatible
from tensorbow.variables import Variable

Collections: TypeAlias = Annotated[Any, optional(sequence(TEXT, "a string or several in a list", lone=True))]


def alike(metric: str, labels: Any, predictions: Any, what: str = "predictions") -> tuple[Tensor, Tensor]:
    """Labels and predictions as tensors. Raises InvalidArgumentError for different shapes."""
    wanted, given = convert_to_tensor(labels), convert_to_tensor(predictions)
    if not compatible(wanted.spec.shape, given.spec.shape):
        raise InvalidArgumentError(
            f"metrics.{metric}: labels are {wanted.spec}, {what} {given.spec}; expected the same shape"
        )
    return wanted, given


def collected(
    value: Tensor, update: Tensor, metrics: Sequence[str] | None, updates: Sequence[str] | None
) -> tuple[Tensor, Tensor]:
    """Both, added to collections."""
    for tensor, names in ((value, metrics), (update, updates)):
        for collection in names or ():
            tensor.graph.add_to_collection(collection, tensor)
    return value, update


def counter(name: str, shape: tuple[int, ...] = ()) -> Variable:
    """A local variable that starts at zero; the replicas' ones are added up."""
    return Variable(
        np.zeros(shape, np.float32),
        trainable=False,
        name=name,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        combine="sum",
    )


def ratio(total: Tensor, count: Tensor, name: str) -> Tensor:
    """total / count; 0 if nothing was counted."""
    with name_scope(name):
        return divide(total, maximum(count, float(np.finfo(np.float32).tiny)))
