"""The names of the collections that the library itself fills, as TensorFlow's `tf.GraphKeys`."""

from __future__ import annotations

from typing import Any

from tensorbow.graph.graph import GLOBAL_VARIABLES, LOSSES, TRAINABLE_VARIABLES, get_default_graph
from tensorbow.kinds import Name, NameOrNames, Text, checked


class GraphKeys:
    """Names of collections of a graph."""

    GLOBAL_VARIABLES = GLOBAL_VARIABLES
    TRAINABLE_VARIABLES = TRAINABLE_VARIABLES
    LOCAL_VARIABLES = "local_variables"  # not saved, and initialised separately
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"  # of a program, for its own use, as the three below
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    SAVERS = "savers"  # of a program; a meta graph brings them back, and a Scaffold takes it
    INIT_OP = "init_op"  # of a program, for a `tb.train.Scaffold`, as the four below
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    SUMMARY_OP = "summary_op"
    UPDATE_OPS = "update_ops"  # to be run with each training step: updates of moving averages
    LOSSES = LOSSES
    REGULARIZATION_LOSSES = "regularization_losses"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    GLOBAL_STEP = "global_step"  # the variable that counts training steps
    TRAIN_OP = "train_op"  # operations from minimize and apply_gradients
    SUMMARIES = "summaries"
    TABLE_INITIALIZERS = "table_initializer"  # operations that set the values of lookup tables
    QUEUE_RUNNERS = "queue_runners"  # see `tb.train.start_queue_runners`
    SCHEDULES = "schedules"  # learning-rate schedules, each with its step counter
    ROUND_SCHEDULES = "round_schedules"  # those that follow the rounds of a scheduler, which counts them


@checked
def get_collection(key: Text, scope: Name = None) -> list[Any]:
    """`Graph.get_collection` of the default graph."""
    return get_default_graph().get_collection(key, scope)


@checked
def add_to_collection(key: Text, value: Any) -> None:
    """`Graph.add_to_collection` of the default graph."""
    get_default_graph().add_to_collection(key, value)


@checked
def add_to_collections(names: NameOrNames, value: Any) -> None:
    """`Graph.add_to_collections` of the default graph."""
    get_default_graph().add_to_collections(names, value)
