"""Synchronisers: they extend the step of one replica by exchanges and ordinary ops, before it is compiled.

The compiler calls `Synchroniser.rewrite` with a step's nodes, all shapes known, split before the first write
of a weight; it returns the variants of the step, which the compiler cuts into segments at exchanges.
`RoundVariants` chooses the variant of each round.

Synchronous model averaging (Crossbow, section 3) and EASGD put c = alpha * (w - z) before the update,
w -= c after it, and z += all_sum(c) (with the momentum u of z) behind that; z and u are mirrored variables.
S-SGD has the update read the mean of all replicas' gradients, so that equal weights stay equal, to the bit;
rows of sparse gradients are gathered from all replicas, so that the number of replicas is in their shape.
DiLoCo hands in w - z after the update of the last of tau rounds; z takes an outer step along the mean, and a
segment behind it puts w = z. With staleness 1 nothing waits for that: w becomes the newest z that is there,
plus the replica's progress that it lacks, which is kept in a slot (`outer_progress`).
With `none`, or one replica, only checks of gradients are added. Gradients that are computed before the first
write of a weight are checked before it, others before their own update.

z and the corrections have staleness + 1 flat copies each. Averaging n reads copy n mod (staleness + 1) of z,
which averaging n - 1 - staleness wrote, leaves corrections in the copy of that number, and writes the new z
over it when all its readers are done.

An exponential moving average of z is a mirrored variable behind u. With S-SGD z is w: each device gets
replica 0's by a Broadcast. One replica writes the moving average of its w itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scheduler.averaging.outer_progress import progress_ref
from scheduler.averaging.synchronisation import Synchronisation
from tensorbow.compiler import Mirrored, VariableLayout
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import OpDef
from tensorbow.ops.arrays import Reshape
from tensorbow.ops.averaging import (
    GradientCheck,
    GradientMean,
    GradientSpoil,
    OuterStep,
    SmaClear,
    SmaCorrect,
    SmaDifference,
    SmaFollow,
    SmaMove,
    Truncate16,
)
from tensorbow.ops.control import Copy
from tensorbow.ops.elementwise_table import Add
from tensorbow.ops.exchanges import AllGather, AllSum, Broadcast
from tensorbow.ops.scatter import ScatterAdd, ScatterSub
from tensorbow.ops.sparse_updates import SumEqualRows
from tensorbow.ops.state import Assign, AssignAdd, AssignSub
from tensorbow.program.nodes import Node, SplitStep, Value, Variant, storage_of, writes_weights
from tensorbow.program.plan import Ref, Region
from tensorbow.specs import TensorSpec, int64

UPDATE, UPDATE_ON_MEAN, CLEAR = "update", "update, mean gradient", "clear slots"


def averaging(copy: int, separate: bool = False) -> str:
    """Name of the variant that averages through a copy of z; separate: without an update."""
    return f"averaging {copy}" if separate else f"update, averaging {copy}"


def restart(copy: int) -> str:
    """Name of the variant that sets w = z from a copy of z."""
    return f"restart {copy}"


@dataclass(frozen=True)
class Synchroniser:
    """Rewriting of a step by the options of synchronisation.

    The number of replicas matters to it only where S-SGD gathers sparse gradients, see `averages_rows`.
    z_copies: staleness + 1, or 0 without averaging. has_momentum: whether there is u, the momentum of z: mu
    is not 0, or z takes outer steps, as of DiLoCo (outer_steps).
    averages_gradients: whether some round steps on the mean of gradients. separate: averaging is a variant of
    its own, for fcfs, where a task cannot know that it is its replica's last before the averaging.
    ema: decay of the moving average of z, if there is one. halves: replicas hand in bfloat16.
    copies_gradients: replicas hand in copies, made behind the gradient, so that those which hand in nothing
    may compute meanwhile (backup workers).
    """

    z_copies: int = 0
    has_momentum: bool = False
    clear_velocity: bool = False
    averages_gradients: bool = False
    separate: bool = False
    ema: float | None = None
    outer_steps: bool = False
    halves: bool = False
    copies_gradients: bool = False

    @classmethod
    def of(cls, options: Synchronisation, replicas: int) -> Synchroniser:
        """Synchroniser for these options; `replicas` decides only whether there is more than one."""
        averages = options.averages(replicas)
        return cls(
            options.z_copies(replicas),
            averages and (bool(options.mu) or options.outer_steps),
            averages and options.clear_velocity,
            options.averages_gradients(replicas),
            averages and options.first_come,
            options.ema,
            averages and options.outer_steps,
            averages and options.exchange_dtype is not None,
            bool(options.backup),
        )

    @property
    def copies(self) -> int:
        """Number of vectors in CENTRAL: the copies of z, u, and the moving average, in this order."""
        return self.z_copies + self.has_momentum + (self.ema is not None)

    def rewrite(self, step: SplitStep, layout: VariableLayout, replicas: int = 1) -> list[Variant]:
        """The variants of a step; may add a node to the end of its gradient, so call it once.

        replicas: their number, which matters only to the sparse gradients of S-SGD (`averages_rows`).
        Raises InvalidArgumentError for a weight that is written without a gradient, where these are averaged.
        """
        return _Rewriting(self, step, layout, replicas).variants()

    def averages_rows(self, definition: OpDef) -> bool:
        """True if an op's rows of all replicas are joined, so that their number is in a shape."""
        return self.averages_gradients and definition.row_update is not None


class _Rewriting:
    """A step, and what its variants are made of."""

    def __init__(self, how: Synchroniser, step: SplitStep, layout: VariableLayout, replicas: int):
        self._how, self._step, self._layout, self._replicas = how, step, layout, replicas
        self._stride = layout.region_nbytes[Region.WEIGHTS]
        self._flat = [ref for ref in layout.flat(Region.WEIGHTS) if ref.dtype.is_floating]
        self._early, self._late = set(step.gradient), set(step.update)
        self._spoiled: dict[Value, Value] = {}  # the copy of a gradient that is handed in for it

    def variants(self) -> list[Variant]:
        """All that a round may do, and what is done between rounds."""
        how = self._how
        self._checks, self._update = self._checked_update()
        own = [] if how.z_copies or how.averages_gradients else [*self._follow_weights(sent=False)]
        variants = [Variant(UPDATE, [*self._checks, *self._update, *own], predicated=True)]
        for copy in range(how.z_copies):
            variants += [
                self._outer_step(copy) if how.outer_steps else self._averaging(copy),
                Variant(restart(copy), [*self._restart(copy)], without_gradient=True),
            ]
        if how.averages_gradients:
            self._share_status()
            nodes = [*self._update_on_mean(), *self._follow_weights(sent=True)]
            variants.append(Variant(UPDATE_ON_MEAN, nodes, predicated=True))
            variants.append(Variant(CLEAR, [*self._clear_optimizer_slots()], without_gradient=True))
        return variants

    # Averaging of models --------------------------------------------------------------------------

    def _averaging(self, copy: int) -> Variant:
        before, after, sums, moves = list[Node](), list[Node](), list[Node](), list[Node]()
        for ref in self._flat:
            weights, z = _value("w", ref), self._z(ref, copy)
            handed = _moved(ref, Region.EXCHANGE, copy * self._stride)
            note = f"c = alpha * (w - z){', with w from before the update' if not self._how.separate else ''}"
            difference = _node(SmaDifference, [weights, z], handed, note)
            correction = difference.outputs[0]
            before.append(difference)
            after.append(_node(SmaCorrect, [weights, correction], None, "w -= c"))
            after[-1].unconditional = True  # c is 0 if the status was set before; else z gets it
            sums.append(_node(AllSum, [correction], _moved(ref, Region.RESULTS, 0), "in replica order"))
            total, last = sums[-1].outputs[0], self._z(ref, (copy - 1) % self._how.z_copies)
            if self._how.has_momentum:
                moves.append(_node(SmaMove, [last, total, self._momentum(ref)], z.ref, "moves z"))
            else:
                moves.append(_node(Add, [last, total], z.ref, "moves z; mu is 0"))
            if self._how.ema is not None:
                moves.append(self._follow(ref, moves[-1].outputs[0]))
        if self._how.separate:
            return Variant(
                averaging(copy, separate=True), [*before, *after, *sums, *moves], without_gradient=True
            )
        nodes = [*self._checks, *before, *self._update, *after, *sums, *moves]
        return Variant(averaging(copy), nodes, predicated=True)

    def _outer_step(self, copy: int) -> Variant:
        before, behind, sums, moves = list[Node](), list[Node](), list[Node](), list[Node]()
        for ref in self._flat:
            weights, z, last = (
                _value("w", ref),
                self._z(ref, copy),
                self._z(ref, (copy - 1) % self._how.z_copies),
            )
            handed = _moved(ref, Region.EXCHANGE, copy * self._stride)
            made = [_node(SmaDifference, [weights, z], None if self._how.halves else handed, "p = w - z")]
            progress = made[0].outputs[0]
            if self._how.halves:
                made.append(_node(Truncate16, [progress], handed, "handed in as bfloat16"))
            sent = made[-1].outputs[0]
            if self._how.z_copies == 1:
                before += made
                behind.append(_assign(weights, z, "w = z"))
            else:
                lacked = _value("p", progress_ref(self._layout, ref))
                before += [
                    _node(AssignSub, [weights, lacked], None, "w -= the progress that z has by now"),
                    *made,
                    _assign(lacked, sent, "the progress that it lacks from here on"),
                    _assign(weights, last, "w = newest z"),
                    _node(AssignAdd, [weights, progress], None, "w += p"),
                ]
            sums.append(_node(AllSum, [sent], _moved(ref, Region.RESULTS, 0), "in replica order"))
            total = sums[-1].outputs[0]
            moves.append(_node(OuterStep, [last, total, self._momentum(ref)], z.ref, "outer step of z"))
            if self._how.ema is not None:
                moves.append(self._follow(ref, moves[-1].outputs[0]))
        tail = [*before, *sums, *moves, *behind]
        if self._how.separate:
            return Variant(averaging(copy, separate=True), tail, predicated=True, without_gradient=True)
        return Variant(averaging(copy), [*self._checks, *self._update, *tail], predicated=True)

    def _restart(self, copy: int) -> Iterator[Node]:
        """u = 0, z in all copies, w = z."""
        for ref in self._flat:
            if self._how.has_momentum:
                yield _node(SmaClear, [self._momentum(ref)], None, "u = 0")
            for other in range(self._how.z_copies):
                if other != copy:
                    note = "no older z is read after a restart"
                    yield _assign(self._z(ref, other), self._z(ref, copy), note)
            yield _assign(_value("w", ref), self._z(ref, copy), "w = z")
            if self._how.outer_steps and self._how.z_copies > 1:
                lacked = _value("p", progress_ref(self._layout, ref))
                yield _node(SmaClear, [lacked], None, "z lacks nothing")
        if self._how.clear_velocity:
            yield from self._clear_optimizer_slots()

    def _z(self, ref: Ref, copy: int) -> Value:
        return _value("z", central_ref(ref, copy * self._stride))

    def _momentum(self, ref: Ref) -> Value:
        return _value("u", central_ref(ref, self._how.z_copies * self._stride))

    # Moving average of z --------------------------------------------------------------------------

    def _follow(self, ref: Ref, z: Value) -> Node:
        average = _value("ema", central_ref(ref, (self._how.copies - 1) * self._stride))
        return _node(SmaFollow, [average, z], average.ref, "the moving average of z", decay=self._how.ema)

    def _follow_weights(self, sent: bool) -> Iterator[Node]:
        """Updates of the moving average where z is w, if the step writes weights. sent: w is replica 0's."""
        if self._how.ema is not None and any(map(writes_weights, self._step.update)):
            for ref in self._flat:
                z = _value("w", ref)
                if sent:
                    yield (broadcast := _node(Broadcast, [z], None, "z is replica 0's w"))
                    (z,) = broadcast.outputs
                yield self._follow(ref, z)

    def _clear_optimizer_slots(self) -> Iterator[Node]:
        """Sets each of the optimiser's floating variables to what it starts from."""
        for variable in self._layout.variables:
            ref = self._layout.ref(variable.name)
            if ref.region is Region.SLOTS and ref.dtype.is_floating:
                start = variable.attrs["slot_value"]
                cleared = _node(SmaClear, [_value(variable.name, ref)], None, f"{variable.name} = {start:g}")
                cleared.attrs = {"value": start}
                yield cleared

    # Gradients ------------------------------------------------------------------------------------

    def _checked_update(self) -> tuple[list[Node], list[Node]]:
        """Checks of the gradients, and the update; it has those of gradients that it makes itself."""
        checks, update = list[Node](), list[Node]()
        checked = set[Value]()
        for node in self._step.update:
            for value in self._gradients(node):
                root = storage_of(value)
                if root not in checked:
                    checked.add(root)
                    (update if self._is_late(value) else checks).append(_check(value))
            update.append(node)
        return checks, update

    def _gradients(self, node: Node) -> Iterator[Value]:
        """Gradients that a node reads to write weights: a dense one, or the rows of a sparse one."""
        if node.definition.update is not None:
            values = [node.inputs[node.definition.update[1]]]
        elif writes_weights(node):
            inputs = [v for i, v in enumerate(node.inputs) if i not in node.definition.writes]
            values = [value for value in inputs if self._is_early(value)]
        else:
            return
        for value in values:
            if value.spec.dtype.is_floating and value.spec.size and storage_of(value).constant is None:
                yield value

    def _is_early(self, value: Value) -> bool:
        """True if a value is there when the gradient has been computed."""
        root = storage_of(value)
        return root.node in self._early or root in self._step.received

    def _is_late(self, value: Value) -> bool:
        """True if a value is made, or received, in the update."""
        root = storage_of(value)
        return root.node in self._late or root in self._step.received_late

    def _update_on_mean(self) -> list[Node]:
        """The update, reading means of gradients; what it writes waits for their checks."""
        sums, means, checks, update = list[Node](), list[Node](), list[Node](), list[Node]()
        mean_of = dict[Value, Value]()
        homes = set[Ref]()
        for node in self._step.update:
            index = None if node.definition.update is None else node.definition.update[1]
            if index is None and writes_weights(node):
                *made, check, applied = self._update_on_joined_rows(node)
                is_late = any(map(self._is_late, node.inputs))
                (update if is_late else sums).extend(made)
                (update if is_late else checks).append(check)
                update.append(applied)
                continue
            for value in self._gradients(node):
                if value not in mean_of:
                    home = self._home(node, homes)
                    handed = self._spoiled.get(value, value)
                    if self._how.copies_gradients:
                        slot = home and _moved(home, Region.EXCHANGE, 0)
                        sums.append(_node(Copy, [handed], slot, "handed in"))
                        handed = sums[-1].outputs[0]
                    total = _node(AllSum, [handed], home and _moved(home, Region.RESULTS, 0))
                    ref = home and _moved(home, Region.RESULTS, self._stride)
                    mean = _node(GradientMean, total.outputs, ref, "divided by the replicas")
                    mean_of[value] = mean.outputs[0]
                    three = total, mean, _check(mean.outputs[0])
                    if self._is_late(value):
                        update += three
                    else:
                        for nodes, each in zip((sums, means, checks), three, strict=True):
                            nodes.append(each)
            if index is None or node.inputs[index] not in mean_of:
                update.append(node)
            else:
                inputs = list(node.inputs)
                inputs[index] = mean_of[inputs[index]]
                update.append(_with_inputs(node, inputs))
        return [*sums, *means, *checks, *update]

    def _update_on_joined_rows(self, node: Node) -> Iterator[Node]:
        """Nodes of the mean of all replicas' rows, then its check, then the update."""
        where = node.definition.row_update
        if self._how.copies_gradients:
            raise InvalidArgumentError(
                f"backup: {node.definition.name} {node.name} updates rows, or without a gradient of its own, "
                f"which backup workers cannot leave out; leave backup out (made at {node.source})"
            )
        if where is None:
            raise InvalidArgumentError(
                f"ssgd: {node.definition.name} {node.name} writes a trainable variable without a gradient of "
                f"its own, which could be averaged; use sma (made at {node.source})"
            )
        inputs, joined = list(node.inputs), list[Value]()
        if any(not inputs[index].spec.extents for index in where):
            raise InvalidArgumentError(
                f"ssgd: {node.definition.name} {node.name}: expected rows and a vector of indices, to be "
                f"averaged, got a scalar; give [rows, ...] and [rows] (made at {node.source})"
            )
        for index in where:
            value = inputs[index]
            spec = value.spec
            gathered = _node(AllGather, [self._spoiled.get(value, value)], None, replicas=self._replicas)
            yield gathered
            extents = [self._replicas * spec.extents[0], *spec.extents[1:]]
            yield (flat := _node(Reshape, [gathered.outputs[0], _constant(extents)], None))
            joined.append(flat.outputs[0])
        if node.definition not in (ScatterAdd, ScatterSub):  # these add up equal rows themselves
            yield (summed := _node(SumEqualRows, joined, None, "rows of all replicas"))
            joined = summed.outputs
        yield (mean := _node(GradientMean, joined[:1], None, "divided by the replicas"))
        yield _check(mean.outputs[0])
        for index, value in zip(where, (mean.outputs[0], joined[1]), strict=True):
            inputs[index] = value
        yield _with_inputs(node, inputs)

    def _home(self, node: Node, homes: set[Ref]) -> Ref | None:
        """The memory of the variable that an update writes, unless another one has it."""
        if node.definition.update is None:
            return None
        variable = storage_of(node.inputs[node.definition.update[0]]).variable
        home = None if variable is None else self._layout.ref(variable.name)
        if home is None or home.region is not Region.WEIGHTS or home in homes:
            return None
        homes.add(home)
        return home

    def _share_status(self) -> None:
        """Makes a gradient NaN while the status is set, by the loss: then all replicas have a NaN mean."""
        gradients = (value for node in self._step.update for value in self._gradients(node))
        made = [value for value in gradients if self._is_early(value)]
        if not made:
            return
        mirrored = Mirrored()
        if any(node.definition.exchange for node in self._step.gradient):
            for node in self._step.gradient:
                mirrored.classify(node)
        smallest = min(made, key=lambda value: (mirrored.holds(value), value.spec.size))
        if mirrored.holds(smallest):  # equal for all replicas, of which one's status may be set
            copy = _node(Copy, [smallest], None)
            self._step.gradient.append(copy)
            self._spoiled[smallest] = copy.outputs[0]
            smallest = copy.outputs[0]
        note = "a status that is set, by the loss, becomes that of all replicas"
        self._step.gradient.append(_node(GradientSpoil, [smallest], None, note))


def central_ref(ref: Ref, shift: int) -> Ref:
    """Memory in CENTRAL at the same offset, `shift` bytes on."""
    return _moved(ref, Region.CENTRAL, shift)


def _moved(ref: Ref, region: Region, shift: int) -> Ref:
    """Memory at the same offset in another region, `shift` bytes on."""
    return replace(ref, region=region, offset=ref.offset + shift)


def _value(name: str, ref: Ref) -> Value:
    return Value(name, TensorSpec(ref.shape, ref.dtype), ref=ref)


def _constant(numbers: Sequence[int]) -> Value:
    array = np.array(numbers, np.int64)
    return Value("shape", TensorSpec(array.shape, int64, array), constant=array)


def _with_inputs(node: Node, inputs: list[Value]) -> Node:
    """A copy of a node that reads other values."""
    copy = replace(node, inputs=inputs, outputs=[])
    copy.outputs = [replace(output, node=copy) for output in node.outputs]  # aliases
    return copy


def _node(
    definition: OpDef, inputs: Sequence[Value], ref: Ref | None, note: str = "", **attributes: Any
) -> Node:
    """A node that is added. ref: memory of its result, where that is fixed before memory is planned."""
    attrs = {**definition.attrs, **attributes}
    node = Node(definition.name, definition, attrs, [*inputs], 0, unfused=True, note=note)
    specs = definition.infer([value.spec for value in inputs], attrs)
    node.outputs = [Value(inputs[0].name, spec, node, number, ref=ref) for number, spec in enumerate(specs)]
    return node


def _assign(target: Value, source: Value, note: str) -> Node:
    return _node(Assign, [target, source], target.ref, note)


def _check(value: Value) -> Node:
    return _node(GradientCheck, [value], None, "sets the status when a gradient is not finite")
