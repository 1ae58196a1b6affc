"""Settings of the peers, each in processes of its own that wait at a pipe between two windows.

A setting is a library, a variant of its use, and a division of the cores: one process with all of them, or
one pinned process with one thread for each, which bounds the rate of two models trained side by side. Rates
of processes are summed over the same window. A peer's processes share no threads, memory allocator or
interpreter lock with other contestants. They load nothing of TensorBow, provided that the script which starts
them imports it inside functions only: a new process imports that script.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

LOOK_SECONDS = 0.05  # between two looks at the clock
START_SECONDS = 600.0  # to import, compile and choose
REPLY_SECONDS = 300.0  # over the window: threads that spin at barriers are slow on a busy machine
SCANNED_STEPS = 64
UNROLLED_STEPS = 4  # of a model with convolutions, where they are tried


@dataclass(frozen=True)
class PeerSetting:
    """variant: PyTorch's as in `torch_trainer`; JAX's `jit`. threads: of each process."""

    library: str
    variant: str
    processes: int
    threads: int
    steps_per_call: int = 1

    @property
    def name(self) -> str:
        """Name of the setting in tables."""
        library = {"torch": "PyTorch", "jax": "JAX"}[self.library]
        call = f", {self.steps_per_call} steps a call" if self.steps_per_call > 1 else ""
        cores = (
            f"{self.processes} processes"
            if self.processes > 1
            else f"{self.threads} thread{'s' * (self.threads > 1)}"
        )
        return f"{library} {self.variant}{call}, {cores}"


def peer_settings(model: str, cores: int, scanned: bool) -> list[PeerSetting]:
    """Settings tried for a model on so many cores; none of libraries that are not installed.

    scanned: also try many steps per call; with JAX only for models without convolutions, which XLA runs
    several times slower within a loop on a CPU.
    """
    spread = [(1, cores), (cores, 1)] if cores > 1 else [(1, 1)]
    settings = []
    if find_spec("torch") is not None:
        variants = ["eager", "compile"]
        if model != "logreg":
            variants += ["channels-last", "compile, channels-last"]
        settings += [PeerSetting("torch", v, p, t) for v in variants for p, t in spread]
    if find_spec("jax") is not None:
        settings += [PeerSetting("jax", "jit", p, t) for p, t in spread]
        if scanned and model == "logreg":
            settings += [PeerSetting("jax", "jit", p, t, SCANNED_STEPS) for p, t in spread]
    return settings


class PeerError(RuntimeError):
    """A peer did not start, or failed in a window; has the peer's message."""


class PeerProcesses:
    """Processes of one setting; a call with seconds trains in all of them and returns images per second.

    chosen: the first process's choice by measurement, for the result.
    Raises PeerError when they do not start, or when one fails.
    """

    def __init__(self, setting: PeerSetting, model: str, batch_size: int, examples: tuple[Any, Any]):
        """examples: images float32 [examples, height, width, channels], labels int64 [examples]."""
        self.setting = setting
        context = multiprocessing.get_context("spawn")
        self._processes, self._pipes = [], list[Connection]()
        for number, core in enumerate(_cores(setting.processes)):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(theirs, setting, model, batch_size, examples, core),
                name=f"peer {number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)
        try:
            answers = [self._answer(pipe, START_SECONDS) for pipe in self._pipes]
        except BaseException:
            self.close()
            raise
        self.chosen: dict[str, Any] = answers[0]

    def __call__(self, seconds: float) -> float:
        for pipe in self._pipes:
            pipe.send(seconds)
        return float(sum(self._answer(pipe, seconds + REPLY_SECONDS) for pipe in self._pipes))

    def _answer(self, pipe: Connection, seconds: float) -> Any:
        if not pipe.poll(seconds):
            raise PeerError(f"{self.setting.name}: no answer within {seconds:.0f} s")
        try:
            kind, content = pipe.recv()
        except EOFError:
            raise PeerError(f"{self.setting.name}: its process ended") from None
        if kind == "error":
            raise PeerError(f"{self.setting.name}: {content}")
        return content

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _cores(processes: int) -> list[int | None]:
    """Core that each process is pinned to; None where it uses all, or where the system cannot pin."""
    if processes == 1 or not hasattr(os, "sched_getaffinity"):
        return [None] * processes
    allowed = sorted(os.sched_getaffinity(0))
    return [allowed[number % len(allowed)] for number in range(processes)]


def _serve(
    pipe: Connection,
    setting: PeerSetting,
    model: str,
    batch_size: int,
    examples: tuple[Any, Any],
    core: int | None,
) -> None:
    """Main function of a process: makes the trainer, reports its choice, runs a window for each message."""
    try:
        if core is not None:
            os.sched_setaffinity(0, {core})
        os.environ["OMP_NUM_THREADS"] = str(setting.threads)  # read when the library is loaded
        run, chosen = _trainer(setting, model, batch_size, examples)
        window = timed(run, batch_size)
        window(LOOK_SECONDS)
        pipe.send(("ready", chosen))
        while True:
            pipe.send(("rate", window(pipe.recv())))
    except (EOFError, BrokenPipeError):
        return  # the other end has closed
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {str(error).strip()[:500]}"))


def _trainer(
    setting: PeerSetting, model: str, batch_size: int, examples: tuple[Any, Any]
) -> tuple[Callable[[int], float], dict[str, Any]]:
    if setting.library == "torch":
        from peers_torch import torch_trainer

        return torch_trainer(model, setting.variant, batch_size, setting.threads, examples)
    from peers_jax import jax_trainer

    return jax_trainer(model, batch_size, setting.steps_per_call, examples)


def timed(run: Callable[[int], float], batch_size: int) -> Callable[[float], float]:
    """Window that ends at a given time, so that the windows of several processes coincide.

    run(n) makes n steps and returns the last loss. Raises FloatingPointError when that is not finite, since
    the rate would mean nothing.
    """
    at_once = 1

    def window(seconds: float) -> float:
        nonlocal at_once
        steps, started = 0, time.perf_counter()
        elapsed = 0.0
        while elapsed < seconds:
            loss = run(at_once)
            steps += at_once
            elapsed = time.perf_counter() - started
            at_once = max(1, round(steps / elapsed * min(LOOK_SECONDS, seconds)))
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss}")
        return steps * batch_size / elapsed

    return window
