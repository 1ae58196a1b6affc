"""The matrices of Winograd's minimal filtering F(2, r), by the Toom-Cook method.

    y = A^T [(G g) * (B^T d)]    2 elements of a correlation of d [r + 1] with g [r]

Filter and result are taken as polynomials: their values at points, and at infinity, are multiplied, and
interpolation gives the coefficients of the product. A correlation is the transpose of that. The points are
small, and occur with their reciprocals, so that rounding errors stay near those of direct sums: for windows
of 3 they are smaller, for 5 three times as large (Winograd, 1980; Barabasz et al., 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from tensorbow.kernels.native.products.tile_transforms import Matrix, transposed

OUT = 2  # elements of the result
POINTS: dict[int, tuple[Fraction, ...]] = {  # by extent of the window; infinity is added
    3: (Fraction(0), Fraction(1), Fraction(-1)),
    5: (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2)),
}


@dataclass(frozen=True)
class Matrices:
    """A^T [2, n], G [n, window] and B^T [n, n], with n = window + 1."""

    result: Matrix
    filters: Matrix
    images: Matrix


@cache
def matrices_of(window: int) -> Matrices:
    """The matrices for windows of 3 or 5; rows of B^T are scaled to integers, those of G inversely."""
    points, size = POINTS[window], window + 1

    def powers(count: int) -> list[list[Fraction]]:
        return [[point**k for k in range(count)] for point in points] + [
            [Fraction(k == count - 1) for k in range(count)]
        ]

    images, filters = list(zip(*_inverse(powers(size)), strict=True)), powers(window)
    factors = [math.lcm(*(value.denominator for value in row)) for row in images]
    divisors = [math.gcd(*(int(v * f) for v in row)) for row, f in zip(images, factors, strict=True)]
    scales = [Fraction(f, d) for f, d in zip(factors, divisors, strict=True)]
    return Matrices(
        transposed(_floats(powers(OUT))),
        _floats([[v / s for v in row] for row, s in zip(filters, scales, strict=True)]),
        _floats([[v * s for v in row] for row, s in zip(images, scales, strict=True)]),
    )


def _floats(matrix: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in matrix)


def _inverse(matrix: Sequence[Sequence[Fraction]]) -> list[list[Fraction]]:
    """The inverse of a matrix by Gauss-Jordan elimination, exact."""
    size = len(matrix)
    rows = [[*row, *(Fraction(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next(i for i in range(column, size) if rows[i][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for i, row in enumerate(rows):
            if i != column:
                rows[i] = [x - row[column] * y for x, y in zip(row, rows[column], strict=True)]
    return [row[size:] for row in rows]
