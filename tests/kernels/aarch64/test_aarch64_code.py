"""LLVM's code of tiles for NEON: fused multiply-adds on 128-bit vectors, no spills in the loops."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.native_rig.aarch64_machine import neon_target

# After what skips where the emulator is missing.
from llvmlite import ir  # isort: skip
from tensorbow.kernels.native.codegen import compiler  # isort: skip
from tensorbow.kernels.native.products.contraction import Contraction, blocking_of, contraction  # isort: skip
from tensorbow.kernels.native.products.convolution import ConvolutionShape  # isort: skip
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index  # isort: skip
from tensorbow.kernels.native.rounds.driver import ROUNDS, driver_module  # isort: skip
from tensorbow.kernels.native.rounds.system_functions import CLOCK, YIELD  # isort: skip
from tensorbow.kernels.native.products.microkernel import Walk  # isort: skip
from tensorbow.kernels.native.codegen.target import target_of  # isort: skip
from tensorbow.specs import float32, float64  # isort: skip
from tests.native_rig.aarch64_objects import CodeMemory, LoadedObject  # isort: skip

NEON = neon_target()
CONVOLUTIONS = [  # images, filters, stride, padding
    ((2, 28, 28, 1), (5, 5, 1, 32), 1, "VALID"),
    ((3, 12, 12, 32), (5, 5, 32, 64), 1, "VALID"),
    ((2, 32, 32, 16), (3, 3, 16, 32), 2, "SAME"),
    ((2, 16, 16, 32), (1, 1, 32, 64), 2, "SAME"),
]
PRODUCTS = [(16, 784, 10), (4, 3136, 1024), (64, 64, 64), (7, 100, 33)]  # rows, sum, columns
VECTORS = {float32: "4s", float64: "2d"}


def _contractions():
    for images, filters, stride, padding in CONVOLUTIONS:
        attrs = {"strides": (1, stride, stride, 1), "padding": padding, "dilations": (1, 1, 1, 1)}
        shape = ConvolutionShape.of(images, filters, attrs, float32)
        yield f"forward {images} {filters}", shape.forward()
        yield f"filters {images} {filters}", shape.filter_gradient()
    for dtype in VECTORS:
        for rows, steps, columns in PRODUCTS:
            walks = (Walk(rows, steps, c=columns),), columns, (Walk(steps, 1, columns),)
            yield f"{dtype.name} {rows}x{steps}x{columns}", Contraction(dtype, *walks)


CONTRACTIONS = dict(_contractions())


def loops(text):
    """The instructions of each loop without another in it: from a label to the first jump back to it."""
    blocks = re.split(r"^(\S+):.*\n", text, flags=re.MULTILINE)
    for label, body in zip(blocks[1::2], blocks[2::2], strict=True):
        lines = [line.strip() for line in body.splitlines() if re.match(r"\t[a-z]", line)]
        jump = next((n for n, line in enumerate(lines) if re.match(rf"(b\.|cb|tb).*{label}$", line)), None)
        if jump is not None:
            yield lines[: jump + 1]


def kernels(what, target=NEON):
    """The instructions of the innermost loops of a contraction that multiply and add."""
    module = ir.Module("tiles")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(INT, [POINTER] * 3), "run")
    emitter = Emitter(target, ir.IRBuilder(function.append_basic_block("entry")), function.args[0])
    emitter.builder.call(contraction(emitter, what), [*function.args, index(0)])
    emitter.builder.ret(index(-1))
    with compiler._optimized(str(module), target) as (machine, optimized):
        found = list(loops(machine.emit_assembly(optimized)))
    return [lines for lines in found if any(line.startswith("fmla") for line in lines)]


def spills(lines):
    """Vectors that are kept in memory."""
    return [line for line in lines if re.match(r"(ld|st)\w*\t[qdsv]\d+.*\[sp", line)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_tiles_multiply_and_add_whole_vectors_without_spills(name):
    what = CONTRACTIONS[name]
    blocking = blocking_of(what, NEON)
    size = blocking.height * blocking.width * blocking.vectors
    assert 8 <= size <= 32 - blocking.vectors - 1  # enough to hide the latency, and no more than fit
    assert blocking.vectors > 1
    found = kernels(what)
    assert found
    for lines in found:
        added = [line for line in lines if line.startswith("fmla")]
        assert len(added) >= len(lines) / 3
        assert all(re.match(rf"fmla\tv\d+\.{VECTORS[what.dtype]}, ", line) for line in added)
        assert not spills(lines)


@pytest.mark.slow
def test_tiles_for_more_registers_than_there_are_do_spill():
    """Checks that the test above detects spills."""
    what = CONTRACTIONS["float32 4x3136x1024"]
    assert any(spills(lines) for lines in kernels(what, replace(NEON, vector_registers=64)))


@pytest.mark.parametrize(
    ("triple", "features", "width"),
    [
        ("aarch64-unknown-linux-gnu", {"neon": True}, (16, 32)),
        ("arm64-apple-darwin24.1.0", {}, (16, 32)),  # where LLVM does not tell features
        ("aarch64-unknown-linux-gnu", {"neon": True, "sve": True}, (16, 32)),
        ("x86_64-unknown-linux-gnu", {"avx512f": True, "avx2": True}, (64, 32)),
        ("x86_64-pc-windows-msvc", {"avx512f": False, "avx2": True}, (32, 16)),
        ("x86_64-unknown-linux-gnu", {"sse2": True}, (16, 16)),
    ],
)
def test_vectors_of_processors(triple, features, width):
    target = target_of(features, triple, "generic")
    assert (target.vector_nbytes, target.vector_registers) == width
    assert target.triple == triple


def test_a_processor_without_atomic_additions_needs_no_library_for_them():
    """Before ARMv8.1 the driver of rounds loops over exclusive loads and stores."""
    old = target_of({"neon": True}, NEON.triple, "cortex-a72")
    code = compiler._compiled(str(driver_module(old)), old)
    loaded = LoadedObject(code, CodeMemory(1 << 20), provided={CLOCK, YIELD, "memcpy"})
    assert ROUNDS in loaded.functions
