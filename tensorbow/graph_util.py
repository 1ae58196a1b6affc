"""`tb.graph_util`: GraphDefs for inference, under the names of TensorFlow 1's `tf.graph_util`."""

from tensorbow.runtime.frozen_graphs import (
    convert_variables_to_constants,
    extract_sub_graph,
    remove_training_nodes,
)

__all__ = ["convert_variables_to_constants", "extract_sub_graph", "remove_training_nodes"]
