"""`tb.random`: random tensors under TensorFlow's shorter names."""

from tensorbow.graph import set_random_seed
from tensorbow.ops.candidate_samplers import (
    all_candidate_sampler,
    fixed_unigram_candidate_sampler,
    learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler,
    uniform_candidate_sampler,
)
from tensorbow.ops.random import random_normal as normal
from tensorbow.ops.random import random_shuffle as shuffle
from tensorbow.ops.random import random_uniform as uniform
from tensorbow.ops.random import truncated_normal
from tensorbow.ops.random_distributions import categorical, multinomial
from tensorbow.ops.random_distributions import random_gamma as gamma
from tensorbow.ops.random_distributions import random_poisson as poisson

__all__ = [
    "all_candidate_sampler",
    "categorical",
    "fixed_unigram_candidate_sampler",
    "gamma",
    "learned_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "multinomial",
    "normal",
    "poisson",
    "set_random_seed",
    "shuffle",
    "truncated_normal",
    "uniform",
    "uniform_candidate_sampler",
]
