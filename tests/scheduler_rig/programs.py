"""Small models with hand-written gradients in `reference.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel, KernelCall
from tensorbow.ops.definition import define_op

BATCH, FEATURES, CLASSES = 4, 5, 3


@dataclass
class Model:
    """Program, the specs of its inputs, its initial values, and its batches by (round, replica)."""

    program: StepProgram
    shapes: list[tb.TensorSpec]
    initial: dict[str, Any]
    batch: Callable[[int, int], tuple[Any, ...]]


def dynamic(model: Model) -> Model:
    """The model with its forward and backward pass by the executor."""
    return replace(model, program=replace(model.program, mode="dynamic"))


def logistic(
    dtype: Any = tb.float64, *, rate: float = 0.4, momentum: float = 0.9, weight_decay: float = 0.05
) -> Model:
    """loss = mean((sigmoid(x w + b) - y)^2), by SGD with momentum and weight decay (of w alone)."""
    kind = dtype.as_numpy_dtype
    rng = np.random.default_rng(7)
    initial = {
        "w": rng.normal(size=(FEATURES, CLASSES)).astype(kind),
        "b": rng.normal(size=CLASSES).astype(kind),
    }
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(dtype, [None, FEATURES], name="x")
        y = tb.placeholder(dtype, [None, CLASSES], name="y")
        w = tb.Variable(initial["w"], name="w")
        b = tb.Variable(initial["b"], name="b")
        loss = tb.reduce_mean(tb.square(tb.sigmoid(tb.matmul(x, w) + b) - y))
        optimizer = tb.train.MomentumOptimizer(rate, momentum, weight_decay=weight_decay)
        update = optimizer.minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((11, round, replica))
        x = own.normal(size=(BATCH, FEATURES)).astype(kind)
        return x, own.integers(0, 2, size=(BATCH, CLASSES)).astype(kind)

    shapes = [tb.TensorSpec((BATCH, FEATURES), dtype), tb.TensorSpec((BATCH, CLASSES), dtype)]
    return Model(StepProgram((x, y), loss, update, {}), shapes, initial, batch)


def well(size: int = 7, dtype: Any = tb.float32, *, rate: Any = 0.1, momentum: float = 0.9) -> Model:
    """loss = sum((w - x)^2) / 2: the gradient is w - x, element by element, so NumPy gives the same bits."""
    kind = dtype.as_numpy_dtype
    initial = {"w": np.linspace(-1, 1, size).astype(kind)}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(dtype, [size], name="x")
        w = tb.Variable(initial["w"], name="w")
        loss = tb.reduce_sum(tb.square(w - x)) * 0.5
        update = tb.train.MomentumOptimizer(rate, momentum).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.random.default_rng((13, round, replica)).normal(size=size).astype(kind),)

    return Model(StepProgram((x,), loss, update, {}), [tb.TensorSpec((size,), dtype)], initial, batch)


def layer(rows: int, columns: int) -> Model:
    """A dense layer alone, [rows, columns]; batches of 4 draw everything to 0."""
    initial = {"w": np.random.default_rng(11).normal(size=(rows, columns)).astype(np.float32)}
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [4, rows], name="x")
        w = tb.Variable(initial["w"], name="w")
        loss = tb.reduce_mean(tb.square(tb.matmul(x, w)))
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.random.default_rng((19, round, replica)).normal(size=(4, rows)).astype(np.float32),)

    return Model(StepProgram((x,), loss, update, {}), [tb.TensorSpec((4, rows), tb.float32)], initial, batch)


def convolutional(*, dropout: bool) -> Model:
    """A small relative of LeNet, with dropout or without."""
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(3)
        images = tb.placeholder(tb.float32, [None, 10, 9, 1], name="images")
        labels = tb.placeholder(tb.int64, [None], name="labels")
        filters = tb.Variable(tb.truncated_normal([3, 3, 1, 4], stddev=0.3, seed=1), name="filters")
        hidden = tb.nn.relu(tb.nn.conv2d(images, filters, [1, 1, 1, 1], "VALID"))
        hidden = tb.nn.max_pool(hidden, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
        hidden = tb.reshape(hidden, [-1, 48])
        if dropout:
            hidden = tb.nn.dropout(hidden, rate=0.4, seed=5)
        dense = tb.Variable(tb.truncated_normal([48, 6], stddev=0.2, seed=2), name="dense")
        bias = tb.Variable(np.zeros(6, np.float32), name="bias")
        logits = tb.matmul(hidden, dense) + bias
        loss = tb.reduce_mean(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        update = tb.train.MomentumOptimizer(0.05, 0.9, weight_decay=1e-3).minimize(loss)
        initializer = tb.global_variables_initializer()
    with tb.Session(graph=graph) as session:
        session.run(initializer)
        initial = {v.op.name: session.run(v) for v in graph.get_collection("variables")}

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((17, round, replica))
        return own.normal(size=(8, 10, 9, 1)).astype(np.float32), own.integers(0, 6, size=8)

    shapes = [tb.TensorSpec((8, 10, 9, 1), tb.float32), tb.TensorSpec((8,), tb.int64)]
    return Model(StepProgram((images, labels), loss, update, {}), shapes, initial, batch)


FUSE = 99.0  # a batch that holds this number makes `fused` fail


def _burn(call: KernelCall) -> None:
    if (call.inputs[0] == FUSE).any():
        raise ValueError("the fuse has blown")
    call.outputs[0][...] = call.inputs[0]


Fuse = define_op(
    "TestFuse",
    spec=lambda inputs, attrs: inputs[0],
    gradient=NOT_DIFFERENTIABLE,
    inputs=("x",),
    kernel=Kernel(run=_burn),
)


def fused() -> Model:
    """`well` with an additional op that fails on demand."""
    model = well()
    initial = model.initial
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [7], name="x")
        w = tb.Variable(initial["w"], name="w")
        checked = Fuse(x, name="the_fuse")  # the user's line
        loss = tb.reduce_sum(tb.square(w - checked)) * 0.5
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return Model(StepProgram((x,), loss, update, {}), model.shapes, initial, model.batch)


def failing_at(call: int, error: BaseException) -> Callable[[Any], Any]:
    """Weights of 1 from a function that raises at one of its calls."""
    calls: list[int] = []

    def weigh(errors: Any) -> Any:
        calls.append(0)
        if len(calls) == call:
            raise error
        return np.ones_like(errors)

    return weigh
