"""Object code on disk: found again, rebuilt where it is damaged, never mixed up."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from llvmlite import ir

import tensorbow as tb
from tensorbow.errors import InternalError
from tensorbow.kernels.binary_cache import KEY
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen import compiler, functions
from tensorbow.kernels.native.codegen.compiler import compile_module
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.functions import compile_groups
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import LOWERINGS
from tensorbow.kernels.native.codegen.plan_key import plan_key
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.rounds import code as round_code
from tensorbow.kernels.reference import ReferenceBackend
from tensorbow.kernels.scalars import symbols
from tensorbow.kernels.scalars.expression import structure
from tensorbow.models import LeNet
from tensorbow.ops.control import Copy
from tensorbow.ops.elementwise_table import Neg
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import float32, int64
from tests.native_rig.targets import narrow_target
from tests.scalar_rig.numpy_backend import used
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.round_engines import engine_of
from tests.scheduler_rig.running import Prepared, within


def objects(folder):
    """The files of code in a cache."""
    return sorted(path for path in folder.iterdir() if path.name != KEY)


def module_that_gives(number):
    """A module with `answer`, which ignores its argument."""
    module = ir.Module("answers")
    function = ir.Function(module, ir.FunctionType(INT, [POINTER]), "answer")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = Emitter(host_target(), builder, function.args[0])
    total = builder.alloca(INT)
    emitter.store(index(0), total, 8)
    with emitter.loop(number):
        emitter.store(builder.add(emitter.load(total, INT, 8), index(1)), total, 8)
    builder.ret(emitter.load(total, INT, 8))
    return module


def answer(number, folder, target=None):
    code = compile_module(module_that_gives(number), target or host_target(), folder)
    return code.function("answer")(ctypes.addressof(ctypes.c_int64()))


@pytest.fixture
def compilations(monkeypatch):
    """Number of compilations by LLVM."""
    counts = []
    compiled = compiler._compiled
    monkeypatch.setattr(compiler, "_compiled", lambda *rest: counts.append(1) or compiled(*rest))
    return counts


def test_code_is_taken_from_the_cache(tmp_path, compilations):
    assert [answer(7, tmp_path / "new"), answer(7, tmp_path / "new")] == [7, 7]
    assert len(compilations) == 1
    assert [path.suffix for path in objects(tmp_path / "new")] == [".o"]
    assert answer(8, tmp_path / "new") == 8
    assert len(compilations) == 2
    assert answer(7, None) == 7
    assert len(compilations) == 3


def planted(path, target):
    """Code of somebody else's, with the sum that anybody can make, and not the user's key."""
    code = compiler._compiled(str(module_that_gives(666)), target)
    return hashlib.sha256(code).digest() + code


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.read_bytes()[:-9],
        lambda path: path.read_bytes()[:40] + b"\x00\xff" + path.read_bytes()[42:],
        lambda path: b"",
        lambda path: hashlib.sha256(b"\x7fELF" * 99).digest() + b"\x7fELF" * 99,
        lambda path: planted(path, host_target()),
    ],
    ids=["cut", "changed", "empty", "garbage", "planted"],
)
def test_other_code_than_was_kept_is_not_executed(damage, tmp_path, compilations):
    answer(7, tmp_path)
    (path,) = objects(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(path))
    compilations.clear()
    assert answer(7, tmp_path) == 7
    assert len(compilations) == 1
    assert path.read_bytes() == whole
    assert objects(tmp_path) == [path]
    assert answer(7, tmp_path) == 7
    assert len(compilations) == 1


def test_code_of_another_module_is_not_executed_under_its_name(tmp_path, compilations):
    answer(7, tmp_path)
    (seven,) = objects(tmp_path)
    answer(8, tmp_path)
    (eight,) = set(objects(tmp_path)) - {seven}
    seven.write_bytes(eight.read_bytes())
    assert answer(7, tmp_path) == 7
    assert len(compilations) == 3


def test_versions_and_targets_have_code_of_their_own(tmp_path, monkeypatch, compilations):
    answer(7, tmp_path)
    answer(7, tmp_path, narrow_target())
    monkeypatch.setattr(compiler.llvmlite, "__version__", "0.0.1")
    answer(7, tmp_path)
    monkeypatch.setattr(compiler.llvm, "llvm_version_info", (99, 0, 0))
    answer(7, tmp_path)
    differ = str(host_target()) != str(narrow_target())
    assert len(compilations) == len(objects(tmp_path)) == 3 + differ


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, compilations):
    (tmp_path / "file").write_text("")
    assert answer(7, tmp_path / "file" / "cache") == 7
    assert answer(7, tmp_path / "file" / "cache") == 7
    assert len(compilations) == 2


def test_threads_compile_at_the_same_time(tmp_path):
    found = {}
    threads = [
        threading.Thread(target=lambda n=n: found.setdefault(n, answer(n % 4, tmp_path))) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n % 4 for n in range(12)}
    assert len(objects(tmp_path)) == 4


def test_code_that_is_not_well_formed_is_an_error():
    module = ir.Module("wrong")
    function = ir.Function(module, ir.FunctionType(INT, [POINTER]), "answer")
    ir.IRBuilder(function.append_basic_block("entry"))  # a block without an end
    with pytest.raises(InternalError, match="not well formed"):
        compile_module(module, host_target(), None)


def test_the_parts_of_a_step_are_compiled_once(tmp_path, compilations):
    from tensorbow.devices import get_device
    from tensorbow.kernels import backend_for, register_backend

    before = backend_for(get_device("/cpu:0"))
    for _ in range(2):
        register_backend("cpu", NativeBackend(folder=tmp_path))
        try:
            with tb.Graph().as_default() as graph:
                x = tb.placeholder(tb.float32, [5])
                y = tb.sigmoid(x) * 2
                with tb.Session(graph=graph) as session:
                    (first, second) = (session.run(y, {x: np.full(5, v, np.float32)}) for v in (0, 1))
        finally:
            register_backend("cpu", before)
        np.testing.assert_allclose(first, 1)
        np.testing.assert_allclose(second, 2 / (1 + np.exp(-1)), rtol=1e-6)
    assert len(compilations) == 1


# Plans ---------------------------------------------------------------------------------------------------

STATUS = Ref(Region.STATE, 0, (), int64)


def call_of(definition=Neg, size=20, start=0, attrs=None, emit=None, form=None):
    kernel = NativeKernel(emit=emit or LOWERINGS[definition].emit, form=form)
    source, end = (Ref(Region.SLAB, offset, (size,), float32) for offset in (start, start + 4096))
    return Group("call", definition, kernel, attrs or {}, (source,), (end,))


def test_a_plan_that_is_kept_is_not_written_anew(tmp_path, compilations, monkeypatch):
    compile_groups([[call_of()]], STATUS, host_target(), tmp_path)
    monkeypatch.setattr(functions, "Functions", None)
    compile_groups([[call_of()]], STATUS, host_target(), tmp_path)
    assert len(compilations) == 1
    for path in objects(tmp_path):
        path.write_bytes(b"damaged")
    monkeypatch.undo()
    code = compile_groups([[call_of()]], STATUS, host_target(), tmp_path)
    memory = np.arange(2048, dtype=np.float32)
    bases = (ctypes.c_void_p * len(Region))()
    bases[Region.SLAB] = memory.ctypes.data
    assert code.function("run0")(ctypes.addressof(bases)) == -1
    np.testing.assert_array_equal(memory[1024:1044], -memory[:20])


def test_a_plan_does_not_run_another_ones_code_under_its_name(tmp_path, compilations):
    """The other plan's arrays have 500 elements more, so its code would write beyond this plan's arrays."""
    small, large = [[call_of(size=20)]], [[call_of(size=520)]]
    compile_groups(small, STATUS, host_target(), tmp_path)
    (path,) = objects(tmp_path)
    compile_groups(large, STATUS, host_target(), tmp_path)
    (other,) = set(objects(tmp_path)) - {path}
    path.write_bytes(other.read_bytes())
    code = compile_groups(small, STATUS, host_target(), tmp_path)
    assert len(compilations) == 3
    memory = np.arange(2048, dtype=np.float32)
    bases = (ctypes.c_void_p * len(Region))()
    bases[Region.SLAB] = memory.ctypes.data
    assert code.function("run0")(ctypes.addressof(bases)) == -1
    np.testing.assert_array_equal(memory[1024:1044], -memory[:20])
    np.testing.assert_array_equal(memory[1044:], np.arange(1044, 2048))


def test_what_makes_other_code_makes_another_key(monkeypatch):
    x, y = symbols([float32, float32])
    forms = [None, structure([x + y]), structure([y + x]), structure([x + x])]
    plans = [[[call_of(form=form)]] for form in forms]
    plans += [[[call_of(Copy)]], [[call_of(size=21)]], [[call_of(start=4)]], [[call_of(attrs={"a": 1})]]]
    plans += [[[call_of(attrs={"a": 1.0})]], [[call_of()], [call_of()]], [[call_of(), call_of()]]]
    plans += [[[replace(call_of(), predicated=True)]]]
    keys = [plan_key(runs, STATUS) for runs in plans]
    assert None not in keys
    assert len(set(keys)) == len(plans)
    assert plan_key([[call_of()]], replace(STATUS, offset=8)) not in keys
    assert plan_key([[call_of()]], STATUS) == keys[0]
    monkeypatch.setattr("tensorbow.kernels.native.codegen.plan_key._sources", lambda: "of another version")
    assert plan_key([[call_of()]], STATUS) not in keys


def test_what_has_no_text_of_its_own_has_no_key():
    assert plan_key([[call_of(attrs={"a": np.zeros(3)})]], STATUS) is None
    assert plan_key([[call_of(emit=lambda emitter, group: None)]], STATUS) is None  # not of this library


PLAN = """
import tensorbow as tb
from tensorbow.devices import get_device
from tensorbow.kernels import backend_for
from tensorbow.kernels.native.codegen.plan_key import plan_key
from tensorbow.models import LeNet
x, y = tb.placeholder(tb.float32, [4, 28, 28, 1]), tb.placeholder(tb.int64, [4])
loss = LeNet()(x, y, training=True, classes=10).loss
train = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
with tb.Session() as session:
    step = session.explain([loss, train], {x: [[[[0.0]] * 28] * 28] * 4, y: [0] * 4}).executable
backend = backend_for(get_device("/cpu:0"))
groups = backend.launches(step.segments[0])
print(plan_key([launch.groups for launch in groups], step.state["status"]))
"""


@pytest.mark.slow
def test_the_key_of_a_model_is_the_same_in_every_process(tmp_path):
    environment = os.environ | {"TENSORBOW_CPU": "native", "TENSORBOW_CACHE": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", PLAN], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert said[0] == said[1]
    assert len(said[0]) == 64


# Models --------------------------------------------------------------------------------------------------


def initial_values_by(backend):
    """Initial values of a model with all kinds of weights: several fans, zeros, ones, a drawn constant."""
    with used(backend), tb.Graph().as_default():
        tb.set_random_seed(3)
        x, y = tb.placeholder(tb.float32, [None, 28, 28, 1]), tb.placeholder(tb.int64, [None])
        loss = LeNet()(x, y, training=True, classes=10).loss
        for name, made in (("uniform", tb.initializers.glorot_uniform()), ("ones", tb.initializers.ones())):
            loss = loss + tb.reduce_sum(tb.get_variable(name, [7, 5], initializer=made))
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return tb.StepProgram((x, y), loss, update).initial_values()


@pytest.mark.slow
def test_initial_values_have_the_same_bits_whatever_the_cache_has(tmp_path, compilations):
    """And the reference's, but for the rounding of normals."""
    counts, found = [], []
    for folder in (tmp_path, tmp_path, None):
        found.append(initial_values_by(NativeBackend(folder=folder)))
        counts.append(len(compilations))
    assert 0 < counts[0] == counts[1] < counts[2]
    cold, *others = found
    for other in others:
        assert {name: value.tobytes() for name, value in other.items()} == {
            name: value.tobytes() for name, value in cold.items()
        }
    expected = initial_values_by(ReferenceBackend())
    assert expected.keys() == cold.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(cold[name], value, rtol=0, atol=2e-6, err_msg=name)
    assert cold["uniform"].tobytes() == expected["uniform"].tobytes()
    assert len({cold[name].std() > 0 for name in cold}) == 2


def test_round_code_that_is_kept_is_not_written_anew(tmp_path, compilations, monkeypatch):
    def values_after_rounds():
        model = logistic()
        with used(NativeBackend(folder=tmp_path)), engine_of(model, 2, mu=0.5) as engine:
            assert engine.learners.launches_rounds
            within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 3))
            return {name: value.tobytes() for name, value in engine.central_values().items()}

    round_code._driver_of.cache_clear()
    first = values_after_rounds()
    round_code._driver_of.cache_clear()
    compiled = len(compilations)
    assert compiled >= 4  # the step, what is around the pass, the pass, the driver

    def write(*what):
        pytest.fail("a module is written")

    for module, name in (
        (round_code, "driver_module"),
        (round_code, "pass_module"),
        (functions, "Functions"),
    ):
        monkeypatch.setattr(module, name, write)
    assert values_after_rounds() == first
    assert len(compilations) == compiled
