"""Axes and permutations that are tensors: known ones are numbers, others make the step dynamic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import compatible

X = np.random.default_rng(4).normal(size=(2, 3, 4)).astype(np.float32)
PICKS = np.array([[1, 0], [0, 1]], np.int32)

# By name: the call for a tensor and axes, and whether these are several.
CALLS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "transpose": (lambda x, perm: tb.transpose(x, perm), True),
    "reverse": (lambda x, axes: tb.reverse(x, axes), True),
    "reduce_sum": (lambda x, axes: tb.reduce_sum(x, axes), True),
    "reduce_mean": (lambda x, axes: tb.reduce_mean(x, axes, keepdims=True), True),
    "reduce_max": (lambda x, axes: tb.reduce_max(x, axes), True),
    "reduce_prod": (lambda x, axes: tb.reduce_prod(x, axes, keepdims=True), True),
    "reduce_logsumexp": (lambda x, axes: tb.reduce_logsumexp(x, axes), True),
    "reduce_euclidean_norm": (lambda x, axes: tb.reduce_euclidean_norm(x, axes), True),
    "moments": (lambda x, axes: tb.stack(tb.nn.moments(x, axes)), True),
    "l2_normalize": (lambda x, axes: tb.nn.l2_normalize(x, axes), True),
    "reduce_any": (lambda x, axis: tb.reduce_any(x > 1.0, axis), False),
    "argmax": (lambda x, axis: tb.argmax(x, axis), False),
    "argmin": (lambda x, axis: tb.argmin(x, axis), False),
    "softmax": (lambda x, axis: tb.nn.softmax(x, axis), False),
    "log_softmax": (lambda x, axis: tb.nn.log_softmax(x, axis), False),
    "cumsum": (lambda x, axis: tb.cumsum(x, axis, exclusive=True, reverse=True), False),
    "cumprod": (lambda x, axis: tb.cumprod(x, axis), False),
    "concat": (lambda x, axis: tb.concat([x, x * 2.0], axis), False),
    "stack": (lambda x, axis: tb.stack([x, -x], axis), False),
    "expand_dims": (lambda x, axis: tb.expand_dims(x, axis), False),
    "squeeze": (lambda x, axis: tb.squeeze(x[:1, :1, :1], axis), False),
    "split": (lambda x, axis: tb.concat([part * part for part in tb.split(x[:, :2], 2, axis)], 0), False),
    "split sizes": (lambda x, axis: tb.split(x[:, :2, :2], [1, -1], axis)[1], False),
    "unstack": (lambda x, axis: tb.unstack(x[:, :2, :2], 2, axis)[1], False),
    "gather": (lambda x, axis: tb.gather(x, PICKS, axis=axis), False),
    "gather one": (lambda x, axis: tb.gather(x, 1, axis=axis), False),
    "one_hot": (lambda x, axis: tb.one_hot(tb.cast(tb.abs(x), tb.int32), 3, axis=axis) * x[0, 0, 0], False),
}
AXES: list[Any] = [0, 1, -1]


def values_of(call: Callable[[Any, Any], Any], axes: Any, given: np.ndarray | None) -> list[np.ndarray]:
    """The result, and its gradient if it has one. given: fed as the axes; by default they are numbers."""
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, [2, 3, 4])
        fed = {x: X}
        if given is not None:
            axes = tb.placeholder(tb.int32, given.shape)
            fed[axes] = given
        y = call(x, axes)
        wanted = [y]
        if y.dtype.is_floating:
            wanted += tb.gradients(tb.reduce_sum(y * tb.cumsum(tb.ones_like(y), -1)), x)
        values = session.run(wanted, fed)
        assert session.explain(wanted, fed).mode == ("planned" if given is None else "dynamic")
        assert all(compatible(t.spec.shape, v.shape) for t, v in zip(wanted, values, strict=True))
        return list(values)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CALLS)
def test_an_axis_that_depends_on_data_gives_what_a_number_gives(name: str) -> None:
    call, several = CALLS[name]
    for axes in [(2, 0, 1)] if name == "transpose" else [0, -2, (1, -1)] if several else AXES:
        expected = values_of(call, axes, None)
        found = values_of(call, axes, np.array(axes, np.int32))
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_known_axes_are_numbers_while_the_graph_is_built() -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 3, 4])
        last = tb.rank(x) - 1
        assert tb.reduce_sum(x, tb.range(1, tb.rank(x))).shape == [None]
        assert tb.transpose(x, tb.concat([[0], tb.range(last, 0, -1)], 0)).shape.as_list() == [None, 4, 3]
        assert tb.expand_dims(x, last).shape.as_list() == [None, 3, 1, 4]
        assert tb.stack([x, x], axis=last).op.type == "ConcatV2"
        assert tb.reverse(x, [last]).op.type == "ReverseV2"
        assert tb.argmax(x, last).op.attrs["axis"] == 2
        assert tb.tensordot(x, tb.ones([4, 5]), tb.constant([[2], [0]]) + 0).shape.as_list() == [None, 3, 5]
        assert tb.roll(x, 1, tb.size(tb.shape(x)) - 2).op.inputs[0] is x
        moments = tb.nn.moments(x, tb.range(last))
        assert [each.shape.as_list() for each in moments] == [[4], [4]]
        assert tb.range(1, 5000).known_value is None


@pytest.mark.parametrize("keepdims", [False, True])
def test_axes_that_follow_from_an_unknown_rank_are_planned(keepdims: bool) -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        x = tb.placeholder(tb.float32, None)
        rank = tb.rank(x)
        fetches = [
            tb.reduce_sum(x, tb.range(1, rank), keepdims),
            tb.transpose(x, tb.range(rank - 1, -1, -1)),
            tb.concat([x, x], rank - 1),
            *tb.gradients(tb.reduce_sum(tb.square(tb.reduce_mean(x, tb.range(1, rank), keepdims))), x),
        ]
        for value in (X, X[0], X[0, 0]):
            total, turned, joined, gradient = session.run(fetches, {x: value})
            axes = tuple(range(1, value.ndim))
            np.testing.assert_allclose(total, value.sum(axes, keepdims=keepdims), rtol=1e-5)
            np.testing.assert_array_equal(turned, value.T)
            np.testing.assert_array_equal(joined, np.concatenate([value, value], -1))
            share = 2 * value.mean(axes, keepdims=True) / max(1, value[0].size)
            np.testing.assert_allclose(gradient, np.broadcast_to(share, value.shape), rtol=1e-5, atol=1e-7)
        assert session.explain(fetches, {x: X}).mode == "planned"


def test_axes_of_an_unknown_number() -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        x, axes = tb.placeholder(tb.float32, [2, 3, 4]), tb.placeholder(tb.int64, [None])
        kept = [tb.reduce_sum(x, axes, keepdims=True), tb.reduce_max(x, axes)]
        squeezed = tb.squeeze(x[:1, :1], axes)
        for each in ([1], [2, 0], []):
            total, top = session.run(kept, {x: X, axes: each})
            np.testing.assert_allclose(total, X.sum(tuple(each), keepdims=True), rtol=1e-5)
            np.testing.assert_array_equal(top, X.max(tuple(each)))
        np.testing.assert_array_equal(session.run(squeezed, {x: X, axes: [1, 0]}), X[0, 0])


def test_what_does_not_fit_is_refused_with_the_op() -> None:
    with tb.Graph().as_default(), tb.Session() as session:
        x, axes = tb.placeholder(tb.float32, [2, 3, 4]), tb.placeholder(tb.int32, [2])
        total, turned = tb.reduce_sum(x, axes), tb.transpose(x, tb.concat([axes, [0]], 0))
        for wrong in ([0, 0], [1, 3], [2, -1]):
            with pytest.raises(
                InvalidArgumentError, match=r"AxisOrder: axes \[.*\] of 3.* \(made at .*by_tensors"
            ):
                session.run(total, {x: X, axes: wrong})
        with pytest.raises(InvalidArgumentError, match=r"perm \[1, 1, 0\] .* a permutation of the axes"):
            session.run(turned, {x: X, axes: [1, 1]})
        with pytest.raises(InvalidArgumentError, match=r"reverse: axis .* give its length by set_shape"):
            tb.reverse(x, tb.placeholder(tb.int32, [None]))
        with pytest.raises(InvalidArgumentError, match=r"gather: axis .* batch_dims=1 .* as a number"):
            tb.gather(x, [[0], [0]], axis=axes[0], batch_dims=1)
        with pytest.raises(
            InvalidArgumentError, match=r"concat: expected axis to be a whole number, got Tensor"
        ):
            tb.concat([x, x], axes)


def test_a_value_that_many_tensors_share_is_found_once() -> None:
    with tb.Graph().as_default():
        axis = tb.constant(1)
        for _ in range(60):  # each reads the one before twice: 2 ** 60 ways to the constant
            axis = tb.minimum(axis, axis)
        assert axis.known_value == 1
        deeper = tb.minimum(tb.minimum(axis, axis), 1)
        for _ in range(3):
            deeper = tb.minimum(deeper, deeper)
        assert deeper.known_value is None  # more operations than are looked through
        assert tb.reduce_max(tb.constant(X), axis).shape == (2, 4)


def test_replicas_reduce_over_an_axis_of_their_batch() -> None:
    def step_fn(batch: Any) -> Any:
        x, axis = batch
        w = tb.get_variable("w", [3, 3], initializer=tb.constant_initializer(0.1))
        hidden = tb.reduce_max(tb.matmul(x, w), axis=axis)
        loss = tb.reduce_mean(tb.square(hidden))
        loss.set_shape([])
        return loss, replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1)).minimize(loss)

    def input_fn(replica_id: int) -> Any:
        for axis in (0, 1):
            yield X[0].T, np.int32(axis)

    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2, sync="none") as replicator:
        losses = [loss[0] for loss, _ in replicator.train(step_fn, input_fn)]
    y = X[0].T @ np.full((3, 3), 0.1)
    np.testing.assert_allclose(losses[0], np.mean(y.max(0) ** 2), rtol=1e-5)
    assert len(losses) == 2
