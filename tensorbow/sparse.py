"""`tb.sparse`: sparse tensors under TensorFlow's names; the functions are those of `tb.sparse_...`."""

from tensorbow.ops.sparse_dense import sparse_eye as eye
from tensorbow.ops.sparse_dense import sparse_from_dense as from_dense
from tensorbow.ops.sparse_dense import sparse_tensor_dense_matmul as sparse_dense_matmul
from tensorbow.ops.sparse_dense import sparse_tensor_to_dense as to_dense
from tensorbow.ops.sparse_dense import sparse_to_indicator as to_indicator
from tensorbow.ops.sparse_functions import sparse_add as add
from tensorbow.ops.sparse_functions import sparse_mask as mask
from tensorbow.ops.sparse_functions import sparse_matmul as matmul
from tensorbow.ops.sparse_functions import sparse_maximum as maximum
from tensorbow.ops.sparse_functions import sparse_merge as merge
from tensorbow.ops.sparse_functions import sparse_minimum as minimum
from tensorbow.ops.sparse_functions import sparse_softmax as softmax
from tensorbow.ops.sparse_reductions import sparse_reduce_max as reduce_max
from tensorbow.ops.sparse_reductions import sparse_reduce_max_sparse as reduce_max_sparse
from tensorbow.ops.sparse_reductions import sparse_reduce_sum as reduce_sum
from tensorbow.ops.sparse_reductions import sparse_reduce_sum_sparse as reduce_sum_sparse
from tensorbow.ops.sparse_reductions import sparse_segment_mean as segment_mean
from tensorbow.ops.sparse_reductions import sparse_segment_sqrt_n as segment_sqrt_n
from tensorbow.ops.sparse_reductions import sparse_segment_sum as segment_sum
from tensorbow.ops.sparse_shapes import sparse_concat as concat
from tensorbow.ops.sparse_shapes import sparse_expand_dims as expand_dims
from tensorbow.ops.sparse_shapes import sparse_fill_empty_rows as fill_empty_rows
from tensorbow.ops.sparse_shapes import sparse_reorder as reorder
from tensorbow.ops.sparse_shapes import sparse_reset_shape as reset_shape
from tensorbow.ops.sparse_shapes import sparse_reshape as reshape
from tensorbow.ops.sparse_shapes import sparse_retain as retain
from tensorbow.ops.sparse_shapes import sparse_slice as slice
from tensorbow.ops.sparse_shapes import sparse_split as split
from tensorbow.ops.sparse_shapes import sparse_transpose as transpose
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.ops.sparse_tensors import sparse_placeholder as placeholder
from tensorbow.queues.accumulators import SparseConditionalAccumulator
from tensorbow.string_ops.crossing import sparse_cross as cross
from tensorbow.string_ops.crossing import sparse_cross_hashed as cross_hashed

__all__ = [
    "SparseConditionalAccumulator",
    "SparseTensor",
    "add",
    "concat",
    "cross",
    "cross_hashed",
    "expand_dims",
    "eye",
    "fill_empty_rows",
    "from_dense",
    "mask",
    "matmul",
    "maximum",
    "merge",
    "minimum",
    "placeholder",
    "reduce_max",
    "reduce_max_sparse",
    "reduce_sum",
    "reduce_sum_sparse",
    "reorder",
    "reset_shape",
    "reshape",
    "retain",
    "segment_mean",
    "segment_sqrt_n",
    "segment_sum",
    "slice",
    "softmax",
    "sparse_dense_matmul",
    "split",
    "to_dense",
    "to_indicator",
    "transpose",
]
