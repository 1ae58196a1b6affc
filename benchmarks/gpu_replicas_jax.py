"""JAX for `gpu_replicas.py`: one model, or many by vmap, under jit; one step a call, or many by lax.scan."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from gpu_replicas_contestant import Case, Contestant, Opening, Settings
from harness import paced
from ours import LEARNING_RATE, MOMENTUM

Weights = dict[str, Any]
SCANNED_STEPS = 64  # in a call of lax.scan


def jax_contestants(case: Case, settings: Settings) -> Opening:
    """JAX's contestants; none where JAX is not installed or has no GPU."""
    if find_spec("jax") is None:
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory too
    import jax

    if not settings.emulated and jax.default_backend() != "gpu":
        return
    for replicas in settings.counts:
        for steps in (SCANNED_STEPS, 1):
            name = "JAX jit" if replicas == 1 else "JAX vmap"
            name += " + scan" if steps > 1 else ""
            yield f"{name} x {replicas}", partial(_contestant, name, case, settings, replicas, steps)


def _contestant(name: str, case: Case, settings: Settings, replicas: int, steps: int) -> Contestant:
    import jax
    import jax.numpy as jnp
    from models_jax import Network, initial_weights

    precision = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "bfloat16"}[settings.compute]
    jax.config.update("jax_default_matmul_precision", precision)
    pictures, answers = case.data().batch()
    images, labels = jax.device_put(pictures), jax.device_put(answers.astype(np.int32))

    def loss(weights: Weights, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(Network(weights).logits(case.model, x))
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    def step(weights: Weights, velocity: Weights, key: Any) -> tuple[Weights, Weights, Any]:
        key, drawn = jax.random.split(key)
        chosen = jax.random.randint(drawn, (case.batch_size,), 0, len(labels))
        gradient = jax.grad(loss)(weights, images[chosen], labels[chosen])
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        return jax.tree.map(lambda w, v: w - LEARNING_RATE * v, weights, velocity), velocity, key

    initial = initial_weights(case.model, images[: case.batch_size])
    keys = jax.random.split(jax.random.key(1), replicas)
    one_step: Callable[..., Any] = step if replicas == 1 else jax.vmap(step)

    def many_steps(*carried: Any) -> Any:
        return jax.lax.scan(lambda held, _: (one_step(*held), None), carried, None, length=steps)[0]

    compiled = jax.jit(one_step if steps == 1 else many_steps, donate_argnums=(0, 1, 2))
    if replicas == 1:
        weights, state = {n: jnp.asarray(w) for n, w in initial.items()}, keys[0]
    else:
        weights, state = {n: jnp.stack([w] * replicas) for n, w in initial.items()}, keys
    held = [weights, {n: jnp.zeros_like(w) for n, w in weights.items()}, state]

    def run_steps(number: int) -> None:
        for _ in range(number):
            held[:] = compiled(*held)
        jax.block_until_ready(held)

    window = paced(run_steps, steps * replicas * case.batch_size)
    return Contestant(name, replicas, window, held.clear)
