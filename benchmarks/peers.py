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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
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
    """variant: a variant of `torch_trainer` for PyTorch; always `jit` for JAX. threads: of each process.

    steps_per_call: of JAX; PyTorch is called for every step.
    """

    library: str
    variant: str
    processes: int
    threads: int
    steps_per_call: int = 1

    @property
    def name(self) -> str:
        """Name of the setting in tables."""
        library = {"torch": "PyTorch", "jax": "JAX"}[self.library]
        scanned = self.steps_per_call > 1 and self.library == "jax"
        call = f", {self.steps_per_call} steps a call" if scanned else ""
        cores = (
            f"{self.processes} processes"
            if self.processes > 1
            else f"{self.threads} thread{'s' * (self.threads > 1)}"
        )
        return f"{library} {self.variant}{call}, {cores}"

    def trainer(
        self, model: str, batch_size: int, examples: tuple[Any, Any]
    ) -> tuple[Callable[[int], float], dict[str, Any]]:
        """Function that trains so many steps and returns the last loss; and what it has chosen by timing."""
        if self.library == "torch":
            from peers_torch import torch_trainer

            return torch_trainer(model, self.variant, batch_size, self.threads, examples)
        from peers_jax import jax_trainer

        return jax_trainer(model, batch_size, self.steps_per_call, examples)


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


class PeerProcess:
    """Process that answers questions, in their order; after an error it is closed and answers no more."""

    def __init__(self, name: str, make: Callable[..., tuple[Any, Callable[[Any], Any]]], *arguments: Any):
        """make: called with `arguments` in the process; returns the first answer and the answering function.

        name: for messages. Raises PeerError when the process does not start.
        """
        context = multiprocessing.get_context("spawn")
        self._name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, make, *arguments), name=name, daemon=True
        )
        try:
            self._process.start()
        except OSError as error:
            self._pipe.close()
            raise PeerError(f"{name}: its process did not start: {error}") from None
        finally:
            theirs.close()

    def ask(self, question: object) -> None:
        """Sends a question. Raises PeerError when the process has ended."""
        try:
            self._pipe.send(question)
        except OSError:
            self.close()
            raise PeerError(f"{self._name}: its process ended") from None

    def answer(self, seconds: float) -> Any:
        """Waits for the next answer. Raises PeerError for an error, after so many seconds, or at the end."""
        kind, content = "error", f"no answer within {seconds:.0f} s"
        try:
            if self._pipe.poll(seconds):
                kind, content = self._pipe.recv()
        except (EOFError, OSError):
            content = "its process ended"
        if kind == "error":
            self.close()
            raise PeerError(f"{self._name}: {content}")
        return content

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class PeerProcesses:
    """Processes of one setting; a call with seconds trains in all of them and returns images per second.

    chosen: settings that the first process chose by measurement, stored with the result.
    Raises PeerError when they do not start, or when one fails: then all are closed, and further calls fail.
    """

    def __init__(self, setting: PeerSetting, model: str, batch_size: int, examples: tuple[Any, Any]):
        """examples: images float32 [examples, height, width, channels], labels int64 [examples]."""
        self.setting = setting
        self._processes: list[PeerProcess] = []
        try:
            for core in _cores(setting.processes):
                arguments = setting, model, batch_size, examples, core
                self._processes.append(PeerProcess(setting.name, _pinned_window, *arguments))
            answers = [process.answer(START_SECONDS) for process in self._processes]
        except BaseException:
            self.close()
            raise
        self.chosen: dict[str, Any] = answers[0]

    def __call__(self, seconds: float) -> float:
        try:
            for process in self._processes:
                process.ask(seconds)
            return float(sum(process.answer(seconds + REPLY_SECONDS) for process in self._processes))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            process.close()


def open_peers(
    stack: ExitStack, model: str, batch_sizes: Mapping[PeerSetting, int], examples: tuple[Any, Any]
) -> tuple[dict[str, PeerProcesses], dict[str, str]]:
    """Processes of the settings that start, which the stack closes; and why others do not. Both by name.

    batch_sizes: of each process, by setting. examples: as of `PeerProcesses`.
    """
    started: dict[str, PeerProcesses] = {}
    missing: dict[str, str] = {}
    for setting, batch_size in batch_sizes.items():
        try:
            peer = PeerProcesses(setting, model, batch_size, examples)
        except PeerError as error:
            missing[setting.name] = str(error)
            print(f"left out: {error}", flush=True)
            continue
        stack.callback(peer.close)
        started[setting.name] = peer
    return started, missing


def _cores(processes: int) -> list[int | None]:
    """Core that each process is pinned to; None where it uses all, or where the system cannot pin."""
    if processes == 1 or not hasattr(os, "sched_getaffinity"):
        return [None] * processes
    allowed = sorted(os.sched_getaffinity(0))
    return [allowed[number % len(allowed)] for number in range(processes)]


def _serve(pipe: Connection, make: Callable[..., tuple[Any, Callable[[Any], Any]]], *arguments: Any) -> None:
    """Main function of a process: sends the first answer, then one to each message, or an error."""
    try:
        first, answer = make(*arguments)
        pipe.send(("answer", first))
        while True:
            pipe.send(("answer", answer(pipe.recv())))
    except (EOFError, ConnectionError):
        return  # the other end has closed
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {str(error).strip()[:500]}"))


def _pinned_window(
    setting: PeerSetting, model: str, batch_size: int, examples: tuple[Any, Any], core: int | None
) -> tuple[dict[str, Any], Callable[[float], float]]:
    """Trainer's choice and its window, after a first one, in a process pinned to a core unless None."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    os.environ["OMP_NUM_THREADS"] = str(setting.threads)  # read when the library is loaded
    run, chosen = setting.trainer(model, batch_size, examples)
    window = timed(run, batch_size)
    window(LOOK_SECONDS)
    return chosen, window


def timed(run: Callable[[int], float], batch_size: int) -> Callable[[float], float]:
    """Window of at least the given duration; windows of several processes overlap up to one call.

    run(n) makes n steps and returns the last loss. Raises FloatingPointError when that is not finite, since
    the rate would mean nothing.
    """
    at_once = 1

    def window(seconds: float) -> float:
        nonlocal at_once
        steps, started = 0, time.perf_counter()
        while True:
            loss = run(at_once)
            steps += at_once
            elapsed = time.perf_counter() - started
            at_once = max(1, round(steps / elapsed * min(LOOK_SECONDS, seconds)))
            if elapsed >= seconds:
                break
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss}")
        return steps * batch_size / elapsed

    return window
