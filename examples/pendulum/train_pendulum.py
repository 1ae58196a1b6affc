"""Train D4PG on a pendulum swing-up with several replicas and several actors; draw the learning curve.

    python examples/pendulum/train_pendulum.py --replicas 2 --seeds 3 --output runs/pendulum

The learner's replicas share each batch from the replay buffer and apply the mean of their gradients. While
they take 40 steps, actor threads, each with pendulums of its own, follow the policy from before these steps;
what they have seen is added to the buffer afterwards. A seed gives the same bits in every run, whatever the
timing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np
from d4pg import D4pg
from pendulum import (
    ACTION_SIZE,
    EPISODE,
    OBSERVATION_SIZE,
    Pendulums,
    Policy,
    ReplayBuffer,
    episode_returns,
    n_step_transitions,
)

import tensorbow as tb

GOAL = -200.0  # mean return of an episode
LOWEST_RETURN, HIGHEST_RETURN = -500.0, 0.0  # ends of the critic's atoms, for discounted returns
GAMMA, N_STEPS = 0.99, 5
CAPACITY, BATCH_SIZE = 100_000, 128  # transitions in the buffer, and in a batch of all replicas
ACTORS, PENDULUMS = 4, 2  # threads that act, pendulums of each
ACTED, LEARNED = 20, 40  # steps of each pendulum while the learner takes so many
NOISE = 0.3  # standard deviation in the actions, of the greatest torque
EVALUATION_EPISODES = 32


def random_policy(rng: np.random.Generator) -> Policy:
    """A policy that draws torques uniformly."""
    return lambda observations: rng.uniform(-1, 1, (len(observations), ACTION_SIZE))


def train(seed: int, replicas: int, steps: int) -> Iterator[dict[str, float]]:
    """Trains; yields every 40 steps the step, the mean return of the policy without noise, and the losses."""
    rng, *actor_rngs = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(1 + ACTORS))
    actors = [Pendulums(PENDULUMS, each) for each in actor_rngs]
    replay = ReplayBuffer(CAPACITY)
    for actor in actors:  # building the step draws a first batch
        replay.add(n_step_transitions(*actor.act(random_policy(rng), EPISODE), N_STEPS, GAMMA))

    replicator = tb.MultiGpuReplicator([f"/cpu:{index}" for index in range(replicas)], sync="ssgd")
    with replicator.context():
        tb.set_random_seed(seed)
        agent = D4pg(replicator, OBSERVATION_SIZE, ACTION_SIZE, LOWEST_RETURN, HIGHEST_RETURN)
        seen = tb.placeholder(tb.float32, [None, OBSERVATION_SIZE])
        actions = agent.policy(seen, agent.actor)

    def input_fn(context):
        rng = np.random.default_rng([seed, context.replica_id])
        return lambda: replay.sample(rng, context.per_replica_batch_size(BATCH_SIZE))

    # prefetch=0: batches drawn ahead would miss what is added to the buffer meanwhile, depending on timing
    losses_of_replicas = replicator.run(agent.step, input_fn, prefetch=0)
    mean_losses = {name: tb.reduce_mean(losses) for name, losses in losses_of_replicas.items()}
    with (
        replicator,
        tb.Session() as learner,
        tb.Session(graph=replicator.graph) as acting,
        ThreadPoolExecutor(ACTORS) as threads,
    ):
        replicator.init(learner)

        def policy(observations):  # called by all actors at once, as nothing that they run writes variables
            return acting.run(actions, {seen: observations})

        acting.load_variables(replicator.central_values())
        for step in range(LEARNED, steps + LEARNED, LEARNED):
            experience = [threads.submit(actor.act, policy, ACTED, NOISE) for actor in actors]
            for _ in range(LEARNED):
                losses = learner.run(mean_losses)
            for each in experience:
                replay.add(n_step_transitions(*each.result(), N_STEPS, GAMMA))
            acting.load_variables(replicator.central_values())
            returns = episode_returns(policy, EVALUATION_EPISODES, seed=0)
            yield {"step": step, "return": returns.mean(), **losses}


def steps_to_goal(curve: list[dict[str, float]]) -> float:
    """Step from which on all mean returns are above the goal; infinite if the last one is not."""
    missed = [index for index, row in enumerate(curve) if row["return"] <= GOAL]
    rest = curve[missed[-1] + 1 :] if missed else curve
    return rest[0]["step"] if rest else math.inf


def draw(curves: list[list[dict[str, float]]], random_return: float, path: Path) -> None:
    """Draws the mean over the seeds, and their range, against the learner's steps."""
    from matplotlib.figure import Figure

    steps = [row["step"] for row in curves[0]]
    returns = np.array([[row["return"] for row in curve] for curve in curves])
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    label = f"range of {len(curves)} seeds"
    axes.fill_between(steps, returns.min(0), returns.max(0), alpha=0.25, label=label)
    axes.plot(steps, returns.mean(0), label="mean")
    axes.axhline(GOAL, color="black", linestyle="--", linewidth=1, label=f"goal: {GOAL:g}")
    axes.axhline(random_return, color="gray", linestyle=":", label="random policy")
    axes.set(xlabel="step of the learner", ylabel=f"return, mean of {EVALUATION_EPISODES} episodes")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=100)


def positive(text: str) -> int:
    """A whole number of at least 1. Raises ValueError."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def main() -> None:
    """Runs the program with the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--replicas", type=positive, default=2, help=f"replicas, a divisor of {BATCH_SIZE} (2)")
    add("--seeds", type=positive, default=3, help="number of runs; their seeds are 0, 1, ... (3)")
    add("--steps", type=positive, default=3000, help=f"of the learner, rounded up to {LEARNED}s (3000)")
    add("--output", type=Path, default=Path("runs/pendulum"), help="folder for results (runs/pendulum)")
    options = parser.parse_args()
    if BATCH_SIZE % options.replicas:
        parser.error(f"--replicas: expected a divisor of the batch size {BATCH_SIZE}, got {options.replicas}")
    try:
        run(options)
    except tb.TensorBowError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except OSError as error:
        why = f"cannot write {error.filename}: {error.strerror}; give another folder by --output"
        parser.exit(2, f"{parser.prog}: error: {why}\n")


def run(options: argparse.Namespace) -> None:
    """Trains with all seeds; writes `learning_curve.json`, and `learning_curve.png` given matplotlib."""
    options.output.mkdir(parents=True, exist_ok=True)
    at_random = random_policy(np.random.default_rng(0))
    random_return = episode_returns(at_random, EVALUATION_EPISODES, seed=0).mean()
    print(f"random policy: return {random_return:.0f}")
    curves: list[list[dict[str, float]]] = []
    for seed in range(options.seeds):
        began, curve = perf_counter(), []
        with tb.Graph().as_default():
            for row in train(seed, options.replicas, options.steps):
                curve.append(row)
                if row["step"] % 400 == 0:
                    print("  ".join(f"{name} {value:.5g}" for name, value in row.items()))
        reached, seconds = steps_to_goal(curve), perf_counter() - began
        end = f"above {GOAL:g} from step {reached} on" if reached < math.inf else f"not above {GOAL:g}"
        print(f"seed {seed}: return {row['return']:.0f}, {end}; {seconds:.1f} s")
        curves.append(curve)
    results = {"random_return": random_return, "curves": curves}
    (options.output / "learning_curve.json").write_text(json.dumps(results, default=float))
    if find_spec("matplotlib"):
        draw(curves, random_return, options.output / "learning_curve.png")


if __name__ == "__main__":
    main()
