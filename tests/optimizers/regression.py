"""Least squares on some random data, with its gradients by NumPy, for optimisers."""

import numpy as np

import tensorbow as tb

RANDOM = np.random.default_rng(5)
W, B = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=2)
X, Y = RANDOM.normal(size=(7, 3)), RANDOM.normal(size=(7, 2))


class Regression:
    """Least squares: a decayed matrix and a bias that is not decayed."""

    def __init__(self, dtype="float64"):
        self.w = tb.Variable(W.astype(dtype), name="w")
        self.b = tb.Variable(B.astype(dtype), name="b")
        error = tb.matmul(tb.constant(X.astype(dtype)), self.w) + self.b - Y.astype(dtype)
        self.loss = tb.reduce_mean(tb.square(error))

    @staticmethod
    def gradients(w, b):
        error = (X @ w + b - Y) * 2 / Y.size
        return X.T @ error, error.sum(0)
