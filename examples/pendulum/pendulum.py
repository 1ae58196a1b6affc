"""Pendulum swing-up in NumPy: many pendulums at once, a replay buffer, and n-step returns.

A rod hangs from a motor that is too weak to lift it: it has to be swung up, and then balanced.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GRAVITY, MASS, LENGTH = 10.0, 1.0, 1.0  # m/s^2, kg, m
GREATEST_TORQUE, GREATEST_SPEED = 2.0, 8.0  # N m, rad/s
TIME_STEP_S, EPISODE = 0.05, 200  # steps
OBSERVATION_SIZE, ACTION_SIZE = 3, 1

Transitions = tuple[np.ndarray, ...]  # observations, actions, returns, discounts, next observations
Policy = Callable[[np.ndarray], np.ndarray]  # observations [pendulums, 3] to actions [pendulums, 1]


def acceleration(angle: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """Angular acceleration [rad/s^2] of a uniform rod; its angle [rad] is 0 when it stands."""
    inertia = MASS * LENGTH**2 / 3
    return (MASS * GRAVITY * LENGTH / 2 * np.sin(angle) + torque) / inertia


class Pendulums:
    """Pendulums that start together, at random angles and speeds, an episode of 200 steps again and again."""

    def __init__(self, count: int, rng: np.random.Generator):
        self.count, self._rng = count, rng
        self.reset()

    def reset(self) -> None:
        """Begins an episode."""
        self.angle = self._rng.uniform(-np.pi, np.pi, self.count)
        self.speed = self._rng.uniform(-1, 1, self.count)
        self.steps = 0

    def observations(self) -> np.ndarray:
        """Cosine and sine of the angle, and the speed in units of the greatest: float32 `[count, 3]`."""
        state = [np.cos(self.angle), np.sin(self.angle), self.speed / GREATEST_SPEED]
        return np.stack(state, 1).astype(np.float32)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Moves all by one time step (semi-implicit Euler); returns their rewards `[count]`.

        actions: torques `[count, 1]` in units of the greatest. Rewards are 0 at rest upright, else less.
        """
        torque = GREATEST_TORQUE * np.clip(actions[:, 0], -1, 1)
        from_upright = (self.angle + np.pi) % (2 * np.pi) - np.pi
        rewards = -(from_upright**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        speed = self.speed + TIME_STEP_S * acceleration(self.angle, torque)
        self.speed = np.clip(speed, -GREATEST_SPEED, GREATEST_SPEED)
        self.angle = self.angle + TIME_STEP_S * self.speed
        self.steps += 1
        return rewards

    def act(
        self, policy: Policy, steps: int, noise: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Acts for some steps, with Gaussian noise on the policy's actions, in a new episode if it is over.

        Returns observations `[steps + 1, count, 3]`, actions `[steps, count, 1]`, rewards `[steps, count]`.
        """
        if self.steps + steps > EPISODE:
            self.reset()
        observations, actions, rewards = [self.observations()], [], []
        for _ in range(steps):
            action = policy(observations[-1]) + noise * self._rng.normal(size=(self.count, ACTION_SIZE))
            actions.append(np.clip(action, -1, 1).astype(np.float32))
            rewards.append(self.step(actions[-1]))
            observations.append(self.observations())
        return np.stack(observations), np.stack(actions), np.stack(rewards)


def episode_returns(policy: Policy, episodes: int, seed: int) -> np.ndarray:
    """Sums of rewards `[episodes]` of a policy without noise."""
    _, _, rewards = Pendulums(episodes, np.random.default_rng(seed)).act(policy, EPISODE)
    return rewards.sum(0)


def n_step_transitions(
    observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, n: int, gamma: float
) -> Transitions:
    """Transitions over n steps, or fewer at the end, from what `act` returns; leading axis steps x count.

    A return is the discounted sum of the rewards on the way; a discount, the factor of the value of the next
    observation, is gamma to the power of the number of steps. It is never 0, as episodes end by time alone.
    """
    steps = len(rewards)
    ends = np.minimum(np.arange(steps) + n, steps)
    returns = np.zeros_like(rewards)
    for ahead in range(min(n, steps)):
        returns[: steps - ahead] += gamma**ahead * rewards[ahead:]
    discounts = np.broadcast_to(gamma ** (ends - np.arange(steps))[:, None], rewards.shape)
    parts = observations[:-1], actions, returns, discounts, observations[ends]
    return tuple(part.reshape(-1, *part.shape[2:]).astype(np.float32) for part in parts)


class ReplayBuffer:
    """The newest `capacity` transitions."""

    def __init__(self, capacity: int):
        self.capacity, self.added = capacity, 0
        self._parts: Transitions = ()

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transitions: Transitions) -> None:
        """Adds transitions in place of the oldest."""
        if not self._parts:
            self._parts = tuple(
                np.empty((self.capacity, *part.shape[1:]), part.dtype) for part in transitions
            )
        rows = (self.added + np.arange(len(transitions[0]))) % self.capacity
        for kept, part in zip(self._parts, transitions, strict=True):
            kept[rows] = part
        self.added += len(rows)

    def sample(self, rng: np.random.Generator, batch_size: int) -> Transitions:
        """Transitions drawn uniformly, with replacement."""
        rows = rng.integers(0, len(self), batch_size)
        return tuple(part[rows] for part in self._parts)
