"""Scores of generated images, by a small classifier: accuracy, and Fréchet distance of its features."""

from __future__ import annotations

import numpy as np

import tensorbow as tb

FEATURES = 32


class Classifier:
    """A convolutional network, trained on real images; `features_and_classes` judges others."""

    def __init__(self, images, labels, steps, batch_size=64, seed=0):
        """images: float32 [n, 28, 28, 1]; labels: int64 [n]."""
        rng = np.random.default_rng(seed)
        with tb.Graph().as_default():
            tb.set_random_seed(seed)
            self._images = tb.placeholder(tb.float32, [None, 28, 28, 1])
            given = tb.placeholder(tb.int64, [None])
            x = self._images
            for filters in (16, 32):
                x = tb.layers.conv2d(x, filters, 5, padding="same", activation=tb.nn.relu)
                x = tb.layers.max_pooling2d(x, 2, 2)
            self._features = tb.layers.dense(tb.layers.flatten(x), FEATURES, tb.nn.relu)
            logits = tb.layers.dense(self._features, 10)
            self._classes = tb.argmax(logits, 1)
            losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=given, logits=logits)
            update = tb.train.AdamOptimizer(0.001).minimize(tb.reduce_mean(losses))
            self._session = tb.Session()
            self._session.run(tb.global_variables_initializer())
            for _ in range(steps):
                rows = rng.integers(0, len(labels), batch_size)
                self._session.run(update, {self._images: images[rows], given: labels[rows]})

    def features_and_classes(self, images):
        """Features float32 [n, FEATURES] and predicted classes int64 [n] of images float32 [n, 28, 28, 1]."""
        return self._session.run([self._features, self._classes], {self._images: images})

    def close(self):
        """Frees the memory of its session."""
        self._session.close()


def frechet_distance(first, second):
    """Squared Fréchet distance of the normal distributions fitted to the rows of two arrays [n, features].

    |m1 - m2|^2 + trace(C1 + C2 - 2 (C1 C2)^(1/2)), with means m and covariances C (Heusel et al., 2017).
    """
    first, second = (np.asarray(rows, np.float64) for rows in (first, second))
    (mean1, cov1), (mean2, cov2) = ((rows.mean(0), np.cov(rows, rowvar=False)) for rows in (first, second))
    values, vectors = np.linalg.eigh(cov1)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    # root C2 root is symmetric and has the eigenvalues of C1 C2
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ cov2 @ root), 0)).sum()
    return float(np.sum((mean1 - mean2) ** 2) + np.trace(cov1) + np.trace(cov2) - 2 * cross)
