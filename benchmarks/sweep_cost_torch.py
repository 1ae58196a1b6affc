"""One member of `sweep_cost.py` by PyTorch: a script that trains a network of 784-128-10 units and ends.

    python benchmarks/sweep_cost_torch.py DATA.npz LEARNING_RATE SEED EPOCHS BATCH_SIZE

Prints validation and test accuracy. Data are arrays train, validation and test: `*_images` float32
[examples, 784], `*_labels` int64 [examples].
"""

from __future__ import annotations

import sys

import numpy as np
import torch

HIDDEN, CLASSES, MOMENTUM = 128, 10, 0.9


def main(file: str, rate: float, seed: int, epochs: int, batch_size: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # as many scripts as cores run at a time
    data = {name: torch.from_numpy(array) for name, array in np.load(file).items()}
    images, labels = data["train_images"], data["train_labels"]
    network = torch.nn.Sequential(
        torch.nn.Linear(images.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    )
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), rate, MOMENTUM)

    def accuracy(split: str) -> float:
        with torch.no_grad():
            chosen = network(data[f"{split}_images"]).argmax(1)
            return float((chosen == data[f"{split}_labels"]).float().mean())

    for _ in range(epochs):
        order = torch.randperm(len(images))
        for start in range(0, len(images) - batch_size + 1, batch_size):
            rows = order[start : start + batch_size]
            optimizer.zero_grad()
            loss_of(network(images[rows]), labels[rows]).backward()
            optimizer.step()
        validation = accuracy("validation")
    print(validation, accuracy("test"))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:]))
