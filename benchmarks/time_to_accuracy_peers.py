"""The peers as learners of `time_to_accuracy`: each in a process of its own that has all cores.

Their settings are tuned by measuring, for each batch size. PyTorch: eager, channels-last, compiled, and both;
fused or foreach SGD. JAX: one step per call, or a few unrolled ones.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import harness
import numpy as np
from peers import (
    START_SECONDS,
    UNROLLED_STEPS,
    PeerError,
    PeerProcesses,
    PeerSetting,
    peer_settings,
)
from time_to_accuracy import MODEL, Goal, RunSetting

from tensorbow.data import Dataset
from tensorbow.specs import Array

LIBRARIES = {"PyTorch": "torch", "JAX": "jax"}
"""Imported package of each side."""
EAGER = ("eager", "channels-last", "jit")
VARIANTS = (*EAGER, "compile", "compile, channels-last")
TRAIN_SECONDS = 3600.0  # longest time between two checks
EXAMPLES = 4096  # for measuring the settings


def ways(side: str, variants: Collection[str]) -> list[PeerSetting]:
    """Settings of a peer to be tried: one process with all cores, and one process for each core."""
    library = LIBRARIES[side]
    usual = [
        setting
        for setting in peer_settings(MODEL, harness.cores(), False)
        if setting.library == library and setting.variant in variants
    ]
    if library != "jax":
        return usual
    few = [PeerSetting(library, s.variant, s.processes, s.threads, UNROLLED_STEPS) for s in usual]
    return [*usual, *few]


def tuned(
    side: str, data: Dataset, batch_size: int, seconds: float, windows: int, variants: Collection[str]
) -> dict[str, Any]:
    """Examples per second of a peer's settings at a batch size, and the best setting of one process.

    `apart`: best summed rate of one process per core, each with its share of the batch. These train separate
    models and never wait for each other, so no data-parallel training on that batch is faster.
    """
    examples = data.batch(np.arange(min(EXAMPLES, len(data))))
    contestants: dict[str, PeerProcesses] = {}
    failed: dict[str, str] = {}
    try:
        for setting in ways(side, variants):
            share = batch_size // setting.processes
            if share < 1:
                continue
            try:
                contestants[setting.name] = PeerProcesses(setting, MODEL, share, examples)
            except PeerError as error:
                failed[setting.name] = str(error)
        rates = {n: m.median for n, m in harness.interleave(contestants, seconds, windows).items()}
        alone = [name for name, peer in contestants.items() if peer.setting.processes == 1]
        if not alone:
            raise PeerError(f"{side}: no setting with one process came up: {failed}")
        best = max(alone, key=lambda name: rates[name])
        together = [rates[name] for name in rates if name not in alone]
        return {
            "variant": contestants[best].setting.variant,
            "optimizer": contestants[best].chosen.get("optimizer"),
            "steps_per_call": contestants[best].setting.steps_per_call,
            "threads": contestants[best].setting.threads,
            "apart": round(max(together), 1) if together else None,
            "examples_per_second": {name: round(rate, 1) for name, rate in rates.items()},
            "failed": failed,
        }
    finally:
        for peer in contestants.values():
            peer.close()


class PeerLearner:
    """`Learner` that delegates to a `TorchLearner` or a `JaxLearner` in a process of its own."""

    def __init__(self, setting: RunSetting, goal: Goal, seed: int, choice: Mapping[str, Any]):
        """choice: from `tuned`. Raises PeerError when the process does not start."""
        started, self._side = time.perf_counter(), setting.side
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name=setting.side, daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._ask((setting, goal, seed, dict(choice)), START_SECONDS)
        except BaseException:
            self.close()
            raise
        self.setup_seconds = time.perf_counter() - started

    def train_until(self, epochs: float) -> tuple[float, float]:
        done, loss = self._ask(epochs, TRAIN_SECONDS)
        return float(done), float(loss)

    def models(self) -> Sequence[Mapping[str, Array]]:
        return [self._ask(None, START_SECONDS)]

    def _ask(self, question: object, seconds: float) -> Any:
        self._pipe.send(question)
        if not self._pipe.poll(seconds):
            raise PeerError(f"{self._side}: no answer within {seconds:.0f} s")
        try:
            kind, content = self._pipe.recv()
        except EOFError:
            raise PeerError(f"{self._side}: its process ended") from None
        if kind == "error":
            raise PeerError(f"{self._side}: {content}")
        return content

    def close(self) -> None:
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection) -> None:
    """Main function: receives the setting, then epochs to train until, or None to send the model."""
    try:
        setting, goal, seed, choice = pipe.recv()
        os.environ["OMP_NUM_THREADS"] = str(choice["threads"])  # read when the library is loaded
        learner = _learner(setting, goal, seed, choice)
        pipe.send(("ready", None))
        while True:
            question = pipe.recv()
            answer = learner.model() if question is None else learner.train_until(question)
            pipe.send(("done", answer))
    except (EOFError, BrokenPipeError):
        return  # the other end has closed
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {str(error).strip()[:500]}"))


def _learner(setting: RunSetting, goal: Goal, seed: int, choice: Mapping[str, Any]) -> Any:
    """Learner of this process; imports its library."""
    if LIBRARIES[setting.side] == "torch":
        from time_to_accuracy_torch import TorchLearner

        return TorchLearner(setting, goal, seed, choice)
    from time_to_accuracy_jax import JaxLearner

    return JaxLearner(setting, goal, seed, choice)
