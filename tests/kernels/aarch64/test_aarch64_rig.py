"""The emulated machine itself: loading, relocations, calls, and that faults of the code are found."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from tests.native_rig.aarch64_machine import EmulatedCode, neon_target

# After what skips where the emulator is missing.
from tensorbow.kernels.native import compiler  # isort: skip
from tensorbow.kernels.native.target import host_target, target_of  # isort: skip
from tests.native_rig import aarch64_objects  # isort: skip
from tests.native_rig.aarch64_emulator import CallingConventionError, Processor, WildAccessError  # isort: skip
from tests.native_rig.aarch64_objects import PAGE, CodeMemory, LoadedObject, LoadError  # isort: skip


def compiled(body: str, triple: str = neon_target().triple) -> bytes:
    return compiler._compiled(f'target triple = "{triple}"\n{body}', neon_target())


def function(body: str) -> EmulatedCode:
    """The code of `run`, of a pointer, which gives a number."""
    return EmulatedCode(compiled(f"define i64 @run(ptr %p) {{\n{body}\n}}"))


NUMBERS = {
    8: "i8 7",
    16: "i16 300",
    32: "float 2.0",
    64: "i64 100000",
    128: "<2 x double> <double 2.0, double 0.0>",
}
GLOBALS = "\n".join(f"@g{n} = internal constant {number}, align 16" for n, number in NUMBERS.items())
LOADS = "\n".join(
    f"%l{n} = load volatile {number.rpartition(' <')[0] or number.split()[0]}, ptr @g{n}"
    for n, number in NUMBERS.items()
)
EVERY_RELOCATION = f"""
{GLOBALS}
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
define internal i64 @one(i64 %x) noinline {{
  ret i64 1
}}
define internal i64 @two(i64 %x) noinline {{
  %y = add i64 %x, 40
  ret i64 %y
}}
define i64 @other(ptr %p) noinline section ".text.other" {{
  %r = load i64, ptr %p
  ret i64 %r
}}
define i64 @run(ptr %p) noinline {{
  {LOADS}
  %low = zext i8 %l8 to i64
  %middle = zext i16 %l16 to i64
  %part = extractelement <2 x double> %l128, i32 0
  %wide = fpext float %l32 to double
  %same = fcmp oeq double %part, %wide
  %bit = zext i1 %same to i64
  %slot = getelementptr [2 x ptr], ptr @table, i64 0, i64 %bit
  %f = load ptr, ptr %slot
  %from_table = call i64 %f(i64 2)
  %called = call i64 @other(ptr %p)
  %difference = sub i64 %l64, %called
  %a = add i64 %low, %middle
  %b = add i64 %a, %from_table
  %c = add i64 %b, %difference
  ret i64 %c
}}
define i64 @tail(ptr %p) section ".text.tail" {{
  %r = tail call i64 @run(ptr %p)
  ret i64 %r
}}
"""


def test_every_kind_of_relocation_that_is_known():
    loaded = LoadedObject(compiled(EVERY_RELOCATION), CodeMemory(1 << 20), {})
    assert loaded.relocations == aarch64_objects.KNOWN_RELOCATIONS
    value = np.array([1000], np.int64)
    code = EmulatedCode(compiled(EVERY_RELOCATION))
    for name in ("run", "tail"):
        assert code.function(name)(value.ctypes.data) == 7 + 300 + 42 + 100_000 - 1000


def test_a_relocation_that_is_not_known_is_an_error(monkeypatch):
    monkeypatch.delitem(aarch64_objects._CHANGES, "CALL26")
    with pytest.raises(LoadError, match="relocation CALL26 of 'other': expected one of ABS64, ADR_PREL"):
        EmulatedCode(compiled(EVERY_RELOCATION))


def test_what_nobody_provides_is_an_error():
    with pytest.raises(LoadError, match="calls strange, which nobody provides"):
        function(
            "%r = call i64 @strange(ptr %p)\n ret i64 %r }\n"
            "declare i64 @strange(ptr)\n define void @end() { ret void"
        )


def test_the_code_of_another_processor_is_an_error():
    x86 = target_of({"sse2": True}, "x86_64-unknown-linux-gnu", "x86-64")
    other = compiler._compiled("define void @run() { ret void }", x86)
    with pytest.raises(LoadError, match="expected an AArch64 object file, got EM_X86_64"):
        EmulatedCode(other)


def test_memory_that_is_full_is_an_error():
    memory = CodeMemory(PAGE)
    LoadedObject(compiled(EVERY_RELOCATION), memory, {})
    with pytest.raises(LoadError, match="4096 bytes for code are used up"):
        LoadedObject(compiled(EVERY_RELOCATION), memory, {})


@pytest.mark.parametrize(
    "what", ["store i64 1, ptr inttoptr (i64 4096 to ptr)", "%r = load volatile i64, ptr null"]
)
def test_a_wild_access_is_an_error(what):
    with pytest.raises(WildAccessError, match=r"8 bytes at 0x(0|1000), where there is no memory"):
        function(f"{what}\n ret i64 0").function("run")(0)


def test_a_jump_into_data_is_an_error():
    value = np.zeros(4, np.int64)
    code = function("%r = call i64 %p(i64 0)\n ret i64 %r")
    with pytest.raises(WildAccessError):
        code.function("run")(value.ctypes.data)


def instructions(*words: int) -> int:
    """What machine code gives when it is called."""
    memory = CodeMemory(PAGE)
    memory.write(memory.take(PAGE), b"".join(word.to_bytes(4, "little") for word in words))
    return Processor(memory, {}).call(memory.start, 6)


RETURN = 0xD65F03C0


def test_machine_code_is_called():
    assert instructions(RETURN) == 6


@pytest.mark.parametrize("word", [0, 0xD4200020, 0xD4000001], ids=["none", "brk", "svc"])
def test_an_instruction_that_raises_an_exception_is_an_error(word):
    with pytest.raises(WildAccessError, match="exception"):
        instructions(word, RETURN)


@pytest.mark.parametrize("word", [0x1E6E1009, 0xD2800013, 0xD10043FF], ids=["d9", "x19", "sp"])
def test_a_register_that_was_to_be_kept_is_missed(word):
    with pytest.raises(CallingConventionError, match="changed registers"):
        instructions(word, RETURN)


def test_functions_of_the_c_library_get_and_give_numbers():
    names = {"powf": "float", "pow": "double", "fmod": "double"}
    declared = "\n".join(f"declare {kind} @{name}({kind}, {kind})" for name, kind in names.items())
    size = {"float": 4, "double": 8}
    for name, kind in names.items():
        code = EmulatedCode(
            compiled(
                f"{declared}\ndefine i64 @run(ptr %p) {{\n %q = getelementptr {kind}, ptr %p, i64 1\n"
                f"%x = load {kind}, ptr %p\n %y = load {kind}, ptr %q\n"
                f"%r = call {kind} @{name}({kind} %x, {kind} %y)\n store {kind} %r, ptr %p\n ret i64 -3 }}"
            )
        )
        values = np.array([7.5, 2.25], f"f{size[kind]}")
        assert code.function("run")(values.ctypes.data) == -3
        expected = math.fmod(7.5, 2.25) if name == "fmod" else 7.5**2.25
        np.testing.assert_allclose(values[0], expected, rtol=1e-6)


def test_bytes_are_moved_and_wild_ones_are_not():
    copy = "call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %q, i64 1000, i1 false)\n ret i64 5 }\n"
    end = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n define void @end() { ret void"
    values = np.arange(2000, dtype=np.uint8)
    expected = values[1000:].copy()
    assert (
        function(f"%q = getelementptr i8, ptr %p, i64 1000\n{copy}{end}").function("run")(values.ctypes.data)
        == 5
    )
    np.testing.assert_array_equal(values[:1000], expected)
    with pytest.raises(WildAccessError, match="memcpy of 1000 bytes at 0x10"):
        function(f"%q = inttoptr i64 16 to ptr\n{copy}{end}").function("run")(values.ctypes.data)


def test_threads_meet_in_emulated_code():
    """Each adds itself, then waits for the others; who does not let others run would wait for ever."""
    code = EmulatedCode(
        compiled(
            "declare i32 @tensorbow_let_others_run()\n"
            "define i64 @run(ptr %p) {\nentry:\n %old = atomicrmw add ptr %p, i64 1 acq_rel\n"
            " br label %look\n"
            "look:\n %n = load atomic i64, ptr %p acquire, align 8\n %all = icmp sge i64 %n, 3\n"
            " br i1 %all, label %end, label %wait\nwait:\n %r = call i32 @tensorbow_let_others_run()\n"
            " br label %look\nend:\n ret i64 %n }"
        )
    )
    count, results = np.zeros(1, np.int64), []
    threads = [
        threading.Thread(target=lambda: results.append(code.function("run")(count.ctypes.data)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [3, 3, 3]


def test_this_machine_is_the_emulated_one():
    assert host_target() == neon_target()
    assert (host_target().vector_nbytes, host_target().vector_registers) == (16, 32)
