"""Speed of the native contractions as a share of a core's peak, for two networks' products and convolutions.

    python benchmarks/native_kernels.py [--json FILE] [--only TEXT] [--rounds N]

The peak is that of a loop of independent multiply-adds in registers, run in turn with each kernel, so that
both see the same clock and the same load of the machine; a figure is the median over the rounds of the ratio
of the two rates. Needs llvmlite.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import add_devices
from llvmlite import ir

from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels.native import lowerings  # noqa: F401 - registers the templates
from tensorbow.kernels.native.codegen.compiler import NativeCode, compile_module
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.lowering import LOWERINGS
from tensorbow.kernels.native.codegen.target import Target, host_target
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.matmul import MatMul
from tensorbow.ops.sliding_windows import Windows
from tensorbow.program.plan import Group, Ref, Region
from tensorbow.specs import TensorSpec, float32, int32

CHAINS = 12  # independent sums of the peak loop
PEAK_STEPS = 20_000
WORK = 2e7  # floating-point operations of a timed run, at least


@dataclass(frozen=True)
class Case:
    """Op, and the number of multiply-adds by its definition."""

    name: str
    op: OpDef
    inputs: tuple[TensorSpec, ...]
    attrs: dict[str, object]
    multiply_adds: int


def convolutions(
    name: str, batch: int, extent: int, depth: tuple[int, int], window: int, padding: str, stride: int = 1
) -> Iterator[Case]:
    """Cases of the three passes of a convolution of square images."""
    attrs = {"strides": (1, stride, stride, 1), "padding": padding, "dilations": (1, 1, 1, 1)}
    images, filters = (batch, extent, extent, depth[0]), (window, window, *depth)
    count = Windows.of(images, filters, attrs["strides"], padding).rows.count
    x, w, y = (TensorSpec(s, float32) for s in (images, filters, (batch, count, count, depth[1])))
    sizes_x, sizes_w = (TensorSpec((4,), int32, np.array(s, np.int32)) for s in (images, filters))
    work = batch * count * count * depth[0] * depth[1] * window * window
    yield Case(f"{name} forward", Conv2D, (x, w), attrs, work)
    if depth[0] > 1:
        yield Case(f"{name} input gradient", Conv2DBackpropInput, (sizes_x, w, y), attrs, work)
    yield Case(f"{name} filter gradient", Conv2DBackpropFilter, (x, sizes_w, y), attrs, work)


def products(name: str, batch: int, inner: int, columns: int) -> Iterator[Case]:
    """Cases of the three products of a dense layer."""
    x, w, y = (TensorSpec(s, float32) for s in ((batch, inner), (inner, columns), (batch, columns)))
    work = batch * inner * columns
    for what, pair, turned in (
        ("forward", (x, w), (False, False)),
        ("input gradient", (y, w), (False, True)),
        ("filter gradient", (x, y), (True, False)),
    ):
        attrs = {"transpose_a": turned[0], "transpose_b": turned[1]}
        yield Case(f"{name} {what}", MatMul, pair, attrs, work)


def cases() -> Iterator[Case]:
    for batch in (4, 16, 32):
        yield from convolutions(f"LeNet b={batch} conv1", batch, 28, (1, 32), 5, "VALID")
        yield from convolutions(f"LeNet b={batch} conv2", batch, 12, (32, 64), 5, "VALID")
        yield from products(f"LeNet b={batch} fc1", batch, 1024, 1024)
        yield from products(f"LeNet b={batch} fc2", batch, 1024, 10)
    for batch in (4, 32):
        for extent, depth in ((32, 16), (16, 32), (8, 64)):
            name = f"ResNet-32 b={batch} {extent}x{extent}x{depth}"
            yield from convolutions(name, batch, extent, (depth, depth), 3, "SAME")
            if depth < 64:
                yield from convolutions(f"{name} halved", batch, extent, (depth, 2 * depth), 3, "SAME", 2)
    yield from products("square 512", 512, 512, 512)


def aligned(nbytes: int) -> np.ndarray:
    memory = np.zeros(nbytes + 64, np.uint8)
    return memory[-memory.ctypes.data % 64 :][:nbytes]


class Timed:
    """Native function of the code that `write` emits, repeated until a call is long enough to be timed."""

    def __init__(
        self,
        target: Target,
        operations: float,
        memory: np.ndarray,
        refs: Sequence[Ref],
        write: Callable[[Emitter], None],
    ):
        self.repeats = max(1, round(WORK / operations))
        self.operations = operations * self.repeats
        module = ir.Module("benchmark")
        module.triple = target.triple
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "run")
        entry, body = (function.append_basic_block(name) for name in ("entry", "body"))
        slots = {(ref.region, ref.offset): number for number, ref in enumerate(refs)}
        emitter = Emitter(target, ir.IRBuilder(body), function.args[0], slots)
        with emitter.loop(self.repeats):
            write(emitter)
        emitter.builder.ret_void()
        ir.IRBuilder(entry).branch(body)
        start = time.perf_counter()
        self._code: NativeCode = compile_module(module, target, None)
        self.compile_ms = (time.perf_counter() - start) * 1e3
        self._run = self._code.function("run")
        self._memory = memory
        self._addresses = (ctypes.c_void_p * len(refs))(*(memory.ctypes.data + ref.offset for ref in refs))

    def rate(self) -> float:
        """Floating-point operations per second of one call."""
        start = time.perf_counter()
        self._run(ctypes.addressof(self._addresses))
        return self.operations / (time.perf_counter() - start)


def peak(target: Target) -> Timed:
    """Loop of multiply-adds in registers with `CHAINS` independent sums."""
    lanes = target.lanes(4)
    kind = ir.VectorType(ir.FloatType(), lanes)
    ref = Ref(Region.SLAB, 0, (lanes,), float32)

    def write(e: Emitter) -> None:
        place = e.address(ref)
        factor = e.load(place, kind, 64)
        builder = e.builder
        before, body = builder.block, builder.append_basic_block("peak")
        builder.branch(body)
        builder.position_at_end(body)
        count, *sums = builder.phi(INT), *(builder.phi(kind) for _ in range(CHAINS))
        after = [e.intrinsic("fmuladd", kind, factor, factor, total) for total in sums]
        following = builder.add(count, index(1))
        for phi, first, last in zip(
            [count, *sums], [index(0), *[factor] * CHAINS], [following, *after], strict=True
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(last, body)
        end = builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed("<", following, index(PEAK_STEPS)), body, end)
        builder.position_at_end(end)
        for total in after[1:]:
            after[0] = builder.fadd(after[0], total)
        e.store(after[0], place, 64)

    return Timed(target, 2.0 * PEAK_STEPS * CHAINS * lanes, aligned(ref.nbytes), [ref], write)


def timed(case: Case, target: Target) -> Timed:
    """Timed call of a case on random numbers."""
    lowering = LOWERINGS[case.op]
    outputs = case.op.infer(case.inputs, case.attrs)
    scratch = lowering.scratch(NodeSpec(case.attrs, case.inputs, outputs), target)
    refs, nbytes = [], 0
    for spec in (*case.inputs, *outputs, *scratch):
        refs.append(Ref(Region.SLAB, nbytes, spec.extents, spec.dtype))
        nbytes += max(1, -(-spec.nbytes // 64)) * 64  # places of their own, even of nothing
    memory = aligned(nbytes)
    memory.view(np.float32)[:] = np.random.default_rng(0).standard_normal(nbytes // 4)
    first, end = len(case.inputs), len(case.inputs) + len(outputs)
    group = Group(
        case.name,
        case.op,
        NativeKernel(emit=lowering.emit),
        case.attrs,
        tuple(refs[:first]),
        tuple(refs[first:end]),
        tuple(refs[end:]),
    )
    return Timed(target, 2.0 * case.multiply_adds, memory, refs, lambda e: lowering.emit(e, group))


def measure(case: Case, target: Target, best: Timed, rounds: int) -> dict[str, float | str]:
    kernel = timed(case, target)
    kernel.rate()
    pairs = [(kernel.rate(), best.rate()) for _ in range(rounds)]
    rate = statistics.median(ours for ours, _ in pairs)
    return {
        "case": case.name,
        "gflops": rate / 1e9,
        "peak_gflops": statistics.median(most for _, most in pairs) / 1e9,
        "ratio": statistics.median(ours / most for ours, most in pairs),
        "duration_us": 2e6 * case.multiply_adds / rate,
        "compile_ms": kernel.compile_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_devices(parser, "native_kernels", "its calls are native code")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--only", default="", help="run the cases whose names contain this text")
    parser.add_argument("--rounds", type=int, default=41, help="runs of each case")
    options = parser.parse_args()
    target = host_target()
    best = peak(target)
    rows = []
    for case in cases():
        if options.only in case.name:
            row = measure(case, target, best, options.rounds)
            rows.append(row)
            print(
                f"{row['case']:50} {row['gflops']:7.1f} of {row['peak_gflops']:.1f} GFLOP/s = "
                f"{row['ratio']:.2f}, {row['duration_us']:8.1f} us, compiled in {row['compile_ms']:.0f} ms",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"processor": target.processor, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
