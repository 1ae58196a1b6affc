import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import InvariantViolation, Lifetime, SlabPlan, plan_slab, planner

lifetimes_strategy = st.lists(
    st.builds(
        lambda nbytes, start, length: Lifetime(nbytes, start, start + length),
        st.one_of(st.integers(0, 5000), st.sampled_from([256, 512, 1 << 20])),
        st.integers(-3, 30),
        st.integers(0, 20),
    ),
    max_size=40,
)


def naive_bound(lifetimes: list[Lifetime], alignment: int) -> int:
    def live(step: int) -> int:
        return sum(-(-t.nbytes // alignment) * alignment for t in lifetimes if t.start <= step <= t.stop)

    return max((live(t.start) for t in lifetimes), default=0)


def training_step(
    layers: list[tuple[int, int, int]], *, residual_every: int = 0, keep_gradients: bool = True
) -> list[Lifetime]:
    """Lifetimes of one training step over (activation, weight, workspace) bytes of each layer.

    An activation lives from its forward step to its layer's backward step (or further, to a residual sum);
    its gradient from the step above to the step that uses it; a weight's gradient to the end.
    """
    depth = len(layers)
    last = 2 * depth
    found = []
    for index, (activation, weight, workspace) in enumerate(layers):
        backward = last - index
        found.append(Lifetime(activation, index, backward))
        found.append(Lifetime(activation // 2, index, index + 1))
        residual = residual_every and index % residual_every == 0
        found.append(Lifetime(activation, backward - 1, backward + (residual_every if residual else 0)))
        found.append(Lifetime(weight, backward, last + 1 if keep_gradients else backward + 1))
        found.append(Lifetime(workspace, index, index))
        found.append(Lifetime(2 * workspace, backward, backward))
    return found


def lenet(batch_size: int) -> list[Lifetime]:
    activations = [24 * 24 * 20, 12 * 12 * 20, 8 * 8 * 50, 4 * 4 * 50, 500, 500, 10, 1]
    weights = [5 * 5 * 20, 0, 5 * 5 * 20 * 50, 0, 800 * 500, 0, 500 * 10, 0]
    workspaces = [5 * 5 * 24 * 24, 0, 500 * 8 * 8, 0, 0, 0, 0, 0]
    return training_step(
        [(4 * batch_size * a, 4 * w, 4 * s) for a, w, s in zip(activations, weights, workspaces, strict=True)]
    )


def resnet(num_blocks: int, batch_size: int) -> list[Lifetime]:
    """A CIFAR ResNet with 6 * num_blocks + 2 layers: convolution, normalisation, activation each."""
    layers = []
    for extent, channels in ((32, 16), (16, 32), (8, 64)):
        activation = 4 * batch_size * extent * extent * channels
        for _ in range(2 * num_blocks):
            layers += [
                (activation, 36 * channels * channels, 16 * 36 * channels * channels),
                (activation, 8 * channels, 16 * channels),
                (activation, 0, 0),
            ]
    return training_step(layers, residual_every=6)


@pytest.mark.slow
@given(lifetimes_strategy, st.sampled_from([1, 3, 64, 256, 512]))
@settings(max_examples=150, deadline=None)
def test_live_buffers_never_overlap_and_the_peak_is_honest(lifetimes: list[Lifetime], alignment: int) -> None:
    plan = plan_slab(lifetimes, alignment=alignment)
    assert len(plan.offsets) == len(lifetimes)
    assert all(offset % alignment == 0 <= offset for offset in plan.offsets)
    placed = list(zip(lifetimes, plan.offsets, strict=True))
    for index, (a, low) in enumerate(placed):
        for b, high in placed[:index]:
            if a.nbytes and b.nbytes and a.start <= b.stop and b.start <= a.stop:
                assert low + a.nbytes <= high or high + b.nbytes <= low
    ends = [offset + -(-t.nbytes // alignment) * alignment for t, offset in placed if t.nbytes]
    assert plan.peak_nbytes == max(ends, default=0)
    assert plan.lower_bound_nbytes == naive_bound(lifetimes, alignment) <= plan.peak_nbytes
    assert plan.overhead >= 0
    plan.check(lifetimes)
    assert plan == plan_slab(lifetimes, alignment=alignment)


@given(lifetimes_strategy)
@settings(max_examples=50, deadline=None)
def test_the_check_agrees_with_a_comparison_of_all_pairs(lifetimes: list[Lifetime]) -> None:
    wild = random.Random(len(lifetimes))
    offsets = tuple(256 * wild.randrange(40) for _ in lifetimes)
    plan = SlabPlan(offsets, 1 << 30, 0, 256)
    placed = list(zip(lifetimes, offsets, strict=True))
    clash = any(
        a.nbytes and b.nbytes and a.start <= b.stop and b.start <= a.stop
        and low < high + b.nbytes and high < low + a.nbytes
        for index, (a, low) in enumerate(placed)
        for b, high in placed[:index]
    )  # fmt: skip
    if clash:
        with pytest.raises(InvariantViolation, match="overlap while both are live"):
            plan.check(lifetimes)
    else:
        plan.check(lifetimes)


def test_steps_are_inclusive_at_both_ends() -> None:
    touching = plan_slab([Lifetime(256, 0, 3), Lifetime(256, 3, 5)])
    assert touching.peak_nbytes == touching.lower_bound_nbytes == 512
    apart = plan_slab([Lifetime(256, 0, 2), Lifetime(256, 3, 5)])
    assert apart.peak_nbytes == apart.lower_bound_nbytes == 256
    assert apart.offsets == (0, 0)


def test_alignment_counts_in_the_bound() -> None:
    lifetimes = [Lifetime(1, 0, 0), Lifetime(1, 0, 0)]
    assert plan_slab(lifetimes).lower_bound_nbytes == 512
    assert plan_slab(lifetimes, alignment=1).peak_nbytes == 2


def test_nothing_to_plan() -> None:
    assert plan_slab([]) == SlabPlan((), 0, 0, 256)
    empty = plan_slab([Lifetime(0, 1, 2)])
    assert (empty.offsets, empty.peak_nbytes, empty.overhead) == ((0,), 0, 0.0)


def test_senseless_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"start must not be after its stop, got 2\.\.1"):
        Lifetime(1, 2, 1)
    with pytest.raises(ValueError, match="nbytes must be at least 0"):
        Lifetime(-1, 0, 0)
    with pytest.raises(ValueError, match="alignment must be at least 1"):
        plan_slab([], alignment=0)


def test_the_check_refuses_wrong_plans() -> None:
    lifetimes = [Lifetime(512, 0, 1), Lifetime(512, 1, 2)]
    plan_slab(lifetimes).check(lifetimes)
    for offsets, words in (
        ((0, 256), "overlap"),
        ((0,), "for 1 buffers"),
        ((0, 100), "misaligned"),
        ((0, 768), "out"),
    ):
        with pytest.raises(InvariantViolation, match=words):
            SlabPlan(offsets, 1024, 1024, 256).check(lifetimes)


@pytest.mark.parametrize("batch_size", [4, 16, 64])
def test_lenet_is_within_a_tenth_of_the_bound(batch_size: int) -> None:
    lifetimes = lenet(batch_size)
    plan = plan_slab(lifetimes)
    plan.check(lifetimes)
    assert plan.overhead <= 0.10
    assert plan.peak_nbytes < 0.8 * sum(lifetime.nbytes for lifetime in lifetimes)


@pytest.mark.parametrize(("num_blocks", "batch_size"), [(3, 4), (5, 4), (5, 32), (9, 16)])
def test_resnets_are_within_a_tenth_of_the_bound(num_blocks: int, batch_size: int) -> None:
    lifetimes = resnet(num_blocks, batch_size)
    plan = plan_slab(lifetimes)
    plan.check(lifetimes)
    assert plan.overhead <= 0.10


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keep_gradients", [True, False])
def test_random_chains_are_within_a_tenth_of_the_bound(seed: int, keep_gradients: bool) -> None:
    chooser = random.Random(seed)
    layers = [
        (int(2 ** chooser.uniform(8, 20)), int(2 ** chooser.uniform(6, 18)), int(2 ** chooser.uniform(6, 19)))
        for _ in range(chooser.randrange(10, 60))
    ]
    lifetimes = training_step(layers, residual_every=chooser.choice([0, 3]), keep_gradients=keep_gradients)
    plan = plan_slab(lifetimes)
    plan.check(lifetimes)
    assert plan.overhead <= 0.10


def test_inference_needs_two_layers_at_a_time() -> None:
    lifetimes = [Lifetime(1000 * (index % 7 + 1), index, index + 1) for index in range(200)]
    plan = plan_slab(lifetimes, alignment=1)
    assert plan.peak_nbytes <= 1.10 * plan.lower_bound_nbytes == pytest.approx(1.10 * 13000)


@given(lifetimes_strategy, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_many_buffers_are_placed_as_few_are(lifetimes: list[Lifetime], chooser: random.Random) -> None:
    items = [planner._Item(t.nbytes, t.start, t.stop, n) for n, t in enumerate(lifetimes) if t.nbytes]
    chooser.shuffle(items)
    few, many = planner._Few(), planner._Many(items)
    for item in items:
        offset = planner._best_gap(few.live_with(item), item.nbytes)
        assert planner._best_gap(many.live_with(item), item.nbytes) == offset
        for placed in (few, many):
            placed.add((offset, offset + item.nbytes, item.start, item.stop))


@pytest.mark.slow
@pytest.mark.parametrize("lives", ["chain", "random"])
def test_a_plan_of_thousands_of_buffers_is_bounded_work(lives: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each buffer is compared with some hundreds of intervals, not with all others, for each order tried."""
    compared: list[int] = []
    best_gap = planner._best_gap

    def counted(taken: list[tuple[int, int]], nbytes: int) -> int:
        compared.append(len(taken))
        return best_gap(taken, nbytes)

    monkeypatch.setattr(planner, "_best_gap", counted)
    chooser = random.Random(7)
    if lives == "chain":
        layers = [(int(2 ** chooser.uniform(10, 22)), 1 << 12, 1 << 14) for _ in range(500)]
        lifetimes = training_step(layers)
    else:
        starts = [chooser.randrange(3000) for _ in range(5000)]
        lifetimes = [
            Lifetime(int(2 ** chooser.uniform(8, 20)), start, start + chooser.randrange(100))
            for start in starts
        ]
    assert len(lifetimes) >= 3000
    plan = plan_slab(lifetimes)
    assert sum(compared) < 300 * len(compared)
    assert sum(compared) < 8_000_000
    plan.check(lifetimes)
    assert plan.overhead <= 0.10
