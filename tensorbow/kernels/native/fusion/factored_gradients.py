"""Weight gradients of dense layers kept as their two factors; updates multiply the factors.

If only checks and updates of the same replica read a product, its two factors are stored in
the result's memory instead. Each reader is cut at the borders of the result, and its middle part computes the
elements (`outer_products`). A gradient that is fetched, averaged over replicas or clipped is not factored.
The check is exact: no variable is written in a step with a gradient that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorbow.kernels.averaged_updates import KEYS, AveragedUpdate
from tensorbow.kernels.merging import cut, touch
from tensorbow.kernels.native.codegen.emitter import Bounds, Emitter
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.ops.maps import emit_rule
from tensorbow.kernels.native.products.contraction import FEW_ROWS
from tensorbow.kernels.native.products.outer_products import (
    GRAIN_ROWS,
    ProductUpdate,
    emit_check,
    emit_factors,
    emit_update,
    unpacked,
)
from tensorbow.kernels.native.products.pair_packing import pairs_of
from tensorbow.kernels.scalars import RULES, results_of
from tensorbow.kernels.scalars.expression import structure
from tensorbow.ops.averaging import GradientCheck
from tensorbow.ops.matmul import MatMul
from tensorbow.program.plan import Executable, Group, Ref, Region
from tensorbow.specs import Array

KEPT = "keeps the factors of the weights' gradient"
FACTORS_FORM, PAIRED_FORM = ("factors",), ("factors", "in pairs")
LARGE = 128 << 10  # bytes: passes over smaller gradients take no longer than their factors' products


def factor_gradients(executable: Executable, averaged: Mapping[Hashable, AveragedUpdate]) -> Executable:
    """The executable with products replaced by their factors where possible.

    averaged: expressions of the passes that also average, by the form of their kernels.
    """
    if Region.GRADIENTS in executable.exchange_inputs:
        return executable
    segments = [list(segment.groups) for segment in executable.segments]
    products = [group for groups in segments for group in groups if _is_outer_product(group)]
    for product in products:
        gradient = _flat(product.outputs[0])
        others = [group for groups in segments for group in groups if group is not product]
        if touch(executable.fetch_sources, (gradient,)):
            continue
        if all(_may_multiply(group, gradient, averaged) for group in others):
            factors = _factors(product)
            for groups in segments:
                groups[:] = [
                    part for group in groups for part in _parts(group, product, gradient, factors, averaged)
                ]
    changed = (replace(s, groups=tuple(g)) for s, g in zip(executable.segments, segments, strict=True))
    return replace(executable, segments=tuple(changed))


def overflowing(groups: Sequence[Group], array: Callable[[Ref], Array]) -> str | None:
    """The first factored product with an infinite or NaN element, and its line; None if all are finite.

    array: gives the contents of the array of a ref, after the groups have run.
    """
    for group in groups:
        form = group.kernel.form if isinstance(group.kernel, NativeKernel) else None
        if form in (FACTORS_FORM, PAIRED_FORM):
            kept_left, kept_right = map(array, group.outputs)
            left, right = unpacked(kept_left, kept_right, form == PAIRED_FORM)
            with np.errstate(all="ignore"):
                is_finite = np.isfinite(np.matmul(left.T, right)).all()
            if not is_finite:
                return f"{group.definition.name} {group.name} (made at {group.source})"
    return None


def _is_outer_product(group: Group) -> bool:
    """True if a call is A^T B of few rows, into a large gradient that it alone writes."""
    kernel = group.kernel
    if group.definition is not MatMul or not isinstance(kernel, NativeKernel) or kernel.form is not None:
        return False
    (a, b), (out,) = group.inputs, group.outputs
    return (
        bool(group.attrs["transpose_a"])
        and not group.attrs["transpose_b"]
        and out.region is Region.GRADIENTS
        and out.nbytes > LARGE
        and a.shape[0] <= FEW_ROWS
        and a.nbytes + b.nbytes <= out.nbytes
    )


def _flat(ref: Ref) -> Ref:
    return replace(ref, shape=(math.prod(ref.shape),))


def _factors(product: Group) -> tuple[Ref, Ref]:
    """Refs of A and B, or of pairs of their rows: one after the other, in the result's memory."""
    (a, b), (out,) = product.inputs, product.outputs
    rows = pairs_of(a.shape[0]) if _is_rounded(product) else a.shape[0]
    left = replace(out, shape=(rows, a.shape[1]))
    return left, replace(out, offset=out.offset + left.nbytes, shape=(rows, b.shape[1]))


def _is_rounded(product: Group) -> bool:
    return isinstance(product.kernel, NativeKernel) and product.kernel.rounds


def _covers(ref: Ref, part: Ref) -> bool:
    end, last = ref.offset + ref.nbytes, part.offset + part.nbytes
    return ref.region is part.region and ref.dtype == part.dtype and ref.offset <= part.offset <= last <= end


def _may_multiply(group: Group, gradient: Ref, averaged: Mapping[Hashable, AveragedUpdate]) -> bool:
    """True if a call does not touch a gradient, or can use its factors."""
    refs = (*group.inputs, *group.outputs, *group.scratch, *(ref for _, ref in group.state))
    touching = [ref for ref in refs if touch((ref,), (gradient,))]
    if not touching:
        return True
    if not isinstance(group.kernel, NativeKernel) or len(touching) > 1:
        return False
    if group.definition is GradientCheck:
        return _covers(touching[0], gradient)
    update = group.definition.update
    return (
        update is not None
        and group.inputs[update[1]] == touching[0]
        and _covers(touching[0], gradient)
        and _computed(group, averaged) is not None
    )


def _computed(group: Group, averaged: Mapping[Hashable, AveragedUpdate]) -> ProductUpdate | None:
    """Expressions of an update for an element, with or without averaging, if it is a map."""
    kernel, definition = group.kernel, group.definition
    if not isinstance(kernel, NativeKernel) or definition.update is None:
        return None
    gradient = definition.update[1]
    size = math.prod(group.inputs[gradient].shape)
    arrays = [ref for ref in (*group.inputs, *group.outputs) if math.prod(ref.shape) == size]
    if any(ref not in arrays for ref in (*group.inputs[: gradient + 1], *group.outputs)):
        return None
    pass_ = averaged.get(kernel.form)
    if pass_ is not None:
        return ProductUpdate(pass_.results, gradient, (0,), pass_.written, KEYS)
    if kernel.emit is not emit_rule or definition not in RULES:
        return None
    state = dict(group.state)
    results = results_of(
        definition,
        group.attrs,
        [ref.dtype for ref in group.inputs],
        [state[key].dtype for key in definition.state],
    )
    aliased = {output for output, _ in definition.alias}
    own = tuple(number for number in range(len(group.outputs)) if number not in aliased)
    return ProductUpdate(results, gradient, own, definition.writes, definition.state)


def _parts(
    group: Group,
    product: Group,
    gradient: Ref,
    factors: tuple[Ref, Ref],
    averaged: Mapping[Hashable, AveragedUpdate],
) -> Iterator[Group]:
    """The call, or its parts: the elements before the gradient, the gradient, the elements after it."""
    if group is product:
        is_rounded = _is_rounded(product)
        form = PAIRED_FORM if is_rounded else FACTORS_FORM
        kernel = NativeKernel(emit=emit_factors, form=form, rounds=is_rounded, explain=product.kernel.explain)
        note = f"{group.note}; {KEPT}" if group.note else KEPT
        yield replace(group, kernel=kernel, outputs=factors, scratch=(), writes=factors, note=note)
        return
    if not touch(group.inputs, (gradient,)):
        yield group
        return
    update = group.definition.update
    whole = group.inputs[0 if update is None else update[1]]
    size, itemsize = math.prod(whole.shape), gradient.dtype.size
    first = (gradient.offset - whole.offset) // itemsize
    end = first + gradient.nbytes // itemsize
    if first:
        yield cut(group, size, 0, first)
    middle = cut(group, size, first, end)
    yield _on_factors(middle, factors, None if update is None else _computed(middle, averaged))
    if end < size:
        yield cut(group, size, end, size)


def _on_factors(group: Group, factors: tuple[Ref, Ref], update: ProductUpdate | None) -> Group:
    """A check or update of a whole gradient that multiplies its factors."""
    left, right = factors
    if update is None:
        kernel = NativeKernel(emit=emit_check, form=("product check",))
        return replace(group, kernel=kernel, inputs=factors, reads=factors)
    inputs = list(group.inputs)
    whole, inputs[update.gradient] = inputs[update.gradient], left
    made = update

    def emit(e: Emitter, group: Group, bounds: Bounds | None = None) -> None:
        emit_update(e, group, made, bounds)

    form = (
        "product update",
        structure(made.results),
        made.gradient,
        made.outputs,
        made.written,
        made.keys,
    )
    note = "the gradient is multiplied from its factors on the way"
    return replace(
        group,
        kernel=NativeKernel(emit=emit, form=form, emit_part=emit, grain=GRAIN_ROWS * right.shape[1]),
        inputs=(*inputs, right),
        reads=(*(ref for ref in group.reads if ref != whole), left, right),
        note=f"{group.note}; {note}" if group.note else note,
    )
