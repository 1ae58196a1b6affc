"""`tensorbow init`: a small project to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.options import PathOption
from tensorbow.errors import AlreadyExistsError
from tensorbow.files import shown, write_file
from tensorbow.training import make_folder

MODEL = '''"""The model: what is trained."""

import tensorbow as tb


class Network:
    """Dense layers. The constructor's arguments are options: --model.hidden 64,64 --model.dropout 0.1."""

    def __init__(self, hidden: tuple[int, ...] = (32, 32), dropout: float = 0.0):
        self.hidden = hidden
        self.dropout = dropout

    def __call__(self, inputs, labels, training, classes, class_weights=None, label_smoothing=0.0):
        """The loss of a batch, the outputs to predict, and metrics: means of the batch, by name."""
        values = inputs
        for width in self.hidden:
            values = tb.layers.dense(values, width, activation=tb.nn.relu)
            values = tb.layers.dropout(values, self.dropout, training=training)
        logits = tb.layers.dense(values, classes)
        targets = (1 - label_smoothing) * tb.one_hot(labels, classes) + label_smoothing / classes
        losses = tb.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)
        if class_weights is not None:  # float32 [classes], of the option --class-weights
            losses *= tb.gather(class_weights, labels)
        right = tb.equal(tb.argmax(logits, 1), labels)
        return tb.reduce_mean(losses), logits, {"accuracy": tb.reduce_mean(tb.cast(right, tb.float32))}
'''

DATA = '''"""The data: inputs and labels to train and to test with."""

import numpy as np


def make_data():
    """(train, test), each (inputs, labels): points on two spirals, in random order."""
    return spirals(2000, seed=0), spirals(500, seed=1)


def spirals(count, seed):
    """Points float32 [count, 2], and the spiral that each is on, int64 [count]."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    turn = random.uniform(0.3, 1.0, count)
    angle = 2 * np.pi * (1.25 * turn + 0.5 * labels)
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return (points + random.normal(0, 0.02, points.shape)).astype(np.float32), labels
'''

CONFIG = """model: model.py:Network
model_options:
  hidden: [32, 32]
data: data.py:make_data
batch_size: 16
replicas_per_device: 2
learning_rate: 0.05
epochs: 20
"""

README = """# A model trained by TensorBow

`model.py` has the model, `data.py` the data, `config.yaml` the options. Options given on the command line
win. From this folder:

    tensorbow train --config config.yaml --output runs/first
    tensorbow train --config config.yaml --model.hidden 64,64 --replicas-per-gpu 4 --output runs/second
    tensorbow compare runs/first runs/second
    tensorbow evaluate runs/first
    tensorbow tune --config config.yaml

In a program:

    with tb.train.load_model("runs/first") as model:
        logits = model.predict(inputs)

Instead of a function, `data` may be a .npz, .csv or .parquet file, or a folder of pictures by class.
"""

FILES = {"model.py": MODEL, "data.py": DATA, "config.yaml": CONFIG, "README.md": README}


EXAMPLES = (
    ("init project", "Write model.py, data.py and config.yaml to the folder project."),
    ("init", "Write them to the current folder."),
)


@click.command(cls=grouped(EXAMPLES, click.Command))
@click.argument("folder", default=".", type=PathOption(path_type=Path))
def init(folder: Path) -> None:
    """Write a small project to FOLDER: a model, its data, and their options, ready to train.

    Nothing is overwritten. By default in the current folder.
    """
    for name in FILES:
        if (folder / name).exists():
            raise AlreadyExistsError(
                f"init: {shown(folder / name)} is there already; give another folder, as init project"
            )
    make_folder(folder)
    for name, text in FILES.items():
        write_file(folder / name, text.encode())
        click.echo(str(folder / name))
    here = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    click.echo(f"Train it:\n  {here}tensorbow train --config config.yaml")
