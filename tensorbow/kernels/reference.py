"""The reference backend: a bound plan is a flat list of NumPy calls on views made once.

It is written for clarity, and every other backend is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

from tensorbow.devices import Access, Device, StreamGroup
from tensorbow.devices.blas_threads import numpy_blas
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError, TensorBowError
from tensorbow.graph import Kernel, KernelCall, blame
from tensorbow.graph.definition import read_only
from tensorbow.kernels.rounded_products import FULL, ROUNDED, TITLE, rounding_kernel, rounds
from tensorbow.program.backend import Backend
from tensorbow.program.cond_op import cond_kernel
from tensorbow.program.control_forms import Cond, While
from tensorbow.program.nodes import Node, Unit
from tensorbow.program.plan import BoundPlan, Executable, Group, Ref, Region, TellOp
from tensorbow.program.stacks import STOP_OFFSET, words_at
from tensorbow.program.while_op import loop_kernel
from tensorbow.specs import Array


class ReferenceBackend(Backend):
    """One group per op, run by its reference kernel."""

    kernel_kind = "cpu"
    title = "reference kernels"
    compute = FULL

    def made_with(self, device: Device) -> dict[str, str]:
        """See Backend.made_with. NumPy selects loops and BLAS kernels by processor."""
        facts = {**super().made_with(device), "NumPy": np.__version__, "BLAS": numpy_blas()}
        return {**facts, "precision": self.compute}

    def computing(self, compute: str) -> Backend:
        """See Backend.computing. CPUs have bf16; they take tf32 for fp32."""
        return self._rounding if compute == ROUNDED else self

    @cached_property
    def _rounding(self) -> Backend:
        """The backend whose products round their operands to bfloat16."""
        made = copy(self)
        made.compute, made.title = ROUNDED, f"{self.title}, {TITLE}"
        return made

    def _kernel(self, node: Node) -> Kernel:
        """See Backend._kernel."""
        if (node.definition.form_of or node.definition) in (While, Cond):
            of_nodes = partial(ReferenceBackend._kernel, self)
            return loop_kernel(of_nodes) if "loop" in node.attrs else cond_kernel(of_nodes)
        kernel = super()._kernel(node)
        return rounding_kernel(kernel) if self.compute == ROUNDED and rounds(node) else kernel

    def fuse(self, nodes: Sequence[Node]) -> list[Unit]:
        """One unit per node; views have no kernel and get none.

        Raises UnimplementedError for an op without a CPU kernel.
        """
        return [
            Unit((node,), self._kernel(node), node.inputs, node.outputs)
            for node in nodes
            if not node.definition.is_view
        ]

    def bind(
        self, executable: Executable, bases: Mapping[Region, int], group: StreamGroup, ring: int
    ) -> BoundPlan:
        """Makes the views and prepares the calls."""
        return ReferencePlan(executable, bases, group.device, ring)


class ReferencePlan(BoundPlan):
    """The prepared calls of every segment."""

    def __init__(self, executable: Executable, bases: Mapping[Region, int], device: Device, ring: int):
        self.executable = executable
        self._bases = dict(bases)
        self._device = device
        self._ring = ring
        self._groups = [group for segment in executable.segments for group in segment.groups]
        self._calls: list[list[Callable[[], None]]] = []
        self._arrays: dict[Ref, Array] = {}
        self._read_only_arrays: dict[Ref, Array] = {}
        with np.errstate(all="ignore"):
            for segment in executable.segments:
                self._calls.append([self._prepare(group) for group in segment.groups])
        self._inputs = {name: self._array(ref) for name, ref in executable.inputs.items()}
        self._state = {key: self._array(ref) for key, ref in executable.state.items()}
        self._rings: list[Array] | None = None  # by fetch, made on first use
        self._fetch_sources = [self._array(ref) for ref in executable.fetch_sources]
        self._fetched = [
            tuple(self._array(ref, slot * executable.ring_nbytes) for ref in executable.fetches)
            for slot in range(ring)
        ]
        self._readers = [[view.copy if view.ndim else view.item for view in views] for views in self._fetched]

    def _array(self, ref: Ref, shift: int = 0) -> Array:
        """A view of a ref's memory, `shift` bytes on."""
        address = self._bases[ref.region] + ref.offset + shift
        return self._device.view(address, ref.shape, ref.dtype.as_numpy_dtype)

    def _shared_array(self, ref: Ref) -> Array:
        array = self._arrays.get(ref)
        if array is None:
            array = self._arrays[ref] = self._array(ref)
        return array

    def _read_only(self, ref: Ref) -> Array:
        view = self._read_only_arrays.get(ref)
        if view is None:
            view = self._read_only_arrays[ref] = read_only(self._shared_array(ref))
        return view

    def _prepare(self, group: Group) -> Callable[[], None]:
        call = KernelCall(
            group.attrs,
            tuple(
                self._shared_array(ref) if index in group.definition.writes else self._read_only(ref)
                for index, ref in enumerate(group.inputs)
            ),
            tuple(self._shared_array(ref) for ref in group.outputs),
            tuple(self._shared_array(ref) for ref in group.scratch),
            {key: self._shared_array(ref) for key, ref in group.state},
        )
        try:
            step = group.kernel.bind(call)
        except TensorBowError:
            raise
        except MemoryError as error:
            reason = blame(group.definition.name, group.name, error, group.source)
            raise ResourceExhaustedError(reason) from error
        except Exception as error:  # a rule may raise anything for unknown attributes
            reason = blame(group.definition.name, group.name, error, group.source)
            raise InvalidArgumentError(reason) from error
        if not group.predicated:
            return step
        status = self._shared_array(self.executable.state["status"])

        def guarded() -> None:
            if not status:
                step()

        return guarded

    def stop(self) -> None:
        """See BoundPlan.stop."""
        self._set_stop(1)

    def resume(self) -> None:
        """See BoundPlan.resume."""
        self._set_stop(0)

    def _set_stop(self, value: int) -> None:
        if self.executable.region_nbytes.get(Region.CONTROL):
            words_at(self._bases[Region.CONTROL] + STOP_OFFSET, 1)[0] = value

    def write(self, inputs: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Copies feeds to INPUT and step scalars to STATE."""
        for name, value in inputs.items():
            np.copyto(self._inputs[name], value)
        for key, number in state.items():
            self._state[key][...] = number

    def copy_out(self, ref: Ref, target: Array) -> None:
        """Copies a ref's memory to an array."""
        np.copyto(target, self._shared_array(ref))

    def copy_in(self, name: str, source: Array) -> None:
        """Copies an array to an input."""
        np.copyto(self._inputs[name], source)

    def launch(self, segment: int, step: int = 0) -> None:
        """Runs a segment's calls; the fetching segment then copies the fetches to the RING.

        Raises the kernel's error with the op's name and the user's line.
        """
        self._run(segment)
        self._fetch(segment, step)

    def _run(self, segment: int) -> None:
        """Runs a segment's calls."""
        self._call_all(self._calls[segment], partial(self._blame, segment))

    def launch_into(self, segment: int, targets: Sequence[Array | None]) -> None:
        """See BoundPlan.launch_into."""
        self._run(segment)
        if self.executable.segments[segment].fetches:
            for source, target in zip(self._fetch_sources, targets, strict=True):
                if target is not None:
                    np.copyto(target, source)

    def launch_traced(self, segment: int, step: int, tell: TellOp) -> None:
        """See BoundPlan.launch_traced."""
        groups = self.executable.segments[segment].groups
        calls = [
            partial(_timed, call, f"{group.definition.name} {group.name}", tell)
            for group, call in zip(groups, self._one_by_one(segment), strict=True)
        ]
        self._call_all(calls, lambda index, error: self._blame_group(groups[index], error))
        self._fetch(segment, step)

    def _call_all(self, calls: Sequence[Callable[[], None]], blame: Callable[[int, Exception], str]) -> None:
        """Does calls in their order. blame: (number of a call, error) -> text of the error to raise."""
        index = 0
        try:
            with np.errstate(all="ignore"):
                for index, call in enumerate(calls):  # noqa: B007 - tells which call failed
                    call()
        except TensorBowError as error:
            raise type(error)(blame(index, error)) from error
        except MemoryError as error:
            raise ResourceExhaustedError(blame(index, error)) from error
        except Exception as error:
            raise InvalidArgumentError(blame(index, error)) from error

    def _fetch(self, segment: int, step: int) -> None:
        """Copies the fetches to the RING, if this is the segment that does so."""
        if self.executable.segments[segment].fetches:
            for source, target in zip(self._fetch_sources, self._fetched[step % self._ring], strict=True):
                np.copyto(target, source)

    def _blame(self, segment: int, index: int, error: Exception) -> str:
        return self._blame_group(self.executable.segments[segment].groups[index], error)

    def _blame_group(self, group: Group, error: Exception) -> str:
        return blame(group.definition.name, group.name, error, group.source)

    def fetch_arrays(self, step: int) -> tuple[Array, ...]:
        """Views of a step's fetches."""
        return self._fetched[step % self._ring]

    def fetch_values(self, step: int) -> list[Any]:
        """See BoundPlan.fetch_values."""
        return [read() for read in self._readers[step % self._ring]]

    def fetch_runs(self, first: int, count: int) -> list[Array]:
        """Copies of the fetches of several steps, at most as many as RING slots."""
        if self._rings is None:
            self._rings = [self._ring_of(ref) for ref in self.executable.fetches]
        begin = first % self._ring
        if begin + count <= self._ring:
            return [ring[begin : begin + count].copy() for ring in self._rings]
        slots = np.arange(begin, begin + count) % self._ring
        return [ring[slots] for ring in self._rings]

    def _ring_of(self, ref: Ref) -> Array:
        """A fetch in all RING slots."""
        dtype = np.dtype(ref.dtype.as_numpy_dtype)
        inner = [dtype.itemsize]
        for extent in ref.shape[:0:-1]:
            inner.insert(0, inner[0] * extent)
        strides = (self.executable.ring_nbytes, *(inner if ref.shape else ()))
        address = self._bases[ref.region] + ref.offset
        return self._device.view(address, (self._ring, *ref.shape), dtype, strides)

    def accesses(self, segment: int) -> tuple[Sequence[Access], Sequence[Access]]:
        """None: a CPU stream does not use them."""
        return (), ()

    def _one_by_one(self, segment: int) -> Sequence[Callable[[], None]]:
        """One call per group."""
        return self._calls[segment]

    def find_nonfinite(self, segment: int) -> str | None:
        """Runs a segment call by call; names the first op with a NaN or infinite output, and its line."""
        with np.errstate(all="ignore"):
            groups = self.executable.segments[segment].groups
            for group, call in zip(groups, self._one_by_one(segment), strict=True):
                call()
                for ref in group.outputs:
                    if ref.dtype.is_floating and not np.isfinite(self._shared_array(ref)).all():
                        note = f"; {group.note}" if group.note else ""
                        return f"{group.definition.name} {group.name} (made at {group.source}{note})"
        return None


def _timed(call: Callable[[], None], op: str, tell: TellOp) -> None:
    """Does a call, and tells its time."""
    began_s = perf_counter()
    call()
    tell(op, began_s, perf_counter())
