"""Names in error messages: lists of them, and what may be meant by one that is missing, or PyTorch's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from tensorbow.tensorflow_names import TENSORFLOW_NAMES

ALIKE = 0.75  # difflib's ratio above which names of a module are suggested

_GRAPHS = "programs are graphs: build one of tb.placeholder and tb.Variable, and run it in a tb.Session"
_QUANTIZED = "integers of 8 to 32 bits are tb.int8, tb.uint8, tb.int16, tb.uint16 and tb.int32"
_MODELS = "tb.layers, tb.nn and tb.train have layers, operations, optimisers; tb.Trainer trains whole models"
_PRINT = "write tb.Print, or fetch the tensor by session.run and print it"
_QUEUES = "the queues are tb.FIFOQueue, tb.RandomShuffleQueue, tb.PriorityQueue and tb.PaddingFIFOQueue"
_CELLS = "tb.nn.dynamic_rnn builds a layer of cells"
# Names of PyTorch, by what does the same here.
_OF_PYTORCH = {
    "nn.Linear": "tb.layers.dense(x, m)",
    "nn.BatchNorm1d": "tb.layers.batch_normalization(x, training=training)",
    "nn.BatchNorm2d": "tb.layers.batch_normalization(x, training=training)",
    "nn.Conv1d": "tb.layers.conv1d(x, filters, size)",
    "nn.Conv2d": "tb.layers.conv2d(x, filters, size), on [batch, height, width, channels]",
    "nn.Dropout": "tb.layers.dropout(x, rate, training=training)",
    "nn.Embedding": "tb.layers.embedding(x, n, m)",
    "nn.Flatten": "tb.layers.flatten(x)",
    "nn.GELU": "tb.nn.gelu(x)",
    "nn.GRU": "tb.nn.dynamic_rnn(tb.nn.rnn_cell.GRUCell(m, reset_after=True), x)",
    "nn.GroupNorm": "tb.layers.group_normalization(x, groups)",
    "nn.LSTM": "tb.nn.dynamic_rnn(tb.nn.rnn_cell.LSTMCell(m), x)",
    "nn.LayerNorm": "tb.layers.layer_normalization(x)",
    "nn.MaxPool2d": "tb.layers.max_pooling2d(x, size, strides)",
    "nn.MultiheadAttention": "tb.layers.multi_head_attention(x, num_heads=heads)",
    "nn.ReLU": "tb.nn.relu(x)",
    "nn.Sequential": "tb.layers.sequential",
    "nn.CrossEntropyLoss": "tb.nn.sparse_softmax_cross_entropy_with_logits",
    "nn.BCEWithLogitsLoss": "tb.losses.sigmoid_cross_entropy",
    "nn.MSELoss": "tb.losses.mean_squared_error",
    "nn.group_norm": "tb.layers.group_normalization(x, groups)",
    "train.Adam": "tb.train.AdamOptimizer",
    "train.AdamW": "tb.train.AdamWOptimizer",
    "train.SGD": "tb.train.MomentumOptimizer or tb.train.GradientDescentOptimizer",
    "losses.mse": "tb.losses.mean_squared_error",
    "losses.cross_entropy": "tb.losses.sparse_softmax_cross_entropy",
    "optim": "tb.train, as tb.train.AdamOptimizer(rate).minimize(loss)",
}
_TORCH_PAGE = "docs/tutorials/from_pytorch.md says what is called how"
INSTEAD = {
    **{name: f"write {text}" for name, text in _OF_PYTORCH.items()},
    **dict.fromkeys(
        ("nn.Module", "Module"), f"a model is a function or class (inputs, labels, training); {_TORCH_PAGE}"
    ),
    "no_grad": "session.run computes gradients only where the graph has them: leave it out",
    "cuda": "devices are named, as tb.MultiGpuReplicator(num_gpus=1) or tb.device('/gpu:0') do",
    "jit": "each step is compiled once, when it first runs",
    "vmap": 'replicas that do not average are independent: tb.MultiGpuReplicator(..., sync="none")',
    "compat": "the names of TensorFlow 1 are tensorbow's own: write tb.Session for tf.compat.v1.Session",
    "contrib": "tb.nn.rnn_cell has its cells, tb.layers normalizations and regularizers, "
    "tb.initializers Xavier's, tb.train ScipyOptimizerInterface, tb.lookup tables; other experiments are not "
    "there",
    "Dataset": "write tb.data.Dataset",
    "evaluate": "session.run evaluates tensors, tb.run_reference_kernel one op",
    **dict.fromkeys(("qint8", "quint8", "qint16", "quint16", "qint32"), _QUANTIZED),
    "queue": _QUEUES,
    "GradientTape": f"{_GRAPHS}; tb.gradients differentiates",
    "distribute": "a tb.MultiGpuReplicator or tb.TensorBowSession trains several replicas of one program",
    "enable_eager_execution": _GRAPHS,
    "estimator": _MODELS,
    "function": _GRAPHS,
    "keras": _MODELS,
    "mul": "write tb.multiply",
    "numpy_function": "write tb.py_func",
    "print": _PRINT,
    "py_function": "write tb.py_func",
    "sub": "write tb.subtract",
    "top_k": "write tb.nn.top_k",
    "variable_op_scope": "write tb.variable_scope",
    "op_scope": "write tb.name_scope",
    "Dimension": "tb.TensorShape has whole numbers and None; extents of x.get_shape() have .value",
    "AggregationMethod": "gradients are always added up; leave aggregation_method out",
    **dict.fromkeys(("nn.lstm", "layers.lstm", "layers.LSTM"), f"{_CELLS}, of tb.nn.rnn_cell.LSTMCell"),
    **dict.fromkeys(("nn.gru", "layers.gru", "layers.GRU"), f"{_CELLS}, of tb.nn.rnn_cell.GRUCell"),
}


LONGEST_NAME = 100  # characters; difflib takes long for long texts


def listed(texts: Sequence[str], most: int = 3) -> str:
    """Texts with commas between; of more than `most` the first ones, and how many more there are."""
    rest = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{rest}"


def did_you_mean(name: str, names: Iterable[str], most: int = 1, before: str = "", alike: float = 0.6) -> str:
    """`; did you mean X?` for the names most similar to a missing one, or "" if none is.

    most: number of names. before: put in front of each. alike: difflib's least ratio. A text that is longer
    than names are is like none.
    """
    near = get_close_matches(name, [*names], most, alike) if len(name) <= LONGEST_NAME else []
    return f"; did you mean {', '.join(f'{before}{each}' for each in near)}?" if near else ""


def no_attribute(name: str, names: Collection[str], module: str = "tensorbow") -> AttributeError:
    """The error for a name that a module lacks; names: the module's names, for suggestions."""
    text = f"module {module!r} has no attribute {name!r}"
    path = f"{module}.{name}".removeprefix("tensorbow.")
    if path in INSTEAD:
        text = f"{text}: {INSTEAD[path]}"
    elif f"nn.{name}" in names:
        text = f"{text}: write tb.nn.{name}"
    elif path in TENSORFLOW_NAMES:
        text = f"{text}: TensorFlow 1's tf.{path} is not there"
    elif not name.startswith("_") and (
        close := get_close_matches(name, names, 1, _alike(name)) or _longer(name, names)
    ):
        text = f"{text}; did you mean {f'{module}.{close[0]}'.replace('tensorbow', 'tb', 1)}?"
    return AttributeError(text)


def _alike(name: str) -> float:
    """Least ratio of similar names: of a short one a letter may differ, but not a third of its letters."""
    return max(ALIKE, 1 - 1.2 / max(len(name), 1)) if len(name) < 6 else ALIKE


def _longer(name: str, names: Collection[str]) -> list[str]:
    """The names that begin with a long one, as layer_normalization with layer_norm."""
    return sorted(each for each in names if len(name) > 5 and each.startswith(name))
