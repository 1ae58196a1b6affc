"""Cosine decay with restarts, and linear cosine decay, as TensorFlow has them."""

from __future__ import annotations

import math
from typing import Annotated, Any

from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import Name, NonNegative, PositiveNumber, checked, number
from tensorbow.ops.elementwise import add, cos, divide, floor, log, minimum, multiply, pow, subtract
from tensorbow.ops.selection import cast
from tensorbow.optimizers.decay import Share
from tensorbow.specs import float32


@checked
def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: PositiveNumber,
    t_mul: Annotated[float, number(1)] = 2.0,
    m_mul: PositiveNumber = 1.0,
    alpha: Share = 0.0,
    name: Name = None,
) -> Tensor:
    """Cosine decays one after the other (SGDR; Loshchilov and Hutter, 2017), a scalar float32, as TensorFlow.

    The first takes `first_decay_steps`, each further one `t_mul` times the steps of the one before, from
    `m_mul` times its rate; all fall to alpha * learning_rate.
    """
    with name_scope(name, "SGDRDecay"):
        rate = convert_to_tensor(learning_rate, float32)
        done = divide(cast(convert_to_tensor(global_step), float32), first_decay_steps)
        if t_mul == 1.0:
            restarts = floor(done)
            share = subtract(done, restarts)
        else:
            restarts = floor(divide(log(add(multiply(done, t_mul - 1.0), 1.0)), math.log(t_mul)))
            length = pow(t_mul, restarts)
            share = divide(subtract(done, divide(subtract(length, 1.0), t_mul - 1.0)), length)
        height = multiply(pow(m_mul, restarts), 0.5 * (1.0 - alpha))
        return multiply(rate, add(multiply(height, add(cos(multiply(share, math.pi)), 1.0)), alpha))


@checked
def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: PositiveNumber,
    num_periods: PositiveNumber = 0.5,
    alpha: NonNegative = 0.0,
    beta: NonNegative = 0.001,
    name: Name = None,
) -> Tensor:
    """rate * ((alpha + left) * (1 + cos(2 pi num_periods done)) / 2 + beta), a scalar float32, as TensorFlow.

    done: step / decay_steps, at most 1; left: 1 - done (Bello et al., 2017, "Neural Optimizer Search").
    """
    with name_scope(name, "LinearCosineDecay"):
        rate = convert_to_tensor(learning_rate, float32)
        done = minimum(divide(cast(convert_to_tensor(global_step), float32), decay_steps), 1.0)
        wave = multiply(add(cos(multiply(done, 2.0 * math.pi * num_periods)), 1.0), 0.5)
        return multiply(rate, add(multiply(add(subtract(1.0, done), alpha), wave), beta))
