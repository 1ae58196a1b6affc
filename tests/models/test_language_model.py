"""LSTM language model: parts of its tables, and losses over samples of the words."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Trainer, TrainingConfig
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import LSTMLanguageModel

pytestmark = pytest.mark.usefixtures("reference_kernels")
WORDS = 30


def built(model, training=True, **more):
    tokens, labels = (tb.placeholder(tb.int32, [None, 4], name=name) for name in ("tokens", "labels"))
    return (tokens, labels), model(tokens, labels, training, WORDS, **more)


def feeds(placeholders):
    draw = np.random.default_rng(0)
    return {each: draw.integers(0, WORDS, (3, 4)) for each in placeholders}


def test_parts_compute_what_the_whole_does():
    """The logits of tables in three parts are those of one part that has the parts' rows."""
    found = []
    values = {
        "words/embedding": np.random.default_rng(1).normal(size=(WORDS, 8)),
        "softmax/weights": np.random.default_rng(2).normal(size=(WORDS, 8)),
    }
    for shards in (1, 3):
        with tb.Graph().as_default(), tb.Session() as session:
            tb.set_random_seed(1)
            given, outputs = built(LSTMLanguageModel(8, 1, shards=shards))
            names = [v.op.name for v in tb.global_variables()]
            assert ("words/embedding/part_2" in names) == (shards == 3)
            session.run(tb.global_variables_initializer())
            drawn = {v.op.name: v for v in tb.global_variables() if "lstm" in v.op.name}
            for name, value in values.items():
                parts = [v for v in tb.global_variables() if v.op.name.startswith(name)]
                for part, rows in zip(parts, np.array_split(value, shards), strict=True):
                    session.run(part.assign(rows.astype(np.float32)))
            for number, variable in enumerate(drawn.values()):
                fixed = np.random.default_rng(number).normal(size=variable.shape.as_list())
                session.run(variable.assign(fixed.astype(np.float32)))
            loss, logits, *gradients = session.run(
                [outputs.loss, outputs.outputs, *tb.gradients(outputs.loss, list(drawn.values()))],
                feeds(given),
            )
            assert logits.shape == (3, 4, WORDS)
            found.append([loss, logits, *gradients])
    for one, three in zip(*found, strict=True):
        np.testing.assert_allclose(one, three, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("softmax", ["sampled", "nce"])
def test_a_sample_of_the_words_is_for_training_alone(softmax):
    with tb.Graph().as_default(), tb.Session() as session:
        tb.set_random_seed(1)
        model = LSTMLanguageModel(8, 1, softmax=softmax, num_sampled=12, shards=2)
        given, outputs = built(model)
        assert outputs.outputs is None
        assert not outputs.metrics
        with tb.variable_scope("", reuse=True):
            evaluated = model(*given, False, WORDS)
        gradients = tb.gradients(outputs.loss, tb.trainable_variables())
        assert sum(isinstance(g, tb.IndexedSlices) for g in gradients) >= 4  # of the parts of both tables
        session.run(tb.global_variables_initializer())
        before = session.run(evaluated.loss, feeds(given))
        step = tb.train.AdamOptimizer(0.05).minimize(outputs.loss)
        slots = [v for v in tb.global_variables() if v not in tb.trainable_variables()]
        session.run(tb.variables_initializer(slots))
        for _ in range(60):
            session.run(step, feeds(given))
        assert session.run(evaluated.loss, feeds(given)) < 0.7 * before
    with (
        tb.Graph().as_default(),
        pytest.raises(InvalidArgumentError, match="expected no label_smoothing with softmax="),
    ):
        built(model, label_smoothing=0.1)
    with tb.Graph().as_default():
        tokens = tb.placeholder(tb.int32, [None, 4])
        with pytest.raises(InvalidArgumentError, match="classes, the size of the vocabulary"):
            model(tokens, tokens, True)


def test_products_with_the_parts_are_where_the_parts_are():
    with tb.Graph().as_default() as graph:
        with tb.device(lambda op: "/cpu:1" if "part_1" in op.name else "/cpu:0"):
            built(LSTMLanguageModel(8, 1, shards=2))
        products = [op for op in graph.get_operations() if op.type == "MatMul" and op.colocation]
        places = [op.colocation[0].name for op in products]
        assert places == ["softmax/weights/part_0", "softmax/weights/part_1"]


@pytest.mark.slow
def test_the_trainer_trains_it_by_a_sample(tmp_path):
    train, test = tb.data.make_word_text(200, 16_000, 2_000, steps=10)
    config = TrainingConfig(
        model="lstm-lm",
        model_options={"units": 24, "depth": 1, "softmax": "sampled", "num_sampled": 40, "shards": 2},
        learning_rate=0.02,
        epochs=7,  # 39 for seed 0, 42 for seed 1, where the frequencies give 55
        output=str(tmp_path / "run"),
    )
    with Trainer(config, data=(train, test)) as trainer:
        trainer.train()
    with tb.train.load_model(tmp_path / "run") as model:
        perplexity = np.exp(model.evaluate(test).loss)
    shares = np.bincount(train.labels.ravel(), minlength=200) / train.labels.size
    of_frequencies = np.exp(-np.log(np.maximum(shares, 1e-6))[test.labels.ravel()].mean())
    assert perplexity < 0.8 * of_frequencies
