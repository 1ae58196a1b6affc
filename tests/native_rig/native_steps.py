"""Native call on a contract sample with its step scalars, and the resulting variables."""

from __future__ import annotations

import ctypes

import numpy as np

from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import Array
from tests.native_rig.native_calls import GAP
from tests.ops_contract.harness import run_sample, specs_of, writable
from tests.ops_contract.sample import Sample

# After what skips where llvmlite is missing.
from tensorbow.graph import NodeSpec  # isort: skip
from tensorbow.kernels.native.codegen.kernel import NativeKernel  # isort: skip
from tensorbow.kernels.native.codegen.lowering import LOWERINGS, lowering_for  # isort: skip
from tensorbow.kernels.native.codegen.functions import compile_groups  # isort: skip
from tensorbow.kernels.native.codegen.target import Target  # isort: skip

ALIGNMENT = 64


def taken(sample: Sample, target: Target) -> bool:
    """True if there is native code for the sample."""
    specs = specs_of(sample.inputs)
    results = sample.op.infer(specs, sample.complete_attrs)
    return lowering_for(sample.op, NodeSpec(sample.complete_attrs, specs, results), target) is not None


def native_step(sample: Sample, target: Target, *, predicated: bool = False, shift: int = 0) -> list[Array]:
    """Outputs that are no alias, the inputs that the op writes, then the status, after one native call.

    shift: offset of the arrays from multiples of 64 bytes, in elements.
    """
    op, attrs = sample.op, sample.complete_attrs
    results = op.infer(specs_of(sample.inputs), attrs)
    state = {"status": 0, **sample.state}
    aliases = dict(op.alias)
    arrays = [np.asarray(v) for v in (*state.values(), *sample.inputs)]
    arrays += [np.empty(r.extents, r.dtype.as_numpy_dtype) for r in results]
    refs: list[Ref] = []
    end = GAP
    for array, spec in zip(arrays, specs_of(arrays, with_values=False), strict=True):
        start = -(-end // ALIGNMENT) * ALIGNMENT + shift * array.itemsize
        refs.append(Ref(Region.SLAB, start, array.shape, spec.dtype))
        end = start + array.nbytes + GAP
    memory = np.full(end + ALIGNMENT, 0x5A, np.uint8)
    memory = memory[-memory.ctypes.data % ALIGNMENT :][:end]

    def view(ref: Ref) -> Array:
        part: Array = memory[ref.offset : ref.offset + ref.nbytes].view(ref.dtype.as_numpy_dtype)
        return part.reshape(ref.shape)

    first = len(state) + len(sample.inputs)
    for ref, array in zip(refs[:first], arrays[:first], strict=True):
        view(ref)[...] = array
    inputs = tuple(refs[len(state) : first])
    outputs = tuple(inputs[aliases[n]] if n in aliases else ref for n, ref in enumerate(refs[first:]))
    kept = dict(zip(state, refs[: len(state)], strict=True))
    group = Group(
        sample.id,
        op,
        NativeKernel(emit=LOWERINGS[op].emit),
        attrs,
        inputs,
        outputs,
        state=tuple((key, kept[key]) for key in op.state),
        predicated=predicated,
    )
    code = compile_groups([[group]], kept["status"], target, None)
    bases = (ctypes.c_void_p * len(Region))()
    bases[Region.SLAB] = memory.ctypes.data
    changed = [ref for n, ref in enumerate(outputs) if n not in aliases] + [inputs[n] for n in op.writes]
    before = memory.copy()
    assert code.function("run0")(ctypes.addressof(bases)) == -1
    values = [view(ref).copy() for ref in (*changed, kept["status"])]
    for ref in (*changed, kept["status"]):
        for block in (memory, before):
            block[ref.offset : ref.offset + ref.nbytes] = 0
    np.testing.assert_array_equal(memory, before, f"{sample.id} wrote beside its outputs")
    return values


def reference_step(sample: Sample) -> list[Array]:
    """Results of `native_step` by the reference kernel, without the status."""
    inputs = writable(sample)
    outputs = run_sample(sample, inputs)
    aliased = {output for output, _ in sample.op.alias}
    own = [array for index, array in enumerate(outputs) if index not in aliased]
    return [*own, *(inputs[index] for index in sample.op.writes)]
