"""Test accuracy of the defaults, over seeds: LeNet on digits, and on MNIST where its files are.

    python benchmarks/accuracy.py [--seeds 5] [--data-dir DIR] [--json FILE]

`--data-dir` (or TENSORBOW_DATA) is where the MNIST files lie; without them that part is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from scheduler import Trainer, TrainingConfig
from tensorbow.errors import NotFoundError

CASES = (
    {"dataset": "digits"},
    {"dataset": "mnist", "epochs": 2, "replicas_per_device": 2},
    {"dataset": "mnist", "epochs": 2, "replicas_per_device": 4},
)


def measure(options: dict[str, object], seeds: int, data_dir: str | None) -> dict[str, object]:
    results = []
    for seed in range(seeds):
        config = TrainingConfig.from_dict({**options, "seed": seed, "data_dir": data_dir})
        with Trainer(config) as trainer:
            results.append(trainer.train())
    accuracies = [result.test_accuracy for result in results]
    return {
        "model": results[0].model,
        "dataset": results[0].dataset,
        "replicas": results[0].replicas,
        "batch_size": results[0].batch_size,
        "epochs": results[0].epochs,
        "test_accuracies": accuracies,
        "median": statistics.median(a for a in accuracies if a is not None),
        "median_seconds": statistics.median(result.seconds for result in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs of each case")
    parser.add_argument("--data-dir", help="where MNIST's files lie")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        try:
            row = measure(case, options.seeds, options.data_dir if case["dataset"] == "mnist" else None)
        except NotFoundError as error:
            print(f"left out: {error}")
            continue
        rows.append(row)
        accuracies = ", ".join(f"{a:.2%}" for a in row["test_accuracies"])
        print(
            f"{row['model']} on {row['dataset']:6} {row['replicas']} x {row['batch_size']}, "
            f"{row['epochs']:g} epochs: median {row['median']:.2%} ({accuracies}), "
            f"{row['median_seconds']:.0f} s",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
