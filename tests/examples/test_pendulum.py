"""The pendulum example: its dynamics, replay, projection, replicated step, and what it learns."""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbow as tb

STILL = 1e-12  # a learning rate
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "pendulum"


@pytest.fixture(autouse=True)
def siblings(monkeypatch):
    """Files of an example import one another by plain name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    with tb.Graph().as_default():
        yield


# Environment --------------------------------------------------------------------------------------


def energy(angle, speed):
    """Kinetic and potential energy of a uniform rod of 1 kg and 1 m that turns about its end."""
    return speed**2 / 6 + 10 * 0.5 * np.cos(angle)


@pytest.mark.parametrize("action", [0.0, 0.7])
def test_energy_changes_by_the_work_of_the_torque(monkeypatch, action):
    import pendulum

    monkeypatch.setattr(pendulum, "TIME_STEP_S", 1e-4)
    monkeypatch.setattr(pendulum, "GREATEST_SPEED", 100.0)  # slows none down
    pendulums = pendulum.Pendulums(20, np.random.default_rng(0))
    angle, speed = pendulums.angle, pendulums.speed
    for _ in range(5000):
        pendulums.step(np.full((20, 1), action))
    work = 2.0 * action * (pendulums.angle - angle)
    assert np.mean(np.abs(pendulums.angle - angle)) > 0.3
    change = energy(pendulums.angle, pendulums.speed) - energy(angle, speed)
    np.testing.assert_allclose(change, work, atol=3e-3)


@given(st.floats(-20, 20), st.floats(-8, 8), st.floats(-3, 3))
def test_a_step_and_its_reward_against_the_usual_formulas(angle, speed, action):
    from pendulum import Pendulums

    pendulums = Pendulums(1, np.random.default_rng(0))
    pendulums.angle, pendulums.speed = np.array([angle]), np.array([speed])
    (reward,) = pendulums.step(np.array([[action]]))
    torque = 2 * min(max(action, -1), 1)
    nearest = np.arctan2(np.sin(angle), np.cos(angle))
    assert reward == pytest.approx(-(nearest**2) - 0.1 * speed**2 - 0.001 * torque**2, abs=1e-6)
    speed = min(max(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -8), 8)
    assert pendulums.speed == pytest.approx([speed])
    assert pendulums.angle == pytest.approx([angle + 0.05 * speed])
    expected = [[np.cos(angle + 0.05 * speed), np.sin(angle + 0.05 * speed), speed / 8]]
    np.testing.assert_allclose(pendulums.observations(), expected, atol=1e-6)


@given(steps=st.integers(1, 9), n=st.integers(1, 12), seed=st.integers(0, 99))
def test_n_step_returns_against_a_loop(steps, n, seed):
    from pendulum import n_step_transitions

    rng = np.random.default_rng(seed)
    observations, actions = rng.normal(size=(steps + 1, 3, 2)), rng.normal(size=(steps, 3, 1))
    rewards = rng.normal(size=(steps, 3))
    found = n_step_transitions(observations, actions, rewards, n, 0.9)
    rows = []
    for t in range(steps):
        end = min(t + n, steps)
        for i in range(3):
            total = sum(0.9 ** (k - t) * rewards[k, i] for k in range(t, end))
            rows.append((observations[t, i], actions[t, i], total, 0.9 ** (end - t), observations[end, i]))
    for part, expected in zip(found, zip(*rows, strict=True), strict=True):
        assert part.dtype == np.float32
        np.testing.assert_allclose(part, np.array(expected), rtol=1e-5, atol=1e-6)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_the_buffer_keeps_the_newest(sizes):
    from pendulum import ReplayBuffer

    replay, added = ReplayBuffer(10), 0
    for size in sizes:
        numbers = np.arange(added, added + size)
        replay.add((numbers, np.stack([numbers, -numbers], 1)))
        added += size
    assert len(replay) == min(added, 10)
    numbers, pairs = replay.sample(np.random.default_rng(0), 500)
    assert set(numbers) == set(range(max(added - 10, 0), added))
    np.testing.assert_array_equal(pairs, np.stack([numbers, -numbers], 1))


# Agent --------------------------------------------------------------------------------------------


def projected_by_loop(probabilities, values, atoms):
    """Algorithm 1 of Bellemare et al. (2017)."""
    result = np.zeros((len(values), len(atoms)))
    for row, (weights, points) in enumerate(zip(probabilities, values, strict=True)):
        for weight, value in zip(weights, points, strict=True):
            position = (np.clip(value, atoms[0], atoms[-1]) - atoms[0]) / (atoms[1] - atoms[0])
            lower = min(int(np.floor(position)), len(atoms) - 2)
            result[row, lower] += weight * (lower + 1 - position)
            result[row, lower + 1] += weight * (position - lower)
    return result


@pytest.mark.slow
@given(
    batch=st.integers(1, 4),
    points=st.integers(1, 9),
    atom_count=st.integers(2, 12),
    lowest=st.floats(-100, 100),
    gap=st.floats(0.1, 10),
    seed=st.integers(0, 999),
)
def test_projection_against_a_loop_and_its_mass_and_mean(batch, points, atom_count, lowest, gap, seed):
    from d4pg import projected

    rng = np.random.default_rng(seed)
    atoms = (lowest + gap * np.arange(atom_count)).astype(np.float32)
    span = atoms[-1] - atoms[0]
    values = rng.uniform(atoms[0] - span / 2, atoms[-1] + span / 2, (batch, points)).astype(np.float32)
    probabilities = rng.dirichlet(np.ones(points), batch).astype(np.float32)
    with tb.Graph().as_default(), tb.Session() as session:
        found = session.run(projected(tb.constant(probabilities), tb.constant(values), atoms))
    near = 1e-3 if abs(lowest) > 10 * gap else 1e-4  # float32 rounds the distances from the atoms
    np.testing.assert_allclose(found, projected_by_loop(probabilities, values, atoms), atol=near)
    np.testing.assert_allclose(found.sum(1), 1, atol=near)
    mean = np.sum(probabilities * np.clip(values, atoms[0], atoms[-1]), 1)
    np.testing.assert_allclose(found @ atoms, mean, atol=near * max(1, np.abs(atoms).max()))


def transitions(seed, discount=0.9):
    """A batch of 16 as from the buffer, with observations of 3 and actions of 2."""
    rng = np.random.default_rng(seed)
    observations, next_observations = rng.normal(size=(2, 16, 3))
    actions, returns = rng.uniform(-1, 1, (16, 2)), rng.normal(size=16)
    parts = observations, actions, returns, np.full(16, discount), next_observations
    return tuple(part.astype(np.float32) for part in parts)


def trained(replicator, steps, batches=transitions, **options):
    """Losses by step, and all values, after training on batches that the replicas share."""
    from d4pg import D4pg

    with replicator.context():
        tb.set_random_seed(3)
        agent = D4pg(replicator, 3, 2, -4.0, 4.0, atoms=11, hidden=(8, 7), **options)
    losses = [
        {name: each.mean() for name, each in step.items()}
        for step in replicator.train(agent.step, lambda: map(batches, count()), steps, tb.PER_WORKER)
    ]
    return losses, replicator.central_values()


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_with_parts_of_a_batch_equal_one_with_the_whole(replicas):
    devices = [f"/cpu:{index}" for index in range(2)]
    several = tb.MultiGpuReplicator(devices, replicas // 2, sync="ssgd")
    losses, values = trained(several, 8)
    expected_losses, expected = trained(tb.NonReplicator(), 8)
    for found, wanted in zip(losses, expected_losses, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_targets_follow_the_weights_after_the_update():
    _, before = trained(tb.NonReplicator(), 0)
    _, after = trained(tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], sync="ssgd"), 1, target_rate=0.25)
    names = [name for name in before if name.startswith("target_")]
    assert len(names) == 12
    for name in names:
        source = name.removeprefix("target_")
        np.testing.assert_array_equal(before[name], before[source])
        assert not np.array_equal(after[source], before[source])
        expected = 0.75 * before[name] + 0.25 * after[source]
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("frozen", "trains"), [("actor", "critic"), ("critic", "actor")])
def test_each_loss_changes_its_own_weights_alone(frozen, trains):
    _, before = trained(tb.NonReplicator(), 0)
    _, after = trained(tb.NonReplicator(), 3, **{f"{frozen}_rate": STILL})
    moved = {name: np.abs(after[name] - value).max() for name, value in before.items()}
    assert max(change for name, change in moved.items() if name.startswith(f"{frozen}/")) < 1e-8
    assert min(change for name, change in moved.items() if name.startswith(f"{trains}/")) > 1e-4


@pytest.mark.slow
def test_training_improves_both_losses():
    replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"], sync="ssgd")
    batch = transitions(0, discount=0.1)
    losses, _ = trained(replicator, 150, lambda step: batch, critic_rate=0.01)
    assert losses[-1]["critic"] < 0.7 * losses[0]["critic"]
    losses, _ = trained(tb.NonReplicator(), 50, lambda step: batch, critic_rate=STILL, actor_rate=0.01)
    assert losses[-1]["actor"] < losses[0]["actor"] - 0.03


# Program ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_program_writes_the_same_curve_again(tmp_path, monkeypatch, capsys):
    import train_pendulum

    written = []
    for name in ("first", "second"):
        words = ["train_pendulum.py", "--seeds", "2", "--steps", "50", "--output", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", words)
        train_pendulum.main()
        written.append((tmp_path / name / "learning_curve.json").read_text())
        assert (tmp_path / name / "learning_curve.png").stat().st_size > 1000
    assert written[0] == written[1]
    curves = json.loads(written[0])["curves"]
    assert [[row["step"] for row in curve] for curve in curves] == [[40, 80]] * 2
    assert curves[0] != curves[1]
    assert "not above -200" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--replicas", "3"], ["--seeds", "0"], ["--steps", "-1"]])
def test_options_out_of_range_are_refused(words, monkeypatch, capsys):
    import train_pendulum

    monkeypatch.setattr(sys, "argv", ["train_pendulum.py", *words])
    with pytest.raises(SystemExit):
        train_pendulum.main()
    assert words[0] in capsys.readouterr().err


def test_the_goal_counts_from_where_returns_stay_above_it():
    from train_pendulum import steps_to_goal

    def curve(*returns):
        return [{"step": 40 * (index + 1), "return": value} for index, value in enumerate(returns)]

    assert steps_to_goal(curve(-150.0, -300.0, -199.0, -180.0)) == 120
    assert steps_to_goal(curve(-150.0)) == 40
    assert steps_to_goal(curve(-150.0, -300.0)) == float("inf")


def best_returns(pendulums, steps):
    """Greatest sums of rewards by dynamic programming over a grid of angles, speeds and torques."""
    angles, speeds, torques = 151, 121, 11
    angle = np.linspace(-np.pi, np.pi, angles, endpoint=False)[:, None, None]
    speed, torque = np.linspace(-8, 8, speeds)[:, None], np.linspace(-2, 2, torques)
    rewards = -(angle**2) - 0.1 * speed**2 - 0.001 * torque**2
    next_speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)

    def reader(angle, speed):
        """Function that interpolates a table at states."""
        i, j = (angle + np.pi) % (2 * np.pi) / (2 * np.pi) * angles, (speed + 8) / 16 * (speeds - 1)
        i0, j0 = i.astype(int), np.minimum(j.astype(int), speeds - 2)
        di, dj = i - i0, j - j0
        corners = [((i0 + a) % angles, j0 + b) for a in (0, 1) for b in (0, 1)]
        shares = [x * y for x in (1 - di, di) for y in (1 - dj, dj)]
        return lambda table: sum(s * table[c] for c, s in zip(corners, shares, strict=True))

    successor, values = reader(angle + 0.05 * next_speed, next_speed), np.zeros((angles, speeds))
    for _ in range(steps):
        values = np.max(rewards + successor(values), 2)
    return reader(pendulums.angle, pendulums.speed)(values)


@pytest.mark.slow
def test_the_trained_policy_is_nearly_the_best():
    from pendulum import EPISODE, Pendulums, episode_returns
    from train_pendulum import EVALUATION_EPISODES, random_policy, train

    best = best_returns(Pendulums(EVALUATION_EPISODES, np.random.default_rng(0)), EPISODE).mean()
    random = episode_returns(random_policy(np.random.default_rng(0)), EVALUATION_EPISODES, seed=0).mean()
    *_, last = train(seed=1, replicas=2, steps=3000)
    assert random < -1000
    assert 1.25 * best < last["return"] < 0.98 * best
