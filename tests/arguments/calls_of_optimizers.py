"""A good call of each optimiser, schedule and clipping function, for the walk over odd arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tensorbow as tb
from tests.arguments.public_calls import Call

EMPTY = frozenset({"empty list"})
IGNORED = {
    **dict.fromkeys(("gate_gradients", "aggregation_method"), "anything"),
    "colocate_gradients_with_ops": "flag",
}
STRENGTHS = {"l1_regularization_strength": "positive", "l2_regularization_strength": "positive"}
OWN = {"use_locking": "flag", "decay_all": "flag", "weight_decay": "positive", "name": "name"}


def weights() -> Any:
    return tb.Variable(np.ones(2, np.float32), name="weights")


def averages() -> Any:
    weights()
    return tb.train.ExponentialMovingAverage(0.9)


def initialised_session() -> Any:
    weights()
    session = tb.Session()
    session.run(tb.global_variables_initializer())
    return session


def loss(variable: Any = None) -> Any:
    return tb.reduce_sum((weights() if variable is None else variable) * 2.0)


def optimizer(kind: str, arguments: Mapping[str, Any], **sorts: str) -> Call:
    return Call(
        lambda: arguments,
        sorts={"learning_rate": "positive", **OWN, **sorts},
        names=(kind,),
    )


def gradient_and_weights() -> Mapping[str, Any]:
    return {"grads_and_vars": [(tb.constant([1.0, 2.0]), weights())]}


def synchronous() -> Any:
    return tb.train.SyncReplicasOptimizer(tb.train.GradientDescentOptimizer(0.1), 2)


def applied(method: str) -> Any:
    optimizer = synchronous()
    optimizer.minimize(loss(), tb.train.get_or_create_global_step())
    return getattr(optimizer, method)


def schedule(make: Callable[[], Any], name: str, arguments: Mapping[str, Any], **sorts: str) -> Call:
    return Call(lambda: arguments, sorts, target=lambda: getattr(make(), name), names=("schedule",))


SCHEDULES: Mapping[str, Callable[[], Any]] = {
    "Constant": lambda: tb.train.Constant(0.1),
    "CosineDecay": lambda: tb.train.CosineDecay(0.1, 10),
    "ExponentialDecay": lambda: tb.train.ExponentialDecay(0.1, 10, 0.5),
    "OneCycle": lambda: tb.train.OneCycle(0.1, 10),
    "PolynomialDecay": lambda: tb.train.PolynomialDecay(0.1, 10, 0.01),
    "PiecewiseConstant": lambda: tb.train.PiecewiseConstant([2], [0.1, 0.01]),
    "WarmUp": lambda: tb.train.WarmUp(0.1, 3),
}


def of_schedules() -> dict[str, Call]:
    calls = {}
    for kind, make in SCHEDULES.items():
        calls[f"{kind}.__call__"] = schedule(make, "__call__", {"step": 3}, step="count")
        calls[f"{kind}.tensor"] = Call(
            lambda: {"step": tb.constant(3), "dtype": tb.float32},
            {"step": "anything" if kind == "Constant" else "tensor"},
            target=lambda make=make: make().tensor,
        )
        calls[f"{kind}.scaled"] = schedule(make, "scaled", {"factor": 2.0}, factor="positive")
    for kind in ("PiecewiseConstant", "WarmUp"):
        calls[f"{kind}.restarts"] = schedule(SCHEDULES[kind], "restarts", {"step": 3}, step="count")
    return calls


CALLS: Mapping[str, Call] = {
    "train.GradientDescentOptimizer": optimizer("GradientDescent", {"learning_rate": 0.1}),
    "train.MomentumOptimizer": optimizer(
        "Momentum", {"learning_rate": 0.1, "momentum": 0.9}, momentum="fraction", use_nesterov="flag"
    ),
    "train.AdamOptimizer": optimizer("Adam", {}, beta1="fraction", beta2="fraction", epsilon="positive"),
    "train.AdamWOptimizer": Call(
        lambda: {},
        {"learning_rate": "positive", **OWN, "beta1": "fraction", "beta2": "fraction", "epsilon": "positive"},
        names=("AdamW",),
    ),
    "train.AdagradOptimizer": optimizer(
        "Adagrad", {"learning_rate": 0.1}, initial_accumulator_value="positive"
    ),
    "train.AdadeltaOptimizer": optimizer("Adadelta", {}, rho="fraction", epsilon="positive"),
    "train.RMSPropOptimizer": optimizer(
        "RMSProp",
        {"learning_rate": 0.1},
        decay="fraction",
        momentum="fraction",
        epsilon="positive",
        centered="flag",
    ),
    "train.FtrlOptimizer": optimizer(
        "Ftrl",
        {"learning_rate": 0.1},
        learning_rate_power="anything",
        initial_accumulator_value="positive",
        accum_name="name",
        linear_name="name",
        l2_shrinkage_regularization_strength="positive",
        **STRENGTHS,
    ),
    "train.ProximalGradientDescentOptimizer": optimizer(
        "ProximalGradientDescent", {"learning_rate": 0.1}, **STRENGTHS
    ),
    "train.ProximalAdagradOptimizer": optimizer(
        "ProximalAdagrad", {"learning_rate": 0.1}, initial_accumulator_value="positive", **STRENGTHS
    ),
    "train.AdagradDAOptimizer": Call(
        lambda: {"learning_rate": 0.1, "global_step": tb.train.get_or_create_global_step()},
        {
            "learning_rate": "positive",
            **OWN,
            "global_step": "object",
            "initial_gradient_squared_accumulator_value": "positive",
            **STRENGTHS,
        },
        names=("AdagradDA",),
    ),
    "train.SyncReplicasOptimizer": Call(
        lambda: {"opt": tb.train.GradientDescentOptimizer(0.1), "replicas_to_aggregate": 2},
        {
            **{"opt": "object", "replicas_to_aggregate": "count", "total_num_replicas": "count or none"},
            **{"variable_averages": "nothing", "variables_to_average": "nothing", "use_locking": "flag"},
        },
    ),
    "SyncReplicasOptimizer.apply_gradients": Call(
        lambda: {**gradient_and_weights(), "global_step": tb.train.get_or_create_global_step()},
        {"grads_and_vars": "list", "global_step": "object"},
        target=lambda: synchronous().apply_gradients,
        names=("apply_gradients",),
    ),
    "SyncReplicasOptimizer.get_init_tokens_op": Call(
        dict,
        {"num_tokens": "count"},
        {"num_tokens": frozenset({"-1"})},
        target=lambda: applied("get_init_tokens_op"),
    ),
    "SyncReplicasOptimizer.make_session_run_hook": Call(
        lambda: {"is_chief": True},
        {"is_chief": "flag", "num_tokens": "count"},
        {"num_tokens": frozenset({"-1"})},
        target=lambda: applied("make_session_run_hook"),
    ),
    "SyncReplicasOptimizer.get_slot": Call(
        lambda: {"variable": weights(), "name": "Momentum"},
        {"variable": "variable", "name": "text"},
        target=lambda: synchronous().get_slot,
    ),
    "train.ScipyOptimizerInterface": Call(
        lambda: {"loss": loss()},
        {
            **{"loss": "object", "var_list": "nothing", "method": "text"},
            **{"options": "names", "var_to_bounds": "nothing"},
        },
        {"var_list": EMPTY, "var_to_bounds": frozenset({"empty dict"})},
    ),
    "ScipyOptimizerInterface.minimize": Call(
        lambda: {"session": initialised_session()},
        {
            **{"session": "object", "feed_dict": "mapping or none", "step_callback": "function or none"},
            **{"fetches": "elements", "loss_callback": "function or none"},
        },
        target=lambda: (
            tb.train.ScipyOptimizerInterface(tb.reduce_sum(tb.square(tb.trainable_variables()[0]))).minimize
        ),
        names=("run: expected fetches",),
    ),
    "Optimizer.minimize": Call(
        lambda: {"loss": loss()},
        {
            "loss": "object",
            "global_step": "nothing",
            "var_list": "nothing",
            "grad_loss": "tensor or none",
            **IGNORED,
        },
        {"loss": frozenset({"tensor"}), "var_list": EMPTY},
        target=lambda: tb.train.GradientDescentOptimizer(0.1).minimize,
        names=("gradients",),
    ),
    "Optimizer.compute_gradients": Call(
        lambda: {"loss": loss()},
        {"loss": "object", "var_list": "nothing", "grad_loss": "tensor or none", **IGNORED},
        {"loss": frozenset({"tensor"}), "var_list": EMPTY},
        target=lambda: tb.train.GradientDescentOptimizer(0.1).compute_gradients,
        names=("gradients",),
    ),
    "Optimizer.apply_gradients": Call(
        gradient_and_weights,
        {"grads_and_vars": "object", "global_step": "nothing"},
        {"grads_and_vars": EMPTY},
        target=lambda: tb.train.GradientDescentOptimizer(0.1).apply_gradients,
    ),
    "Optimizer.get_slot": Call(
        lambda: {"variable": weights(), "name": "Momentum"},
        {"variable": "variable", "name": "text"},
        target=lambda: tb.train.GradientDescentOptimizer(0.1).get_slot,
    ),
    "train.Constant": Call(lambda: {"rate": 0.1}, {"rate": "positive"}),
    "train.CosineDecay": Call(
        lambda: {"rate": 0.1, "decay_steps": 10},
        {"rate": "positive", "decay_steps": "positive", "alpha": "fraction"},
    ),
    "train.ExponentialDecay": Call(
        lambda: {"rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
        {"rate": "positive", "decay_steps": "positive", "decay_rate": "positive", "staircase": "flag"},
    ),
    "train.OneCycle": Call(
        lambda: {"rate": 0.1, "steps": 10},
        {
            "rate": "positive",
            "steps": "positive",
            "rise": "fraction",
            "div_factor": "positive",
            "end": "positive",
        },
    ),
    "train.PolynomialDecay": Call(
        lambda: {"rate": 0.1, "decay_steps": 10},
        {"rate": "positive", "decay_steps": "positive", "end": "positive", "power": "positive"},
    ),
    "train.PiecewiseConstant": Call(
        lambda: {"boundaries": [2], "values": [0.1, 0.01]},
        {"boundaries": "extents", "values": "numbers"},
        names=("piecewise_constant",),
    ),
    "train.WarmUp": Call(lambda: {"schedule": 0.1, "steps": 3}, {"schedule": "positive", "steps": "count"}),
    **of_schedules(),
    **{
        f"train.{name}": Call(
            lambda more=more: {"learning_rate": 0.1, "global_step": tb.constant(3), "decay_steps": 10} | more,
            {
                **dict.fromkeys(("learning_rate", "global_step"), "tensor"),
                "decay_steps": "positive",
                **dict.fromkeys(("decay_rate", "end_learning_rate", "power"), "positive"),
                **dict.fromkeys(("cycle", "staircase"), "flag"),
            },
        )
        for name, more in (
            ("polynomial_decay", {}),
            ("inverse_time_decay", {"decay_rate": 0.5}),
            ("natural_exp_decay", {"decay_rate": 0.5}),
        )
    },
    "train.ExponentialMovingAverage": Call(
        lambda: {"decay": 0.9},
        {"decay": "fraction", "num_updates": "anything", "zero_debias": "flag"},
    ),
    **{
        f"ExponentialMovingAverage.{method}": Call(
            arguments,
            {"var_list": "nothing", "var": "variable", "moving_avg_variables": "nothing"},
            {"var_list": EMPTY, "moving_avg_variables": EMPTY, "var": frozenset({"tensor"})},
            target=lambda method=method: getattr(averages(), method),
            names=("ExponentialMovingAverage",),
        )
        for method, arguments in (
            ("apply", lambda: {"var_list": [weights()]}),
            ("average", lambda: {"var": weights()}),
            ("average_name", lambda: {"var": weights()}),
            ("variables_to_restore", dict),
        )
    },
    "train.cosine_decay_restarts": Call(
        lambda: {"learning_rate": 0.1, "global_step": tb.constant(3), "first_decay_steps": 10},
        {
            **dict.fromkeys(("learning_rate", "global_step"), "tensor"),
            **dict.fromkeys(("first_decay_steps", "t_mul", "m_mul"), "positive"),
            "alpha": "fraction",
        },
    ),
    "train.linear_cosine_decay": Call(
        lambda: {"learning_rate": 0.1, "global_step": tb.constant(3), "decay_steps": 10},
        {
            **dict.fromkeys(("learning_rate", "global_step"), "tensor"),
            **dict.fromkeys(("decay_steps", "num_periods", "alpha", "beta"), "positive"),
        },
    ),
    "train.cosine_decay": Call(
        lambda: {"learning_rate": 0.1, "global_step": tb.constant(3), "decay_steps": 10},
        {"learning_rate": "tensor", "global_step": "tensor", "decay_steps": "positive", "alpha": "fraction"},
    ),
    "train.exponential_decay": Call(
        lambda: {
            "learning_rate": 0.1,
            "global_step": tb.constant(3),
            "decay_steps": 10,
            "decay_rate": 0.5,
        },
        {
            "learning_rate": "tensor",
            "global_step": "tensor",
            "decay_steps": "positive",
            "decay_rate": "positive",
            "staircase": "flag",
        },
    ),
    "train.warm_up": Call(
        lambda: {"learning_rate": 0.1, "global_step": tb.constant(3), "steps": 10},
        {"learning_rate": "tensor", "global_step": "tensor", "steps": "count"},
    ),
    "train.piecewise_constant": Call(
        lambda: {"x": tb.constant(3), "boundaries": [2], "values": [0.1, 0.01]},
        {"boundaries": "extents", "values": "numbers"},
        names=("LessEqual",),
    ),
    "global_norm": Call(lambda: {"t_list": [tb.constant([1.0, 2.0])]}, {"t_list": "tensors"}),
    "clip_by_norm": Call(
        lambda: {"t": tb.constant([1.0, 2.0]), "clip_norm": 1.0},
        {"t": "tensor", "clip_norm": "positive", "axes": "axes or none"},
        names=("square", "sum", "mul"),
    ),
    "clip_by_global_norm": Call(
        lambda: {"t_list": [tb.constant([1.0, 2.0])], "clip_norm": 1.0},
        {"t_list": "tensors", "clip_norm": "positive", "use_norm": "positive or none"},
        names=("global_norm",),
    ),
}
