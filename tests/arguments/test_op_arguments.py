"""Arguments of ops one by one: what each kind takes and refuses, in which words; TensorFlow's order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb

X = np.ones((2, 3), np.float32)


def tensor() -> Any:
    return tb.constant(X)


def nested(depth: int) -> list[Any]:
    result: list[Any] = []
    for _ in range(depth):
        result = [result]
    return result


def holding_itself() -> list[Any]:
    result: list[Any] = []
    result.append(result)
    return result


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "gather by position": (
        lambda: tb.gather(tensor(), [0], axis=True),
        "gather: expected axis to be a whole number or None, got bool True",
    ),
    "padding with None": (
        lambda: tb.pad(tensor(), [[1, 1], [0, 0]], constant_values=None),
        "pad: expected constant_values to be a number, True or False, got NoneType",
    ),
    "padding integers with a half": (
        lambda: tb.pad([[1]], [[1, 1], [0, 0]], constant_values=0.5),
        "pad: constant_values 0.5: a value of type float64 cannot become int32 without loss",
    ),
    "depth 2.7": (
        lambda: tb.one_hot([0], 2.7),  # type: ignore[arg-type]
        "one_hot: expected depth to be a whole number of at least 0, or a scalar tensor, got float 2.7",
    ),
    "on_value of another dtype": (
        lambda: tb.one_hot([0], 2, on_value=0.5, dtype=tb.int32),
        "one_hot: on_value 0.5: a value of type float64 cannot become int32 without loss",
    ),
    "axis 0.7": (
        lambda: tb.reduce_sum(tensor(), 0.7),
        "reduce_sum: expected axis to be a whole number or several in a list or None, got float 0.7",
    ),
    "an extent beyond 32 bits": (
        lambda: tb.tile(tensor(), [2**31, 1]),
        "got list [2147483648, 1]; each is at most 2147483647, or comes in a tensor of int64",
    ),
    "axis of text": (
        lambda: tb.concat([X, X], "1"),  # type: ignore[arg-type]
        "concat: expected axis to be a whole number, got str '1'",
    ),
    "k 1.5": (
        lambda: tb.nn.top_k(tensor(), 1.5),  # type: ignore[arg-type]
        "top_k: expected k to be a whole number of at least 0, or a scalar tensor, got float 1.5",
    ),
    "name 5": (
        lambda: tb.add(1.0, 2.0, name=5),  # type: ignore[arg-type]
        "add: expected name to be a string or None, got int 5",
    ),
    "a tensor as axis": (
        lambda: tb.nn.crelu(tensor(), axis=tb.placeholder(tb.int32, [])),  # type: ignore[arg-type]
        "its value is needed when the graph is built: give a Python number",
    ),
    "no list of tensors": (
        lambda: tb.concat(tensor(), 0),
        "concat: expected values to be a list or a tuple, got Tensor",
    ),
    "a set of tensors, which has no order": (
        lambda: tb.stack({1, 2}),
        "stack: expected values to be a list or a tuple, got set {1, 2}",
    ),
    "an item that is no tensor": (
        lambda: tb.add_n([tensor(), {}]),
        "add_n: inputs[1]: cannot make a tensor of dict {}: expected a tensor, a variable, an array",
    ),
    "no tensor by position": (
        lambda: tb.reduce_mean(object()),
        "reduce_mean: input_tensor: cannot make a tensor of object <object obj",
    ),
    "a ragged list": (
        lambda: tb.matmul(X, [[1.0], [2.0, 3.0]]),
        "matmul: b: nested list [[1.0], [2.0, 3.0]] is ragged: all rows must have the same length",
    ),
    "None for a tensor": (
        lambda: tb.nn.conv2d(np.ones((1, 4, 4, 1)), None, 1, "SAME"),
        "conv2d: filter: cannot make a tensor of NoneType: expected a tensor",
    ),
    "a padding": (
        lambda: tb.nn.max_pool(np.ones((1, 4, 4, 1)), 2, 2, "FULL"),
        "max_pool: expected padding to be 'SAME' or 'VALID', got str 'FULL'; pad by tb.pad",
    ),
    "strides of text": (
        lambda: tb.nn.avg_pool(np.ones((1, 4, 4, 1)), 2, "2", "SAME"),
        "avg_pool: expected strides to be a whole number of at least 1, [height, width] or [1, height",
    ),
    "a shape of text": (lambda: tb.zeros("a"), "zeros: expected shape to be a list of whole numbers, or a"),
    "an extent 2.5": (lambda: tb.zeros([2.5]), "zeros: expected shape to be a list of whole numbers, or a"),
    "an extent True": (
        lambda: tb.reshape(tensor(), [True, 6]),
        "reshape: expected shape to be a list of whole numbers, or a vector of them, got list [True, 6]",
    ),
    "multiples 1.5": (
        lambda: tb.tile([1.0], [1.5]),
        "tile: expected multiples to be a list of whole numbers",
    ),
    "an extent of unknown rank": (
        lambda: tb.fill(tb.TensorShape(None), 1.0),
        "its rank is unknown: use tb.shape, or set_shape before",
    ),
    "a negative extent": (lambda: tb.random_normal([-1]), "shape is [-1], expected entries of at least 0"),
    "a range that does not end": (lambda: tb.range(0, 10, 0), "does not end; delta must not be 0"),
    "a dtype": (
        lambda: tb.cast(X, "int7"),
        "cast: expected dtype to be a dtype, as tb.float32, got str 'int7'",
    ),
    "an index of 5,000 digits": (lambda: tensor()[10**5000], "strided_slice: expected index to be made of"),
    "an operation to group": (lambda: tb.group(3), "group: expected inputs to be operations, tensors"),
    "keep_prob of text": (
        lambda: tb.nn.dropout(tensor(), "0.5"),
        "dropout: expected keep_prob to be a finite number, or a scalar tensor or None, got str '0.5'",
    ),
    "a name of two lines": (lambda: tb.add(1.0, 2.0, name="a\nb"), r"'a\nb' is not a valid op name"),
    "lists 3,000 deep": (lambda: tb.add(tensor(), nested(3000)), "add: y: nested list [[[[[[[...]]]]]]]"),
    "a list that holds itself": (lambda: tb.reduce_sum(holding_itself()), "reduce_sum: input_tensor: nested"),
    "arguments of a kernel": (
        lambda: tb.run_reference_kernel(tb.reduce_sum(X).op.definition, [X, X]),
        "Sum: expected 1 inputs (input), got 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_by_op_and_argument(case: str) -> None:
    call, words = REFUSED[case]
    with tb.Graph().as_default(), pytest.raises(tb.errors.InvalidArgumentError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: tb.reduce_sum(X, np.int64(1)),
        lambda: tb.reduce_sum(X, np.array(1)),
        lambda: tb.reduce_sum(X, np.array([0, 1])),
        lambda: tb.reduce_sum(X, range(2)),
        lambda: tb.reduce_sum(X, [0], np.True_),
        lambda: tb.reshape(X, np.array([3, 2])),
        lambda: tb.reshape(X, (tb.constant(3), -1)),
        lambda: tb.zeros(tb.TensorShape([2, 3])),
        lambda: tb.concat(iter([X, X]), 0),
        lambda: tb.stack(X),
        lambda: tb.pad(tb.constant([True]), [[1, 1]]),
        lambda: tb.pad(X, [[1, 1], [0, 0]], constant_values=-np.inf),
        lambda: tb.argmax(X, None),
        lambda: tb.nn.max_pool(np.ones((1, 4, 4, 1), np.float32), [2, 2], np.int32(2), "same"),
        lambda: tb.one_hot([0], np.uint8(3), True, False, dtype=tb.bool),
    ],
)
def test_taken_where_it_means_the_same(call: Callable[[], Any]) -> None:
    with tb.Graph().as_default():
        call()


def test_the_outermost_call_names_its_own_argument() -> None:
    with tb.Graph().as_default(), pytest.raises(tb.errors.InvalidArgumentError) as caught:
        tb.nn.sparse_softmax_cross_entropy_with_logits(labels=[0], logits="scores")
    assert str(caught.value).startswith(
        "sparse_softmax_cross_entropy_with_logits: logits: it is string[], expected numbers"
    )


def test_an_op_of_a_user_names_the_input_and_the_users_line() -> None:
    definition = tb.reduce_sum(X).op.definition
    with tb.Graph().as_default(), pytest.raises(tb.errors.InvalidArgumentError) as caught:
        definition({}, name="total")
    assert str(caught.value).startswith("Sum total: input: cannot make a tensor of dict {}")
    assert f"(made at {__file__}:" in str(caught.value)


TENSORFLOWS_ORDER = """
    add_n(inputs, name)
    argmax(input, axis, name)
    argmin(input, axis, name)
    broadcast_to(input, shape, name)
    cast(x, dtype, name)
    clip_by_value(t, clip_value_min, clip_value_max, name)
    concat(values, axis, name)
    constant(value, dtype, shape, name)
    convert_to_tensor(value, dtype, name)
    cumprod(x, axis, exclusive, reverse, name)
    cumsum(x, axis, exclusive, reverse, name)
    expand_dims(input, axis, name)
    eye(num_rows, num_columns, batch_shape, dtype, name)
    fill(dims, value, name)
    gather(params, indices, validate_indices, name, axis, batch_dims)
    identity(input, name)
    import_graph_def(graph_def, input_map, return_elements, name)
    linspace(start, stop, num, name)
    matmul(a, b, transpose_a, transpose_b, adjoint_a, adjoint_b)
    matrix_inverse(input, adjoint, name)
    norm(tensor, ord, axis, keepdims, name)
    one_hot(indices, depth, on_value, off_value, axis, dtype, name)
    ones(shape, dtype, name)
    ones_like(tensor, dtype, name)
    pad(tensor, paddings, mode, name, constant_values)
    placeholder(dtype, shape, name)
    random_normal(shape, mean, stddev, dtype, seed, name)
    random_shuffle(value, seed, name)
    random_uniform(shape, minval, maxval, dtype, seed, name)
    range(start, limit, delta, dtype, name)
    rank(input, name)
    reduce_logsumexp(input_tensor, axis, keepdims, name)
    reduce_sum(input_tensor, axis, keepdims, name)
    reshape(tensor, shape, name)
    reverse(tensor, axis, name)
    scatter_add(ref, indices, updates, use_locking, name)
    scatter_sub(ref, indices, updates, use_locking, name)
    scatter_update(ref, indices, updates, use_locking, name)
    shape(input, name, out_type)
    size(input, name, out_type)
    split(value, num_or_size_splits, axis, num, name)
    strided_slice(input_, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
        shrink_axis_mask, var, name)
    squeeze(input, axis, name)
    stack(values, axis, name)
    stop_gradient(input, name)
    tile(input, multiples, name)
    transpose(a, perm, name)
    truncated_normal(shape, mean, stddev, dtype, seed, name)
    unstack(value, num, axis, name)
    where(condition, x, y, name)
    zeros(shape, dtype, name)
    zeros_like(tensor, dtype, name)
    nn.avg_pool(value, ksize, strides, padding, data_format, name)
    nn.batch_normalization(x, mean, variance, offset, scale, variance_epsilon, name)
    nn.bias_add(value, bias, data_format, name)
    nn.conv2d(input, filter, strides, padding, use_cudnn_on_gpu, data_format, dilations, name)
    nn.conv2d_backprop_filter(input, filter_sizes, out_backprop, strides, padding, use_cudnn_on_gpu,
        data_format, dilations, name)
    nn.conv2d_backprop_input(input_sizes, filter, out_backprop, strides, padding, use_cudnn_on_gpu,
        data_format, dilations, name)
    nn.conv2d_transpose(value, filter, output_shape, strides, padding, data_format, name)
    nn.depthwise_conv2d(input, filter, strides, padding, rate, name, data_format)
    nn.dropout(x, keep_prob, noise_shape, seed, name, rate)
    nn.fused_batch_norm(x, scale, offset, mean, variance, epsilon, data_format, is_training, name)
    nn.embedding_lookup(params, ids, partition_strategy, name, validate_indices, max_norm)
    nn.in_top_k(predictions, targets, k, name)
    nn.l2_loss(t, name)
    nn.l2_normalize(x, axis, epsilon, name)
    nn.leaky_relu(features, alpha, name)
    nn.log_softmax(logits, axis, name)
    nn.max_pool(value, ksize, strides, padding, data_format, name)
    nn.moments(x, axes, shift, name, keep_dims)
    nn.sigmoid_cross_entropy_with_logits(_sentinel, labels, logits, name)
    nn.softmax(logits, axis, name)
    nn.softmax_cross_entropy_with_logits(_sentinel, labels, logits, dim, name)
    nn.softmax_cross_entropy_with_logits_v2(labels, logits, axis, name)
    nn.sparse_softmax_cross_entropy_with_logits(_sentinel, labels, logits, name)
    nn.top_k(input, k, sorted, name)
    metrics.accuracy(labels, predictions, weights, metrics_collections, updates_collections, name)
    metrics.mean(values, weights, metrics_collections, updates_collections, name)
"""


@pytest.mark.parametrize("line", TENSORFLOWS_ORDER.replace(",\n        ", ", ").split("\n")[1:-1])
def test_parameters_by_position_are_tensorflows(line: str) -> None:
    path, _, wanted = line.strip().rstrip(")").partition("(")
    target: Any = tb
    for part in path.split("."):
        target = getattr(target, part)
    parameters = inspect.signature(target).parameters.values()
    assert ", ".join(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD) == wanted
