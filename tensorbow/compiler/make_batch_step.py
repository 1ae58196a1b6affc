"""Executable of one segment, launched before a step: writes its inputs from a data set on the device."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.errors import InternalError
from tensorbow.ops.examples import PICK, MakeBatch
from tensorbow.ops.indexing import GatherV2
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Node, Unit, Value
from tensorbow.program.plan import DATA, Executable, Group, Ref, Region, Segment
from tensorbow.specs import DType, TensorSpec, int64

PICKS = "picks"  # name of the only input


def compile_batch(
    inputs: Sequence[Ref],
    status: Ref,
    arrays: Sequence[TensorSpec],
    affine: tuple[float, float] | None,
    backend: Backend,
    columns: int = PICK,
) -> Executable:
    """Compiles a batch step: it reads PICKS and the arrays of a data set, and writes a step's inputs.

    inputs: of the step. status: the step's, which every executable needs. arrays: of the data set. affine:
    scale and shift of pixels, for pictures uint8 and labels int64, of which MakeBatch makes images float32
    [batch, height, width, channels] and labels int64 [batch]; None where the inputs are rows of the arrays,
    and PICKS their numbers, int64 [batch]. columns: of the picks of MakeBatch.
    """

    def value(name: str, region: Region, shape: Sequence[int], dtype: DType) -> Value:
        return Value(name, TensorSpec(tuple(shape), dtype), ref=Ref(region, 0, tuple(shape), dtype))

    batch = inputs[0].shape[0]
    picks = value(PICKS, Region.PICKS, (batch,) if affine is None else (batch, columns), int64)
    kept = [value(r.name, r, spec.extents, spec.dtype) for r, spec in zip(DATA, arrays, strict=False)]
    if affine is None:
        nodes = [Node(f"rows of {each.name}", GatherV2, GatherV2.attrs, [each, picks], 0) for each in kept]
        made: Sequence[Sequence[Ref]] = [[ref] for ref in inputs]
    else:
        scale, shift = affine
        nodes = [Node("make_batch", MakeBatch, {"scale": scale, "shift": shift}, [picks, *kept], 0)]
        made = [inputs]
    for node, refs in zip(nodes, made, strict=True):
        node.outputs = [
            Value(f"{node.name}:{index}", TensorSpec(ref.shape, ref.dtype), node, index, ref=ref)
            for index, ref in enumerate(refs)
        ]
    groups = tuple(_group(unit) for unit in backend.fuse(nodes))
    return Executable(
        segments=(Segment("batch", groups, fetches=False),),
        region_nbytes={Region.PICKS: _refs_of([picks])[0].nbytes},
        inputs={PICKS: _refs_of([picks])[0]},
        fetch_sources=(),
        fetches=(),
        ring_nbytes=0,
        state={"status": status},
        scalars={},
        counters=(),
        constants=b"",
        reads_first=frozenset(),
        writes=frozenset(),
    )


def _group(unit: Unit) -> Group:
    if unit.scratch:
        raise InternalError(f"a kernel of {unit.head.definition.name}: expected one without scratch")
    reads, writes = _refs_of(unit.inputs), _refs_of(unit.outputs)
    node = unit.head
    return Group(
        node.name,
        node.definition,
        unit.kernel,
        node.attrs,
        inputs=reads,
        outputs=writes,
        reads=reads,
        writes=writes,
    )


def _refs_of(values: Sequence[Value]) -> tuple[Ref, ...]:
    """Places of values."""
    return tuple(value.ref for value in values if value.ref is not None)
