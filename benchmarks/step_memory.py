"""What a training step needs of memory: planned peak against the lower bound, and what it allocates.

    python benchmarks/step_memory.py [--json FILE]

`allocated` is what NumPy and Python allocate while bound segments run, once they are warm: the largest
growth that tracemalloc sees in 20 launches. A tensor-sized figure there would be a fault.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from pathlib import Path

import numpy as np

import tensorbow as tb
from scheduler import build_program
from tensorbow.compiler import Binding, VariableLayout
from tensorbow.data import make_synthetic
from tensorbow.devices import get_device
from tensorbow.kernels import backend_for
from tensorbow.models import get_model
from tensorbow.runtime import Container

CASES = (("logreg", 16), ("lenet", 4), ("lenet", 16), ("lenet", 32))


def measure(model: str, batch_size: int) -> dict[str, float | int | str]:
    data, _ = make_synthetic(train_examples=64, test_examples=10)
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(1)
        program = build_program(get_model(model), data, 0.9, 0.01, 0.0)
    layout = VariableLayout.of_graph(graph)
    device = get_device("/cpu:0")
    executable = program.compile(program.specs(batch_size), layout, backend_for(device), 0)
    group = device.stream_group(f"step memory {model} {batch_size}")
    container = Container(group)
    container.grow(layout.variables)
    container.load(program.initial_values())
    binding = Binding(executable, group, container.bases)
    batch = data.batch(np.arange(batch_size))
    binding.write(dict(zip(executable.inputs, batch, strict=True)), {})

    def step() -> None:
        for segment in range(len(executable.segments)):
            binding.plan.launch(segment)

    for _ in range(3):
        step()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(20):
        step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    binding.close()
    container.close()
    group.close()
    return {
        "model": model,
        "batch_size": batch_size,
        "peak_nbytes": executable.peak_nbytes,
        "lower_bound_nbytes": executable.lower_bound_nbytes,
        "overhead": executable.peak_nbytes / executable.lower_bound_nbytes - 1,
        "allocated_nbytes": peak - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    rows = [measure(model, batch_size) for model, batch_size in CASES]
    for row in rows:
        print(
            f"{row['model']:7} b={row['batch_size']:<3} slab {row['peak_nbytes']:>10,} bytes, lower bound "
            f"{row['lower_bound_nbytes']:>10,} (+{row['overhead']:.1%}), "
            f"allocated in a step {row['allocated_nbytes']:,}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
