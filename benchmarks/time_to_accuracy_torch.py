"""PyTorch as a learner of `time_to_accuracy`: the same LeNet, initial values, batches and update.

It runs in a process of its own that has all cores (see `time_to_accuracy_peers`, which also tunes it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from time_to_accuracy import MODEL, MOMENTUM, Goal, RunSetting, seeded_program

from tensorbow.data import BatchOrder
from tensorbow.specs import Array

if TYPE_CHECKING:
    import torch

LAYERS = {"0": "conv1", "3": "conv2", "7": "fc1", "9": "fc2"}  # of `models_torch` to ours
PICTURE = (64, 4, 4)  # channels, height, width of what the first dense layer reads
WARM_UP_STEPS = 4


class TorchLearner:
    def __init__(self, setting: RunSetting, goal: Goal, seed: int, choice: Mapping[str, Any]):
        import torch
        from models_torch import torch_network

        torch.set_num_threads(choice["threads"])
        torch.set_flush_denormal(True)
        self._setting, self._choice = setting, choice
        self._order = BatchOrder(len(goal.train), setting.batch_size, seed)
        self._rate = goal.rate(setting, self._order.batches_per_epoch)
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
        """Sets these values, by our variables' names, and velocities to zero."""
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
        if self._rate is not None:
            self._optimizer.param_groups[0]["lr"] = self._rate(self._steps)
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
        """Values by our variables' names, in our layout."""
        return {
            _our_name(name): _from_torch(_our_name(name), weight.detach().numpy())
            for name, weight in self._network.named_parameters()
        }


def _our_name(name: str) -> str:
    layer, kind = name.split(".")
    return f"{LAYERS[layer]}/{'weights' if kind == 'weight' else 'biases'}"


def _to_torch(name: str, values: Mapping[str, Array]) -> Array:
    """Converts to PyTorch's layout.

    Ours is HWIO and [inputs, outputs], with pictures flattened as height, width, channels.
    """
    value = values[name]
    if value.ndim == 4:
        return np.transpose(value, (3, 2, 0, 1))
    if name == "fc1/weights":
        channels, height, width = PICTURE
        rows = value.reshape(height, width, channels, -1)
        return np.reshape(np.transpose(rows, (3, 2, 0, 1)), (value.shape[1], -1))
    return np.transpose(value)


def _from_torch(name: str, value: Array) -> Array:
    """Inverse of `_to_torch`, as a new array."""
    if value.ndim == 4:
        value = value.transpose(2, 3, 1, 0)
    elif name == "fc1/weights":
        value = value.reshape(-1, *PICTURE).transpose(2, 3, 1, 0).reshape(-1, value.shape[0])
    else:
        value = value.T
    return np.array(value, order="C")
