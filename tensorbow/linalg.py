"""`tb.linalg`: matrices under TensorFlow's names; `tb.matmul` and others are the same functions."""

from tensorbow.ops.decompositions import matrix_solve_ls as lstsq
from tensorbow.ops.decompositions import qr, svd
from tensorbow.ops.decompositions import self_adjoint_eig as eigh
from tensorbow.ops.decompositions import self_adjoint_eigvals as eigvalsh
from tensorbow.ops.einsum import einsum, tensordot
from tensorbow.ops.linalg import adjoint, cross, eye, matvec, trace
from tensorbow.ops.linalg import diag as tensor_diag
from tensorbow.ops.linalg import diag_part as tensor_diag_part
from tensorbow.ops.linalg import matrix_determinant as det
from tensorbow.ops.linalg import matrix_diag as diag
from tensorbow.ops.linalg import matrix_diag_part as diag_part
from tensorbow.ops.linalg import matrix_inverse as inv
from tensorbow.ops.linalg import matrix_set_diag as set_diag
from tensorbow.ops.linalg import matrix_transpose as transpose
from tensorbow.ops.linear_equations import cholesky, cholesky_solve, logdet
from tensorbow.ops.linear_equations import matrix_solve as solve
from tensorbow.ops.linear_equations import matrix_triangular_solve as triangular_solve
from tensorbow.ops.lu_decomposition import lu, slogdet
from tensorbow.ops.matmul import matmul
from tensorbow.ops.matrix_bands import matrix_band_part as band_part
from tensorbow.ops.matrix_functions import matrix_exponential as expm
from tensorbow.ops.matrix_functions import matrix_logarithm as logm
from tensorbow.ops.matrix_functions import matrix_square_root as sqrtm
from tensorbow.ops.normalization import l2_normalize
from tensorbow.ops.norms import norm
from tensorbow.ops.tridiagonal import tridiagonal_matmul, tridiagonal_solve
from tensorbow.optimizers.clipping import global_norm

__all__ = [
    "adjoint",
    "band_part",
    "cholesky",
    "cholesky_solve",
    "cross",
    "det",
    "diag",
    "diag_part",
    "eigh",
    "eigvalsh",
    "einsum",
    "expm",
    "eye",
    "global_norm",
    "inv",
    "l2_normalize",
    "logdet",
    "logm",
    "lstsq",
    "lu",
    "matmul",
    "matvec",
    "norm",
    "qr",
    "set_diag",
    "slogdet",
    "solve",
    "sqrtm",
    "svd",
    "tensor_diag",
    "tensor_diag_part",
    "tensordot",
    "trace",
    "transpose",
    "triangular_solve",
    "tridiagonal_matmul",
    "tridiagonal_solve",
]
