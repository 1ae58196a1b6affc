"""Native code of matrix products.

A right matrix stored transposed is either transposed first, or, if transposing would be most of the work
because the left one has few rows, multiplied as it is: `dot_products`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from tensorbow.graph import Attrs, NodeSpec
from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter, index, type_of
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.contraction import Contraction, contraction
from tensorbow.kernels.native.products.dot_products import DotProducts, dot_products
from tensorbow.kernels.native.products.microkernel import Walk, shared_function
from tensorbow.kernels.native.products.packing import blocks, transpose
from tensorbow.kernels.native.products.pair_packing import (
    element_at,
    pack_columns,
    pack_rows,
    pack_transposed,
    pairs_of,
)
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.program.plan import Group
from tensorbow.specs import FLOATING, DType, TensorSpec

FEW_ROWS = 48  # rows of the left matrix below which transposing the right one does not pay
LONG_SUM = 96  # shortest sum that pays for adding up the lanes of a vector
PART_PAIRS = 512  # pairs along the sum in a part of the right matrix, packed at a time
PART_COLUMNS = 64  # columns in a part, or a multiple
PART_NBYTES = 128 << 10  # most bytes of a part, which stays in a second-level cache


@dataclass(frozen=True)
class Product:
    """[rows, inner] @ [inner, columns], each matrix stored like that or transposed."""

    dtype: DType
    rows: int
    inner: int
    columns: int
    turned_a: bool
    turned_b: bool
    pairs: bool = False

    @classmethod
    def of(
        cls,
        a: Sequence[int],
        b: Sequence[int],
        turned_a: bool,
        turned_b: bool,
        dtype: DType,
        pairs: bool = False,
    ) -> Product:
        """The product of matrices, or of the matrices in two stacks, of these shapes."""
        rows, inner = a[:-3:-1] if turned_a else a[-2:]
        return cls(dtype, rows, inner, b[-2] if turned_b else b[-1], turned_a, turned_b, pairs)

    @property
    def by_dots(self) -> bool:
        """True if rows of A are multiplied directly with rows of B."""
        return self.turned_b and not self.turned_a and self.rows <= FEW_ROWS and self.inner >= LONG_SUM

    def scratch(self) -> list[TensorSpec]:
        """The transposed right matrix, if needed; or the left one in pairs, and a part of the right one."""
        if self.pairs:
            return [TensorSpec((self.rows * pairs_of(self.inner) + math.prod(self._part),), self.dtype)]
        turns = self.turned_b and not self.by_dots
        return [TensorSpec((self.inner, self.columns) if turns else (0,), self.dtype)]

    def write(self, e: Emitter, pointers: Sequence[ir.Value]) -> None:
        """Emits one product. pointers: to a, b, result, scratch."""
        a, b, result, turned = pointers
        if self.pairs:
            self._write_pairs(e, pointers)
            return
        if self.by_dots:
            function = dot_products(e, DotProducts(self.dtype, self.rows, self.columns, self.inner))
            e.builder.call(function, [a, b, result])
            return
        if self.turned_b:
            transpose(e, turned, b, self.columns, self.inner, self.dtype)
            b = turned
        row, step = (1, self.rows) if self.turned_a else (self.inner, 1)
        what = Contraction(
            self.dtype,
            (Walk(self.rows, row, c=self.columns),),
            self.columns,
            (Walk(self.inner, step, self.columns),),
        )
        e.builder.call(contraction(e, what), [a, b, result, index(0)])

    @property
    def _part(self) -> tuple[int, int]:
        """Pairs and columns of a part of the right matrix that is packed, then multiplied with all rows."""
        inner, columns = min(pairs_of(self.inner), PART_PAIRS), self.columns
        fitting = max(PART_NBYTES // (4 * inner) // PART_COLUMNS, 1) * PART_COLUMNS
        return inner, min(columns, fitting)

    def _write_pairs(self, e: Emitter, pointers: Sequence[ir.Value]) -> None:
        """Emits the product of operands rounded to bfloat16."""
        a, b, result, packed = pointers
        inner = pairs_of(self.inner)
        packed_b = element_at(e, packed, self.rows * inner)
        if self.turned_a:
            pack_columns(e, packed, a, self.inner, self.rows)
            row, step = 1, self.rows
        else:
            pack_rows(e, packed, a, self.rows, self.inner)
            row, step = inner, 1
        high, wide = self._part
        for count, k in blocks(e, self.inner, 2 * high):
            on_a = element_at(e, packed, e.builder.lshr(k, index(1)), step)
            for columns, j in blocks(e, self.columns, wide):
                if self.turned_b:
                    source = element_at(e, element_at(e, b, j, self.inner), k)
                    pack_transposed(e, packed_b, source, columns, count, self.inner)
                else:
                    source = element_at(e, element_at(e, b, k, self.columns), j)
                    pack_columns(e, packed_b, source, count, columns, self.columns)
                what = Contraction(
                    self.dtype,
                    (Walk(self.rows, row, c=self.columns),),
                    columns,
                    (Walk(pairs_of(count), step, columns),),
                    pairs=True,
                )
                e.builder.call(contraction(e, what), [on_a, packed_b, element_at(e, result, j), k])


def _call(e: Emitter, product: Product, pointers: Sequence[ir.Value]) -> None:
    function = shared_function(e, product, [POINTER] * len(pointers), product.write)
    e.builder.call(function, pointers)


def _takes(node: NodeSpec, target: Target) -> bool:
    return node.outputs[0].dtype in FLOATING and all(
        0 not in spec.extents for spec in (*node.inputs, *node.outputs)
    )


# One product -------------------------------------------------------------------------------------


MATMUL_KEYS = "transpose_a", "transpose_b"
BATCH_KEYS = "adj_x", "adj_y"


def _product(
    attrs: Attrs, keys: tuple[str, str], a: Sequence[int], b: Sequence[int], dtype: DType, target: Target
) -> Product:
    turned_a, turned_b = (attrs[key] for key in keys)
    return Product.of(a, b, turned_a, turned_b, dtype, target.rounds(dtype))


def _emit_matmul(e: Emitter, group: Group) -> None:
    (out,) = group.outputs
    x, y = group.inputs
    product = _product(group.attrs, MATMUL_KEYS, x.shape, y.shape, out.dtype, e.target)
    _call(e, product, [e.address(ref) for ref in (x, y, out, *group.scratch)])


def _product_of(node: NodeSpec, keys: tuple[str, str], target: Target) -> Product:
    a, b = node.inputs
    return _product(node.attrs, keys, a.extents, b.extents, a.dtype, target)


lower(
    MatMul,
    Lowering(_emit_matmul, _takes, lambda node, target: _product_of(node, MATMUL_KEYS, target).scratch()),
)


# Stacks ------------------------------------------------------------------------------------------


def _emit_batch(e: Emitter, group: Group) -> None:
    """A product for each matrix of the result, in loops over the leading axes."""
    (out,) = group.outputs
    x, y = group.inputs
    product = _product(group.attrs, BATCH_KEYS, x.shape, y.shape, out.dtype, e.target)
    lead = out.shape[:-2]
    element = type_of(out.dtype)
    steps = [_steps(ref.shape, len(lead)) for ref in (*group.inputs, out)]
    scratch = e.address(group.scratch[0])

    def loops(axis: int, pointers: list[ir.Value]) -> None:
        if axis == len(lead):
            _call(e, product, [*pointers, scratch])
            return
        with e.loop(lead[axis]) as i:
            moved = [
                e.offset(pointer, element, e.builder.mul(i, index(step[axis])))
                for pointer, step in zip(pointers, steps, strict=True)
            ]
            loops(axis + 1, moved)

    loops(0, [e.address(ref) for ref in (*group.inputs, out)])


def _steps(shape: Sequence[int], rank: int) -> list[int]:
    """Strides of the matrices along each of `rank` leading axes, in elements; 0 where broadcast."""
    lead = (1,) * (rank + 2 - len(shape)) + tuple(shape[:-2])
    size = math.prod(shape[-2:])
    return [0 if n == 1 else math.prod(lead[axis + 1 :]) * size for axis, n in enumerate(lead)]


lower(
    BatchMatMulV2,
    Lowering(_emit_batch, _takes, lambda node, target: _product_of(node, BATCH_KEYS, target).scratch()),
)
