"""The arithmetic of synchronous model averaging and of averaged gradients (Crossbow, VLDB 2019, section 3).

A replica's correction is c = alpha * (w - z), taken before its update and subtracted after it; the
sum of all corrections (`AllSum`) moves z. With DiLoCo (Douillard et al., 2023, algorithm 1) the sum of the
replicas' progress w - z is an outer gradient. Synchronisers add these ops to steps; they are not for user
graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.specs import FLOATING, Array, DType, TensorSpec

CHUNK = 1 << 15  # elements per pass, so that they stay in the cache for the next pass


def _flat_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("averaging", inputs[0], FLOATING)
    require_same_dtype("averaging", inputs)
    for other in inputs:
        if other.dims != inputs[0].dims:
            raise InvalidArgumentError(
                f"averaging: expected tensors of one shape, got {inputs[0]} and {other}"
            )
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def _nothing(inputs: Sequence[TensorSpec], attrs: Attrs) -> Sequence[TensorSpec]:
    _flat_spec(inputs, attrs)
    return ()


def _no_dtypes(inputs: Sequence[TensorSpec], attrs: Attrs) -> Sequence[DType]:
    """Dtypes of ops without outputs: none."""
    return ()


def _pieces(*arrays: Array) -> list[tuple[Array, ...]]:
    if not all(array.flags.c_contiguous for array in arrays):
        return [arrays]
    flat = [array.reshape(-1) for array in arrays]
    return [tuple(a[start : start + CHUNK] for a in flat) for start in range(0, flat[0].size, CHUNK)]


def _prepare_difference(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs, *call.outputs)
    alpha, status = call.state["alpha"], call.state["status"]
    correction = call.outputs[0]
    factor = np.empty((), correction.dtype)

    def step() -> None:
        if status:  # leave the replica unchanged until somebody has inspected it
            correction[...] = 0
            return
        factor[...] = alpha
        for w, z, c in pieces:
            np.subtract(w, z, out=c)
            np.multiply(c, factor, out=c)

    return step


def _prepare_correct(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs)

    def step() -> None:
        for w, c in pieces:
            np.subtract(w, c, out=w)

    return step


def _prepare_move(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs, *call.outputs)
    momentum = call.state["mu"]
    factor = np.empty((), call.outputs[0].dtype)

    def step() -> None:
        factor[...] = momentum
        for before, total, u, after in pieces:
            np.multiply(u, factor, out=u)
            np.add(u, total, out=u)
            np.add(before, u, out=after)

    return step


def _prepare_outer_step(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs, *call.outputs)
    factors = [np.empty((), call.outputs[0].dtype) for _ in range(3)]
    values = [call.state[key] for key in ("share", "mu", "outer_rate")]
    steps = [np.empty_like(pieces[0][1])] if pieces else []

    def step() -> None:
        for factor, value in zip(factors, values, strict=True):
            factor[...] = value
        share, momentum, rate = factors
        for before, total, u, after in pieces:
            moved = steps[0][: len(total)] if total.ndim == 1 else steps[0]
            np.multiply(total, share, out=moved)
            np.multiply(u, momentum, out=u)
            np.add(u, moved, out=u)
            np.add(u * momentum, moved, out=moved)
            np.multiply(moved, rate, out=moved)
            np.add(before, moved, out=after)

    return step


def _prepare_truncate16(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs, *call.outputs)
    single = np.empty(pieces[0][0].shape if pieces else (0,), np.float32)

    def step() -> None:
        for value, upper in pieces:
            kept = single[: value.size]
            np.copyto(kept, value, casting="same_kind")
            np.bitwise_and(kept.view(np.uint32), np.uint32(0xFFFF0000), out=kept.view(np.uint32))
            np.copyto(upper, kept)

    return step


def _prepare_follow(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs, *call.outputs)
    factor = np.array(1 - call.attrs["decay"], call.outputs[0].dtype)
    moves = [np.empty_like(pieces[0][1])] if pieces else []

    def step() -> None:
        for before, followed, after in pieces:
            move = moves[0][: len(followed)] if followed.ndim == 1 else moves[0]
            np.subtract(followed, before, out=move)
            np.multiply(move, factor, out=move)
            np.add(before, move, out=after)

    return step


def _clear(call: KernelCall) -> None:
    call.inputs[0][...] = call.attrs["value"]


def _prepare_mean(call: KernelCall) -> Callable[[], None]:
    pieces = _pieces(*call.inputs, *call.outputs)
    share = call.state["share"]
    factor = np.empty((), call.outputs[0].dtype)

    def step() -> None:
        factor[...] = share
        for total, mean in pieces:
            np.multiply(total, factor, out=mean)

    return step


def _check_gradient(call: KernelCall) -> None:
    gradient = call.inputs[0].reshape(-1)
    # The sum of squares, BLAS's fastest pass, keeps NaN and infinity. It may also overflow for finite values:
    # then each element is checked.
    if not np.isfinite(np.dot(gradient, gradient)) and not np.isfinite(gradient).all():
        call.state["status"][...] = 1


def _spoil(call: KernelCall) -> None:
    if call.state["status"]:
        call.inputs[0][...] = np.nan


GradientMean = define_op(
    "GradientMean",
    spec=_flat_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("total",),
    kernel=Kernel(prepare=_prepare_mean),
    state=("share",),
    doc="The sum of all replicas' gradients times `share`: 1 / replicas.",
)
GradientCheck = define_op(
    "GradientCheck",
    spec=_nothing,
    unknown_dtypes=_no_dtypes,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("gradient",),
    kernel=Kernel(run=_check_gradient),
    state=("status",),
    sets_status=True,
    stateful=True,
    doc="Sets the status if an element is NaN or infinite.",
)
GradientSpoil = define_op(
    "GradientSpoil",
    spec=_nothing,
    unknown_dtypes=_no_dtypes,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("gradient",),
    kernel=Kernel(run=_spoil),
    writes=(0,),
    state=("status",),
    doc="NaN instead of a gradient while the status is set: its mean sets the status of all replicas.",
)
SmaClear = define_op(
    "SmaClear",
    spec=_nothing,
    unknown_dtypes=_no_dtypes,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("velocity",),
    attrs={"value": 0.0},
    kernel=Kernel(run=_clear),
    writes=(0,),
    ignores=(0,),
    doc="u = 0, or a slot's initial value",
)
SmaDifference = define_op(
    "SmaDifference",
    spec=_flat_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("weights", "central"),
    kernel=Kernel(prepare=_prepare_difference),
    state=("alpha", "status"),
    doc="c = alpha * (w - z); 0 while the status is set.",
)
SmaCorrect = define_op(
    "SmaCorrect",
    spec=_nothing,
    unknown_dtypes=_no_dtypes,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("weights", "correction"),
    kernel=Kernel(prepare=_prepare_correct),
    writes=(0,),
    doc="w -= c",
)
SmaMove = define_op(
    "SmaMove",
    spec=_flat_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("central", "total", "velocity"),
    kernel=Kernel(prepare=_prepare_move, inplace=((0, 0),)),
    writes=(2,),
    state=("mu",),
    doc="u = mu * u + a; z' = z + u",
)
OuterStep = define_op(
    "OuterStep",
    spec=_flat_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("central", "total", "velocity"),
    kernel=Kernel(prepare=_prepare_outer_step, inplace=((0, 0),)),
    writes=(2,),
    state=("share", "mu", "outer_rate"),
    doc="Nesterov momentum along p = share * total: u = mu * u + p; z' = z + outer_rate * (mu * u + p).",
)
Truncate16 = define_op(
    "Truncate16",
    spec=_flat_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("value",),
    kernel=Kernel(prepare=_prepare_truncate16),
    doc="The upper 16 bits of each float32, zeros below, as TensorFlow sends it (white paper, section 5.5).",
)
SmaFollow = define_op(
    "SmaFollow",
    spec=_flat_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("average", "followed"),
    attrs={"decay": REQUIRED},
    kernel=Kernel(prepare=_prepare_follow, inplace=((0, 0),)),
    doc="Exponential moving average: average + (1 - decay) * (followed - average).",
)
