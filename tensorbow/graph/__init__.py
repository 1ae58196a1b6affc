"""The dataflow graph: definitions, operations, tensors, names, scopes."""

from tensorbow.graph.build import REQUIRED, as_tensor, convert_to_tensor, graph_of, register_tensor_conversion
from tensorbow.graph.collection_items import register_collection_item
from tensorbow.graph.defaults import default_session, get_default_session, require_session
from tensorbow.graph.definition import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    OpDef,
    gradient_of,
)
from tensorbow.graph.graph import (
    GLOBAL_VARIABLES,
    LOSSES,
    TRAINABLE_VARIABLES,
    AsGraph,
    Graph,
    colocate_with,
    container,
    control_dependencies,
    device,
    get_default_graph,
    name_scope,
    reset_default_graph,
    set_random_seed,
)
from tensorbow.graph.graph_def import MAXIMUM_NODES, GraphDef, NodeDef
from tensorbow.graph.graph_keys import GraphKeys, add_to_collection, get_collection
from tensorbow.graph.operation import Operation, Tensor, TensorOperators
from tensorbow.graph.user_lines import UserLine, blame, raising_line, user_line, warn_at_user_line

__all__ = [
    "GLOBAL_VARIABLES",
    "LOSSES",
    "MAXIMUM_NODES",
    "NOT_DIFFERENTIABLE",
    "REQUIRED",
    "TRAINABLE_VARIABLES",
    "AsGraph",
    "Attrs",
    "Graph",
    "GraphDef",
    "GraphKeys",
    "Kernel",
    "KernelCall",
    "NodeDef",
    "NodeSpec",
    "OpDef",
    "Operation",
    "Tensor",
    "TensorOperators",
    "UserLine",
    "add_to_collection",
    "as_tensor",
    "blame",
    "colocate_with",
    "container",
    "control_dependencies",
    "convert_to_tensor",
    "default_session",
    "device",
    "get_collection",
    "get_default_graph",
    "get_default_session",
    "gradient_of",
    "graph_of",
    "name_scope",
    "raising_line",
    "register_collection_item",
    "register_tensor_conversion",
    "require_session",
    "reset_default_graph",
    "set_random_seed",
    "user_line",
    "warn_at_user_line",
]
