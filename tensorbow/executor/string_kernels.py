"""Ops of strings in the dynamic mode: reference kernels as functions of the host."""

from __future__ import annotations

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import HostCall, Operation
from tensorbow.graph.definition import HostFunction
from tensorbow.ops.control import Placeholder
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.specs import Array


def string_kernel(op: Operation) -> HostFunction:
    """The reference kernel of an op that has strings among its inputs or outputs, as a host function.

    A placeholder's raises InvalidArgumentError, since it stands for a value that was not fed.
    """

    def host(call: HostCall) -> tuple[Array, ...]:
        if op.definition is Placeholder:
            raise InvalidArgumentError(
                f"the placeholder of {op.outputs[0].spec} is not fed; add it to feed_dict"
            )
        return run_reference_kernel(op.definition, call.inputs, op.attrs)

    return host
