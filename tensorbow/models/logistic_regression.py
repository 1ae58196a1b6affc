"""Logistic and linear regression: 784 -> 10 on 28x28 pictures, 7,850 parameters, 0.0314 MB (TensorBow table
5.1)."""

from __future__ import annotations

from tensorbow.graph import Tensor
from tensorbow.kinds import Flag, checked
from tensorbow.models.model import AsTensor, Classes, Defaults, Model, flat_features
from tensorbow.ops.filling import zeros
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add
from tensorbow.variables import Variable


class LogisticRegression(Model):
    """Logistic regression: one matrix and one bias, initialised with zeros; the loss is convex."""

    name = "logreg"
    defaults = Defaults(learning_rate=0.01)

    @checked
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Logits, float32 [batch, classes], from images [batch, height, width, channels] or features."""
        values, features = flat_features(images)
        weights = Variable(zeros([features, classes]), name="weights")
        biases = Variable(zeros([classes]), name="biases")
        return bias_add(matmul(values, weights), biases)


class LinearModel(LogisticRegression):
    """The same layer under the name that fits numbers to predict: ordinary least squares, by gradient
    steps."""

    name = "linear"
