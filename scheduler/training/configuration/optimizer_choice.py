"""Optimisers of a training run, by name, with their options and default learning rates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from scheduler.options import shortened
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, convert_to_tensor
from tensorbow.kinds import TEXT, Kind, RefusedError
from tensorbow.missing_names import did_you_mean
from tensorbow.models import Defaults
from tensorbow.models.model import rate_factor
from tensorbow.ops.elementwise import clip_by_value
from tensorbow.optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
    clip_by_global_norm,
)

OPTIMIZERS: Mapping[str, Callable[..., Optimizer]] = {
    "momentum": MomentumOptimizer,
    "nesterov": partial(MomentumOptimizer, use_nesterov=True),
    "sgd": GradientDescentOptimizer,
    "adam": AdamOptimizer,
    "adamw": AdamWOptimizer,
    "rmsprop": RMSPropOptimizer,
    "adagrad": AdagradOptimizer,
    "adadelta": AdadeltaOptimizer,
    "ftrl": FtrlOptimizer,
}
WITH_MOMENTUM = ("momentum", "nesterov")  # those that the option `momentum` is for
_RATES = {  # of one replica
    **{"adam": 1e-3, "adamw": 1e-3, "rmsprop": 1e-3, "adagrad": 1e-2, "adadelta": 1.0, "ftrl": 0.1}
}
_MOMENTUM = 0.01  # of a model that has no rate for it
_SGD = 10.0  # times the rate of momentum 0.9, whose steps add up to 1 / (1 - 0.9) gradients
_GIVEN = ("learning_rate", "use_locking", "name", "use_nesterov", "weight_decay", "decay_all")
DEFAULT_RATES = (
    f"the model's (sgd: {_SGD:g} times it; "
    f"{', '.join(f'{name} {rate:g}' for name, rate in _RATES.items())}), times sqrt(replicas) and the batch "
    "size over the model's own (its square root for adam and the like)"
)


def default_rate(
    optimizer: str, of_model: float, defaults: Defaults, replicas: int, batch_size: int
) -> float:
    """Default learning rate of each averaged replica.

    of_model: the model's for so many replicas and this batch size, with the optimiser of its defaults.
    """
    own = defaults.optimizer
    if optimizer == own:
        return of_model
    factor = rate_factor(replace(defaults, optimizer=optimizer), batch_size) * float(replicas**0.5)
    if optimizer in _RATES:
        return float(_RATES[optimizer] * factor)
    with_momentum = of_model if own in WITH_MOMENTUM else float(_MOMENTUM * factor)
    return with_momentum * _SGD if optimizer == "sgd" else with_momentum


def options_of_optimizer(name: str) -> list[str]:
    """Names of an optimiser's own options."""
    given = (*_GIVEN, "momentum") if name in WITH_MOMENTUM else _GIVEN
    return [option for option in inspect.signature(OPTIMIZERS[name]).parameters if option not in given]


def make_optimizer(
    name: str, rate: float, momentum: float | Tensor, options: Mapping[str, Any], **common: Any
) -> Optimizer:
    """Makes an optimiser of a learning rate. momentum: for those that have it as an option of the run.

    options: its own, by name. common: further arguments of its class. Raises InvalidArgumentError for an
    option that it lacks, or with a wrong value.
    """
    known = options_of_optimizer(name)
    for option in options:
        if option not in known:
            raise InvalidArgumentError(
                f"optimizer_options: expected options of {name} ({', '.join(known) or 'it has none'}), got "
                f"{shortened(option)}{did_you_mean(option, known)}"
            )
    own = {**options, "momentum": momentum} if name in WITH_MOMENTUM else options
    try:
        return OPTIMIZERS[name](rate, **own, **common)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"optimizer_options: {error}") from None


def minimize(
    optimizer: Optimizer, loss: Tensor, clip_norm: float | None, clip_value: float | None
) -> Operation:
    """The operation of one training step, on gradients clipped element by element, then by their norm.

    clip_norm: greatest norm of all gradients of a replica together. Weight decay is not part of it.
    """
    if clip_norm is None and clip_value is None:
        return optimizer.minimize(loss)
    pairs = [(g, v) for g, v in optimizer.compute_gradients(loss) if g is not None]
    grads: list[Any] = [g for g, _ in pairs]
    if clip_value is not None:
        grads = [clip_by_value(convert_to_tensor(g), -clip_value, clip_value) for g in grads]
    if clip_norm is not None:
        grads, _ = clip_by_global_norm(grads, clip_norm)
    return optimizer.apply_gradients([(g, v) for g, (_, v) in zip(grads, pairs, strict=True)])


def _read_options(value: Any) -> tuple[tuple[str, Any], ...]:
    if isinstance(value, str):
        pairs = [item.partition("=") for item in value.split(",")]
        if not all(name and equals and text for name, equals, text in pairs):
            raise RefusedError
        value = [(name.strip().replace("-", "_"), _value(text.strip())) for name, _, text in pairs]
    if isinstance(value, Mapping):
        value = value.items()
    read = tuple((TEXT.read(name), own) for name, own in value)
    if any(type(own) not in (bool, int, float) for _, own in read) or len(dict(read)) < len(read):
        raise RefusedError
    return read


def _value(text: str) -> bool | float:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else float(text)


OPTIONS = Kind("NAME=VALUE pairs of numbers or true and false, as beta1=0.95,epsilon=1e-6", _read_options)
