"""The models of `tensorbow.models` in JAX, with the same layers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

CLASSES, EPSILON = 10, 1e-5
Weights = dict[str, Any]


class Network:
    """Creates weights by name on first use, or computes with given ones.

    statistics: mean and variance [channels] of the last batch, by batch norm.
    """

    def __init__(self, weights: Weights, rng: np.random.Generator | None = None):
        """rng: generator of new weights."""
        self.weights, self._rng = weights, rng
        self.statistics: dict[str, tuple[Any, Any]] = {}

    def logits(self, model: str, x: Any) -> Any:
        """Logits [batch, 10] of images [batch, height, width, channels]. model: as in `tensorbow.models`."""
        if model == "logreg":
            return self._dense("fc", x.reshape(x.shape[0], -1), CLASSES)
        if model == "fast_resnet":
            return self._fast_resnet(x)
        return self._lenet(x) if model == "lenet" else self._resnet(model, x)

    def _weight(self, name: str, shape: tuple[int, ...], fill: float | None = None) -> Any:
        if self._rng is not None:
            deviation = (2.0 / np.prod(shape[:-1])) ** 0.5
            made = self._rng.normal(size=shape) * deviation if fill is None else np.full(shape, fill)
            self.weights[name] = made.astype(np.float32)
        return self.weights[name]

    def _dense(self, name: str, x: Any, units: int) -> Any:
        return x @ self._weight(f"{name}/w", (x.shape[-1], units)) + self._weight(f"{name}/b", (units,), 0.0)

    def _convolved(self, name: str, x: Any, filters: int, size: int, stride: int, padding: str) -> Any:
        kernel = self._weight(f"{name}/w", (size, size, x.shape[-1], filters))
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=layout)

    def _normalized(self, name: str, x: Any, filters: int, size: int, stride: int) -> Any:
        return self._scaled(name, self._convolved(name, x, filters, size, stride, "SAME"))

    def _scaled(self, name: str, y: Any) -> Any:
        """Batch normalisation."""
        mean, variance = y.mean((0, 1, 2)), y.var((0, 1, 2))
        self.statistics[name] = mean, variance
        gamma = self._weight(f"{name}/gamma", y.shape[-1:], 1.0)
        beta = self._weight(f"{name}/beta", y.shape[-1:], 0.0)
        return (y - mean) * (gamma * jax.lax.rsqrt(variance + EPSILON)) + beta

    def _lenet(self, x: Any) -> Any:
        for name, filters in (("conv1", 32), ("conv2", 64)):
            x = self._convolved(name, x, filters, 5, 1, "VALID") + self._weight(f"{name}/b", (filters,), 0.0)
            x = jax.nn.relu(x)
            x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(self._dense("fc1", x.reshape(x.shape[0], -1), 1024))
        return self._dense("fc2", x, CLASSES)

    def _fast_resnet(self, x: Any) -> Any:
        fixed = np.random.default_rng(1).normal(size=(2, 2, 3, 24)).astype(np.float32)
        layout = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x - 0.47, fixed, (1, 1), "SAME", dimension_numbers=layout)
        x = jax.nn.gelu(x + self._weight("bias", (24,), 0.0))
        for stage, filters in enumerate((64, 256, 256)):
            x = self._convolved(f"{stage}/1", x, filters, 3, 1, "SAME")
            x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            x = jax.nn.gelu(self._scaled(f"{stage}/1", x))
            x = x + jax.nn.gelu(self._normalized(f"{stage}/2", x, filters, 3, 1))
        return 0.125 * (x.max((1, 2)) @ self._weight("fc/w", (x.shape[-1], CLASSES)))

    def _resnet(self, model: str, x: Any) -> Any:
        x = jax.nn.relu(self._normalized("conv1", x, 16, 3, 1))
        for stage, filters in enumerate((16, 32, 64)):
            for block in range((int(model.removeprefix("resnet")) - 2) // 6):
                name, stride = f"{stage}/{block}", 2 if stage and not block else 1
                y = jax.nn.relu(self._normalized(f"{name}/1", x, filters, 3, stride))
                y = self._normalized(f"{name}/2", y, filters, 3, 1)
                if x.shape[-1] != filters:
                    x = self._normalized(f"{name}/shortcut", x, filters, 1, stride)
                x = jax.nn.relu(x + y)
        return self._dense("fc", x.mean((1, 2)), CLASSES)


def initial_weights(model: str, images: Any) -> Weights:
    """Initial float32 weights by name, for images of this shape: He normal, biases 0, gammas 1."""
    weights: Weights = {}
    first = Network(weights, np.random.default_rng(1))
    jax.eval_shape(lambda x: first.logits(model, x), images)
    return weights
