"""PyTorch as a learner of `time_to_accuracy`: the same LeNet, initial values, batches and update.

Its tuned settings are chosen by measuring, for each batch size: eager, channels-last, compiled, and both;
fused or foreach SGD. It is in a process of its own that has all cores.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
from peers import START_SECONDS, PeerError, PeerProcesses, peer_settings
from time_to_accuracy import MODEL, MOMENTUM, Goal, RunSetting, seeded_program

from tensorbow.data import BatchOrder, Dataset
from tensorbow.specs import Array

if TYPE_CHECKING:
    import torch

SIDE = "PyTorch"
EAGER = ("eager", "channels-last")
VARIANTS = (*EAGER, "compile", "compile, channels-last")
TRAIN_SECONDS = 3600.0  # longest time between two checks
LAYERS = {"0": "conv1", "3": "conv2", "7": "fc1", "9": "fc2"}  # of `models_torch` to ours
PICTURE = (64, 4, 4)  # channels, height, width of what the first dense layer reads
WARM_UP_STEPS = 4
EXAMPLES = 4096  # that its ways are measured on


def tuned(
    data: Dataset, batch_size: int, seconds: float, windows: int, variants: Collection[str]
) -> dict[str, Any]:
    """Examples per second of PyTorch's settings for a batch size, and the best of those with one process.

    Beside it `apart`: the best of as many processes as cores, each with its share of the batch. They train
    models of their own and never wait for each other: no data-parallel training on that batch is faster.
    """
    cores, examples = harness.cores(), data.batch(np.arange(min(EXAMPLES, len(data))))
    contestants: dict[str, PeerProcesses] = {}
    failed: dict[str, str] = {}
    try:
        for setting in peer_settings(MODEL, cores, False):
            share = batch_size // setting.processes
            if setting.library != "torch" or setting.variant not in variants or share < 1:
                continue
            try:
                contestants[setting.name] = PeerProcesses(setting, MODEL, share, examples)
            except PeerError as error:
                failed[setting.name] = str(error)
        rates = {n: m.median for n, m in harness.interleave(contestants, seconds, windows).items()}
        alone = [name for name, peer in contestants.items() if peer.setting.processes == 1]
        best = max(alone, key=lambda name: rates[name])
        together = [rates[name] for name in rates if name not in alone]
        return {
            "variant": contestants[best].setting.variant,
            "optimizer": contestants[best].chosen["optimizer"],
            "threads": contestants[best].setting.threads,
            "apart": round(max(together), 1) if together else None,
            "examples_per_second": {name: round(rate, 1) for name, rate in rates.items()},
            "failed": failed,
        }
    finally:
        for peer in contestants.values():
            peer.close()


class TorchProcess:
    """A `Learner` whose work is done by a `TorchLearner` in a process of its own."""

    def __init__(self, setting: RunSetting, goal: Goal, seed: int, choice: Mapping[str, Any]):
        """choice: as `tuned` gives it. Raises PeerError when the process does not come up."""
        started = time.perf_counter()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="PyTorch", daemon=True)
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
            raise PeerError(f"{SIDE}: no answer within {seconds:.0f} s")
        try:
            kind, content = self._pipe.recv()
        except EOFError:
            raise PeerError(f"{SIDE}: its process ended") from None
        if kind == "error":
            raise PeerError(f"{SIDE}: {content}")
        return content

    def close(self) -> None:
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection) -> None:
    """The life of the process: first what to learn, then epochs to train until, or None for the model."""
    try:
        setting, goal, seed, choice = pipe.recv()
        os.environ["OMP_NUM_THREADS"] = str(choice["threads"])  # read when the library is loaded
        learner = TorchLearner(setting, goal, seed, choice)
        pipe.send(("ready", None))
        while True:
            question = pipe.recv()
            answer = learner.model() if question is None else learner.train_until(question)
            pipe.send(("done", answer))
    except (EOFError, BrokenPipeError):
        return  # the other end has closed
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {str(error).strip()[:500]}"))


class TorchLearner:
    def __init__(self, setting: RunSetting, goal: Goal, seed: int, choice: Mapping[str, Any]):
        import torch
        from models_torch import torch_network

        torch.set_num_threads(choice["threads"])
        torch.set_flush_denormal(True)
        self._setting, self._choice = setting, choice
        self._order = BatchOrder(len(goal.train), setting.batch_size, seed)
        self._steps = 0
        pictures, answers = goal.train.batch()
        images = torch.from_numpy(pictures)  # NHWC, normalised once
        self._channels_last = "channels-last" in choice["variant"]
        self._images = images if self._channels_last else images.movedim(-1, 1).contiguous()
        self._labels = torch.from_numpy(answers)
        self._network = torch_network(MODEL)
        if self._channels_last:
            self._network = self._network.to(memory_format=torch.channels_last)

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self._network(x), y)

        compiled = choice["variant"].startswith("compile")
        self._loss = torch.compile(loss, dynamic=False) if compiled else loss
        self._start(seeded_program(goal.train, setting.learning_rate, seed).initial_values())
        for _ in range(WARM_UP_STEPS):  # compiles, allocates
            self._step()
        self._start(seeded_program(goal.train, setting.learning_rate, seed).initial_values())

    def _start(self, values: Mapping[str, Array]) -> None:
        """From these values, by our variables' names; with no velocity."""
        import torch

        with torch.no_grad():
            for name, weight in self._network.named_parameters():
                weight.copy_(torch.from_numpy(np.ascontiguousarray(_to_torch(_our_name(name), values))))
        self._optimizer = torch.optim.SGD(
            self._network.parameters(),
            lr=self._setting.learning_rate,
            momentum=MOMENTUM,
            **{self._choice["optimizer"]: True},
        )
        self._steps = 0

    def _step(self) -> torch.Tensor:
        import torch

        epoch, number = divmod(self._steps, self._order.batches_per_epoch)
        chosen = torch.from_numpy(np.array(self._order.indices(epoch, number)))
        images = self._images.index_select(0, chosen)
        images = images.movedim(-1, 1) if self._channels_last else images
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(images, self._labels.index_select(0, chosen))
        loss.backward()
        self._optimizer.step()
        self._steps += 1
        return loss.detach()

    def train_until(self, epochs: float) -> tuple[float, float]:
        import torch

        whole = self._order.batches_per_epoch
        stop = max(round(epochs * whole), self._steps + 1)
        losses = [self._step() for _ in range(stop - self._steps)]
        return stop / whole, float(torch.stack(losses).mean())

    def model(self) -> dict[str, Array]:
        """Its values by our variables' names, in our layout."""
        return {
            _our_name(name): _from_torch(_our_name(name), weight.detach().numpy())
            for name, weight in self._network.named_parameters()
        }


def _our_name(name: str) -> str:
    layer, kind = name.split(".")
    return f"{LAYERS[layer]}/{'weights' if kind == 'weight' else 'biases'}"


def _to_torch(name: str, values: Mapping[str, Array]) -> Array:
    """Ours are HWIO and [inputs, outputs], with pictures flattened as height, width, channels."""
    value = values[name]
    if value.ndim == 4:
        return np.transpose(value, (3, 2, 0, 1))
    if name == "fc1/weights":
        channels, height, width = PICTURE
        rows = value.reshape(height, width, channels, -1)
        return np.reshape(np.transpose(rows, (3, 2, 0, 1)), (value.shape[1], -1))
    return np.transpose(value)


def _from_torch(name: str, value: Array) -> Array:
    """The way back of `_to_torch`, as an array of its own."""
    if value.ndim == 4:
        value = value.transpose(2, 3, 1, 0)
    elif name == "fc1/weights":
        value = value.reshape(-1, *PICTURE).transpose(2, 3, 1, 0).reshape(-1, value.shape[0])
    else:
        value = value.T
    return np.array(value, order="C")
