"""The cost model, and placements by simulated steps: properties on any graph, and known examples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorbow.compiler.placement import (
    CostModel,
    NodeCost,
    PlacedGroup,
    SimulatedOp,
    flops_of,
    place_greedily,
    simulate,
)
from tensorbow.specs import TensorSpec, float32

ROOMY = (1 << 40, 1 << 40)


def transfer(sender, receiver, nbytes):
    return 1.0, nbytes / 10


def tasks_of(*rows, devices=2):
    """Tasks a, b, ... of a group each: (seconds, indices of inputs); every output has 10 bytes."""
    return [
        SimulatedOp(chr(97 + n), n, (float(seconds),) * devices, tuple((i, 10) for i in inputs), 10)
        for n, (seconds, inputs) in enumerate(rows)
    ]


def anywhere(tasks, devices=2):
    return [PlacedGroup(tuple(range(devices))) for _ in tasks]


def test_two_heavy_branches_go_to_two_devices():
    tasks = tasks_of((10, []), (10, [0]), (10, []), (10, [2]), (1, [1, 3]))
    found, single = place_greedily(tasks, anywhere(tasks), transfer, ROOMY)
    a, b, c, d, _ = found.devices
    assert a == b != c == d
    assert single.makespan_s == 41
    # The second device begins 1 s later; meanwhile one end is sent there.
    assert found.makespan_s == 20 + 1 + 1 + 1 + 1
    assert (found.sent, found.sent_nbytes) == (1, 10)


def test_a_chain_and_light_branches_stay():
    chain = tasks_of(*((5, [n - 1] if n else []) for n in range(6)))
    light = tasks_of((1, []), (1, []), (1, [0, 1]))
    for tasks in (chain, light):
        found, single = place_greedily(tasks, anywhere(tasks), transfer, ROOMY)
        assert set(found.devices) == {0}
        assert found == single


def test_an_op_goes_to_the_faster_device_if_it_pays():
    tasks = [SimulatedOp("a", 0, (50.0, 5.0), (), 10), SimulatedOp("b", 1, (1.0, 1.0), ((0, 10),), 10)]
    found, _ = place_greedily(tasks, anywhere(tasks), transfer, ROOMY)
    assert found.devices == (1, 1)
    slightly = [SimulatedOp("a", 0, (6.0, 5.0), (), 10), SimulatedOp("b", 1, (1.0, 9.0), ((0, 10),), 10)]
    assert place_greedily(slightly, anywhere(slightly), transfer, ROOMY)[0].devices == (0, 0)


def test_groups_stay_together_and_requests_are_kept():
    tasks = [
        SimulatedOp(name, group, (10.0, 10.0)) for name, group in (("a", 0), ("b", 1), ("c", 0), ("d", 2))
    ]
    groups = [PlacedGroup((0, 1)), PlacedGroup((0, 1)), PlacedGroup((1,))]
    found, _ = place_greedily(tasks, groups, transfer, ROOMY)
    assert found.devices == (0, 1, 1)  # a and c take as long as b and d
    assert found.makespan_s == 1 + 20


def test_a_variable_goes_where_it_is_read_first():
    tasks = [
        SimulatedOp("v", 0),
        SimulatedOp("w", 1),
        SimulatedOp("a", 2, (10.0, 10.0), ((0, 100),), 10),
        SimulatedOp("b", 3, (10.0, 10.0), ((1, 100),), 10),
    ]
    found, _ = place_greedily(tasks, anywhere(tasks), transfer, ROOMY)
    assert found.devices == (0, 1, 0, 1)
    assert found.sent == 0


def test_a_memory_limit_splits_a_chain():
    """Four layers with a variable of 100 bytes each, where two fit on a device."""
    tasks, groups = [], []
    for layer in range(4):
        groups += [PlacedGroup((0, 1), 100), PlacedGroup((0, 1))]
        tasks.append(SimulatedOp(f"v{layer}", 2 * layer))
        inputs = [(2 * layer, 100)] + ([(2 * layer - 1, 10)] if layer else [])
        tasks.append(SimulatedOp(f"a{layer}", 2 * layer + 1, (1.0, 1.0), tuple(inputs), 10))
    found, single = place_greedily(tasks, groups, transfer, (230, 230))
    assert not single.fits
    assert found.fits
    assert [found.devices[2 * layer] for layer in range(4)] == [0, 0, 1, 1]
    assert found.sent == 1
    assert not place_greedily(tasks, groups, transfer, (130, 130))[0].fits
    assert place_greedily(tasks, groups, transfer, (500, 500))[0].devices == (0,) * 8


def test_outputs_count_until_their_last_reader():
    tasks = tasks_of((1, []), (1, [0]), (1, [1]), (1, [0, 2]), devices=1)
    found = simulate(tasks, anywhere(tasks, 1), [0] * 4, transfer, (1 << 30,))
    assert found.peaks == (30,)  # a lives until d: a, b, c, and at the end a, c, d


@st.composite
def cases(draw):
    devices = draw(st.integers(1, 3))
    groups = [
        PlacedGroup(
            tuple(draw(st.permutations(range(devices)))[: draw(st.integers(1, devices))]),
            draw(st.integers(0, 50)),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]
    tasks = []
    for number in range(draw(st.integers(1, 12))):
        group = draw(st.integers(0, len(groups) - 1))
        if draw(st.integers(0, 3)) == 0:
            tasks.append(SimulatedOp(f"v{number}", group))
            continue
        inputs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()
        seconds = tuple(draw(st.floats(0, 20)) for _ in range(devices))
        tasks.append(
            SimulatedOp(
                f"t{number}", group, seconds, tuple((i, draw(st.integers(0, 60))) for i in sorted(inputs)), 20
            )
        )
    limits = tuple(draw(st.integers(20, 400)) for _ in range(devices))
    return tasks, groups, limits


@given(cases())
@settings(max_examples=80, deadline=None)
def test_what_every_placement_keeps(case):
    tasks, groups, limits = case
    found, single = place_greedily(tasks, groups, transfer, limits)
    assert all(device in group.devices for device, group in zip(found.devices, groups, strict=True))
    assert found == simulate(tasks, groups, found.devices, transfer, limits)
    if single.fits:
        assert found.fits
        assert found.makespan_s <= single.makespan_s
    busy = [0.0] * len(limits)
    for task in tasks:
        if task.seconds:
            busy[found.devices[task.group]] += task.seconds[found.devices[task.group]]
    assert found.makespan_s >= max(busy) * (1 - 1e-12)


def cost(*, op="MatMul", rows=8):
    a, b = TensorSpec([rows, 16], float32), TensorSpec([16, 32], float32)
    return NodeCost.of(op, {}, [a, b], [TensorSpec([rows, 32], float32)])


def test_measured_costs_replace_estimates():
    model, product = CostModel(), cost()
    assert product.flops == 2 * 8 * 16 * 32
    assert product.nbytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)
    guess = model.seconds(product, "cpu")
    assert guess == model.estimated_s(product, "cpu") > model.estimated_s(cost(rows=1), "cpu")
    for duration_s in (2.0, 4.0):
        model.add([product], "cpu", duration_s)
    assert model.seconds(product, "cpu") == 3.0
    assert model.is_measured(cost(), "cpu")  # of another node of these shapes, too
    assert not model.is_measured(product, "gpu")
    assert not model.is_measured(cost(rows=9), "cpu")
    assert len(model) == 1


def test_fused_ops_share_their_time():
    model, product, other = CostModel(), cost(), cost(op="Add", rows=4)
    model.add([product, other], "cpu", 1.0)
    shares = [model.seconds(each, "cpu") for each in (product, other)]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] / shares[1] == pytest.approx(
        model.estimated_s(product, "cpu") / model.estimated_s(other, "cpu")
    )


def test_large_transfers_take_longer_and_kinds_differ():
    model = CostModel()
    assert model.transfer_s("cpu", "cpu", 2000)[1] == 2 * model.transfer_s("cpu", "cpu", 1000)[1]
    assert model.transfer_s("gpu", "cpu", 1) == model.transfer_s("cpu", "gpu", 1)
    assert model.transfer_s("gpu", "gpu", 1) != model.transfer_s("cpu", "cpu", 1)
    assert model.seconds(cost(), "gpu") != model.seconds(cost(), "cpu")


def test_a_convolution_costs_as_much_backwards():
    image, filters, made = (2, 8, 9, 3), (5, 4, 3, 7), (2, 4, 6, 7)
    forward = flops_of("Conv2D", {}, [image, filters], [made])
    assert forward == 2 * 2 * 4 * 6 * 7 * 5 * 4 * 3
    assert flops_of("Conv2DBackpropInput", {}, [(4,), filters, made], [image]) == forward
    assert flops_of("Conv2DBackpropFilter", {}, [image, (4,), made], [filters]) == forward
    depthwise = flops_of("DepthwiseConv2dNative", {}, [image, (5, 4, 3, 2)], [(2, 4, 6, 6)])
    assert depthwise == 2 * 2 * 4 * 6 * 6 * 5 * 4
