"""The calls of a run as data: each finds its code and its operands, in order, until one refuses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from llvmlite import ir

from tensorbow.kernels.native import lowerings  # noqa: F401 - registers them
from tensorbow.kernels.native.codegen.call_table import RUNNER
from tensorbow.kernels.native.codegen.functions import Functions, compile_groups
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import LOWERINGS
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.ops.elementwise_table import Add, Neg
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import float32, int64

STATUS = Ref(Region.STATE, 0, (), int64)
SIZE = 5  # elements of each array
REFS = [Ref(region, 64 * row, (SIZE,), float32) for region in (Region.SLAB, Region.RING) for row in range(4)]


def addition(x, y, out):
    return Group("add", Add, NativeKernel(emit=LOWERINGS[Add].emit), {}, (x, y), (out,))


def negation(x, out):
    return Group("negate", Neg, NativeKernel(emit=LOWERINGS[Neg].emit), {}, (x,), (out,))


def refuses_positive(emitter, group):
    """Refuses an input whose first element is above 0."""
    x = emitter.load(emitter.address(group.inputs[0]), ir.FloatType(), 4)
    emitter.refuse_if(emitter.builder.fcmp_ordered(">", x, ir.Constant(ir.FloatType(), 0.0)))


def refusal(x):
    return Group("refuse", Neg, NativeKernel(emit=refuses_positive), {}, (x,), ())


class Memory:
    """Two regions of four arrays each, filled with different numbers, and their base addresses."""

    def __init__(self):
        self.rows = {region: np.zeros((4, 16), np.float32) for region in (Region.SLAB, Region.RING)}
        for number, rows in enumerate(self.rows.values()):
            rows[:] = np.arange(64, dtype=np.float32).reshape(4, 16) + 1000 * (number + 1)
        self.status = np.zeros(1, np.int64)
        self.bases = (ctypes.c_void_p * len(Region))()
        for region, rows in self.rows.items():
            self.bases[region] = rows.ctypes.data
        self.bases[Region.STATE] = self.status.ctypes.data
        self.address = ctypes.addressof(self.bases)

    def at(self, ref):
        return self.rows[ref.region][ref.offset // 64, :SIZE]


def run(code, memory, name="run0"):
    return code.function(name)(memory.address)


refs = st.sampled_from(REFS)
calls = st.one_of(st.builds(addition, refs, refs, refs), st.builds(negation, refs, refs))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(groups=st.lists(calls, max_size=12))
def test_a_run_does_its_calls_in_order_on_their_own_operands(groups):
    memory, expected = Memory(), Memory()
    code = compile_groups([groups], STATUS, host_target(), None)
    assert run(code, memory) == -1
    for group in groups:
        operands = [expected.at(ref) for ref in group.inputs]
        expected.at(group.outputs[0])[:] = sum(operands) if len(operands) == 2 else -operands[0]
    for region, rows in memory.rows.items():
        np.testing.assert_array_equal(rows, expected.rows[region])


@pytest.mark.parametrize("refusing", [0, 1, 3])
def test_a_call_that_refuses_ends_the_run_with_its_number(refusing):
    a, b, c, d, *_ = REFS
    groups = [negation(a, b), negation(a, c), negation(a, d)]
    groups.insert(refusing, refusal(a))
    memory = Memory()
    before = memory.rows[Region.SLAB].copy()
    assert run(compile_groups([groups], STATUS, host_target(), None), memory) == refusing
    for number, ref in enumerate((b, c, d)):
        done = -before[0, :SIZE] if number < refusing else before[number + 1, :SIZE]
        np.testing.assert_array_equal(memory.at(ref), done)


def test_one_call_of_a_run_can_be_done_by_itself():
    a, b, c, d, *others = REFS
    runs = [[negation(a, b)], [negation(a, c), refusal(a), negation(b, d), addition(a, b, others[0])]]
    code = compile_groups(runs, STATUS, host_target(), None)
    for number, expected in enumerate((-1, 1, -1, -1)):
        memory, fresh = Memory(), Memory()
        words = (ctypes.c_int64 * 2)(memory.address, number)
        assert code.function("call1")(ctypes.addressof(words)) == expected
        changed = [ref for ref in REFS if (memory.at(ref) != fresh.at(ref)).any()]
        assert changed == [*runs[1][number].outputs]
    np.testing.assert_array_equal(memory.at(others[0]), memory.at(a) + memory.at(b))


def test_results_too_small_are_0_in_a_run_and_in_its_single_calls_but_not_around_them():
    a, b, c, *_ = REFS
    if not host_target().triple.startswith("x86_64"):
        pytest.skip("denormals are flushed on x86-64 only")
    code = compile_groups([[addition(a, b, c)]], STATUS, host_target(), None)
    tiny = np.float32(1.5e-38)
    for name in ("run0", "call0"):
        memory = Memory()
        memory.at(a)[:], memory.at(b)[:] = tiny, -tiny * np.float32(0.9)
        words = (ctypes.c_int64 * 2)(memory.address, 0)
        assert code.function(name)(memory.address if name == "run0" else ctypes.addressof(words)) == -1
        assert (memory.at(c) == 0).all()
        assert (memory.at(a) + memory.at(b) != 0).all()  # by NumPy, in the same thread


def test_calls_cost_no_functions():
    """Calls that share code add no functions: the module has the code, the walk, and two per run."""
    texts = []
    for count in (1, 50):
        functions = Functions(STATUS, host_target())
        functions.add_run(0, [negation(REFS[0], REFS[n % 3 + 1]) for n in range(count)])
        functions.add_run(1, [negation(REFS[4], REFS[0])])
        texts.append(str(functions.module))
    assert [text.count("define ") for text in texts] == [6, 6]
    assert [text.count(f'@"{RUNNER}"(') for text in texts] == [5, 5]
