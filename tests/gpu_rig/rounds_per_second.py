"""Prints the rounds per second of several replicas of LeNet side by side, batches of 4, not averaged.

python -m tests.gpu_rig.rounds_per_second REPLICAS
"""

from __future__ import annotations

import sys
import time

from tensorbow.devices import GpuDevice
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import is_emulated, real_runtime
from tests.scheduler_rig.running import Prepared, engine_of

WARM_ROUNDS = 3


def main(replicas: int) -> None:
    """Prints the figure as the last word."""
    runtime = real_runtime()
    rounds = 3 if is_emulated(runtime) else 500
    model = classifier("lenet", batch_size=4)
    batch = model.batch(0, 0)
    with engine_of(model, [GpuDevice("/gpu:0", runtime)], replicas, sync="none") as engine:
        source = Prepared(lambda round, replica: batch, replicas)
        engine.run(source.open, 0, WARM_ROUNDS)
        started = time.perf_counter()
        engine.run(source.open, WARM_ROUNDS, WARM_ROUNDS + rounds)
        print(rounds / (time.perf_counter() - started))


if __name__ == "__main__":
    main(int(sys.argv[1]))
