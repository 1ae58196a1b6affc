"""JAX as a peer on the CPU: a jitted step with donated buffers, in a process of its own (see `peers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import LEARNING_RATE, MOMENTUM
from models_jax import Network, initial_weights

KEPT = 0.9  # of a moving statistic, a step
State = tuple[Any, ...]  # weights, velocity, moving statistics, position in the order, last loss


def jax_trainer(
    model: str, batch_size: int, steps_per_call: int, examples: tuple[Any, Any]
) -> tuple[Callable[[int], float], dict[str, Any]]:
    """Function that trains so many steps, up to whole calls, and returns the last loss; and the setting.

    steps_per_call: steps of one call by `lax.scan`, unrolled for models with convolutions (see
    `peer_settings`); 1 for no scan. Batches are gathered inside. examples: images float32 [examples, height,
    width, channels], labels int64 [examples].
    """
    pictures, answers = examples
    images, labels = jax.device_put(pictures), jax.device_put(answers.astype(np.int32))
    weights = {n: jnp.asarray(w) for n, w in initial_weights(model, images[:batch_size]).items()}
    random = np.random.default_rng(1)

    def loss(weights: Any, x: Any, y: Any) -> tuple[Any, Any]:
        network = Network(weights)
        scores = jax.nn.log_softmax(network.logits(model, x))
        return -jnp.take_along_axis(scores, y[:, None], 1).mean(), network.statistics

    def step(state: State, order: Any, images: Any, labels: Any) -> State:
        weights, velocity, moving, position, _ = state
        chosen = jax.lax.dynamic_slice(order, (position,), (batch_size,))
        differentiated = jax.value_and_grad(loss, has_aux=True)
        (found, statistics), gradient = differentiated(weights, images[chosen], labels[chosen])
        moving = jax.tree.map(lambda old, new: KEPT * old + (1 - KEPT) * new, moving, statistics)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        weights = jax.tree.map(lambda w, v: w - LEARNING_RATE * v, weights, velocity)
        return weights, velocity, moving, (position + batch_size) % (len(order) - batch_size + 1), found

    def call(state: State, order: Any, images: Any, labels: Any) -> State:
        if steps_per_call == 1:
            return step(state, order, images, labels)
        scanned = jax.lax.scan(
            lambda state, _: (step(state, order, images, labels), None),
            state,
            length=steps_per_call,
            unroll=model != "logreg",
        )
        return scanned[0]

    shapes = jax.eval_shape(loss, weights, images[:batch_size], labels[:batch_size])[1]
    compiled = jax.jit(call, donate_argnums=0)
    held: list[State] = [
        (
            weights,
            jax.tree.map(jnp.zeros_like, weights),
            jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype), shapes),
            jnp.zeros((), jnp.int32),
            jnp.zeros(()),
        )
    ]

    def run(steps: int) -> float:
        order = jax.device_put(random.permutation(len(answers)).astype(np.int32))
        for _ in range(-(-steps // steps_per_call)):
            held[0] = compiled(held[0], order, images, labels)
        return float(held[0][-1])  # waits for the call, which gives all of its results at once

    run(steps_per_call)
    return run, {"steps_per_call": steps_per_call, "devices": [str(device) for device in jax.devices()]}
