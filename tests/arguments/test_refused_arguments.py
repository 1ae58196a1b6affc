"""Calls that were taken with another meaning, or ended in Python's own error: each is refused in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.kinds import _evaluated
from tests.arguments.public_calls import public_callables

Calls = dict[str, tuple[Callable[[], Any], str]]


def variable() -> Any:
    return tb.Variable(np.ones(2, np.float32), name="w")


def loss() -> Any:
    return tb.reduce_sum(variable() * 2.0)


def sgd() -> Any:
    return tb.train.GradientDescentOptimizer(0.1)


REFUSED: Calls = {
    "a tensor, which is named": (
        lambda: tb.nn.in_top_k([[1.0, 2.0]], [1], tb.constant(2, name="my_units")),
        "'my_units:0'",
    ),
    "a flag for the weight decay": (
        lambda: tb.train.GradientDescentOptimizer(0.1, weight_decay=True),
        "GradientDescentOptimizer: expected weight_decay to be a finite number of at least 0, or a scalar "
        "tensor, got bool True",
    ),
    "a number for a flag": (
        lambda: tb.train.GradientDescentOptimizer(0.1, 1.0),
        "GradientDescentOptimizer: expected use_locking to be True or False, got float 1.0",
    ),
    "a flag as rate": (
        lambda: tb.train.AdamOptimizer(True),
        "AdamOptimizer: expected learning_rate to be a finite number above 0, .* got bool True",
    ),
    "a vector as rate": (
        lambda: tb.train.AdamOptimizer(tb.constant([0.1, 0.2])),
        "AdamOptimizer: expected learning_rate to be .* a scalar tensor",
    ),
    "a weight as global step": (
        lambda: sgd().minimize(loss(), global_step=variable()),
        "Optimizer.minimize: expected global_step to be a scalar variable that counts steps or None, got Var",
    ),
    "a name as variables": (
        lambda: sgd().minimize(loss(), var_list="w"),
        "Optimizer.minimize: expected var_list to be a list of variables or None, got str 'w'",
    ),
    "a number as name": (
        lambda: sgd().minimize(loss(), name=5),
        "Optimizer.minimize: expected name to be a string or None, got int 5",
    ),
    "half a seed": (
        lambda: tb.set_random_seed(1.7),  # type: ignore[arg-type]
        "set_random_seed: expected seed to be a whole number .*, got float 1.7",
    ),
    "a name as graph": (
        lambda: tb.Session(graph="a"),
        "Session: expected graph to be a tb.Graph or None, got str 'a'",
    ),
    "a number as device": (
        lambda: tb.device(5).__enter__(),
        "device: expected device name to be a string as '/cpu:0', .* got int 5",
    ),
    "a number as name scope": (
        lambda: tb.name_scope(5).__enter__(),
        "name_scope: expected name to be a string or None, got int 5",
    ),
    "a number as control dependencies": (
        lambda: tb.control_dependencies(5).__enter__(),
        "control_dependencies: expected inputs to be a list of tensors and operations, or None, got int 5",
    ),
    "feeds that are an array": (
        lambda: tb.Session().run(tb.constant(1.0), np.ones(2)),
        "run: expected feed_dict to be a dictionary of values by tensor or name, got ndarray",
    ),
    "reuse by a word": (
        lambda: tb.variable_scope("a", reuse="a"),
        "variable_scope: expected reuse to be True, False or tb.AUTO_REUSE or None, got str 'a'",
    ),
    "units that are a fraction": (
        lambda: tb.layers.dense(tb.ones([2, 3]), 2.5),
        "dense: expected units to be a whole number of at least 1, got float 2.5",
    ),
    "a session that is none": (
        lambda: tb.constant(1.0).eval(session=5),
        "eval of Const:0: expected session to be a session or None, got int 5",
    ),
    "a shape of truth": (
        lambda: tb.TensorShape([True, 2]),
        r"TensorShape: dims shape \[True, 2\]: expected a list of whole numbers and None",
    ),
    "replicas by a flag": (
        lambda: tb.MultiGpuReplicator(["/cpu:0"], True),
        "MultiGpuReplicator: expected replicas_per_gpu to be a whole number of at least 1, .* got bool True",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused_in_one_line(case: str) -> None:
    call, words = REFUSED[case]
    with tb.Graph().as_default(), pytest.raises(tb.errors.InvalidArgumentError, match=words) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("initializer", "words"),
    [
        (lambda shape, dtype: np.zeros(3, np.float32), r"of a/w to give float32\[2, 2\], got float32\[3\]"),
        (lambda shape, dtype: tb.zeros(shape, tb.float64), "float64, expected float32"),
        (lambda shape, dtype: "zeros", r"of a/w to give float32\[2, 2\], got str 'zeros'"),
        (lambda shape: np.zeros(shape), "initializer of a/w to be a function of shape and dtype"),
        (tb.Graph, "initializer to be the name of an initializer, a function of shape and dtype, or a value"),
    ],
    ids=["shape", "dtype", "word", "parameters", "class"],
)
def test_an_initializer_gives_the_shape_and_dtype_it_is_asked_for(initializer: Any, words: str) -> None:
    with tb.Graph().as_default(), tb.variable_scope("a"):
        with pytest.raises(tb.errors.InvalidArgumentError, match=words):
            tb.get_variable("w", [2, 2], initializer=initializer)
        with pytest.raises(tb.errors.InvalidArgumentError, match=words.replace("a/w", "a/.*kernel")):
            tb.layers.dense(tb.ones([1, 2]), 2, kernel_initializer=initializer)


def test_numbers_of_other_libraries_mean_the_same() -> None:
    with tb.Graph().as_default():
        optimizer = tb.train.MomentumOptimizer(np.float32(0.5), np.float64(0.5), np.bool_(False))
        assert (optimizer.learning_rate, optimizer.momentum) == (0.5, 0.5)
        assert tb.layers.dense(tb.ones([2, 3]), np.int64(4)).shape == [2, 4]
        tb.set_random_seed(np.uint8(3))
        assert tb.get_default_graph().seed == 3
        tb.train.AdamOptimizer(tb.placeholder(tb.float32, [], name="rate"))
        tb.train.AdamOptimizer(tb.train.WarmUp(np.float64(0.1), np.int32(5)))


def test_tensorflows_order_of_arguments() -> None:
    """Positional arguments have TensorFlow 1's order; those after a difference are keyword-only."""
    positional = {
        tb.train.GradientDescentOptimizer: ["learning_rate", "use_locking", "name"],
        tb.train.MomentumOptimizer: ["learning_rate", "momentum", "use_locking", "name", "use_nesterov"],
        tb.train.AdamOptimizer: ["learning_rate", "beta1", "beta2", "epsilon", "use_locking", "name"],
        tb.train.AdagradOptimizer: ["learning_rate", "initial_accumulator_value", "use_locking", "name"],
        tb.train.AdadeltaOptimizer: ["learning_rate", "rho", "epsilon", "use_locking", "name"],
        tb.train.FtrlOptimizer: [
            *("learning_rate", "learning_rate_power", "initial_accumulator_value"),
            *("l1_regularization_strength", "l2_regularization_strength", "use_locking", "name"),
            *("accum_name", "linear_name", "l2_shrinkage_regularization_strength"),
        ],
        tb.train.RMSPropOptimizer: [
            *("learning_rate", "decay", "momentum", "epsilon", "use_locking", "centered", "name")
        ],
        tb.train.Optimizer.minimize: [
            *("self", "loss", "global_step", "var_list", "gate_gradients", "aggregation_method"),
            *("colocate_gradients_with_ops", "name", "grad_loss"),
        ],
        tb.train.Saver: ["var_list"],
        tb.Variable: ["initial_value", "trainable", "collections", "validate_shape"],
        tb.get_variable: ["name", "shape", "dtype", "initializer", "regularizer"],
        tb.variable_scope: ["name_or_scope", "default_name", "values", "initializer", "regularizer"],
        tb.gradients: [
            *("ys", "xs", "grad_ys", "name", "colocate_gradients_with_ops", "gate_gradients"),
            *("aggregation_method", "stop_gradients", "unconnected_gradients"),
        ],
        tb.Session.__init__: ["self", "target", "graph", "config"],
        tb.train.MonitoredSession: ["session_creator"],
        tb.train.MonitoredTrainingSession: [
            *("master", "is_chief", "checkpoint_dir", "scaffold", "hooks", "chief_only_hooks")
        ],
        tb.train.Scaffold: [
            *("init_op", "init_feed_dict", "init_fn", "ready_op", "ready_for_local_init_op"),
            *("local_init_op", "summary_op", "saver", "local_init_feed_dict", "copy_from_scaffold"),
        ],
    }
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for target, expected in positional.items():
        parameters = inspect.signature(target).parameters.values()
        assert [p.name for p in parameters if p.kind in kinds] == expected, target


def test_annotations_that_are_read_can_be_read() -> None:
    """An annotation that cannot be evaluated holds no kind: its argument would go unchecked."""
    unread = [
        f"{name}({parameter.name}: {parameter.annotation})"
        for name, function in public_callables().items()
        for parameter in inspect.signature(function).parameters.values()
        if hasattr(inspect.unwrap(_function(function)), "__globals__")
        and hasattr(_function(function), "__wrapped__")
        and isinstance(parameter.annotation, str)
        and _evaluated(parameter.annotation, _function(function)) is None
    ]
    assert unread == ["define_op(gradient: GradientRule | _NotDifferentiable | None)"]  # for type checkers


def _function(target: Any) -> Any:
    return target.__init__ if inspect.isclass(target) else target


def test_an_argument_that_is_misspelt_gets_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"argument 'replica_per_gpu'; did you mean replicas_per_gpu\?$"):
        tb.MultiGpuReplicator(["/cpu:0"], replica_per_gpu=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"argument 'quite_different'; it takes devices, "):
        tb.MultiGpuReplicator(["/cpu:0"], quite_different=2)  # type: ignore[call-arg]
