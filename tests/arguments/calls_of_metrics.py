"""A good call of each function of `tb.metrics`, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.arguments.public_calls import Call

OFTEN = {
    "weights": "tensor or none",
    "metrics_collections": "texts or none",
    "updates_collections": "texts or none",
}
CALLS: Mapping[str, Call] = {
    "metrics.mean": Call(
        lambda: {"values": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]},
        names=("mul",),
        sorts={
            **OFTEN,
        },
    ),
    **{
        f"metrics.{name}": Call(
            lambda: {"labels": [1, 0], "predictions": [1, 1]},
            names=("mul",),
            sorts={
                "labels": "tensor",
                "predictions": "tensor",
                **OFTEN,
            },
        )
        for name in (
            *("mean_squared_error", "mean_absolute_error", "root_mean_squared_error"),
            *("true_positives", "false_positives", "false_negatives", "true_negatives"),
            *("precision", "recall"),
        )
    },
    "metrics.auc": Call(
        lambda: {"labels": [1, 0], "predictions": [0.7, 0.2]},
        names=("mul",),
        sorts={
            "labels": "tensor",
            "predictions": "tensor",
            "weights": "tensor or none",
            "num_thresholds": "count",
            "metrics_collections": "texts or none",
            "updates_collections": "texts or none",
            "curve": "choice",
        },
    ),
    "metrics.mean_tensor": Call(
        lambda: {"values": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]},
        names=("mul",),
        sorts={
            **OFTEN,
        },
    ),
    "metrics.percentage_below": Call(
        lambda: {"values": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "threshold": 0.5},
        names=("mul",),
        sorts={
            "threshold": "number",
            **OFTEN,
        },
    ),
    **{
        f"metrics.{name}": Call(
            lambda more=more: {"labels": [1.0, 0.0], "predictions": [1.0, 1.0], **more},
            names=("mul",),
            sorts={
                "labels": "tensor",
                "predictions": "tensor",
                **OFTEN,
                **sorts,
            },
        )
        for name, more, sorts in (
            ("mean_relative_error", {"normalizer": [1.0, 2.0]}, {"normalizer": "tensor"}),
            ("mean_cosine_distance", {"dim": 0}, {"dim": "axis"}),
            *(
                (f"{name}_at_thresholds", {"thresholds": [0.5]}, {"thresholds": "numbers"})
                for name in (
                    *("true_positives", "false_positives", "false_negatives", "true_negatives"),
                    *("precision", "recall"),
                )
            ),
            (
                "sensitivity_at_specificity",
                {"specificity": 0.5},
                {"specificity": "fraction", "num_thresholds": "count"},
            ),
            (
                "specificity_at_sensitivity",
                {"sensitivity": 0.5},
                {"sensitivity": "fraction", "num_thresholds": "count"},
            ),
        )
    },
    **{
        f"metrics.{name}": Call(
            lambda chosen=chosen: {
                "labels": np.array([1, 0]),
                "predictions_idx" if chosen else "predictions": np.array([[1, 0], [1, 1]]),
                **({} if chosen else {"k": 1}),
            },
            names=("mul", "topkv2", "equal", "cast", "logicaland"),
            sorts={
                "labels": "tensor",
                "predictions_idx" if chosen else "predictions": "tensor",
                "k": "count or none" if chosen else "count",
                "class_id": "seed or none",
                **OFTEN,
            },
        )
        for name, chosen in (
            *((name, False) for name in ("recall_at_k", "precision_at_k", "average_precision_at_k")),
            *((name, True) for name in ("recall_at_top_k", "precision_at_top_k")),
        )
    },
    **{
        f"metrics.{name}": Call(
            lambda: {"labels": [1, 0], "predictions": [1, 1], "num_classes": 3},
            names=("mul",),
            sorts={
                "labels": "tensor",
                "predictions": "tensor",
                "num_classes": "count",
                **OFTEN,
            },
        )
        for name in ("mean_iou", "mean_per_class_accuracy")
    },
    "metrics.accuracy": Call(
        lambda: {"labels": [1, 2], "predictions": [1, 1]},
        names=("mul",),
        sorts={
            "predictions": "tensor",
            **OFTEN,
        },
    ),
}
