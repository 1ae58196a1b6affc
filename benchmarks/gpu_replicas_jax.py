"""JAX for `gpu_replicas.py`: one model under jit, many by vmap under jit, buffers donated."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from gpu_replicas_contestant import CLASSES, MOMENTUM, RATE, Case, Contestant, Opening, Settings, paced

EPSILON = 1e-5
Weights = dict[str, Any]


def jax_contestants(case: Case, settings: Settings) -> Opening:
    """Nobody where JAX is not installed, or has no GPU."""
    if find_spec("jax") is None:
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory too
    import jax

    if not settings.emulated and jax.default_backend() != "gpu":
        return
    for replicas in settings.counts:
        name = "JAX jit" if replicas == 1 else "JAX vmap"
        yield f"{name} x {replicas}", partial(_contestant, name, case, settings, replicas)


class _Network:
    """Makes weights by the names under which it is asked for them; then computes with given ones."""

    def __init__(self, weights: Weights, rng: np.random.Generator | None = None):
        self.weights, self._rng = weights, rng

    def weight(self, name: str, shape: tuple[int, ...], fill: float | None = None) -> Any:
        if self._rng is not None:
            deviation = (2.0 / np.prod(shape[:-1])) ** 0.5
            made = self._rng.normal(size=shape) * deviation if fill is None else np.full(shape, fill)
            self.weights[name] = made.astype(np.float32)
        return self.weights[name]

    def dense(self, name: str, x: Any, units: int) -> Any:
        return x @ self.weight(f"{name}/w", (x.shape[-1], units)) + self.weight(f"{name}/b", (units,), 0.0)

    def convolved(self, name: str, x: Any, filters: int, size: int, stride: int, padding: str) -> Any:
        import jax

        kernel = self.weight(f"{name}/w", (size, size, x.shape[-1], filters))
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=layout)

    def normalized(self, name: str, x: Any, filters: int, size: int, stride: int) -> Any:
        import jax

        y = self.convolved(name, x, filters, size, stride, "SAME")
        mean, variance = y.mean((0, 1, 2)), y.var((0, 1, 2))
        gamma = self.weight(f"{name}/gamma", (filters,), 1.0)
        beta = self.weight(f"{name}/beta", (filters,), 0.0)
        return (y - mean) * (gamma * jax.lax.rsqrt(variance + EPSILON)) + beta

    def logits(self, model: str, x: Any) -> Any:
        if model == "logreg":
            return self.dense("fc", x.reshape(x.shape[0], -1), CLASSES)
        return self._lenet(x) if model == "lenet" else self._resnet(model, x)

    def _lenet(self, x: Any) -> Any:
        import jax

        for name, filters in (("conv1", 32), ("conv2", 64)):
            x = self.convolved(name, x, filters, 5, 1, "VALID") + self.weight(f"{name}/b", (filters,), 0.0)
            x = jax.nn.relu(x)
            x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(self.dense("fc1", x.reshape(x.shape[0], -1), 1024))
        return self.dense("fc2", x, CLASSES)

    def _resnet(self, model: str, x: Any) -> Any:
        import jax

        x = jax.nn.relu(self.normalized("conv1", x, 16, 3, 1))
        for stage, filters in enumerate((16, 32, 64)):
            for block in range((int(model[6:]) - 2) // 6):
                name, stride = f"{stage}/{block}", 2 if stage and not block else 1
                y = jax.nn.relu(self.normalized(f"{name}/1", x, filters, 3, stride))
                y = self.normalized(f"{name}/2", y, filters, 3, 1)
                if x.shape[-1] != filters:
                    x = self.normalized(f"{name}/shortcut", x, filters, 1, stride)
                x = jax.nn.relu(x + y)
        return self.dense("fc", x.mean((1, 2)), CLASSES)


def _contestant(name: str, case: Case, settings: Settings, replicas: int) -> Contestant:
    import jax
    import jax.numpy as jnp

    precision = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "bfloat16"}[settings.compute]
    jax.config.update("jax_default_matmul_precision", precision)
    pictures, answers = case.data().batch()
    images, labels = jax.device_put(pictures), jax.device_put(answers.astype(np.int32))

    def loss(weights: Weights, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(_Network(weights).logits(case.model, x))
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    def step(weights: Weights, velocity: Weights, key: Any) -> tuple[Weights, Weights, Any]:
        key, drawn = jax.random.split(key)
        chosen = jax.random.randint(drawn, (case.batch_size,), 0, len(labels))
        gradient = jax.grad(loss)(weights, images[chosen], labels[chosen])
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        return jax.tree.map(lambda w, v: w - RATE * v, weights, velocity), velocity, key

    initial: Weights = {}
    first = _Network(initial, np.random.default_rng(1))
    jax.eval_shape(lambda x: first.logits(case.model, x), images[: case.batch_size])
    keys = jax.random.split(jax.random.key(1), replicas)
    if replicas == 1:
        weights, state = {n: jnp.asarray(w) for n, w in initial.items()}, keys[0]
        compiled: Callable[..., Any] = jax.jit(step, donate_argnums=(0, 1, 2))
    else:
        weights, state = {n: jnp.stack([w] * replicas) for n, w in initial.items()}, keys
        compiled = jax.jit(jax.vmap(step), donate_argnums=(0, 1, 2))
    held = [weights, {n: jnp.zeros_like(w) for n, w in weights.items()}, state]

    def run_steps(steps: int) -> None:
        for _ in range(steps):
            held[:] = compiled(*held)
        jax.block_until_ready(held)

    window = paced(run_steps, replicas * case.batch_size)
    return Contestant(name, replicas, window, held.clear)
