"""TensorBow: several small-batch replicas of a model on every device, kept together by model averaging.

`import tensorbow as tb` gives the whole user-level surface, under TensorFlow 1's names where TensorFlow has
the function. This file is the facade, outside the layers.
"""

from tensorbow.launcher import begin_if_program as _begin_if_program

_begin_if_program()  # before any slow import

# isort: split
from tensorbow.shadowing import import_ours as _import_ours

_import_ours("allocators")

# isort: split
from typing import TYPE_CHECKING, Any

from tensorbow import (
    app,
    bitwise,
    debugging,
    dtypes,
    errors,
    feature_column,
    flags,
    gfile,
    graph_util,
    image,
    initializers,
    input_ops,
    io,
    layers,
    linalg,
    logging,
    lookup,
    losses,
    manip,
    math,
    metrics,
    nn,
    ops,
    profiler,
    python_io,
    quantization,
    random,
    sets,
    signal,
    sparse,
    spectral,
    string_ops,
    strings,
    summary,
    test,
    train,
)
from tensorbow.checkpoint_files import save_ops as _save_ops  # noqa: F401 - defines ops of GraphDefs
from tensorbow.control_flow import TensorArray, case, cond, foldl, foldr, map_fn, scan, while_loop
from tensorbow.custom_gradients import NoGradient, NotDifferentiable, RegisterGradient, custom_gradient
from tensorbow.devices import configure_gpus
from tensorbow.errors import OpError, TensorBowError
from tensorbow.functions import Defun, make_template
from tensorbow.gradients import UnconnectedGradients, gradients, hessians
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Graph,
    GraphDef,
    GraphKeys,
    HostCall,
    Kernel,
    KernelCall,
    NodeSpec,
    Operation,
    Tensor,
    add_to_collection,
    add_to_collections,
    colocate_with,
    container,
    control_dependencies,
    convert_to_tensor,
    device,
    get_collection,
    get_default_graph,
    get_default_session,
    name_scope,
    reset_default_graph,
    set_random_seed,
    variable_creator_scope,
)
from tensorbow.initializers import constant as constant_initializer
from tensorbow.initializers import glorot_normal as glorot_normal_initializer
from tensorbow.initializers import glorot_uniform as glorot_uniform_initializer
from tensorbow.initializers import ones as ones_initializer
from tensorbow.initializers import orthogonal as orthogonal_initializer
from tensorbow.initializers import random_normal as random_normal_initializer
from tensorbow.initializers import random_uniform as random_uniform_initializer
from tensorbow.initializers import truncated_normal as truncated_normal_initializer
from tensorbow.initializers import variance_scaling as variance_scaling_initializer
from tensorbow.initializers import zeros as zeros_initializer
from tensorbow.input_ops import *
from tensorbow.kernels import configure_cpus
from tensorbow.lookup import initialize_all_tables, tables_initializer
from tensorbow.missing_names import no_attribute as _no_attribute
from tensorbow.ops import constant as constant
from tensorbow.ops import edit_distance as edit_distance
from tensorbow.ops import einsum as einsum
from tensorbow.ops import matmul as matmul
from tensorbow.ops import random_crop as random_crop
from tensorbow.ops import tensordot as tensordot
from tensorbow.ops import tuple as tuple

# Module by module, as tensorbow.ops does: type checkers do not follow a star import of a star import.
from tensorbow.ops.arrays import *
from tensorbow.ops.bessel import *
from tensorbow.ops.broadcasting import *
from tensorbow.ops.checks import *
from tensorbow.ops.collectives import *
from tensorbow.ops.complex_numbers import *
from tensorbow.ops.conditions import *
from tensorbow.ops.control import *
from tensorbow.ops.conversions import *
from tensorbow.ops.cumulative import *
from tensorbow.ops.data_dependent import *
from tensorbow.ops.decompositions import *
from tensorbow.ops.definition import *
from tensorbow.ops.elementwise import *
from tensorbow.ops.filling import *
from tensorbow.ops.fourier import *
from tensorbow.ops.importing import *
from tensorbow.ops.indexed_slices import *
from tensorbow.ops.indexing import *
from tensorbow.ops.linalg import *
from tensorbow.ops.linear_equations import *
from tensorbow.ops.lu_decomposition import *
from tensorbow.ops.matrix_bands import *
from tensorbow.ops.matrix_functions import *
from tensorbow.ops.nd_indexing import *
from tensorbow.ops.nd_writes import *
from tensorbow.ops.norms import *
from tensorbow.ops.older_names import *
from tensorbow.ops.padding import *
from tensorbow.ops.patches import *
from tensorbow.ops.positions import *
from tensorbow.ops.random import *
from tensorbow.ops.random_distributions import *
from tensorbow.ops.reductions import *
from tensorbow.ops.scatter import *
from tensorbow.ops.segments import *
from tensorbow.ops.selection import *
from tensorbow.ops.shape_rules import *
from tensorbow.ops.shaping import *
from tensorbow.ops.slicing import *
from tensorbow.ops.sparse_dense import *
from tensorbow.ops.sparse_functions import *
from tensorbow.ops.sparse_reductions import *
from tensorbow.ops.sparse_shapes import *
from tensorbow.ops.sparse_tensors import *
from tensorbow.ops.spatial_blocks import *
from tensorbow.ops.special_functions import *
from tensorbow.ops.static_checks import *
from tensorbow.ops.sums import *
from tensorbow.ops.tensor_indices import *
from tensorbow.ops.tridiagonal import *
from tensorbow.ops.variable_aggregation import VariableAggregation, VariableSynchronization
from tensorbow.optimizers import clip_by_global_norm, clip_by_norm, global_norm
from tensorbow.partitioned_variables import (
    PartitionedVariable,
    fixed_size_partitioner,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from tensorbow.queues import (
    Barrier,
    ConditionalAccumulator,
    CriticalSection,
    FIFOQueue,
    MapStagingArea,
    PaddingFIFOQueue,
    PriorityQueue,
    QueueBase,
    RandomShuffleQueue,
    SparseConditionalAccumulator,
    StagingArea,
    delete_session_tensor,
    get_session_handle,
    get_session_tensor,
    py_func,
)
from tensorbow.readers import (
    FixedLengthRecordReader,
    IdentityReader,
    ReaderBase,
    TextLineReader,
    TFRecordReader,
    WholeFileReader,
)
from tensorbow.recomputed_gradients import recompute_grad
from tensorbow.runtime import (
    ConfigProto,
    Explanation,
    GPUOptions,
    GraphOptions,
    InteractiveSession,
    OptimizerOptions,
    RunMetadata,
    RunOptions,
    Session,
)
from tensorbow.runtime import register_target as _register_target
from tensorbow.specs import (
    DType,
    TensorShape,
    TensorSpec,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tensorbow.specs import bool_ as bool
from tensorbow.string_ops import *
from tensorbow.variable_lists import (
    all_variables,
    get_local_variable,
    initialize_all_variables,
    initialize_local_variables,
    initialize_variables,
    is_variable_initialized,
    moving_average_variables,
    report_uninitialized_variables,
)
from tensorbow.variable_scope import (
    AUTO_REUSE,
    VariableScope,
    get_variable,
    get_variable_scope,
    variable_scope,
)
from tensorbow.variables import (
    Variable,
    assign,
    assign_add,
    assign_sub,
    count_up_to,
    global_variables,
    global_variables_initializer,
    local_variables,
    local_variables_initializer,
    model_variables,
    trainable_variables,
    variables_initializer,
)
from tensorbow.variables import (
    install_operators as _install_operators,
)

_install_operators(Variable, PartitionedVariable)

if TYPE_CHECKING:  # for type checkers and editors, which do not see `_LATER`
    from replicator import PER_REPLICA as PER_REPLICA
    from replicator import PER_WORKER as PER_WORKER
    from replicator import InputContext as InputContext
    from replicator import MultiGpuReplicator as MultiGpuReplicator
    from replicator import MultiWorkerAsyncReplicator as MultiWorkerAsyncReplicator
    from replicator import MultiWorkerReplicator as MultiWorkerReplicator
    from replicator import NonReplicator as NonReplicator
    from replicator import Replicator as Replicator
    from replicator import TpuReplicator as TpuReplicator
    from replicator import map_gather as map_gather
    from replicator import map_reduce as map_reduce
    from replicator import num_replicas as num_replicas
    from replicator import per_replica as per_replica
    from replicator import replica_id as replica_id
    from scheduler import Callback as Callback
    from scheduler import DatasetBatches as DatasetBatches
    from scheduler import EarlyStopping as EarlyStopping
    from scheduler import FittedModel as FittedModel
    from scheduler import LearningEngine as LearningEngine
    from scheduler import StepProgram as StepProgram
    from scheduler import Synchronisation as Synchronisation
    from scheduler import TensorBoard as TensorBoard
    from scheduler import TensorBowSession as TensorBowSession
    from scheduler import Trainer as Trainer
    from scheduler import TrainingConfig as TrainingConfig
    from scheduler import fit as fit
    from scheduler import sweep as sweep
    from scheduler import worker_group as worker_group
    from tensorbow import data as data
    from tensorbow import interop as interop
    from tensorbow import models as models
    from tensorbow.kernels.gpu.cuda_kernel import CudaKernel as CudaKernel
    from tensorbow.kernels.gpu.cupy_kernel import CupyKernel as CupyKernel

    __version__: str

# Names of upper layers, imported on first use.
_LATER = {
    "Callback": "scheduler",
    "CudaKernel": "tensorbow.kernels.gpu.cuda_kernel",
    "CupyKernel": "tensorbow.kernels.gpu.cupy_kernel",
    "PER_REPLICA": "replicator",
    "PER_WORKER": "replicator",
    "DatasetBatches": "scheduler",
    "EarlyStopping": "scheduler",
    "FittedModel": "scheduler",
    "InputContext": "replicator",
    "LearningEngine": "scheduler",
    "MultiGpuReplicator": "replicator",
    "MultiWorkerAsyncReplicator": "replicator",
    "MultiWorkerReplicator": "replicator",
    "NonReplicator": "replicator",
    "Replicator": "replicator",
    "StepProgram": "scheduler",
    "Synchronisation": "scheduler",
    "TensorBoard": "scheduler",
    "TensorBowSession": "scheduler",
    "TpuReplicator": "replicator",
    "Trainer": "scheduler",
    "TrainingConfig": "scheduler",
    "data": "tensorbow.data",
    "fit": "scheduler",
    "interop": "tensorbow.interop",
    "map_gather": "replicator",
    "map_reduce": "replicator",
    "models": "tensorbow.models",
    "num_replicas": "replicator",
    "per_replica": "replicator",
    "replica_id": "replicator",
    "sweep": "scheduler",
    "worker_group": "scheduler",
}


def _version() -> str:
    """The installed version, found on first use: finding it takes a tenth of the time of this import."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tensorbow")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            value = _version()
        elif name == "Summary":  # a message of tensorboardX
            value = summary.Summary
        elif name not in _LATER:
            raise _no_attribute(name, {*__dir__(), *(f"nn.{each}" for each in nn.__all__)})
        else:
            module = _import_ours(_LATER[name])
            value = module if _LATER[name].endswith(f".{name}") else getattr(module, name)
        globals()[name] = value
        return value


_register_target("tensorbow", lambda: _import_ours("scheduler").TensorBowSession)
for _scheme in ("tcp://", "grpc://"):
    _register_target(_scheme, lambda: _import_ours("tensorbow.cluster.session").ClusterSession)


def __dir__() -> list[str]:
    """All public names, including those of upper layers that are not loaded yet."""
    return sorted({*__all__, *_LATER, "__version__"})


half, double = float16, float64  # TensorFlow 1's other names
newaxis = None  # in an index, as NumPy's: a new axis of extent 1

__all__ = [
    "AUTO_REUSE",
    "NOT_DIFFERENTIABLE",
    "Barrier",
    "ConditionalAccumulator",
    "ConfigProto",
    "CriticalSection",
    "DType",
    "Defun",
    "Explanation",
    "FIFOQueue",
    "FixedLengthRecordReader",
    "GPUOptions",
    "Graph",
    "GraphDef",
    "GraphKeys",
    "GraphOptions",
    "HostCall",
    "IdentityReader",
    "InteractiveSession",
    "Kernel",
    "KernelCall",
    "MapStagingArea",
    "NoGradient",
    "NodeSpec",
    "NotDifferentiable",
    "OpError",
    "Operation",
    "OptimizerOptions",
    "PaddingFIFOQueue",
    "PartitionedVariable",
    "PriorityQueue",
    "QueueBase",
    "RandomShuffleQueue",
    "ReaderBase",
    "RegisterGradient",
    "RunMetadata",
    "RunOptions",
    "Session",
    "SparseConditionalAccumulator",
    "StagingArea",
    "TFRecordReader",
    "Tensor",
    "TensorArray",
    "TensorBowError",
    "TensorShape",
    "TensorSpec",
    "TextLineReader",
    "UnconnectedGradients",
    "Variable",
    "VariableAggregation",
    "VariableScope",
    "VariableSynchronization",
    "WholeFileReader",
    "add_to_collection",
    "add_to_collections",
    "all_variables",
    "app",
    "as_dtype",
    "assign",
    "assign_add",
    "assign_sub",
    "bfloat16",
    "bitwise",
    "bool",
    "case",
    "clip_by_global_norm",
    "clip_by_norm",
    "colocate_with",
    "complex64",
    "complex128",
    "cond",
    "configure_cpus",
    "configure_gpus",
    "constant_initializer",
    "container",
    "control_dependencies",
    "convert_to_tensor",
    "count_up_to",
    "custom_gradient",
    "debugging",
    "delete_session_tensor",
    "device",
    "double",
    "dtypes",
    "errors",
    "feature_column",
    "fixed_size_partitioner",
    "flags",
    "float16",
    "float32",
    "float64",
    "foldl",
    "foldr",
    "get_collection",
    "get_default_graph",
    "get_default_session",
    "get_local_variable",
    "get_session_handle",
    "get_session_tensor",
    "get_variable",
    "get_variable_scope",
    "gfile",
    "global_norm",
    "global_variables",
    "global_variables_initializer",
    "glorot_normal_initializer",
    "glorot_uniform_initializer",
    "gradients",
    "graph_util",
    "half",
    "hessians",
    "image",
    "initialize_all_tables",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "initializers",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_variable_initialized",
    "layers",
    "linalg",
    "local_variables",
    "local_variables_initializer",
    "logging",
    "lookup",
    "losses",
    "make_template",
    "manip",
    "map_fn",
    "math",
    "metrics",
    "min_max_variable_partitioner",
    "model_variables",
    "moving_average_variables",
    "name_scope",
    "newaxis",
    "nn",
    "ones_initializer",
    "orthogonal_initializer",
    "profiler",
    "py_func",
    "python_io",
    "quantization",
    "random",
    "random_normal_initializer",
    "random_uniform_initializer",
    "recompute_grad",
    "report_uninitialized_variables",
    "reset_default_graph",
    "scan",
    "set_random_seed",
    "sets",
    "signal",
    "sparse",
    "spectral",
    "string",
    "strings",
    "summary",
    "tables_initializer",
    "test",
    "train",
    "trainable_variables",
    "truncated_normal_initializer",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable_axis_size_partitioner",
    "variable_creator_scope",
    "variable_scope",
    "variables_initializer",
    "variance_scaling_initializer",
    "while_loop",
    "zeros_initializer",
]
__all__ += ops.__all__ + string_ops.__all__ + input_ops.__all__
