"""Attributes and fully known specs of one op in a step."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from tensorbow.compiler.dynamic_mode import NeedsDynamicModeError
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import Attrs, Operation, blame
from tensorbow.program.nodes import Value, storage_of
from tensorbow.specs import TensorSpec

LARGEST_EXTENTS = 1 << 60  # product of nonzero extents: byte counts then fit a signed 64-bit integer


def attrs_in_step(op: Operation, replicas: int, iteration: Sequence[int] = ()) -> Attrs:
    """The attributes of an op in a step of so many replicas, and in an iteration of the loops around it."""
    if op.definition.random and iteration:  # another seed, for other numbers in every iteration
        numbered = f"{op.attrs['seed2']} {','.join(map(str, iteration))}"
        return {**op.attrs, "seed2": zlib.crc32(numbered.encode())}
    if not op.definition.exchange:
        return op.attrs
    if op.attrs.get("source", 0) >= replicas:
        raise InvalidArgumentError(
            f"{op.type} {op.name}: source {op.attrs['source']} is no replica: there are {replicas}, counted "
            f"from 0 (made at {op.source})"
        )
    return {**op.attrs, "replicas": replicas} if "replicas" in op.attrs else op.attrs


def known_specs(op: Operation, attrs: Attrs, inputs: Sequence[Value]) -> tuple[TensorSpec, ...]:
    """Specs of an op's results.

    Raises NeedsDynamicModeError for shapes that depend on data, InvalidArgumentError for inputs that do not
    fit, and for extents that cannot be numbered.
    """
    for index in op.definition.shape_inputs:
        if inputs[index].constant is None:
            raise NeedsDynamicModeError(
                f"{op.type} {op.name}: the shape argument {op.inputs[index].name} depends on data; planned "
                f"steps need it to be constant once the feeds' shapes are known (made at {op.source})",
                f"the shape argument {op.inputs[index].name} of {op.type} {op.name} depends on data",
                op,
            )
    try:
        specs = op.definition.infer([value.spec for value in inputs], attrs)
    except TensorBowError as error:
        raise type(error)(blame(op.type, op.name, error, op.source)) from None
    for tensor, spec in zip(op.outputs, specs, strict=True):
        if not spec.is_static:
            raise InvalidArgumentError(
                f"{op.type} {op.name}: the shape of {tensor.name} is {spec} even with all feeds known; "
                f"shapes that depend on data are not supported (made at {op.source})"
            )
        if math.prod(extent or 1 for extent in spec.extents) > LARGEST_EXTENTS:  # even if another extent is 0
            raise InvalidArgumentError(
                f"{op.type} {op.name}: {tensor.name} would be {spec}, whose elements cannot be numbered by "
                f"64 bits; use smaller extents (made at {op.source})"
            )
    _check_writes(op, inputs)
    return specs


def _check_writes(op: Operation, inputs: Sequence[Value]) -> None:
    """Raises InvalidArgumentError if an op writes one variable through two of its inputs."""
    written = [storage_of(inputs[index]).variable for index in op.definition.writes]
    for number, variable in enumerate(written):
        if variable is not None and variable in written[:number]:
            raise InvalidArgumentError(
                f"{op.type} {op.name}: writes the variable {variable.name} twice; expected a variable of its "
                f"own for each of the inputs {list(op.definition.writes)} (made at {op.source})"
            )
