"""Metrics of classifiers beyond accuracy, from the scores of a whole data set.

Scores are probabilities or logits, [examples, classes]; labels whole numbers, [examples].
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import TEXT, Kind, RefusedError
from tensorbow.missing_names import did_you_mean
from tensorbow.pictures import encoded, new_picture, styled_figure
from tensorbow.specs import Array

CONFUSION = "confusion"
_MEANS = ("precision", "recall", "f1", "auc")  # over classes
_SIZE = (6.0, 5.4)  # of the picture, in inches
_LONGEST = 14  # characters of a class name in a table or picture
_LABELLED = 12  # classes up to which a picture has the counts as numbers


@dataclass(frozen=True)
class ClassificationReport:
    """Metrics of predictions; each is computed when it is asked for.

    The prediction is the class with the greatest score, of equal ones the first. Means over classes (macro
    averages) leave out classes without examples and predictions, and of AUC classes of all examples or none.
    class_names: by class, in tables and pictures; without them classes have numbers.
    """

    scores: Array
    labels: Array
    class_names: Sequence[str] = ()

    @property
    def _shown_classes(self) -> list[str]:
        """Names of the classes, or their numbers; long names are cut."""
        names = self.class_names or [str(index) for index in range(self.scores.shape[1])]
        return [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]

    @cached_property
    def confusion(self) -> Array:
        """Number of examples by label (rows) and prediction (columns), int64 [classes, classes]."""
        classes = self.scores.shape[1]
        counts: Array = np.zeros((classes, classes), np.int64)
        np.add.at(counts, (self.labels, self.scores.argmax(1)), 1)
        return counts

    def top(self, k: int) -> float:
        """Fraction of examples whose label is among the k greatest scores, of equal ones the first.

        NaN is greater than any number, as for the prediction, and no label with it is among them.
        """
        own = self.scores[np.arange(len(self.labels)), self.labels][:, None]
        before = np.arange(self.scores.shape[1]) < self.labels[:, None]
        rank = (~(self.scores <= own)).sum(1) + ((self.scores == own) & before).sum(1)
        return float(((rank < k) & ~np.isnan(own[:, 0])).mean())

    @cached_property
    def precision_by_class(self) -> Array:
        """Fraction of the predictions of each class that are right; 0 without predictions."""
        return _ratio(self.confusion.diagonal(), self.confusion.sum(0))

    @cached_property
    def recall_by_class(self) -> Array:
        """Fraction of the examples of each class that are found; 0 without examples."""
        return _ratio(self.confusion.diagonal(), self.confusion.sum(1))

    @cached_property
    def f1_by_class(self) -> Array:
        """Harmonic mean of precision and recall of each class."""
        return _ratio(self.confusion.diagonal() * 2, self.confusion.sum(0) + self.confusion.sum(1))

    @cached_property
    def probabilities(self) -> Array:
        """Probabilities [examples, classes]: the scores themselves, or of logits their softmax in float64."""
        scores: Array = self.scores.astype(np.float64)
        if (scores >= 0).all() and np.allclose(scores.sum(1), 1, atol=1e-3):
            return scores
        with np.errstate(invalid="ignore"):  # of scores that are not finite
            powers: Array = np.exp(scores - scores.max(1, keepdims=True))
            shares: Array = powers / powers.sum(1, keepdims=True)
        return shares

    @cached_property
    def auc_by_class(self) -> Array:
        """Area under the ROC curve of each class against the rest; NaN for classes of all examples or none.

        The chance that an example of the class has a greater probability of it than another; ties count half.
        """
        count = len(self.labels)
        areas = np.full(self.scores.shape[1], np.nan)
        for index, column in enumerate(self.probabilities.T):
            own = self.labels == index
            positives = int(own.sum())
            if 0 < positives < count and not np.isnan(column).any():
                _, where, ties = np.unique(column, return_inverse=True, return_counts=True)
                ranks = ties.cumsum() - (ties - 1) / 2
                above = ranks[where][own].sum() - positives * (positives + 1) / 2
                areas[index] = above / (positives * (count - positives))
        return areas

    @cached_property
    def _occurring(self) -> Array:
        occurring: Array = self.confusion.sum(0) + self.confusion.sum(1) > 0
        return occurring

    def value(self, metric: str) -> float:
        """A metric by name: `accuracy`, `top5` or any `topK`, or a mean over classes."""
        if metric in _MEANS:
            by_class: Array = getattr(self, f"{metric}_by_class")
            if metric == "auc":
                return float(np.nanmean(by_class)) if np.isfinite(by_class).any() else float("nan")
            return float(by_class[self._occurring].mean())
        return self.top(1 if metric == "accuracy" else int(metric.removeprefix("top")))

    def values(self, metrics: Sequence[str]) -> dict[str, float]:
        """Metrics by name; not the confusion matrix, which is no number."""
        return {metric: self.value(metric) for metric in metrics if metric != CONFUSION}

    def table(self) -> list[str]:
        """Lines of the confusion matrix, with the precision, recall, F1 and AUC of each class."""
        names = self._shown_classes
        width = max(5, len(str(int(self.confusion.max()))) + 1, *(len(name) + 1 for name in names))
        head = "".join(f"{name:>{width}}" for name in names)
        lines = [f"label\\predicted{head}  precision  recall      f1     auc"]
        for index, name in enumerate(names):
            row = "".join(f"{count:>{width}}" for count in self.confusion[index])
            auc = self.auc_by_class[index]
            lines.append(
                f"{name:<15}{row}  {self.precision_by_class[index]:9.2%} {self.recall_by_class[index]:7.2%} "
                f"{self.f1_by_class[index]:7.2%} {'      -' if np.isnan(auc) else f'{auc:7.4f}'}"
            )
        return lines

    def csv(self) -> str:
        """The confusion matrix as text: a header of predicted classes, then a line for each label."""
        names, text = self.class_names or range(len(self.confusion)), io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["label", *names])
        writer.writerows([name, *row] for name, row in zip(names, self.confusion.tolist(), strict=True))
        return text.getvalue()

    def draw(self, path: Path, title: str) -> None:
        """Draws the confusion matrix; colours are fractions of each label's examples.

        Raises as `new_picture`.
        """
        with new_picture(path, *_SIZE) as figure:
            self._draw_in(figure, title)

    def png(self, title: str, dots_per_inch: int = 100) -> bytes:
        """The picture of the confusion matrix as the content of a PNG file. Needs matplotlib."""
        with styled_figure(*_SIZE) as figure:
            self._draw_in(figure, title)
            return encoded(figure, "png", dots_per_inch)

    def _draw_in(self, figure: Any, title: str) -> None:
        classes = len(self.confusion)
        shares = self.confusion / np.maximum(self.confusion.sum(1, keepdims=True), 1)
        axes = figure.add_subplot()
        shown = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.grid(visible=False)
        axes.set(xlabel="predicted class", ylabel="label", title=title)
        if classes <= 2 * _LABELLED:
            turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if self.class_names else {}
            axes.set_xticks(range(classes), self._shown_classes, **turned)
            axes.set_yticks(range(classes), self._shown_classes)
        for (label, predicted), count in np.ndenumerate(self.confusion):
            if classes <= _LABELLED and count:
                color = "white" if shares[label, predicted] > 0.5 else "black"
                axes.text(predicted, label, f"{count:,}", ha="center", va="center", color=color, fontsize=8)
        figure.colorbar(shown, label="share of the label's examples", shrink=0.85)


def report_of(scores: Array, labels: Array, class_names: Sequence[str] = ()) -> ClassificationReport:
    """The report of a data set, of sequences too, with scores and labels [examples, steps, ...].

    class_names: by class, or none.

    Raises InvalidArgumentError for scores of no classifier, and for no examples.
    """
    if scores.ndim > 2 and labels.shape == scores.shape[:-1]:
        scores, labels = scores.reshape(-1, scores.shape[-1]), labels.reshape(-1)
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or not len(labels):
        raise InvalidArgumentError(
            "metrics: expected scores [examples, classes] and labels [examples], got "
            f"{list(scores.shape)} and {list(labels.shape)}"
        )
    classes = scores.shape[1]
    if labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < classes:
        raise InvalidArgumentError(f"metrics: expected labels from 0 to {classes - 1}, as the scores have")
    return ClassificationReport(scores, labels.astype(np.int64), class_names)


def _ratio(part: Array, whole: Array) -> Array:
    shares: Array = np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
    return shares


def _read_metrics(value: Any) -> tuple[str, ...]:
    names = tuple(TEXT.read(name) for name in (value.split(",") if isinstance(value, str) else value))
    for name in names:
        number = name.removeprefix("top")
        is_top = name != number and number.isascii() and number.isdecimal() and 0 < len(number) < 7
        if not (is_top and int(number)) and name not in ("accuracy", CONFUSION, *_MEANS):
            near = did_you_mean(name, ("accuracy", CONFUSION, *_MEANS), alike=0.5)  # f2 is half f1
            raise RefusedError(near.removeprefix("; "))
    return tuple(dict.fromkeys(names))


METRICS = Kind(
    f"names of accuracy, {', '.join(_MEANS)}, {CONFUSION} and topK with a number K, separated by commas, as "
    "top5,f1",
    _read_metrics,
)
