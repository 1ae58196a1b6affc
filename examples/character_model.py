"""A recurrent network that continues a text, letter by letter, trained by four replicas.

    python examples/character_model.py

The network is a gated recurrent unit, unrolled over 24 letters when the step is built.
"""

import codecs
import contextlib
import io
from collections.abc import Iterator

import numpy as np

import tensorbow as tb

with contextlib.redirect_stdout(io.StringIO()):
    import this  # the Zen of Python
TEXT = codecs.decode(this.s, "rot13").lower()
LETTERS = sorted(set(TEXT))
NUMBERS = np.array([LETTERS.index(letter) for letter in TEXT])
LENGTH, UNITS = 24, 96


def input_fn(replica_id: int) -> Iterator[np.ndarray]:
    """Pieces of the text as numbers [16, LENGTH + 1]."""
    rng = np.random.default_rng(replica_id)
    while True:
        starts = rng.integers(0, len(NUMBERS) - LENGTH - 1, 16)
        yield NUMBERS[starts[:, None] + np.arange(LENGTH + 1)]


def cell(letters: tb.Tensor, state: tb.Tensor) -> tuple[tb.Tensor, tb.Tensor]:
    """Logits of the next letters [batch, letters] and the new state [batch, UNITS]."""
    with tb.variable_scope("cell", reuse=tb.AUTO_REUSE):
        inputs = tb.one_hot(letters, len(LETTERS))
        gates = tb.layers.dense(tb.concat([inputs, state], 1), 2 * UNITS, tb.nn.sigmoid, name="gates")
        reset, keep = tb.split(gates, 2, 1)
        new = tb.layers.dense(tb.concat([inputs, reset * state], 1), UNITS, tb.nn.tanh, name="candidate")
        state = keep * state + (1 - keep) * new
        return tb.layers.dense(state, len(LETTERS), name="logits"), state


def step_fn(pieces: tb.Tensor) -> tb.Tensor:
    """One update; returns the mean cross-entropy of the letters."""
    state, losses = tb.zeros([16, UNITS]), []
    for n in range(LENGTH):
        logits, state = cell(pieces[:, n], state)
        losses.append(tb.nn.sparse_softmax_cross_entropy_with_logits(labels=pieces[:, n + 1], logits=logits))
    loss = tb.reduce_mean(tb.stack(losses))
    with tb.control_dependencies([optimizer.minimize(loss)]):
        return tb.identity(loss)


replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas_per_gpu=4)
with replicator.context():
    tb.set_random_seed(0)
    optimizer = replicator.wrap_optimizer(tb.train.AdamOptimizer(0.01))
losses = np.mean(list(replicator.train(step_fn, input_fn, steps=200))[-5:])

with tb.Graph().as_default(), tb.Session() as session:
    letter, before = tb.placeholder(tb.int64, [1]), tb.placeholder(tb.float32, [1, UNITS])
    logits, after = cell(letter, before)
    values = replicator.central_values()
    session.load_variables({v.op.name: values[v.op.name] for v in tb.trainable_variables()})
    text, state = "beautiful is ", np.zeros([1, UNITS], np.float32)
    for n in range(60):
        if n < len(text):
            next_logits, state = session.run(
                [logits, after], {letter: [LETTERS.index(text[n])], before: state}
            )
        if n + 1 >= len(text):
            text += LETTERS[int(next_logits.argmax())]
print(repr(text))
print(f"loss: {losses:.3f}")
