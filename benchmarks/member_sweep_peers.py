"""PyTorch and JAX that train members of a sweep: one after the other, or several as one by vmap.

Each runs in processes of its own (see `peers`). A network has 784-128-10 units; members have learning rates,
initial values and orders of the examples of their own. Losses of all steps come back to the host.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import MOMENTUM
from peers import PeerSetting

BATCH_SIZE, FEATURES, HIDDEN, CLASSES = 16, 784, 128, 10
VMAPPED = (64, 16, 4)  # members of one vmap that are tried
TRIAL_SECONDS, TRIALS = 0.3, 2

Run = Callable[[int], float]


def rates(members: int) -> Any:
    """Learning rates float32 [members], from 0.0003 to 0.01."""
    return np.geomspace(0.0003, 0.01, members).astype(np.float32)


@dataclass(frozen=True)
class MemberSetting(PeerSetting):
    """variant: `sequential`, `vmap`, or with PyTorch one of them followed by `, compile`.

    Each call of `trainer` has the members of one process; a step of its function is `steps_per_call` steps
    of each of them, with PyTorch one call for each.
    """

    def trainer(self, model: str, batch_size: int, examples: tuple[Any, Any]) -> tuple[Run, dict[str, Any]]:
        """See PeerSetting. batch_size: units of a step, which are steps of a member."""
        members = batch_size // self.steps_per_call
        images, labels = examples[0].reshape(len(examples[0]), FEATURES), examples[1]
        tried = [1] if self.variant.startswith("sequential") else [n for n in VMAPPED if n <= members]
        make = _torch_group if self.library == "torch" else _jax_group
        trained = {
            size: [
                make(
                    self,
                    rates(members)[first : first + size],
                    Orders(len(labels), first, size),
                    images,
                    labels,
                )
                for first in range(0, members, size)
            ]
            for size in tried
        }
        times = {size: min(_timed(groups) for _ in range(TRIALS)) for size, groups in trained.items()}
        best = min(times, key=lambda size: times[size])
        groups = trained[best]

        def run(steps: int) -> float:
            losses = [group() for _ in range(steps) for group in groups]
            return float(sum(np.sum(of_group) for of_group in losses))

        return run, {
            "members_at_once": best,
            "us_per_member_step": {
                size: round(1e6 * seconds / batch_size, 1) for size, seconds in times.items()
            },
        }


def _timed(groups: list[Callable[[], Any]]) -> float:
    """Seconds of a step of all groups, after a first one that compiles and allocates."""
    for group in groups:
        group()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < TRIAL_SECONDS or not steps:
        for group in groups:
            group()
        steps += 1
    return (time.perf_counter() - started) / steps


class Orders:
    """Orders of the examples, new in every epoch, of some members."""

    def __init__(self, examples: int, first: int, members: int):
        self.first = first
        self._examples = examples
        self._random = [np.random.default_rng(first + member) for member in range(members)]
        self._rows = np.zeros((members, 0), np.int64)

    def next(self, steps: int) -> Any:
        """Rows of the next batches, int64 [steps, members, 16]."""
        count = steps * BATCH_SIZE
        while self._rows.shape[1] < count:
            epoch = [random.permutation(self._examples) for random in self._random]
            self._rows = np.hstack([self._rows, np.stack(epoch)])
        rows, self._rows = self._rows[:, :count], self._rows[:, count:]
        return np.ascontiguousarray(rows.reshape(len(rows), steps, BATCH_SIZE).swapaxes(0, 1))


def _initial(first: int, members: int) -> dict[str, Any]:
    """Weights of members, from number `first` on, with a leading axis of members."""
    random = np.random.default_rng(first)
    shapes = {"w1": (FEATURES, HIDDEN), "b1": (1, HIDDEN), "w2": (HIDDEN, CLASSES), "b2": (1, CLASSES)}
    return {
        name: (random.normal(size=(members, *shape)) / math.sqrt(shape[0]) * (shape[0] > 1)).astype(
            np.float32
        )
        for name, shape in shapes.items()
    }


def _jax_group(
    setting: MemberSetting, own: Any, orders: Orders, images: Any, labels: Any
) -> Callable[[], Any]:
    """Function that trains members for a call of `lax.scan`; their losses [steps, members]."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
        scores = jax.nn.log_softmax(hidden @ weights["w2"] + weights["b2"])
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    def step(weights: Any, velocity: Any, rate: Any, x: Any, y: Any) -> Any:
        found, gradient = jax.value_and_grad(loss)(weights, x, y)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        return jax.tree.map(lambda w, v: w - rate * v, weights, velocity), velocity, found

    members = len(own)
    one = members == 1
    of_all = step if one else jax.vmap(step)

    def call(weights: Any, velocity: Any, rate: Any, rows: Any, images: Any, labels: Any) -> Any:
        def body(state: Any, chosen: Any) -> Any:
            *state, found = of_all(*state, rate, images[chosen], labels[chosen])
            return tuple(state), found

        (weights, velocity), losses = jax.lax.scan(body, (weights, velocity), rows)
        return weights, velocity, losses

    known = _jitted.setdefault((members, setting.steps_per_call), jax.jit(call, donate_argnums=(0, 1)))
    start = {
        name: jnp.asarray(value[0] if one else value)
        for name, value in _initial(orders.first, members).items()
    }
    state = [start, jax.tree.map(jnp.zeros_like, start)]
    if not _placed:
        _placed.extend([jax.device_put(images), jax.device_put(labels.astype(np.int32))])
    rate = jnp.asarray(own[0] if one else own)

    def group() -> Any:
        rows = orders.next(setting.steps_per_call).astype(np.int32)
        state[0], state[1], losses = known(*state, rate, rows[:, 0] if one else rows, *_placed)
        return np.asarray(losses)

    return group


_jitted: dict[tuple[int, int], Any] = {}  # by members and steps: groups of one size share their code
_placed: list[Any] = []  # images and labels on JAX's device


def _torch_group(
    setting: MemberSetting, own: Any, orders: Orders, images: Any, labels: Any
) -> Callable[[], Any]:
    """Function that trains members for some steps; their losses [steps, members]."""
    import torch
    from torch.func import grad_and_value, vmap

    torch.set_num_threads(setting.threads)
    torch.set_flush_denormal(True)
    members, steps = len(own), setting.steps_per_call
    pictures, answers = torch.from_numpy(images), torch.from_numpy(labels)
    start = {name: torch.from_numpy(value) for name, value in _initial(orders.first, members).items()}

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        hidden = torch.relu(x @ weights["w1"] + weights["b1"])
        return torch.nn.functional.cross_entropy(hidden @ weights["w2"] + weights["b2"], y)

    def step(weights: Any, velocity: Any, factors: Any, x: Any, y: Any) -> Any:
        found, losses = vmap(grad_and_value(loss_of))(weights, x, y)
        with torch.no_grad():
            for name, value in weights.items():
                velocity[name].mul_(MOMENTUM).add_(found[name])
                value.addcmul_(velocity[name], factors[name], value=-1)
        return losses

    def shared(function: Any) -> Any:
        """Compiled once for all groups of a size."""
        if not setting.variant.endswith("compile"):
            return function
        return _compiled.setdefault(members, torch.compile(function, dynamic=False))

    if members == 1:
        weights = {name: value[0].requires_grad_() for name, value in start.items()}
        optimizer = torch.optim.SGD(weights.values(), lr=float(own[0]), momentum=MOMENTUM, fused=True)
        forward = shared(loss_of)

        def train(x: Any, y: Any) -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = forward(weights, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        lead: tuple[int, ...] = (BATCH_SIZE,)
    else:
        velocity = {name: torch.zeros_like(value) for name, value in start.items()}
        factors = torch.from_numpy(own).view(-1, 1, 1)
        train_all = shared(step)

        def train(x: Any, y: Any) -> Any:
            return train_all(start, velocity, dict.fromkeys(start, factors), x, y)

        lead = (members, BATCH_SIZE)

    def group() -> Any:
        losses = []
        for rows in torch.from_numpy(orders.next(steps)).view(steps, -1):
            x = pictures.index_select(0, rows).view(*lead, FEATURES)
            losses.append(train(x, answers.index_select(0, rows).view(lead)))
        return torch.stack(losses).numpy()

    return group


_compiled: dict[int, Any] = {}  # by members of a group
