"""PyTorch as a peer on the CPU: eager, channels-last, or compiled; in a process of its own (see `peers`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from harness import LEARNING_RATE, MOMENTUM
from models_torch import torch_network
from torch import nn

OPTIMIZERS: dict[str, dict[str, bool]] = {"fused": {"fused": True}, "foreach": {"foreach": True}}
TRIAL_SECONDS, TRIALS = 0.15, 3  # of each optimiser, in turn


def torch_trainer(
    model: str, variant: str, batch_size: int, threads: int, examples: tuple[Any, Any]
) -> tuple[Callable[[int], float], dict[str, Any]]:
    """Function that trains so many steps and returns the last loss; and the chosen SGD.

    variant: `eager`, `channels-last`, `compile` or `compile, channels-last`; with `bf16` behind it, products
    and convolutions of bfloat16 (`torch.autocast`). examples: images float32
    [examples, height, width, channels], labels int64 [examples]. Uses the faster of PyTorch's two fast
    implementations of SGD.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    trainer = _Trainer(model, variant, batch_size, examples)
    rates = dict.fromkeys(OPTIMIZERS, 0.0)
    for name in OPTIMIZERS:
        trainer.use_optimizer(name)
        trainer.run(4)  # compiles, allocates
    for _ in range(TRIALS):
        for name in OPTIMIZERS:
            trainer.use_optimizer(name)
            started, steps = time.perf_counter(), 0
            while time.perf_counter() - started < TRIAL_SECONDS:
                trainer.run(1)
                steps += 1
            rates[name] = max(rates[name], steps / (time.perf_counter() - started))
    chosen = max(rates, key=lambda name: rates[name])
    trainer.use_optimizer(chosen)
    return trainer.run, {"optimizer": chosen, "threads": torch.get_num_threads()}


class _Trainer:
    def __init__(self, model: str, variant: str, batch_size: int, examples: tuple[Any, Any]):
        self._batch_size = batch_size
        self._channels_last = "channels-last" in variant
        network: Any = torch_network(model)
        if self._channels_last:
            network = network.to(memory_format=torch.channels_last)
        self._weights = list(network.parameters())
        pictures, answers = examples
        images = torch.from_numpy(pictures)  # NHWC
        self._images = images if self._channels_last else images.movedim(-1, 1).contiguous()
        self._labels = torch.from_numpy(answers)
        self._order, self._position = torch.randperm(len(answers)), 0

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in variant):
                logits = network(x)
            return nn.functional.cross_entropy(logits.float(), y)

        self._loss = torch.compile(loss, dynamic=False) if variant.startswith("compile") else loss

    def use_optimizer(self, name: str) -> None:
        self._optimizer = torch.optim.SGD(
            self._weights, lr=LEARNING_RATE, momentum=MOMENTUM, **OPTIMIZERS[name]
        )

    def run(self, steps: int) -> float:
        loss: Any = None
        for _ in range(steps):
            images, labels = self._batch()
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._loss(images, labels)
            loss.backward()
            self._optimizer.step()
        return float(loss.detach())

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Next examples of the epoch's order, gathered."""
        if self._position + self._batch_size > len(self._order):
            self._order, self._position = torch.randperm(len(self._order)), 0
        chosen = self._order[self._position : self._position + self._batch_size]
        self._position += self._batch_size
        images = self._images.index_select(0, chosen)
        return images.movedim(-1, 1) if self._channels_last else images, self._labels.index_select(0, chosen)
