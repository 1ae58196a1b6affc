"""Images per second of the CPU backend beside PyTorch eager, on the same number of threads.

    TENSORBOW_CPU=native|reference python benchmarks/cpu_backend.py [--seconds 4] [--windows 5] [--json FILE]

Both sides train: forward, softmax cross-entropy, backward, momentum SGD, batches gathered from memory.
Windows of the contestants alternate, so that a slow spell of the machine hits all of them; the table
gives medians. Threads: ours, one per replica; PyTorch, `torch.set_num_threads` of as many.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, Synchronisation, build_program
from tensorbow.data import Dataset, make_synthetic
from tensorbow.kernels.backends import backend_of_kind
from tensorbow.models import get_model

CASES = (("lenet", 4), ("lenet", 16), ("lenet", 32), ("logreg", 16))
REPLICAS = (1, 2)

Window = Callable[[float], float]
"""Trains for about so many seconds; returns images per second."""


def ours(model: str, batch_size: int, replicas: int, sync: str, data: Dataset) -> Window:
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(1)
        program = build_program(get_model(model), data, 0.9, 0.01, 0.0)
    engine = LearningEngine(
        program, batch_size, replicas_per_device=replicas, synchronisation=Synchronisation(sync)
    )
    engine.initialize()
    batches = DatasetBatches(data, batch_size, replicas, seed=1, depth=4)
    position, per_second = 0, 50.0

    def window(seconds: float) -> float:
        nonlocal position, per_second
        rounds = max(4, int(per_second * seconds))
        started = time.perf_counter()
        engine.run(batches.open, position, position + rounds)
        elapsed = time.perf_counter() - started
        position += rounds
        per_second = rounds / elapsed
        return rounds * replicas * batch_size / elapsed

    return window


def pytorch(model: str, batch_size: int, threads: int, data: Dataset) -> Window | None:
    try:
        import torch
    except ImportError:
        return None
    from torch import nn

    torch.manual_seed(1)
    if model == "logreg":
        network: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    else:
        network = nn.Sequential(
            nn.Conv2d(1, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Linear(1024, 10),
        )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    pictures, answers = data.batch()
    images = torch.from_numpy(pictures.transpose(0, 3, 1, 2).copy())
    labels = torch.from_numpy(answers)
    generator = np.random.default_rng(1)

    def window(seconds: float) -> float:
        torch.set_num_threads(threads)
        steps, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            chosen = torch.from_numpy(generator.integers(0, len(data), batch_size))
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            steps += 1
        return steps * batch_size / (time.perf_counter() - started)

    return window


def measure(contestants: dict[str, Window], seconds: float, windows: int) -> dict[str, float]:
    for window in contestants.values():
        window(min(seconds, 1.0))  # warm up
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(windows):
        for name, window in contestants.items():
            rates[name].append(window(seconds))
    return {name: statistics.median(values) for name, values in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a window")
    parser.add_argument("--windows", type=int, default=5, help="windows per contestant")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    backend = type(backend_of_kind("cpu")).__name__
    print(backend)
    data, _ = make_synthetic()
    rows = []
    for model, batch_size in CASES:
        for replicas in REPLICAS:
            contestants: dict[str, Window] = {}
            for sync in ("sma", "none") if replicas > 1 else ("none",):
                contestants[f"ours, {sync}"] = ours(model, batch_size, replicas, sync, data)
            peer = pytorch(model, batch_size, replicas, data)
            if peer is not None:
                contestants["PyTorch eager"] = peer
            rates = measure(contestants, options.seconds, options.windows)
            best = max(rate for name, rate in rates.items() if name.startswith("ours"))
            row = {"model": model, "batch_size": batch_size, "threads": replicas, "images_per_second": rates}
            if peer is not None:
                row["ratio"] = best / rates["PyTorch eager"]
            rows.append(row)
            figures = "  ".join(f"{name} {rate:9,.0f}" for name, rate in rates.items())
            print(f"{model:7} b={batch_size:<3} threads={replicas}  {figures}", flush=True)
    if options.json is not None:
        machine = f"{platform.machine()} {platform.processor()}".strip()
        described = {"backend": backend, "machine": machine, "rows": rows}
        described |= {"python": platform.python_version(), "numpy": np.__version__}
        options.json.write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    main()
