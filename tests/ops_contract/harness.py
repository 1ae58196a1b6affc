"""Runs reference kernels of samples under the conditions of the op contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.graph import KernelCall, NodeSpec, OpDef
from tensorbow.ops.definition import kernel_for
from tensorbow.specs import Array, TensorSpec, as_dtype
from tests.ops_contract.sample import Sample

GARBAGE = (
    0xFF,
    0x5A,
)  # as floats the first is NaN, the second a large number; two of them, as one may be right


def specs_of(arrays: Sequence[Array], with_values: bool = True) -> tuple[TensorSpec, ...]:
    """Fully known specs."""
    return tuple(TensorSpec(a.shape, as_dtype(a.dtype), a if with_values else None) for a in arrays)


def filled(spec: TensorSpec, byte: int) -> Array:
    """Array of a spec, filled with garbage."""
    array = np.empty(spec.extents, spec.dtype.as_numpy_dtype)
    array.reshape(-1).view(np.uint8)[:] = byte if array.dtype.kind != "b" else byte & 1
    return array


class Call:
    """Bound call of an op's reference kernel; `run` may be called repeatedly."""

    def __init__(
        self,
        op: OpDef,
        inputs: Sequence[Array],
        attrs: Mapping[str, Any],
        state: Mapping[str, float],
        garbage: int = GARBAGE[0],
        outputs: Mapping[int, Array] | None = None,
    ):
        specs = specs_of(inputs)
        results = op.infer(specs, attrs)
        kernel = kernel_for(op, "cpu")
        self.garbage = garbage
        given = {**{output: inputs[source] for output, source in op.alias}, **(outputs or {})}
        self.outputs = tuple(given.get(i, filled(r, garbage)) for i, r in enumerate(results))
        self.scratch = tuple(
            filled(s, garbage) for s in kernel.scratch_specs(NodeSpec(attrs, specs, results))
        )
        self.state = {key: np.asarray(value) for key, value in state.items()}
        call = KernelCall(attrs, tuple(inputs), self.outputs, self.scratch, self.state)
        self._step = kernel.bind(call)

    def run(self) -> None:
        """Runs one step; as in a session, NumPy does not warn of NaN and infinities."""
        with np.errstate(all="ignore"):
            self._step()


def run_sample(
    sample: Sample, inputs: Sequence[Array] | None = None, garbage: int = GARBAGE[0]
) -> tuple[Array, ...]:
    """Outputs of the kernel (or of the view) for the sample's inputs, or for other arrays."""
    arrays = sample.inputs if inputs is None else tuple(inputs)
    if sample.op.is_view:
        ((_, source),) = sample.op.alias
        (result,) = sample.op.infer(specs_of(arrays), sample.complete_attrs)
        return (arrays[source].reshape(result.extents),)
    call = Call(sample.op, arrays, sample.complete_attrs, sample.state, garbage)
    call.run()
    return call.outputs


def writable(sample: Sample) -> tuple[Array, ...]:
    """Inputs with copies of those that the kernel may change."""
    return tuple(a.copy() if i in sample.op.writes else a for i, a in enumerate(sample.inputs))


# Other arrays with the same elements --------------------------------------------------------------------


def _strided(array: Array) -> Array:
    wide = filled(TensorSpec(tuple(2 * n for n in array.shape), as_dtype(array.dtype)), GARBAGE[0])
    view = wide[(np.s_[::2],) * array.ndim]
    view[...] = array
    return view


def _reversed(array: Array) -> Array:
    every = (np.s_[::-1],) * array.ndim
    return np.ascontiguousarray(array[every])[every]


def _permuted(array: Array) -> Array:
    """Layout with the first axis innermost and the others in order: neither row-major nor column-major."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "strided": _strided,
    "reversed": _reversed,
    "fortran": np.asfortranarray,
    "permuted": _permuted,
}


def relaid(sample: Sample, layout: str) -> list[Array]:
    """Inputs in another layout, except scalars and inputs that the kernel may require to be contiguous."""
    kept = {*sample.op.writes, *sample.contiguous}
    return [a.copy() if i in kept or a.ndim == 0 else LAYOUTS[layout](a) for i, a in enumerate(sample.inputs)]


def same_bits(a: Array, b: Array) -> bool:
    """True if shape, dtype and every bit agree, NaN and signs of zero included."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_close(actual: Array, expected: Any, sample: Sample, what: str) -> None:
    """Asserts that a result agrees with its reference, by the tolerance of the sample or of the dtype."""
    reference = np.asarray(expected)
    single, double = (2e-5, 1e-6), (1e-11, 1e-12)
    tolerances = {"float32": single, "complex64": single, "float64": double, "complex128": double}
    rtol, atol = tolerances.get(actual.dtype.name, (0, 0))
    np.testing.assert_allclose(
        actual,
        reference,
        rtol=rtol if sample.rtol is None else sample.rtol,
        atol=atol if sample.atol is None else sample.atol,
        err_msg=what,
    )
