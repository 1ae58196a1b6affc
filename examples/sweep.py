"""A sweep: sixteen networks with learning rates and seeds of their own, trained side by side, and the best.

python examples/sweep.py [FOLDER]
"""

import sys
import tempfile

import numpy as np

import tensorbow as tb

result = tb.sweep(
    "mlp",
    "digits",
    grid={"learning_rate": [0.002, 0.005, 0.02, 0.05]},
    seeds=4,  # of each learning rate
    epochs=3,
    output=(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()) + "/sweep",
    ensemble=True,  # of the best eight
    keep=16,
    progress=False,
)
for summary in result.summaries:  # the best first
    rate, own = summary.choices["learning_rate"], [f"{value:.3f}" for value in summary.values]
    print(f"learning rate {rate:g}: mean accuracy {summary.mean:.3f} on validation data, seeds {own}")

best = result.best
print(f"best member: number {best.number}, learning rate {best.choices['learning_rate']:g}, seed {best.seed}")
_, test = tb.data.load("digits")
with result.model() as model, result.ensemble() as ensemble:
    print(f"accuracy of the best member: {model.evaluate(test).accuracy:.3f}")
    print(f"accuracy of the mean of all: {ensemble.evaluate(test).accuracy:.3f}")

# Each member has the bits of its run alone.
options = {**best.choices, "seed": best.seed, "validation_split": 0.1}
with tb.fit("mlp", "digits", replicas=1, epochs=3, progress=False, **options) as alone:
    weights = result.values(best.number)
    print(
        f"the same bits alone: {all(np.array_equal(alone.values[name], weights[name]) for name in weights)}"
    )
print(f"results, curves and pictures are in {result.folder}")
