"""A good call of each function of `tb.losses`, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorbow as tb
from tests.arguments.public_calls import Call

REDUCED = {"weights": "tensor", "scope": "name", "loss_collection": "name", "reduction": "choice"}
OPS = ("subtract", "multiply", "cast", "sub", "mul", "abs", "squareddifference", "softmax", "argmax")


def rows() -> Any:
    return tb.constant([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


def of_pair(labels: str, predictions: str, **sorts: str) -> Call:
    return Call(
        lambda: {labels: rows(), predictions: rows(), **({"axis": 1} if "axis" in sorts else {})},
        {labels: "tensor", predictions: "tensor", **REDUCED, **sorts},
        names=(*OPS, "sigmoid_cross_entropy_with_logits", "softmax_cross_entropy_with_logits", "log"),
    )


CALLS: Mapping[str, Call] = {
    "losses.absolute_difference": of_pair("labels", "predictions"),
    "losses.mean_squared_error": of_pair("labels", "predictions"),
    "losses.mean_pairwise_squared_error": Call(
        lambda: {"labels": rows(), "predictions": rows()},
        {
            name: sort
            for name, sort in {"labels": "tensor", "predictions": "tensor", **REDUCED}.items()
            if name != "reduction"
        },
        names=OPS,
    ),
    "losses.huber_loss": of_pair("labels", "predictions", delta="positive"),
    "losses.hinge_loss": of_pair("labels", "logits"),
    "losses.log_loss": of_pair("labels", "predictions", epsilon="positive"),
    "losses.cosine_distance": of_pair("labels", "predictions", axis="axis"),
    "losses.sigmoid_cross_entropy": of_pair("multi_class_labels", "logits", label_smoothing="fraction"),
    "losses.softmax_cross_entropy": of_pair("onehot_labels", "logits", label_smoothing="fraction"),
    "losses.sparse_softmax_cross_entropy": Call(
        lambda: {"labels": [1, 2], "logits": rows()},
        {"labels": "tensor", "logits": "tensor", **REDUCED},
        names=("sparse_softmax_cross_entropy_with_logits",),
    ),
    "losses.compute_weighted_loss": Call(
        lambda: {"losses": rows()}, {"losses": "tensor", **REDUCED}, names=OPS
    ),
    "losses.add_loss": Call(
        lambda: {"loss": tb.reduce_sum(rows())},
        {"loss": "object", "loss_collection": "name"},
        {"loss": frozenset({"tensor"})},
    ),
    "losses.get_losses": Call(dict, {"scope": "name", "loss_collection": "text"}),
    "losses.get_regularization_losses": Call(dict, {"scope": "name"}, names=("get_collection",)),
    "losses.get_regularization_loss": Call(dict, {"scope": "name"}, names=("get_collection",)),
    "losses.get_total_loss": Call(
        lambda: {"scope": tb.losses.mean_squared_error(rows(), rows()).op.name.partition("/")[0]},
        {"add_regularization_losses": "flag", "scope": "name"},
        names=("get_collection",),
    ),
}
