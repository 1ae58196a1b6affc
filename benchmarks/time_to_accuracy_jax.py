"""JAX as a learner of `time_to_accuracy`: the same LeNet, initial values, batches and update.

A jitted step with donated buffers that gathers its batch, in a process of its own that has all cores (see
`time_to_accuracy_peers`). Weights have our layout, so they are passed unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from models_jax import Network
from time_to_accuracy import MODEL, MOMENTUM, Goal, RunSetting, seeded_program

from tensorbow.data import BatchOrder
from tensorbow.specs import Array

_KINDS = {"w": "weights", "b": "biases"}  # of `models_jax` to ours
NAMES = {
    f"{layer}/{theirs}": f"{layer}/{ours}"
    for layer in ("conv1", "conv2", "fc1", "fc2")
    for theirs, ours in _KINDS.items()
}
State = tuple[Any, Any, Any, Any]  # weights, velocity, number of the next batch, sum of losses


class JaxLearner:
    """Trains LeNet from the seed's initial values on the batches of its `BatchOrder`."""

    def __init__(self, setting: RunSetting, goal: Goal, seed: int, choice: Mapping[str, Any]):
        """choice: has `steps_per_call`, the number of unrolled steps: within a loop convolutions are slow."""
        self._setting, self._at_once = setting, int(choice["steps_per_call"])
        self._order = BatchOrder(len(goal.train), setting.batch_size, seed)
        pictures, answers = goal.train.batch()
        self._data = jax.device_put(pictures), jax.device_put(answers.astype(np.int32))
        self._calls: dict[int, Callable[..., State]] = {
            steps: jax.jit(partial(self._call, steps), donate_argnums=0) for steps in (1, self._at_once)
        }
        self._values = seeded_program(goal.train, setting.learning_rate, seed).initial_values()
        self._permuted: Any = jnp.zeros((self._order.batches_per_epoch, setting.batch_size), jnp.int32)
        self._start()
        for steps in self._calls:  # compiles, allocates
            self._run(steps)
        jax.block_until_ready(self._state)
        self._start()

    def _start(self) -> None:
        """Sets the initial values, and velocities to zero."""
        weights = {theirs: jnp.array(self._values[ours]) for theirs, ours in NAMES.items()}
        velocity = jax.tree.map(jnp.zeros_like, weights)
        self._state: State = weights, velocity, jnp.zeros((), jnp.int32), jnp.zeros(())
        self._steps = 0

    def _permutation(self, epoch: int) -> Any:
        """Examples of an epoch's batches, [batches, batch_size]."""
        numbers = range(self._order.batches_per_epoch)
        batches = np.stack([self._order.indices(epoch, number) for number in numbers])
        return jax.device_put(batches.astype(np.int32))

    def _call(self, steps: int, state: State, order: Any, images: Any, labels: Any) -> State:
        for _ in range(steps):
            state = self._step(state, order, images, labels)
        return state

    def _step(self, state: State, order: Any, images: Any, labels: Any) -> State:
        weights, velocity, number, total = state
        chosen = order[number]
        found, gradient = jax.value_and_grad(_loss)(weights, images[chosen], labels[chosen])
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        rate = self._setting.learning_rate
        weights = jax.tree.map(lambda w, v: w - rate * v, weights, velocity)
        return weights, velocity, (number + 1) % len(order), total + found

    def _run(self, steps: int) -> None:
        """Runs so many steps, all within the epoch, in one call."""
        self._state = self._calls[steps](self._state, self._permuted, *self._data)
        self._steps += steps

    def train_until(self, epochs: float) -> tuple[float, float]:
        """Trains up to `epochs`; returns the epochs done and the mean loss since the last call."""
        whole = self._order.batches_per_epoch
        stop = max(round(epochs * whole), self._steps + 1)
        first = self._steps
        while self._steps < stop:
            epoch, number = divmod(self._steps, whole)
            if number == 0:
                self._permuted = self._permutation(epoch)
            left = min(stop - self._steps, whole - number)
            self._run(self._at_once if left >= self._at_once else 1)
        weights, velocity, number, total = self._state
        loss = float(total) / (stop - first)  # waits for the steps
        self._state = weights, velocity, number, jnp.zeros(())
        return stop / whole, loss

    def model(self) -> dict[str, Array]:
        """Values by our variables' names."""
        return {NAMES[name]: np.array(value) for name, value in self._state[0].items()}


def _loss(weights: Any, x: Any, y: Any) -> Any:
    scores = jax.nn.log_softmax(Network(weights).logits(MODEL, x))
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()
