"""What TensorFlow 1 has and TensorBow has not: what to write in its place, for who looks for it."""

from __future__ import annotations

from difflib import get_close_matches

_GRAPHS = "programs are graphs: build one of tb.placeholder and tb.Variable, and run it in a tb.Session"
_LOOPS = "graphs have no loops: compute on whole tensors, unroll it in Python, or loop over session.run"
_CHOICE = "tb.where(condition, x, y) chooses element by element, of two results that are both computed"
_OPTIONS = "a tb.Session takes its options by name, see help(tb.Session)"
_MODELS = "tb.layers, tb.nn and tb.train have layers, operations, optimisers; tb.Trainer trains whole models"
_LOGS = "a Trainer's metrics.jsonl has its figures; session.run fetches any tensor"
INSTEAD = {
    "GradientTape": f"{_GRAPHS}; tb.gradients differentiates",
    "Print": "fetch the tensor by session.run and print it",
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
    "numpy_function": "tb.define_op makes an operation of a NumPy function of yours",
    "placeholder_with_default": "feed_dict takes any tensor of the graph, not placeholders alone",
    "print": "fetch the tensor by session.run and print it",
    "py_func": "tb.define_op makes an operation of a NumPy function of yours",
    "py_function": "tb.define_op makes an operation of a NumPy function of yours",
    "scan": _LOOPS,
    "sub": "write tb.subtract",
    "summary": _LOGS,
    "to_float": "write tb.cast(x, tb.float32)",
    "to_int32": "write tb.cast(x, tb.int32)",
    "while_loop": _LOOPS,
}


def no_attribute(name: str, names: list[str]) -> AttributeError:
    """The error for a name that the library has not; names: those that it has."""
    text = f"module 'tensorbow' has no attribute {name!r}"
    if name in INSTEAD:
        text = f"{text}: {INSTEAD[name]}"
    elif not name.startswith("_") and (close := get_close_matches(name, names, 1)):
        text = f"{text}; did you mean tb.{close[0]}?"
    return AttributeError(text)
