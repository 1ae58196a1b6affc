"""Names of TensorFlow 1 that TensorBow lacks, with what to use instead, for error messages."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

ALIKE = 0.75  # difflib's ratio above which names are suggested

_GRAPHS = "programs are graphs: build one of tb.placeholder and tb.Variable, and run it in a tb.Session"
_LOOPS = "graphs have no loops: compute on whole tensors, unroll it in Python, or loop over session.run"
_CHOICE = "tb.where(condition, x, y) chooses element by element, of two results that are both computed"
_OPTIONS = "a tb.Session takes its options by name, see help(tb.Session)"
_MODELS = "tb.layers, tb.nn and tb.train have layers, operations, optimisers; tb.Trainer trains whole models"
_LOGS = "a Trainer's metrics.jsonl has its figures; session.run fetches any tensor"
_OWN = "tb.define_op makes an operation of a NumPy function of yours"
_PRINT = "fetch the tensor by session.run and print it"
_QUEUES = "tb.DatasetBatches fills batches ahead of use, a Replicator's input_fn gives them"
_CHECKS = "tb.LearningEngine and tb.Trainer stop at NaN and infinity, and name the operation"
_ARGUMENTS = "Python's own argparse, logging and pathlib do that"
INSTEAD = {
    "app": _ARGUMENTS,
    "check_numerics": _CHECKS,
    "compat": "the names of TensorFlow 1 are tensorbow's own: write tb.Session for tf.compat.v1.Session",
    "contrib": "there is no collection of experiments",
    "flags": _ARGUMENTS,
    "float16": "dtypes are tb.float32, tb.float64, tb.int32, tb.int64, tb.uint8 and tb.bool",
    "gfile": _ARGUMENTS,
    "logging": _ARGUMENTS,
    "losses": "tb.nn has losses by example; take their mean by tb.reduce_mean",
    "queue": _QUEUES,
    "FIFOQueue": _QUEUES,
    "train.Supervisor": "write tb.train.MonitoredSession, or let a tb.Trainer train",
    "GradientTape": f"{_GRAPHS}; tb.gradients differentiates",
    "Print": _PRINT,
    "InteractiveSession": "write `with tb.Session() as session:`",
    "ConfigProto": _OPTIONS,
    "GPUOptions": _OPTIONS,
    "case": _CHOICE,
    "cond": _CHOICE,
    "distribute": "a tb.MultiGpuReplicator or tb.TensorBowSession trains several replicas of one program",
    "enable_eager_execution": _GRAPHS,
    "estimator": _MODELS,
    "foldl": _LOOPS,
    "foldr": _LOOPS,
    "function": _GRAPHS,
    "initialize_all_variables": "write tb.global_variables_initializer()",
    "keras": _MODELS,
    "map_fn": _LOOPS,
    "mul": "write tb.multiply",
    "numpy_function": _OWN,
    "placeholder_with_default": "feed_dict takes any tensor of the graph, not placeholders alone",
    "print": _PRINT,
    "py_func": _OWN,
    "py_function": _OWN,
    "scan": _LOOPS,
    "sub": "write tb.subtract",
    "summary": _LOGS,
    "to_float": "write tb.cast(x, tb.float32)",
    "to_int32": "write tb.cast(x, tb.int32)",
    "while_loop": _LOOPS,
}


def no_attribute(name: str, names: Collection[str], module: str = "tensorbow") -> AttributeError:
    """The error for a name that a module lacks; names: the module's names, for suggestions."""
    text = f"module {module!r} has no attribute {name!r}"
    path = f"{module}.{name}".removeprefix("tensorbow.")
    if path in INSTEAD:
        text = f"{text}: {INSTEAD[path]}"
    elif not name.startswith("_") and (close := get_close_matches(name, names, 1, ALIKE)):
        text = f"{text}; did you mean {f'{module}.{close[0]}'.replace('tensorbow', 'tb', 1)}?"
    return AttributeError(text)
