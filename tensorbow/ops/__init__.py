"""The ops, one file per subject: spec, gradient and reference kernel of an op stand together.

Importing this package defines all ops and gives tensors their operators. A function's name stands once, in
`__all__` of its module; `tensorbow.nn` exports the modules of neural networks, this package the others.
"""

from tensorbow.ops import (  # noqa: F401 - define their ops, install the operators
    activations,
    adaptive_updates,
    arrays,
    audio_summaries,
    average_pooling,
    averaging,
    bessel,
    broadcasting,
    candidate_samplers,
    checks,
    collectives,
    complex_numbers,
    conditions,
    control,
    conv,
    conversions,
    ctc,
    cumulative,
    data_dependent,
    decompositions,
    definition,
    depthwise,
    elementwise,
    examples,
    filling,
    fourier,
    fractional_pooling,
    importing,
    indexed_slices,
    indexing,
    linalg,
    linear_equations,
    losses,
    lu_decomposition,
    matrix_bands,
    matrix_functions,
    nd_indexing,
    nd_writes,
    nn,
    normalization,
    norms,
    older_names,
    operators,
    ordering,
    orthogonal,
    padding,
    patches,
    pooling,
    positions,
    quantization,
    quantized_products,
    random,
    random_distributions,
    reductions,
    scatter,
    segments,
    selection,
    sets,
    shape_rules,
    shaping,
    sliced_writes,
    slicing,
    sparse_dense,
    sparse_functions,
    sparse_lookups,
    sparse_reductions,
    sparse_shapes,
    sparse_tensors,
    spatial_blocks,
    special_functions,
    state,
    static_checks,
    summaries,
    sums,
    tensor_indices,
    tridiagonal,
    updates,
)
from tensorbow.ops.arrays import *
from tensorbow.ops.bessel import *
from tensorbow.ops.broadcasting import *
from tensorbow.ops.checks import *
from tensorbow.ops.collectives import *
from tensorbow.ops.complex_numbers import *
from tensorbow.ops.conditions import *
from tensorbow.ops.constant import constant
from tensorbow.ops.control import *
from tensorbow.ops.conversions import *
from tensorbow.ops.cumulative import *
from tensorbow.ops.data_dependent import *
from tensorbow.ops.decompositions import *
from tensorbow.ops.definition import *
from tensorbow.ops.einsum import einsum, tensordot
from tensorbow.ops.elementwise import *
from tensorbow.ops.filling import *
from tensorbow.ops.fourier import *
from tensorbow.ops.image_geometry import random_crop
from tensorbow.ops.importing import *
from tensorbow.ops.indexed_slices import *
from tensorbow.ops.indexing import *
from tensorbow.ops.joint_results import tuple_ as tuple
from tensorbow.ops.linalg import *
from tensorbow.ops.linear_equations import *
from tensorbow.ops.lu_decomposition import *
from tensorbow.ops.matmul import matmul
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
from tensorbow.ops.sets import edit_distance
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

__all__ = ["constant", "edit_distance", "einsum", "matmul", "random_crop", "tensordot", "tuple"]
__all__ += arrays.__all__
__all__ += bessel.__all__
__all__ += broadcasting.__all__
__all__ += checks.__all__
__all__ += collectives.__all__
__all__ += complex_numbers.__all__
__all__ += conditions.__all__
__all__ += control.__all__
__all__ += cumulative.__all__
__all__ += data_dependent.__all__
__all__ += decompositions.__all__
__all__ += linear_equations.__all__
__all__ += matrix_bands.__all__
__all__ += definition.__all__
__all__ += elementwise.__all__
__all__ += filling.__all__
__all__ += fourier.__all__
__all__ += importing.__all__
__all__ += indexed_slices.__all__
__all__ += indexing.__all__
__all__ += linalg.__all__
__all__ += lu_decomposition.__all__
__all__ += matrix_functions.__all__
__all__ += nd_indexing.__all__
__all__ += norms.__all__
__all__ += older_names.__all__
__all__ += padding.__all__
__all__ += patches.__all__
__all__ += positions.__all__
__all__ += random.__all__
__all__ += reductions.__all__
__all__ += scatter.__all__
__all__ += segments.__all__
__all__ += selection.__all__
__all__ += shape_rules.__all__
__all__ += shaping.__all__
__all__ += slicing.__all__
__all__ += sparse_tensors.__all__
__all__ += spatial_blocks.__all__
__all__ += conversions.__all__
__all__ += nd_writes.__all__
__all__ += random_distributions.__all__
__all__ += special_functions.__all__
__all__ += static_checks.__all__
__all__ += sums.__all__
__all__ += tridiagonal.__all__
__all__ += tensor_indices.__all__
__all__ += sparse_dense.__all__
__all__ += sparse_functions.__all__
__all__ += sparse_reductions.__all__
__all__ += sparse_shapes.__all__
