"""One native call on arrays of its own, compared with the reference kernel of the same op."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tensorbow.devices import get_device
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels import backend_for, register_backend
from tensorbow.specs import Array, TensorSpec, int64
from tests.ops_contract.collection import all_samples
from tests.ops_contract.harness import GARBAGE, Call, assert_close, specs_of
from tests.ops_contract.sample import Sample

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native import lowerings  # noqa: F401
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen.functions import compile_groups
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import LOWERINGS, lowering_for
from tensorbow.kernels.native.codegen.target import Target, host_target
from tensorbow.program.plan import Group, Ref, Region
from tests.native_rig.targets import narrow_target

TARGETS = {"host": host_target, "narrow": narrow_target}
# Narrower vectors are the slow suite's, but for what `one_target` chooses.
each_target = pytest.mark.parametrize("target", ["host", pytest.param("narrow", marks=pytest.mark.slow)])
GAP = 64  # bytes of garbage around every array, which a call must leave as they are


class RefusedError(Exception):
    """The call rejected its input."""


def is_taken(op: OpDef, inputs: Sequence[Array], attrs: Mapping[str, Any], target: Target) -> bool:
    """True if there is native code for these inputs."""
    specs = specs_of(inputs)
    return lowering_for(op, NodeSpec(attrs, specs, op.infer(specs, attrs)), target) is not None


def run_native(
    op: OpDef,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    target: Target | None = None,
    inplace: Sequence[tuple[int, int]] = (),
    aligned: bool = True,
) -> tuple[Array, ...]:
    """Outputs of an op's native code.

    inplace: pairs (output, input) that share memory. aligned: arrays begin at multiples of 64 bytes, as most
    do, or else only at multiples of their element size, as variables may.

    Raises RefusedError, and AssertionError where the call wrote outside its outputs.
    """
    target = target or host_target()
    lowering = LOWERINGS[op]
    attrs = {**op.attrs, **(attrs or {})}
    arrays = [np.asarray(array) for array in inputs]
    specs = specs_of(arrays)
    results = op.infer(specs, attrs)
    scratch = lowering.scratch(NodeSpec(attrs, specs, results), target)
    shared = dict(inplace)
    status = TensorSpec((), int64)
    sizes, refs = GAP, []
    for number, spec in enumerate((status, *specs, *results, *scratch)):
        output = number - 1 - len(specs)
        if output in shared:
            refs.append(refs[1 + shared[output]])
            continue
        offset = -(-sizes // 64) * 64 + (0 if aligned else spec.dtype.size)
        refs.append(Ref(Region.SLAB, offset, spec.extents, spec.dtype))
        sizes = offset + spec.nbytes + GAP
    memory = np.full(sizes + 64, GARBAGE[0], np.uint8)
    memory = memory[-memory.ctypes.data % 64 :][:sizes]
    memory[refs[0].offset :][:8] = 0

    def view(ref: Ref) -> Array:
        part = memory[ref.offset : ref.offset + ref.nbytes]
        return part.view(ref.dtype.as_numpy_dtype).reshape(ref.shape)

    first, end = 1 + len(specs), 1 + len(specs) + len(results)
    for ref, array in zip(refs[1:first], arrays, strict=True):
        view(ref)[...] = array
    group = Group(
        op.name,
        op,
        NativeKernel(emit=lowering.emit),
        attrs,
        tuple(refs[1:first]),
        tuple(refs[first:end]),
        tuple(refs[end:]),
    )
    before = memory.copy()
    _call(group, refs[0], target, memory)
    outputs = tuple(view(ref).copy() for ref in group.outputs)
    for ref in (*group.outputs, *group.scratch):
        memory[ref.offset : ref.offset + ref.nbytes] = 0
        before[ref.offset : ref.offset + ref.nbytes] = 0
    np.testing.assert_array_equal(memory, before, f"{op.name} wrote beside its outputs")
    return outputs


def _call(group: Group, status: Ref, target: Target, memory: Array) -> None:
    code = compile_groups([[group]], status, target, None)
    bases = (ctypes.c_void_p * len(Region))()
    bases[Region.SLAB] = memory.ctypes.data
    if code.function("run0")(ctypes.addressof(bases)) >= 0:
        raise RefusedError(group.name)


def run_reference(
    op: OpDef, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None
) -> tuple[Array, ...]:
    """Outputs of an op's reference kernel. Raises its errors."""
    call = Call(op, [np.asarray(array) for array in inputs], {**op.attrs, **(attrs or {})}, {})
    call.run()
    return call.outputs


def assert_as_reference(
    op: OpDef,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    targets: Sequence[str] = (),
    **options: Any,
) -> None:
    """Asserts that native and reference results agree on these targets, or on the one from `one_target`."""
    sample = Sample(op, tuple(np.array(array) for array in inputs), None, rtol=rtol, atol=atol)
    expected = run_reference(op, inputs, attrs)
    for name in targets or (one_target(f"{op.name} {[array.shape for array in sample.inputs]} {attrs}"),):
        actual = run_native(op, inputs, attrs, TARGETS[name](), **options)
        for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            assert ours.dtype == theirs.dtype
            assert_close(ours, theirs, sample, f"{op.name}, output {number}, {name}")


def one_target(case: str) -> str:
    """Name of this machine's target or of one with narrower vectors, always the same one for a case."""
    return sorted(TARGETS)[zlib.crc32(case.encode()) % len(TARGETS)]


def samples_of(names: Collection[str]) -> list[Sample]:
    """Contract samples of these ops, without those that run by the reference kernel."""
    target = TARGETS["host"]()
    samples = (sample for sample in all_samples() if sample.op.name in names)
    return [s for s in samples if is_taken(s.op, s.inputs, s.complete_attrs, target)]


def assert_sample(sample: Sample, targets: Sequence[str] = ()) -> None:
    """Asserts that a contract sample's native and reference results agree, on these targets or one."""
    attrs = sample.complete_attrs
    for name in targets or (one_target(sample.id),):
        target = TARGETS[name]()
        assert sample.op in LOWERINGS
        if not is_taken(sample.op, sample.inputs, attrs, target):
            pytest.skip("runs by the reference kernel")
        try:
            expected = run_reference(sample.op, sample.inputs, attrs)
        except InvalidArgumentError:
            with pytest.raises(RefusedError):
                run_native(sample.op, sample.inputs, attrs, target)
            continue
        actual = run_native(sample.op, sample.inputs, attrs, target)
        for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            assert ours.dtype == theirs.dtype
            assert_close(ours, theirs, sample, f"{sample.id}, output {number}, {name}")


@contextmanager
def native_cpu(target: Target | None = None) -> Iterator[NativeBackend]:
    """Runs sessions natively on the CPU device while the context lasts; nothing is kept on disk."""
    before, backend = backend_for(get_device("/cpu:0")), NativeBackend(target)
    register_backend("cpu", backend)
    try:
        yield backend
    finally:
        register_backend("cpu", before)
