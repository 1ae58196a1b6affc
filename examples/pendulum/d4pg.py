"""D4PG in small: a deterministic policy, and a critic of the distribution of returns.

Barth-Maron et al., Distributed distributional deterministic policy gradients (2018), without priorities;
the categorical distribution is that of Bellemare et al., A distributional perspective on reinforcement
learning (2017). TF-Replicator (2019, section 7) trains it with replicas, as here: `step` is written for one.
"""

from __future__ import annotations

import itertools

import numpy as np

import tensorbow as tb

Weights = list[tb.Variable]  # kernel, bias, kernel, bias, ...


def make_weights(name: str, sizes: list[int]) -> Weights:
    """Kernels and biases of a perceptron with layers of these sizes, the first being its inputs."""
    with tb.variable_scope(name):
        return [
            tb.get_variable(f"{part}_{layer}", shape, initializer=initializer)
            for layer, (inputs, units) in enumerate(itertools.pairwise(sizes))
            for part, shape, initializer in (
                ("kernel", [inputs, units], tb.initializers.glorot_uniform()),
                ("bias", [units], tb.initializers.zeros()),
            )
        ]


def perceptron(x: tb.Tensor, weights: Weights) -> tb.Tensor:
    """Outputs of a perceptron: relu between its layers, none after the last."""
    for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        x = tb.nn.relu(tb.matmul(x, kernel) + bias)
    return tb.matmul(x, weights[-2]) + weights[-1]


def target_copy(weights: Weights) -> Weights:
    """Variables that begin with the same values, and that no optimiser changes."""
    return [tb.Variable(w.initialized_value(), trainable=False, name=f"target_{w.op.name}") for w in weights]


def projected(probabilities: tb.Tensor, values: tb.Tensor, atoms: np.ndarray) -> tb.Tensor:
    """Projection of distributions onto equidistant atoms: probabilities `[batch, atoms]`.

    probabilities, values: `[batch, points]`, where `values` may lie anywhere. The probability of each is
    shared by its two neighbouring atoms, in proportion to its nearness; beyond the ends it is the last one's.
    """
    values = tb.clip_by_value(values, atoms[0], atoms[-1])
    distances = tb.abs(tb.expand_dims(values, 1) - atoms[:, None]) / (atoms[1] - atoms[0])
    shares = tb.maximum(1.0 - distances, 0.0)  # [batch, atoms, points]
    return tb.reduce_sum(shares * tb.expand_dims(probabilities, 1), 2)


class D4pg:
    """Actor, critic, their targets, and the step that trains them; make it in `replicator.context()`."""

    def __init__(
        self,
        replicator: tb.Replicator,
        observation_size: int,
        action_size: int,
        lowest_return: float,
        highest_return: float,
        *,
        atoms: int = 51,
        hidden: tuple[int, ...] = (64, 64),
        actor_rate: float = 1e-3,
        critic_rate: float = 1e-3,
        target_rate: float = 0.01,
    ):
        self.atoms = np.linspace(lowest_return, highest_return, atoms, dtype=np.float32)
        self.actor = make_weights("actor", [observation_size, *hidden, action_size])
        self.critic = make_weights("critic", [observation_size + action_size, *hidden, atoms])
        self.target_actor, self.target_critic = target_copy(self.actor), target_copy(self.critic)
        self.target_rate = target_rate
        self.actor_optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(actor_rate))
        self.critic_optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(critic_rate))

    def policy(self, observations: tb.Tensor, weights: Weights) -> tb.Tensor:
        """Actions between -1 and 1."""
        return tb.tanh(perceptron(observations, weights))

    def return_logits(self, observations: tb.Tensor, actions: tb.Tensor, weights: Weights) -> tb.Tensor:
        """Logits of the return's distribution over the atoms."""
        return perceptron(tb.concat([observations, actions], 1), weights)

    def critic_loss(
        self,
        observations: tb.Tensor,
        actions: tb.Tensor,
        returns: tb.Tensor,
        discounts: tb.Tensor,
        next_observations: tb.Tensor,
    ) -> tb.Tensor:
        """Cross-entropy to the distribution that the Bellman equation gives, of the target networks."""
        next_actions = self.policy(next_observations, self.target_actor)
        next_logits = self.return_logits(next_observations, next_actions, self.target_critic)
        values = tb.expand_dims(returns, 1) + tb.expand_dims(discounts, 1) * self.atoms
        target = tb.stop_gradient(projected(tb.nn.softmax(next_logits), values, self.atoms))
        logits = self.return_logits(observations, actions, self.critic)
        return tb.reduce_mean(tb.nn.softmax_cross_entropy_with_logits(labels=target, logits=logits))

    def actor_loss(self, observations: tb.Tensor) -> tb.Tensor:
        """The expected return of the policy's actions by the critic, negated."""
        logits = self.return_logits(observations, self.policy(observations, self.actor), self.critic)
        return -tb.reduce_mean(tb.reduce_sum(tb.nn.softmax(logits) * self.atoms, 1))

    def step(self, *transitions: tb.Tensor) -> dict[str, tb.Tensor]:
        """Updates both networks, then moves the targets towards them; returns the losses.

        transitions: those of one replica, the arguments of `critic_loss`. Both losses belong to the weights
        before the step.
        """
        losses = {"critic": self.critic_loss(*transitions), "actor": self.actor_loss(transitions[0])}
        updates = [
            self.critic_optimizer.minimize(losses["critic"], var_list=self.critic),
            self.actor_optimizer.minimize(losses["actor"], var_list=self.actor),
        ]
        pairs = zip(self.target_actor + self.target_critic, self.actor + self.critic, strict=True)
        with tb.control_dependencies(updates):
            moved = [target.assign_add(self.target_rate * (source - target)) for target, source in pairs]
        with tb.control_dependencies(moved):
            return {name: tb.identity(loss) for name, loss in losses.items()}
